//! Finding what changed on a disk since a version.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::is_zero;
use diffcache_core::task::{for_each_in_order, Task};

use crate::error::{Result, VersionsError};
use crate::save::disk::{Location, Region, View, PIECE};
use crate::save::journal::Journal;
use crate::save::new_packs::NewPacks;
use crate::save::overlay::settle;
use crate::save::scan_state::ScanState;
use crate::save::spool::{Spool, SPOOLED};
use crate::store::base::{BaseBlock, BaseIndex};
use crate::store::crypt::Name;
use crate::store::nodes::{push_run, BlockRef, NodeRef, Run, MAX_BLOCKS};
use crate::store::pack_set::Unpacked;
use crate::store::tree;
use crate::store::{Slots, Store, StoredNames};

/// Pieces whose new blocks are searched together in the store.
const BATCH: usize = 32;

/// Pieces that are read meanwhile.
const AHEAD: usize = 8;

/// Bytes that are read before a long save records its state.
pub const INTERVAL: u64 = 64 << 20;

/// What a disk is compared with.
#[derive(Clone, Copy)]
pub struct Parent<'a> {
    /// The parent's tree; a mark if there is no parent.
    pub root: NodeRef,
    /// Bytes of the parent's disk; 0 if there is none.
    pub size: u64,
    /// The base image's index, if it is known.
    pub base: Option<&'a BaseIndex>,
    /// Blocks that no region covers, beyond the parent's end, are the base's.
    pub has_base: bool,
}

/// Where new blocks go.
pub enum Target<'a> {
    /// Into packs at once.
    Packs(&'a mut NewPacks),
    /// Into a spool, to be stored with others.
    Spool(&'a mut Spool),
    /// Nowhere: only what differs is wanted. Gets the names of new blocks; their place there is their slot.
    Names(&'a mut Vec<Name>),
}

impl Target<'_> {
    fn known(&self, name: &Name) -> Option<BlockRef> {
        match self {
            Target::Packs(new) => new.find(name),
            Target::Names(_) => None,
            Target::Spool(spool) => spool.find(name),
        }
    }

    fn push(&mut self, name: Name, block: &[u8], task: &Task<'_>) -> Result<BlockRef> {
        match self {
            Target::Packs(new) => {
                let (pack, slot) = new.packs.push(name, block, task)?;
                new.add(name);
                Ok(BlockRef::Stored { pack, slot })
            }
            Target::Spool(spool) => spool.push(name, block),
            Target::Names(names) => {
                names.push(name);
                Ok(BlockRef::Stored {
                    pack: SPOOLED,
                    slot: names.len() as u32 - 1,
                })
            }
        }
    }
}

/// Keeps reading below a rate.
struct Limiter {
    rate: Option<f64>,
    started: Instant,
    bytes_read: AtomicU64,
}

impl Limiter {
    /// Waits after bytes were read.
    fn wait(&self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        let bytes = self.bytes_read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = Duration::from_secs_f64(bytes as f64 / rate.max(1.0));
        std::thread::sleep(due.saturating_sub(self.started.elapsed()));
    }
}

/// A block that the parent does not have at its place.
enum Found {
    Known(Run),
    New { block: u64, name: Name, at: usize },
}

struct Piece {
    bytes_read: u64,
    found: Vec<Found>,
    /// Where the parent has the blocks of regions in which some are new.
    beside: Vec<Slots>,
    /// What was read; more may follow that means nothing.
    data: Vec<u8>,
}

/// Buffers that are used again: the pages of fresh ones cost as much as what is read into them.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of at least this many bytes, whatever they are.
    fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.idle().pop().unwrap_or_default();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer
    }

    fn give(&self, buffer: Vec<u8>) {
        self.idle().push(buffer);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unpoisoned()
    }
}

/// The disk that is scanned, and what it is compared with.
pub struct Scan<'a> {
    /// The store.
    pub store: &'a Store,
    /// The disk.
    pub view: &'a View,
    /// What it is compared with.
    pub parent: Parent<'a>,
    /// At most this many bytes are read in a second.
    pub rate: Option<f64>,
    /// Gets the progress.
    pub task: &'a Task<'a>,
}

