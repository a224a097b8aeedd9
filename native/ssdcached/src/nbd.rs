//! A server of NBD: fixed newstyle handshake, simple replies.
//!
//! Source: the specification of the Network Block Device project, `doc/proto.md`. It does not
//! depend on the cache: an [`Export`] is what is served, [`Exports`] are all of them.

mod negotiation;
mod pace;
pub(crate) mod protocol;
mod transmission;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

pub use negotiation::negotiate;
pub use transmission::transmit;

/// What a client reads and writes.
///
/// Requests of any number of threads are made at the same time. The server has checked that they
/// end within [`size`](Self::size).
pub trait Export: Send + Sync + 'static {
    /// A read that was begun.
    type Read: Send;

    /// Its size in bytes at this moment.
    fn size(&self) -> u64;

    /// Begins to read `length` bytes from an offset. One of the two below completes it.
    fn begin_read(&self, offset: u64, length: usize) -> Self::Read;

    /// Fills the buffer, if that is possible without waiting for a disk. `false`: it is not, and
    /// the buffer may have anything.
    fn read_now(&self, read: &Self::Read, buffer: &mut [u8]) -> bool;

    /// Fills the buffer.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&self, read: Self::Read, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// They cannot be written.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Replaces a range by zeroes.
    ///
    /// # Errors
    /// It cannot be written.
    fn zero(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes all completed requests durable.
    ///
    /// # Errors
    /// It cannot be flushed.
    fn flush(&self) -> io::Result<()>;
}

/// What is served.
pub trait Exports: Send + Sync {
    /// One of them.
    type Export: Export;

    /// The export with a name, if there is one. May wait until it takes another client.
    ///
    /// # Errors
    /// The connection failed.
    fn find(&self, name: &str) -> io::Result<Option<Arc<Self::Export>>>;
}
