//! A disk in memory.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::disk::Disk;

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    /// What a power cut leaves at least.
    durable: Vec<u8>,
    /// Writes since the last flush.
    pending: Vec<(u64, Vec<u8>)>,
    failing: bool,
    /// The error of all writes.
    refusing: Option<io::ErrorKind>,
    fuse: Arc<AtomicU64>,
}

/// A disk in memory that loses any writes since its last flush in a power cut.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Content>>);

impl MemoryDisk {
    pub fn new(size: usize) -> Self {
        let content = Content {
            now: vec![0; size],
            durable: vec![0; size],
            fuse: Arc::new(AtomicU64::new(u64::MAX)),
            ..Content::default()
        };
        Self(Arc::new(Mutex::new(content)))
    }

    /// A disk whose operations count down a number, and have no effect once it is 0.
    pub fn with_fuse(size: usize, fuse: &Arc<AtomicU64>) -> Self {
        let disk = Self::new(size);
        disk.0.lock().unwrap().fuse = fuse.clone();
        disk
    }

    /// Makes all operations fail, or work again.
    pub fn fail(&self, failing: bool) {
        self.0.lock().unwrap().failing = failing;
    }

    /// Makes all writes fail in this way; reads work.
    pub fn refuse_writes(&self, kind: io::ErrorKind) {
        self.0.lock().unwrap().refusing = Some(kind);
    }

    /// Changes the blocks that have only bytes of a value.
    pub fn corrupt(&self, value: u8) {
        let mut content = self.0.lock().unwrap();
        for block in content.now.chunks_mut(4096) {
            if block.iter().all(|&byte| byte == value) {
                block[17] ^= 1;
            }
        }
    }

    /// Adds bytes of a value up to a size.
    pub fn grow(&self, size: usize, value: u8) {
        let mut content = self.0.lock().unwrap();
        content.now.resize(size, value);
        content.durable.resize(size, value);
    }

    /// Cuts everything off behind a size.
    pub fn cut_off(&self, size: usize) {
        let mut content = self.0.lock().unwrap();
        content.now.truncate(size);
        content.durable.truncate(size);
    }

    /// Ends the power: of each write since the last flush, `kept` says whether it survives.
    pub fn cut(&self, mut kept: impl FnMut() -> bool) {
        let mut content = self.0.lock().unwrap();
        let pending = std::mem::take(&mut content.pending);
        let mut left = content.durable.clone();
        for (offset, bytes) in pending {
            // Sectors are written whole, or not at all.
            let mut at = offset as usize;
            for sector in bytes.chunks(512) {
                if kept() {
                    left[at..at + sector.len()].copy_from_slice(sector);
                }
                at += sector.len();
            }
        }
        content.durable.clone_from(&left);
        content.now = left;
    }

    fn put(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        content.check()?;
        if let Some(kind) = content.refusing {
            return Err(kind.into());
        }
        let range = offset as usize..offset as usize + bytes.len();
        content.now[range.clone()].copy_from_slice(bytes);
        if durable {
            content.durable[range].copy_from_slice(bytes);
            // What was written there before is not to replace it.
            let end = offset + bytes.len() as u64;
            content
                .pending
                .retain(|(at, old)| *at + old.len() as u64 <= offset || *at >= end);
        } else {
            content.pending.push((offset, bytes.to_vec()));
        }
        Ok(())
    }
}

impl Content {
    fn check(&self) -> io::Result<()> {
        let burn = |left: u64| left.checked_sub(1);
        let burnt = self
            .fuse
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, burn);
        if self.failing || burnt.is_err() {
            return Err(io::Error::other("the disk fails"));
        }
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.0.lock().unwrap();
        content.check()?;
        let at = offset as usize;
        buffer.copy_from_slice(&content.now[at..at + buffer.len()]);
        Ok(())
    }

    // Half of the blocks are in memory.
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> bool {
        offset / 4096 % 2 == 0 && self.read_at(buffer, offset).is_ok()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(bytes, offset, false)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(bytes, offset, true)
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        content.check()?;
        content.pending.clear();
        let now = content.now.clone();
        content.durable = now;
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.put(&vec![0; length as usize], offset, false)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }
}
