//! `diffcache-ssdcached`: volumes behind a cache on an SSD, served over NBD.
//!
//! One export for each volume. What is cached is decided in `diffcache-ssdcache`; this opens the
//! device and the origins, serves clients and commands, and says when it is ready.

pub mod config;
mod control;
mod exports;
pub mod panics;
mod server;
pub mod service;
mod space;
mod stop;

#[cfg(test)]
mod tests;
