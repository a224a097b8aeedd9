//! Origins that a server of NBD has.
//!
//! All requests share a connection. If it breaks, each request is sent once more over another.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_nbd::address::Address;
use diffcache_nbd::client::{Connection, Failure};

use crate::device::disk::Disk;

/// After a failure, requests fail for this time without another attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Connects to the server that has an origin.
pub trait Source: Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    fn connect(&self) -> io::Result<Connection>;

    /// What the origin is, whatever it is named.
    fn identity(&self) -> String;

    /// Has the server look for the size that the origin has now.
    ///
    /// # Errors
    /// The server cannot do so.
    fn look_again(&self) -> io::Result<()>;
}

impl Source for Address {
    fn connect(&self) -> io::Result<Connection> {
        Connection::open(self)
    }

    fn identity(&self) -> String {
        Address::identity(self)
    }

    fn look_again(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    /// When it failed the last time, and why.
    failed: Option<(Instant, String)>,
    /// Whether writes that were not flushed went over a connection that broke.
    lost: bool,
}

/// An origin that a server of NBD has.
pub struct NbdOrigin<S> {
    source: S,
    size: AtomicU64,
    link: Mutex<Link>,
}

impl<S: Source> NbdOrigin<S> {
    /// Connects to an origin.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    pub fn open(source: S) -> io::Result<Self> {
        let connection = source.connect()?;
        let origin = Self::missing(source, connection.size());
        origin.link.lock().unpoisoned().connection = Some(Arc::new(connection));
        Ok(origin)
    }

    /// An origin that cannot be reached now. Each request looks for it.
    pub fn missing(source: S, size: u64) -> Self {
        Self {
            source,
            size: AtomicU64::new(size),
            link: Mutex::default(),
        }
    }

    fn connection(&self) -> io::Result<Arc<Connection>> {
        let mut link = self.link.lock().unpoisoned();
        if let Some(connection) = &link.connection {
            if !connection.is_broken() {
                return Ok(connection.clone());
            }
            link.lost |= connection.has_unflushed();
            link.connection = None;
        }
        if let Some((when, reason)) = &link.failed {
            if when.elapsed() < PAUSE {
                return Err(io::Error::new(io::ErrorKind::NotConnected, reason.clone()));
            }
        }
        let connected = self.source.connect().and_then(|found| self.check(found));
        match connected {
            Ok(connection) => {
                link.failed = None;
                Ok(link.connection.insert(Arc::new(connection)).clone())
            }
            Err(error) => {
                link.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Refuses an origin that was replaced, as far as its size shows it.
    fn check(&self, connection: Connection) -> io::Result<Connection> {
        let size = self.size.load(Ordering::Acquire);
        if connection.size() == size {
            return Ok(connection);
        }
        Err(io::Error::other(format!(
            "the origin has {} bytes, and had {size} when it was attached; detach the volume and \
             attach it again",
            connection.size()
        )))
    }

    /// Sends a request, and once more if the connection breaks.
    fn send<T>(&self, mut request: impl FnMut(&Connection) -> Result<T, Failure>) -> io::Result<T> {
        match request(&*self.connection()?) {
            Err(Failure::Broken(_)) => Ok(request(&*self.connection()?)?),
            other => Ok(other?),
        }
    }
}

impl<S: Source> NbdOrigin<S> {
    /// Sends a write. A connection that broke meanwhile was perhaps replaced before it was counted.
    fn put(&self, mut write: impl FnMut(&Connection) -> Result<(), Failure>) -> io::Result<()> {
        self.send(|connection| {
            write(connection)?;
            if connection.is_broken() {
                self.link.lock().unpoisoned().lost = true;
            }
            Ok(())
        })
    }

    fn check_lost(&self) -> io::Result<()> {
        if std::mem::take(&mut self.link.lock().unpoisoned().lost) {
            return Err(io::Error::other(
                "the connection to the origin broke before all writes were flushed",
            ));
        }
        Ok(())
    }
}

impl<S: Source> Disk for NbdOrigin<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.send(|connection| connection.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(|connection| connection.write(bytes, offset, false))
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(|connection| connection.write(bytes, offset, true))
    }

    /// Fails once after writes were complete over a connection that broke before a flush: the
    /// server may have lost them.
    fn sync(&self) -> io::Result<()> {
        if self.link.lock().unpoisoned().connection.is_none() {
            // Nothing was written since the last connection, about which see below.
            return self.check_lost();
        }
        self.send(Connection::flush)?;
        self.check_lost()
    }

    fn identity(&self) -> Option<String> {
        Some(self.source.identity())
    }

    fn outlives_processes(&self) -> bool {
        false
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.put(|connection| connection.zero(offset, length))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size.load(Ordering::Acquire))
    }

    fn size_now(&self) -> io::Result<u64> {
        let mut link = self.link.lock().unpoisoned();
        let before = self.size.load(Ordering::Acquire);
        if let Some(connection) = &link.connection {
            if connection.is_writing() || connection.has_unflushed() {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "there are writes to the origin that were not flushed",
                ));
            }
        }
        self.source.look_again()?;
        let connection = self.source.connect()?;
        let now = connection.size();
        if now >= before {
            self.size.store(now, Ordering::Release);
            link.connection = Some(Arc::new(connection));
            // With the former size, perhaps.
            link.failed = None;
        }
        Ok(now)
    }
}

#[cfg(test)]
mod tests;
