//! A disk in memory.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::fault::{Effect, Fault, Operation};
use crate::fuse::{Fuse, Spark};
use crate::lock;
use crate::random::Random;

/// Bytes that are written whole or not at all.
pub const SECTOR: usize = 512;
/// Bytes that a process which is killed has written whole or not at all.
const PAGE: usize = 4096;

#[derive(Debug, Default)]
struct Content {
    /// What is read: the memory of the system.
    now: Vec<u8>,
    /// What a power cut leaves where nothing else is pending.
    durable: Vec<u8>,
    /// What else a power cut may leave of a sector: what it had since the last sync.
    pending: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Sectors that a sync lost: their memory is not what is durable, and no sync changes that.
    lost: BTreeMap<usize, ()>,
    faults: Vec<Fault>,
    syncs: u64,
    random: Option<Random>,
}

/// A disk in memory; clones are the same disk.
///
/// It behaves as a file behind the page cache of the kernel: what was written is read at once, also
/// after the end of the process, and survives a power cut after a sync.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    content: Arc<Mutex<Content>>,
    fuse: Fuse,
}

impl Disk {
    /// A disk of zeroes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self::with_fuse(size, &Fuse::default())
    }

    /// A disk of zeroes that stops with others.
    #[must_use]
    pub fn with_fuse(size: usize, fuse: &Fuse) -> Self {
        let content = Content {
            now: vec![0; size],
            durable: vec![0; size],
            ..Content::default()
        };
        Self {
            content: Arc::new(Mutex::new(content)),
            fuse: fuse.clone(),
        }
    }

    /// Has a write that burns the fuse be done in a part that these numbers choose; without them it
    /// leaves what a power cut may leave of it, and nothing else.
    pub fn tear(&self, random: Random) {
        self.lock().random = Some(random);
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }

    /// Adds a fault; an operation has the effect of the first one that concerns it.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Ends all faults.
    pub fn mend(&self) {
        self.lock().faults.clear();
    }

    /// Whether a fault is left that has not come to its end.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        !self.lock().faults.iter().all(Fault::is_over)
    }

    /// Ends the power: of each sector that was written since the last sync, `choose` says which of
    /// as many contents it has, 0 being the oldest.
    pub fn cut(&self, mut choose: impl FnMut(usize) -> usize) {
        let mut content = self.lock();
        let pending = std::mem::take(&mut content.pending);
        for (sector, contents) in pending {
            let chosen = choose(contents.len() + 1);
            if chosen > 0 {
                content.set_durable(sector, &contents[chosen - 1]);
            }
        }
        content.lost.clear();
        content.now = content.durable.clone();
    }

    /// Ends the power, and leaves any subset of the writes.
    pub fn cut_at_random(&self, random: &mut Random) {
        // Some power cuts lose all, and some nothing.
        let share = random.below(5);
        self.cut(|count| match random.below(4) < share {
            true => random.below(count as u64) as usize,
            false => 0,
        });
    }

    /// Has the memory of the system forget what a sync lost: the disk's content is read from now on.
    pub fn evict(&self) {
        let mut content = self.lock();
        for sector in std::mem::take(&mut content.lost).into_keys() {
            let range = content.sector(sector);
            let Content { now, durable, .. } = &mut *content;
            now[range.clone()].copy_from_slice(&durable[range]);
        }
    }

    /// Changes bytes as they are on the disk and in memory, without a word.
    pub fn damage(&self, range: Range<u64>, change: impl FnOnce(&mut [u8])) {
        let mut content = self.lock();
        let range = range.start as usize..range.end as usize;
        change(&mut content.now[range.clone()]);
        let Content { now, durable, .. } = &mut *content;
        durable[range.clone()].copy_from_slice(&now[range.clone()]);
        for sector in sectors(range.start as u64, range.len()) {
            content.pending.remove(&sector);
        }
    }

    /// Gives it another size; what is added has bytes of a value.
    pub fn resize(&self, size: usize, value: u8) {
        let mut content = self.lock();
        content.now.resize(size, value);
        content.durable.resize(size, value);
        content.pending.retain(|sector, _| sector * SECTOR < size);
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.lock().now.len() as u64
    }

    /// How often it was synced.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// All that is read of it now, whatever its faults are.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.lock().now.clone()
    }

    /// Fills a buffer from an offset.
    ///
    /// # Errors
    /// A fault, or the fuse has burnt; or the range is not on the disk.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let effect = self.begin(Operation::Read, offset, buffer.len())?;
        let content = self.lock();
        let range = content.range(offset, buffer.len())?;
        match effect {
            Some(Effect::Stale) => buffer.copy_from_slice(&content.durable[range]),
            _ => buffer.copy_from_slice(&content.now[range]),
        }
        if let Some(Effect::Flipped(bit)) = effect {
            let bits = buffer.len() as u64 * 8;
            if bits > 0 {
                buffer[(bit % bits / 8) as usize] ^= 1 << (bit % 8);
            }
        }
        Ok(())
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(bytes, offset, false)
    }

    /// Writes bytes at an offset, and makes them durable.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(bytes, offset, true)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn sync(&self) -> io::Result<()> {
        let effect = self.begin(Operation::Sync, 0, usize::MAX)?;
        let mut content = self.lock();
        content.syncs += 1;
        let pending = std::mem::take(&mut content.pending);
        match effect {
            Some(Effect::Lose) => {
                content
                    .lost
                    .extend(pending.into_keys().map(|sector| (sector, ())));
                return Err(error(libc::EIO));
            }
            Some(Effect::Ignored) => content.pending = pending,
            _ => pending
                .into_keys()
                .for_each(|sector| content.settle(sector)),
        }
        Ok(())
    }

    /// What happens to an operation; the error of one that fails.
    fn begin(
        &self,
        operation: Operation,
        offset: u64,
        length: usize,
    ) -> io::Result<Option<Effect>> {
        let range = offset..offset.saturating_add(length as u64);
        let effect = {
            let mut content = self.lock();
            let strike = |fault: &mut Fault| fault.strike(operation, &range);
            content.faults.iter_mut().find_map(strike)
        };
        match &effect {
            Some(Effect::Error(number)) => return Err(error(*number)),
            Some(Effect::Slow(duration)) => std::thread::sleep(*duration),
            Some(Effect::Hang(valve)) => valve.pass(),
            _ => {}
        }
        if operation == Operation::Write {
            return Ok(effect);
        }
        match self.fuse.count() {
            Spark::Whole => Ok(effect),
            Spark::Last | Spark::Burnt => Err(error(libc::EIO)),
        }
    }

    fn put(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        let effect = self.begin(Operation::Write, offset, bytes.len())?;
        let mut content = self.lock();
        content.range(offset, bytes.len())?;
        match self.fuse.count() {
            Spark::Burnt => return Err(error(libc::EIO)),
            Spark::Last => {
                content.put_in_part(bytes, offset);
                return Err(error(libc::EIO));
            }
            Spark::Whole => {}
        }
        match effect {
            Some(Effect::Ignored) => return Ok(()),
            Some(Effect::Torn(length, number)) => {
                let length = bytes.len().min(length as usize);
                content.put(&bytes[..length], offset);
                return Err(error(number));
            }
            _ => content.put(bytes, offset),
        }
        if durable {
            for sector in sectors(offset, bytes.len()) {
                content.pending.remove(&sector);
                content.settle(sector);
            }
        }
        Ok(())
    }
}

