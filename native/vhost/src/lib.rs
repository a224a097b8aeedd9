//! A cached volume as a disk of a guest, by vhost-user: its rings reach this process without QEMU.
//!
//! Each guest has a process of its own, which the daemon starts, and which serves one connection. It
//! reads cached blocks from the device itself (see `diffcache_ssdcache::shared`), and passes everything
//! else on to the daemon, as a client of the volume's NBD export: what writes, discards and flushes mean
//! is decided there alone.
//!
//! Source: the vhost-user protocol (<https://qemu.readthedocs.io/en/latest/interop/vhost-user.html>), and
//! Virtio 1.2, split rings and the block device
//! (<https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html>).
//!
//! * [`message`]: messages between QEMU and this process;
//! * [`memory`]: the guest's memory;
//! * [`ring`], [`inflight`]: its rings, and which requests are under way;
//! * [`request`]: what a guest asks for;
//! * [`cached`], [`forward`]: reads of the device, and requests to the daemon;
//! * [`device`], [`service`]: all of it, and the process.
//!
//! All that comes from a guest is checked: it may be anything, and change at any time.

mod cached;
mod device;
mod forward;
#[cfg(any(test, feature = "frontend"))]
pub mod frontend;
mod inflight;
mod memory;
pub mod message;
mod request;
mod ring;
pub mod service;
#[cfg(test)]
mod tests;
