//! `diffcached`: serves files over FUSE that are still arriving.
//!
//! Two processes. The [`keeper`] mounts the file system and holds the FUSE descriptor and the [`shared`] memory; the [`worker`] has no
//! capabilities and answers the requests. When a worker dies, the keeper starts the next, which first answers the requests that it finds in the
//! shared memory: reads of an immutable file may be answered twice, so no request is lost.
//!
//! * [`lazy_file`] serves ranges: from the [`leaves`] that are on the local disk, or else by one fetch per chunk from a [`source`].
//! * [`prefetch`] fetches what is going to be read; [`record`] notes what was.
//! * [`filesystem`] is the directory with that one file, for the dispatcher of `fuse-backend-rs`.

pub mod config;
pub mod error;
pub mod filesystem;
pub mod hydration;
pub mod keeper;
pub mod lazy_file;
pub mod leaves;
pub mod prefetch;
pub mod profile;
pub mod record;
pub mod shared;
pub mod signals;
pub mod source;
pub mod status;
#[cfg(test)]
mod tests;
pub mod worker;