impl Content {
    fn range(&self, offset: u64, length: usize) -> io::Result<Range<usize>> {
        let begin = usize::try_from(offset).map_err(|_| error(libc::EINVAL))?;
        match begin.checked_add(length) {
            Some(end) if end <= self.now.len() => Ok(begin..end),
            _ => Err(error(libc::EINVAL)),
        }
    }

    /// The bytes of a sector; the last one may be shorter.
    fn sector(&self, sector: usize) -> Range<usize> {
        let begin = sector * SECTOR;
        begin..(begin + SECTOR).min(self.now.len())
    }

    fn set_durable(&mut self, sector: usize, bytes: &[u8; SECTOR]) {
        let range = self.sector(sector);
        let length = range.len();
        self.durable[range].copy_from_slice(&bytes[..length]);
    }

    /// Makes durable what a sector has now.
    fn settle(&mut self, sector: usize) {
        if self.lost.contains_key(&sector) {
            return;
        }
        let range = self.sector(sector);
        let Self { now, durable, .. } = self;
        durable[range.clone()].copy_from_slice(&now[range]);
    }

    fn put(&mut self, bytes: &[u8], offset: u64) {
        let at = offset as usize;
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        for sector in sectors(offset, bytes.len()) {
            self.lost.remove(&sector);
            let range = self.sector(sector);
            let mut content = [0; SECTOR];
            content[..range.len()].copy_from_slice(&self.now[range]);
            self.pending.entry(sector).or_default().push(content);
        }
    }

    /// Does a write that is interrupted: the process is killed after some pages; a power cut leaves
    /// any of its sectors.
    fn put_in_part(&mut self, bytes: &[u8], offset: u64) {
        let before = self.now.clone();
        self.put(bytes, offset);
        let pages = bytes.len().div_ceil(PAGE) as u64;
        let whole = self
            .random
            .as_mut()
            .map_or(0, |random| random.below(pages + 1));
        let end = (offset + bytes.len() as u64) as usize;
        // Pages begin at multiples of their size, whatever the write's offset is.
        let page = offset as usize / PAGE + whole as usize;
        let kept = if whole == 0 {
            offset as usize
        } else {
            (page * PAGE).clamp(offset as usize, end)
        };
        self.now[kept..end].copy_from_slice(&before[kept..end]);
    }
}

fn sectors(offset: u64, length: usize) -> Range<usize> {
    let begin = offset as usize;
    if length == 0 {
        return 0..0;
    }
    begin / SECTOR..(begin + length).div_ceil(SECTOR)
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

#[cfg(test)]
mod tests;
