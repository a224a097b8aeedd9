//! Versions of disks: content-addressed blocks in packs, and trees of map nodes that share what did not change.
//!
//! Files in, files out. The caller decides on the names of the store's files, on the order in which they become durable, and on which of them
//! count; here are their formats and everything that touches every block.
//!
//! * [`pack`]: blocks in packs, their indexes; [`map`] and [`tree`]: where a version's blocks are; [`base`]: names of a base image's blocks.
//! * [`disk`]: what has to be read of a disk, by the tables of its qcow2 file.
//! * [`save`]: saving a disk, which [`scan`] compares with a version; [`groups`]: blocks that are stored again; [`spool`]: new blocks before
//!   they are in packs; [`journal`]: resuming after a crash.
//! * [`content`]: a version as a source of bytes, and [`manifest`]: its manifest, of which most follows from another version's.
//! * [`restore`]: to new files; [`compare`] and [`in_place`]: what differs, and writing that to a disk, also through [`nbd`].
//! * [`check`]: verification, and compaction of packs and maps.
//!
//! Nothing here trusts a length, an offset or a count that it reads from a file before it is checked.

pub mod base;
pub mod check;
pub mod codec;
pub mod compare;
pub mod content;
pub mod crypt;
pub mod disk;
mod error;
pub mod groups;
pub mod in_place;
pub mod journal;
pub mod manifest;
pub mod map;
pub mod nbd;
pub mod pack;
pub mod restore;
pub mod save;
pub mod scan;
pub mod scan_state;
pub mod spool;
pub mod store;
pub mod tree;

pub use error::{Result, VersionsError};
