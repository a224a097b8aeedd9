//! The volumes of a cache as exports of NBD.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use diffcache_nbd::protocol::{Command, Request};
use diffcache_nbd::server::{Disk, Export, Pieces};
use diffcache_ssdcache::cache::{Cache, PendingRead, Volume};
use diffcache_ssdcache::rates::{Cost, Direction};

use crate::queues::Queues;
use crate::stop::Gate;

/// Reads of a guest's process that are counted before a block is evicted for another, at most.
const HITS: usize = 1024;

/// The volumes that are attached at the moment, by the names of their exports.
pub struct Volumes {
    /// The cache that has them.
    pub cache: Arc<Cache>,
    /// Passed by each request.
    pub gate: Arc<Gate>,
    /// Passed by each write.
    pub queues: Arc<Queues>,
}

impl Volumes {
    /// The volume whose export has a name, if it is served.
    pub fn find(&self, name: &str) -> Option<Arc<CachedVolume>> {
        let mut volumes = self.cache.volumes().into_iter();
        let volume = volumes.find(|volume| volume.export() == name && !volume.is_held())?;
        Some(Arc::new(CachedVolume {
            cache: self.cache.clone(),
            gate: self.gate.clone(),
            queues: self.queues.clone(),
            export: name.to_owned(),
            volume,
        }))
    }
}

/// A volume behind the cache.
pub struct CachedVolume {
    cache: Arc<Cache>,
    gate: Arc<Gate>,
    queues: Arc<Queues>,
    export: String,
    volume: Arc<Volume>,
}

impl Export for CachedVolume {
    type Read = PendingRead;

    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn may_begin(&self, request: &Request) -> bool {
        cost(request).is_none_or(|cost| self.volume.throttle().begin(cost))
    }

    fn wait(&self, request: &Request, is_hurried: &dyn Fn() -> bool) {
        if let Some(cost) = cost(request) {
            self.volume.throttle().wait(cost, is_hurried);
        }
    }

    fn begin_read(&self, offset: u64, length: usize) -> PendingRead {
        let _running = self.gate.begin();
        self.cache.take_hits(&self.volume, HITS);
        self.cache.begin_read(&self.volume, offset, length)
    }

    fn read_now(&self, read: &PendingRead, buffer: &mut [u8]) -> bool {
        let _running = self.gate.begin();
        self.cache.read_now(&self.volume, read, buffer)
    }

    fn disk(&self) -> Option<Disk<'_>> {
        let files = self.cache.files()?;
        Some(Disk {
            direct: files.direct.as_fd(),
            buffered: files.buffered.as_fd(),
        })
    }

    fn pieces(&self, read: &PendingRead) -> Option<Vec<(u64, usize)>> {
        self.cache.pieces(read)
    }

    fn take_pieces(&self, read: &PendingRead, pieces: Pieces<'_>, buffer: &mut [u8]) -> bool {
        let _running = self.gate.begin();
        let found = (pieces.bytes, pieces.took);
        self.cache.take_pieces(&self.volume, read, found, buffer)
    }

    fn read(&self, read: PendingRead, buffer: &mut [u8]) -> io::Result<()> {
        let _running = self.gate.begin();
        self.cache.end_read(&self.volume, &read, buffer)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.queues.wait(&self.export);
        let _running = self.gate.begin();
        self.cache.take_hits(&self.volume, HITS);
        self.cache.write(&self.volume, data, offset)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.queues.wait(&self.export);
        let _running = self.gate.begin();
        self.cache.zero(&self.volume, offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        let _running = self.gate.begin();
        self.cache.flush(&self.volume)
    }
}

/// What a request counts as for the limits of its volume; none: QEMU does not limit it either.
fn cost(request: &Request) -> Option<Cost> {
    let direction = match request.command {
        Command::Read => Direction::Read,
        Command::Write | Command::WriteZeroes => Direction::Write,
        _ => return None,
    };
    Some(Cost {
        direction,
        bytes: request.length.into(),
    })
}
