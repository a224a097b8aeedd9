//! `diffcache-ssdcached`: volumes behind a cache on an SSD, served over NBD.
//!
//! One export for each volume. What is cached is decided in `diffcache-ssdcache`; this opens the
//! device and the origins, serves clients and commands, and says when it is ready.

pub mod config;
mod control;
pub mod error;
mod exports;
pub mod guest;
pub mod guests;
mod opening;
pub mod panics;
mod queues;
mod server;
pub mod service;
mod space;
mod stop;
pub mod volumes;
mod waiting;

#[cfg(test)]
mod tests;
