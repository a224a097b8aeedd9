//! `diffcached`: serves files over FUSE that are still arriving.
//!
//! Two processes. The [keeper](processes::keeper) mounts the file system and holds the FUSE descriptor and the [shared memory](processes::shared); the
//! [worker](processes::worker) has no capabilities and answers the requests. When a worker dies, the keeper starts the next, which first answers the
//! requests that it finds in the shared memory: reads of an immutable file may be answered twice, so no request is lost. The
//! [supervisor](processes::supervisor) is the service beside an agent, with a keeper for each image.
//!
//! A read goes through the modules in this order: [`image::filesystem`], [`image::lazy_file`], [`image::leaves`] for what is on the local disk, and else
//! one fetch for each chunk ([`image::flights`]) from what [`sources::selection`] chooses, one of [`sources`] or [`peers`]. The read waits for its leaves
//! only; [`image::aside`] fetches the rest of its chunks. [`prefetch`] fetches what will be read.

pub mod config;
pub mod error;
pub mod image;
pub mod peers;
pub mod prefetch;
pub mod processes;
pub mod sizes;
pub mod sources;
pub mod tuning;