/// Finds what changed: ascending runs, of which new blocks are where `target` put them. Starts at `state`, which is the default one unless
/// the scan was interrupted before; a long scan records its state in `journal`.
///
/// # Errors
/// `Source`, `Qcow2`, `Io`; `Damaged` or `Missing` if the parent's maps are; `Invalid` if the disk has too many blocks; `Cancelled`.
pub fn run(
    scan: &Scan<'_>,
    target: &mut Target<'_>,
    mut state: ScanState,
    mut journal: Option<&mut Journal>,
) -> Result<ScanState> {
    let view = scan.view;
    if view.size.div_ceil(u64::from(scan.store.block_size)) > MAX_BLOCKS {
        return Err(VersionsError::Invalid(format!(
            "a disk of {} bytes: with blocks of {} bytes a version has room for {MAX_BLOCKS} blocks; use a store with larger ones",
            view.size, scan.store.block_size,
        )));
    }
    let limiter = Limiter {
        rate: scan.rate,
        started: Instant::now(),
        bytes_read: AtomicU64::new(view.tables),
    };
    let meter = scan.task.meter(view.bytes_to_read());
    let silent = scan.task.silent();
    let groups = group(&view.regions);
    let (behind, ahead) = groups.split_at(groups.len().min(state.pieces as usize));
    match behind.len() {
        0 => resize(scan, &mut state.runs),
        _ => meter.add(behind.iter().map(|regions| to_read(regions)).sum()),
    }
    let mut recorded = state.bytes_read;
    state.bytes_read += view.tables;
    let buffers = Buffers::default();
    let mut batch = Vec::with_capacity(BATCH);
    let mut left = ahead.len();
    let read = |regions: &&[Region]| {
        let piece = scan.at(regions, &buffers)?;
        meter.add(to_read(regions));
        limiter.wait(piece.bytes_read);
        Ok::<_, VersionsError>(piece)
    };
    for_each_in_order(&silent, ahead, AHEAD, read, |piece| {
        batch.push(piece);
        left -= 1;
        if batch.len() < BATCH && left > 0 {
            return Ok(());
        }
        take(scan.store, &batch, target, &mut state, &silent)?;
        state.pieces += batch.len() as u64;
        for piece in batch.drain(..) {
            state.bytes_read += piece.bytes_read;
            buffers.give(piece.data);
        }
        if state.bytes_read - recorded >= INTERVAL {
            record(journal.as_deref_mut(), &state, target, &silent)?;
            recorded = state.bytes_read;
        }
        Ok(())
    })?;
    // Less than an interval is read again faster than it is recorded.
    if recorded > 0 && state.bytes_read > recorded {
        record(journal, &state, target, &silent)?;
    }
    state.runs = settle(state.runs);
    Ok(state)
}

fn record(
    journal: Option<&mut Journal>,
    state: &ScanState,
    target: &mut Target<'_>,
    task: &Task<'_>,
) -> Result<()> {
    let Some(journal) = journal else {
        return Ok(());
    };
    match target {
        Target::Packs(packs) => {
            let (frames, rest) = packs.packs.fresh(task)?;
            journal.record(state, &frames, rest)
        }
        Target::Spool(spool) => journal.record(state, &[spool.fresh()], &Unpacked::default()),
        Target::Names(_) => Ok(()),
    }
}

fn to_read(regions: &[Region]) -> u64 {
    let read =
        |region: &&Region| matches!(region.location, Location::At(_) | Location::Compressed(..));
    regions.iter().filter(read).map(|region| region.len).sum()
}

