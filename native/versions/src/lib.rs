//! Versions of disks: content-addressed blocks in packs, and trees of map nodes that share what did not change.
//!
//! Files in, files out. The caller decides on the names of the store's files, on the order in which they become durable, and on which of them
//! count; here are their formats and everything that touches every block.
//!
//! * [`store`]: blocks in packs ([`store::pack_index`], [`store::frames`], [`store::pack_set`]); where a version's blocks are ([`store::nodes`],
//!   [`store::map`], [`store::tree`]); names of a base image's blocks ([`store::base`]); verification, and compaction ([`store::check`]).
//! * [`save`]: saving a disk, of which [`save::disk`] says what has to be read, and which [`save::scan`] compares with a version;
//!   [`save::groups`]: blocks that are stored again; [`save::spool`]: new blocks before they are in packs; [`save::journal`]: resuming after a crash;
//!   [`save::compare`]: what differs.
//! * [`restore`]: to new files; [`restore::in_place`]: writing what differs to a disk, also through [`restore::nbd`]; [`restore::content`]: a version
//!   as a source of bytes, and [`restore::manifest`]: its manifest, of which most follows from another version's.
//!
//! Nothing here trusts a length, an offset or a count that it reads from a file before it is checked.

mod error;
pub mod restore;
pub mod save;
pub mod store;

pub use error::{Result, VersionsError};
