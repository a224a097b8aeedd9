//! Serves requests: an [`Export`] is what is served.

mod buffers;
pub mod pace;
pub mod ring;
mod transmission;

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use crate::protocol::Request;
pub use ring::{check as check_ring, Disk};
pub use transmission::transmit;

/// What was read of a [`Disk`].
#[derive(Debug, Clone, Copy)]
pub struct Pieces<'a> {
    /// All the bytes; none: the file could not be read.
    pub bytes: Option<&'a [u8]>,
    /// What it took, if that is known.
    pub took: Option<Duration>,
}

/// What a client reads and writes.
///
/// Requests of any number of threads are made at the same time. The server has checked that they
/// end within [`size`](Self::size).
pub trait Export: Send + Sync + 'static {
    /// A read that was begun.
    type Read: Send;

    /// Its size in bytes at this moment.
    fn size(&self) -> u64;

    /// Whether a read, a write, zeroes or a trim may begin now. It is asked once: one that may not
    /// [waits](Self::wait).
    fn may_begin(&self, _request: &Request) -> bool {
        true
    }

    /// Waits until a request may begin, or is in a hurry.
    fn wait(&self, _request: &Request, _is_hurried: &dyn Fn() -> bool) {}

    /// Begins to read `length` bytes from an offset. One of the two below completes it.
    fn begin_read(&self, offset: u64, length: usize) -> Self::Read;

    /// Fills the buffer, if that is possible without waiting for a disk. `false`: it is not, and
    /// the buffer may have anything.
    fn read_now(&self, read: &Self::Read, buffer: &mut [u8]) -> bool;

    /// A file that bytes are read from without threads; none: there is no such.
    fn disk(&self) -> Option<Disk<'_>> {
        None
    }

    /// Where in this file the bytes of a read are with those around them that have to be read, too,
    /// as offsets and lengths; none: not all are there.
    fn pieces(&self, _read: &Self::Read) -> Option<Vec<(u64, usize)>> {
        None
    }

    /// Fills the buffer with what was read at the [pieces](Self::pieces), which took this time if it
    /// is known. `false`: that is not what was to be read, and the buffer may have anything.
    fn take_pieces(&self, _read: &Self::Read, _pieces: Pieces<'_>, _buffer: &mut [u8]) -> bool {
        false
    }

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
