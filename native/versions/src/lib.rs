//! Versions of disks: content-addressed blocks in packs, and trees of map nodes that share what did not change.
//!
//! Files in, files out. What the store's files are called, in which order they become durable and which of them count is decided by who
//! calls; here are their formats and everything that touches every block.
//!
//! * [`pack`]: blocks in packs, their indexes; [`map`] and [`tree`]: where a version's blocks are; [`base`]: names of a base image's blocks.
//! * [`disk`]: what has to be read of a disk, by the tables of its qcow2 file.
//! * [`scan`] and [`save`]: what changed, and making it a version; [`journal`]: going on with that after a crash; [`restore`]: the way back; [`check`]: is all still there, and what can go.
//!
//! Nothing here trusts a length, an offset or a count that it reads from a file before it is checked.

pub mod base;
pub mod check;
pub mod codec;
pub mod crypt;
pub mod disk;
mod error;
pub mod journal;
pub mod map;
pub mod pack;
pub mod restore;
pub mod save;
pub mod scan;
pub mod scan_state;
pub mod store;
pub mod tree;

pub use error::{Result, VersionsError};
