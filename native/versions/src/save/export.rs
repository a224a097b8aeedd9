//! A moment of a running guest's volume, which QEMU keeps and serves by NBD.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{ReadAt, SourceError};
use diffcache_nbd::address::Address;
use diffcache_nbd::allocation::Allocation;
use diffcache_nbd::client::{Connection, Failure};

use crate::error::Result;

/// Bytes of which it is asked at a time which hold data.
const WINDOW: u64 = 1 << 30;
/// Bytes that QEMU copies together before a guest overwrites some. QEMU before 8.0 reads bytes that were overwritten where a read
/// begins in a part that was copied and ends in one that was not: no read crosses such a boundary.
const CLUSTER: u64 = 64 << 10;

/// A moment of a volume that is read.
pub struct Export {
    name: String,
    data: Connection,
    map: Mutex<Map>,
}

/// Which parts hold data.
struct Map {
    volume: Allocation,
    scratch: Allocation,
    /// The window that the ranges are of.
    window: u64,
    ranges: Vec<(u64, u64)>,
}

impl Map {
    /// Asks about a window. What was not copied to the scratch file after the volume had zeroes was never overwritten; the same
    /// version of QEMU tells of what was copied how it is now, so that it has to be asked in this order.
    fn ask(&mut self, window: u64) -> io::Result<()> {
        let (from, to) = (window * WINDOW, (window + 1) * WINDOW);
        let mut ranges = self.volume.data(from, to)?;
        ranges.extend(self.scratch.data(from, to)?);
        ranges.sort_unstable();
        self.ranges.clear();
        for (start, end) in ranges {
            match self.ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => self.ranges.push((start, end)),
            }
        }
        self.window = window;
        Ok(())
    }

    fn next_data(&mut self, offset: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        for window in offset / WINDOW..len.div_ceil(WINDOW) {
            if self.window != window {
                self.ask(window)?;
            }
            if let Some((start, end)) = self.ranges.iter().find(|(_, end)| *end > offset) {
                return Ok(Some(((*start).max(offset), *end)));
            }
        }
        Ok(None)
    }
}

impl Export {
    /// Connects to an export, and to that of its scratch file: what was copied before a guest overwrote it.
    ///
    /// # Errors
    /// `Source`: there is no such export, or its server does not answer.
    pub fn open(socket: &Path, export: &str, scratch: &str) -> Result<Self> {
        let name = format!("volume {export}");
        let address = |name: &str| Address::unix(socket.to_owned(), name);
        let open = || -> io::Result<(Connection, Map)> {
            let map = Map {
                volume: Allocation::open(&address(export))?,
                scratch: Allocation::open(&address(scratch))?,
                window: u64::MAX,
                ranges: Vec::new(),
            };
            Ok((Connection::open_to_read(&address(export))?, map))
        };
        let (data, map) = open().map_err(|error| unavailable(&name, &error))?;
        Ok(Self {
            name,
            data,
            map: Mutex::new(map),
        })
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> std::result::Result<(), Failure> {
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let here = (CLUSTER - at % CLUSTER).min(rest.len() as u64);
            let (part, behind) = rest.split_at_mut(here as usize);
            self.data.read(part, at)?;
            (rest, at) = (behind, at + here);
        }
        Ok(())
    }
}

fn unavailable(name: &str, error: &dyn std::fmt::Display) -> SourceError {
    SourceError::Unavailable {
        name: name.to_owned(),
        reason: error.to_string(),
    }
}

impl ReadAt for Export {
    fn len(&self) -> u64 {
        self.data.size()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::result::Result<(), SourceError> {
        self.read(buf, offset).map_err(|failure| match failure {
            Failure::Broken(reason) => unavailable(&self.name, &reason),
            Failure::Refused(error) => SourceError::Refused {
                name: self.name.clone(),
                reason: format!("reading at byte {offset}: {error}"),
            },
        })
    }

    fn next_data(&self, offset: u64) -> std::result::Result<Option<(u64, u64)>, SourceError> {
        let mut map = self.map.lock().unpoisoned();
        map.next_data(offset, self.len())
            .map_err(|error| unavailable(&self.name, &error))
    }
}
