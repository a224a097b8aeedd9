//! `diffcached`: serves files over FUSE that are still arriving.
//!
//! Two processes. The [`keeper`] mounts the file system and holds the FUSE descriptor and the [`shared`] memory; the [`worker`] has no
//! capabilities and answers the requests. When a worker dies, the keeper starts the next, which first answers the requests that it finds in the
//! shared memory: reads of an immutable file may be answered twice, so no request is lost.
//!
//! * [`lazy_file`] serves ranges: from the [`leaves`] that are on the local disk, or else by one fetch ([`flights`]) per chunk from the [`sources`]: its [`homes`] at the site, files, HTTP servers, [`peer`]s, saved [`version`]s and [`local`] processes.
//! * A read waits for its leaves only; the rest of its chunks is fetched [`aside`].
//! * [`peer_requests`] are what the data plane of this host asks for peers.
//! * [`prefetch`] fetches what is going to be read; [`learned`] counts what was, and [`record`] notes it.
//! * [`supervisor`] is the service beside an agent: one keeper for each image, over [`http`] on a unix socket.
//! * [`filesystem`] is the directory with that one file, for the dispatcher of `fuse-backend-rs`.

pub mod aside;
pub mod build;
pub mod config;
pub mod error;
pub mod files;
pub mod filesystem;
pub mod flights;
pub mod group;
pub mod hints;
pub mod homes;
pub mod http;
pub mod hydration;
pub mod keeper;
pub mod lazy_file;
pub mod learned;
pub mod leaves;
pub mod local;
pub mod local_patch;
pub mod mapping;
pub mod object;
pub mod peer;
pub mod peer_requests;
pub mod prefetch;
pub mod profile;
pub mod record;
pub mod rest;
pub mod shared;
pub mod signals;
pub mod source;
pub mod sources;
pub mod status;
pub mod supervisor;
#[cfg(test)]
mod tests;
pub mod version;
pub mod worker;
