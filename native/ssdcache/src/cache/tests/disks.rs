//! A disk in memory that fails as disks do.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use diffcache_faulty as faulty;

use crate::device::disk::Disk;
use faulty::{Effect, Fault, Fuse, Operation};

/// A disk in memory; see [`faulty::Disk`].
#[derive(Clone)]
pub struct MemoryDisk {
    disk: faulty::Disk,
    /// Whether nothing survives the end of other processes.
    is_served: Arc<AtomicBool>,
    identity: Option<&'static str>,
}

impl MemoryDisk {
    pub fn new(size: usize) -> Self {
        Self::with_fuse(size, &Fuse::default())
    }

    /// A disk that stops with others.
    pub fn with_fuse(size: usize, fuse: &Fuse) -> Self {
        Self {
            disk: faulty::Disk::with_fuse(size, fuse),
            is_served: Arc::default(),
            identity: None,
        }
    }

    /// The same disk, which is known to be that.
    pub fn known_as(&self, identity: &'static str) -> Self {
        Self {
            identity: Some(identity),
            ..self.clone()
        }
    }

    /// Another disk with the same content, all of it durable.
    pub fn copied(&self) -> Self {
        let content = self.content();
        let other = Self::new(content.len());
        other.damage(0..content.len() as u64, |bytes| {
            bytes.copy_from_slice(&content)
        });
        other
    }

    /// Makes all operations fail, or work again.
    pub fn fail(&self, failing: bool) {
        if !failing {
            return self.mend();
        }
        for operation in [Operation::Read, Operation::Write, Operation::Sync] {
            self.inject(Fault::new(operation, Effect::Error(faulty::EIO)));
        }
    }

    /// Makes this many flushes lose what was written since the last good one.
    pub fn lose(&self, flushes: u64) {
        self.inject(Fault::new(Operation::Sync, Effect::Lose).times(flushes));
    }

    /// Makes it one that another process of the host serves.
    pub fn serve_from_elsewhere(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// Makes all writes fail with a number of the system; reads work.
    pub fn refuse_writes(&self, number: i32) {
        self.inject(Fault::new(Operation::Write, Effect::Error(number)));
    }

    /// Changes the blocks that have only bytes of a value.
    pub fn corrupt(&self, value: u8) {
        for (n, block) in (0..).zip(self.content().chunks(4096)) {
            if block.iter().all(|&byte| byte == value) {
                self.damage(n * 4096 + 17..n * 4096 + 18, |bytes| bytes[0] ^= 1);
            }
        }
    }
}

impl Deref for MemoryDisk {
    type Target = faulty::Disk;

    fn deref(&self) -> &faulty::Disk {
        &self.disk
    }
}

impl Disk for MemoryDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    // Half of the blocks are in memory.
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> bool {
        offset / 4096 % 2 == 0 && self.disk.read_at(buffer, offset).is_ok()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.write_at(&vec![0; length as usize], offset)
    }

    fn outlives_processes(&self) -> bool {
        !self.is_served.load(Ordering::Relaxed)
    }

    fn identity(&self) -> Option<String> {
        self.identity.map(str::to_owned)
    }

    fn forget_lost(&self, _offset: u64, _length: u64) {
        // The memory of another machine is its own.
        if self.outlives_processes() {
            self.disk.evict();
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.size())
    }
}