/// Regions in pieces of work of about the same length.
fn group(regions: &[Region]) -> Vec<&[Region]> {
    let (mut out, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (i, region) in regions.iter().enumerate() {
        let len = to_read(std::slice::from_ref(region));
        if i > first && (bytes + len > PIECE || i - first >= 4096) {
            out.push(&regions[first..i]);
            (first, bytes) = (i, 0);
        }
        bytes += len;
    }
    if first < regions.len() {
        out.push(&regions[first..]);
    }
    out
}

/// A disk that grew or shrank: what is beyond the shorter end.
fn resize(scan: &Scan<'_>, runs: &mut Vec<Run>) {
    let block = u64::from(scan.store.block_size);
    let parent = &scan.parent;
    let (old, new) = (parent.size.div_ceil(block), scan.view.size.div_ceil(block));
    if parent.size == 0 || old == new {
        return;
    }
    let grown = new > old && parent.has_base;
    runs.push(Run {
        start: old.min(new),
        len: old.abs_diff(new),
        at: if grown {
            BlockRef::Base
        } else {
            BlockRef::Zero
        },
    });
}

impl Scan<'_> {
    /// Finds what the parent does not have in some regions.
    fn at(&self, regions: &[Region], buffers: &Buffers) -> Result<Piece> {
        let block = u64::from(self.store.block_size);
        let padded = |region: &Region| region.len.next_multiple_of(block) as usize;
        let read = |region: &&Region| {
            matches!(region.location, Location::At(_) | Location::Compressed(..))
        };
        let mut piece = Piece {
            bytes_read: 0,
            found: Vec::new(),
            beside: Vec::new(),
            data: buffers.take(regions.iter().filter(read).map(padded).sum()),
        };
        let mut filled = 0;
        for region in regions {
            let (from, to) = (
                region.start / block,
                (region.start + region.len).div_ceil(block),
            );
            let old = tree::collect(&self.store.maps, self.parent.root, from, to)?;
            match region.location {
                Location::Zero | Location::Base => self.mark(region.location, &old, &mut piece),
                Location::At(_) | Location::Compressed(..) => {
                    let part = filled..filled + padded(region);
                    filled = part.end;
                    piece.bytes_read += self.view.read(region, &mut piece.data[part.clone()])?;
                    self.view.forget(region);
                    let before = piece.found.len();
                    self.data(&old, part, &mut piece)?;
                    let mut found = piece.found[before..].iter();
                    if found.any(|found| matches!(found, Found::New { .. })) {
                        piece.beside.extend(old.iter().filter_map(stored));
                    }
                }
            }
        }
        Ok(piece)
    }

    fn mark(&self, location: Location, old: &[Run], piece: &mut Piece) {
        let new = match location {
            Location::Base => BlockRef::Base,
            _ => BlockRef::Zero,
        };
        for run in old.iter().filter(|run| run.at != new) {
            let either = matches!(
                (run.at, new),
                (BlockRef::Base, BlockRef::Zero) | (BlockRef::Zero, BlockRef::Base)
            );
            match self.parent.base {
                // Base and zero are the same where the base is zero.
                Some(base) if either => {
                    let differs = |block: &u64| base.block(*block) != BaseBlock::Zero;
                    for start in (run.start..run.end()).filter(differs) {
                        piece.found.push(Found::Known(Run {
                            start,
                            len: 1,
                            at: new,
                        }));
                    }
                }
                _ => piece.found.push(Found::Known(Run { at: new, ..*run })),
            }
        }
    }

    fn data(&self, old: &[Run], part: Range<usize>, piece: &mut Piece) -> Result<()> {
        let (store, parent) = (self.store, &self.parent);
        let size = store.block_size as usize;
        let start = part.start;
        let Piece { found, data, .. } = piece;
        let mut blocks = (start..).step_by(size).zip(data[part].chunks_exact(size));
        for run in old {
            let stored = match run.at {
                BlockRef::Stored { pack, slot } => Some(store.names(pack, slot, run.len)?),
                _ => None,
            };
            for i in 0..run.len {
                let Some((at, bytes)) = blocks.next() else {
                    return Ok(());
                };
                let (block, was) = (run.start + i, run.at.plus(i));
                let known = |at| {
                    Found::Known(Run {
                        start: block,
                        len: 1,
                        at,
                    })
                };
                let base = parent.base.map(|base| base.block(block));
                if is_zero(bytes) {
                    let same = was == BlockRef::Zero
                        || (was == BlockRef::Base && base == Some(BaseBlock::Zero));
                    if !same {
                        found.push(known(BlockRef::Zero));
                    }
                    continue;
                }
                let name = store.cipher.name(bytes);
                if base == Some(BaseBlock::Data(&name)) {
                    if was != BlockRef::Base {
                        found.push(known(BlockRef::Base));
                    }
                    continue;
                }
                let same = |stored: &StoredNames<'_>| stored.holds(i, &name, bytes);
                if stored.as_ref().is_some_and(same) {
                    continue;
                }
                found.push(Found::New { block, name, at });
            }
        }
        Ok(())
    }
}

fn stored(run: &Run) -> Option<Slots> {
    match run.at {
        BlockRef::Stored { pack, slot } => Some((pack, slot, run.len)),
        _ => None,
    }
}

/// Adds what pieces have to the state, and new blocks to the target, in the order of the disk.
fn take(
    store: &Store,
    pieces: &[Piece],
    target: &mut Target<'_>,
    state: &mut ScanState,
    task: &Task<'_>,
) -> Result<()> {
    let size = store.block_size as usize;
    let all = pieces
        .iter()
        .flat_map(|piece| piece.found.iter().map(move |found| (piece, found)));
    let new = all.clone().filter_map(|(piece, found)| match *found {
        Found::New { name, at, .. } => Some((name, &piece.data[at..at + size])),
        Found::Known(_) => None,
    });
    let beside: Vec<Slots> = pieces
        .iter()
        .flat_map(|piece| piece.beside.iter().copied())
        .collect();
    let copies = store.find_blocks(&new.collect::<Vec<_>>(), &beside)?;
    let mut copies = copies.into_iter();
    let ScanState { runs, counts, .. } = state;
    for (piece, found) in all {
        let run = match *found {
            Found::Known(run) => run,
            Found::New { block, name, at } => {
                let copy = copies.next().flatten();
                let known = copy.or_else(|| target.known(&name));
                let kept = match known {
                    Some(kept) => {
                        counts.deduplicated += 1;
                        kept
                    }
                    None => {
                        counts.new += 1;
                        target.push(name, &piece.data[at..at + size], task)?
                    }
                };
                Run {
                    start: block,
                    len: 1,
                    at: kept,
                }
            }
        };
        counts.changed += run.len;
        push_run(runs, run);
    }
    Ok(())
}
