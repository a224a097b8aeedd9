//! The mounter: the only process of lazy boot that may mount.
//!
//! `diffcached` mounts a FUSE file system for each image, for which Linux wants `CAP_SYS_ADMIN`. It also parses what other hosts send. With a mounter the
//! capability is in a process of its own, which has no network and only [mounts and unmounts](server) below one folder, at the request of the folder's
//! owner over a unix socket ([`protocol`], [`client`]). The answer carries the descriptor of the mounted file system.
//!
//! A crate of its own so that all that the privileged process runs is here and in `rustix`, without unsafe code. It is a subcommand of `diffcached`, and not
//! a program of its own, so that both are always of the same version.

#![forbid(unsafe_code)]

pub mod client;
pub mod fuse;
pub mod protocol;
pub mod server;
