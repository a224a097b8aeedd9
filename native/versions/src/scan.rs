//! Finding what changed on a disk since a version.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use diffcache_core::manifest::is_zero;
use diffcache_core::task::{for_each_piece, Task};

use crate::base::{BaseBlock, BaseIndex};
use crate::crypt::{Cipher, Name, SEAL_LEN};
use crate::disk::{Kept, Region, View, PIECE};
use crate::error::{Result, VersionsError};
use crate::journal::Journal;
use crate::map::{push_run, BlockRef, NodeRef, Run, MAX_BLOCKS};
use crate::pack::{PackSet, Packed, Unpacked, CHECK_LEN};
use crate::scan_state::ScanState;
use crate::store::Store;
use crate::tree;

/// The pack number that stands for blocks of a draft that are not in a pack yet; their slot is their place in the spool.
pub const SPOOLED: u32 = u32::MAX;
/// What messages call the spool.
const SPOOL: &str = "the spool of new blocks";
/// Pieces that are read before what is new in them is written.
const BATCH: usize = 32;
/// Bytes that are read before a long save writes down how far it is.
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

/// New blocks that wait until it is known which others they are stored with. They lie in a file, sealed if frames are.
pub struct Spool {
    file: File,
    cipher: Cipher,
    names: Vec<Name>,
    /// Of these, the ones that were written down.
    told: usize,
    known: HashMap<Name, u32>,
    /// Bytes that a block takes in the file.
    step: usize,
}

impl Spool {
    /// An empty spool in a directory, for blocks of a store. Its file loses its name at once: nobody will go on with it.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(dir: &Path, store: &Store) -> Result<Self> {
        let path = dir.join(format!("spool-{}", std::process::id()));
        let spool = Self::open(&path, store)?;
        std::fs::remove_file(&path).map_err(VersionsError::io(path.display().to_string()))?;
        Ok(spool)
    }

    /// The spool in a file, which is made if there is none. What the file has counts only after `go_on`.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(path: &Path, store: &Store) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(VersionsError::io(path.display().to_string()))?;
        let sealing = if store.cipher.seals() { SEAL_LEN } else { 0 };
        Ok(Self {
            file,
            cipher: store.cipher.clone(),
            names: Vec::new(),
            told: 0,
            known: HashMap::new(),
            step: store.block_size as usize + sealing,
        })
    }

    /// Takes up the blocks that an interrupted save wrote down. Tells by `false` that the file does not have them: it is empty then.
    ///
    /// # Errors
    /// `Io`.
    pub fn go_on(&mut self, written: &[Packed]) -> Result<bool> {
        let names = written.iter().flat_map(|part| &part.names);
        self.names = names.copied().collect();
        self.told = self.names.len();
        let whole = (0..self.told as u32).all(|slot| self.has(slot));
        match whole {
            true => self.known = self.names.iter().copied().zip(0..).collect(),
            false => self.clear()?,
        }
        Ok(whole)
    }

    /// Whether the file has the block of a slot.
    fn has(&self, slot: u32) -> bool {
        let sealing = if self.cipher.seals() { SEAL_LEN } else { 0 };
        let mut block = vec![0; self.step - sealing];
        let name = self.read(slot, &mut block);
        name.is_ok_and(|name| self.cipher.name(&block) == name)
    }

    /// Forgets all blocks.
    ///
    /// # Errors
    /// `Io`.
    pub fn clear(&mut self) -> Result<()> {
        self.names.clear();
        self.known.clear();
        self.told = 0;
        self.file.set_len(0).map_err(VersionsError::io(SPOOL))
    }

    /// What came since anybody asked, for a journal: only the names count.
    fn fresh(&mut self) -> Packed {
        let names = self.names.split_at(self.told).1.to_vec();
        self.told = self.names.len();
        Packed {
            pack: SPOOLED,
            len: 0,
            raw: true,
            check: [0; CHECK_LEN],
            names,
        }
    }

    fn push(&mut self, name: Name, block: &[u8]) -> Result<BlockRef> {
        let slot = self.names.len() as u32;
        let offset = u64::from(slot) * self.step as u64;
        self.file
            .write_all_at(&self.cipher.seal(block.to_vec())?, offset)
            .map_err(VersionsError::io(SPOOL))?;
        self.names.push(name);
        self.known.insert(name, slot);
        Ok(BlockRef::Stored {
            pack: SPOOLED,
            slot,
        })
    }

    /// A block and its name.
    ///
    /// # Errors
    /// `Io`, `Missing`, `Damaged`.
    pub fn read(&self, slot: u32, out: &mut [u8]) -> Result<Name> {
        let name = self.names.get(slot as usize);
        let name = name.ok_or_else(|| VersionsError::Missing(format!("spooled block {slot}")))?;
        let mut kept = vec![0; self.step];
        self.file
            .read_exact_at(&mut kept, u64::from(slot) * self.step as u64)
            .map_err(VersionsError::io(SPOOL))?;
        out.copy_from_slice(&self.cipher.open(kept, SPOOL)?);
        Ok(*name)
    }
}

/// Where new blocks go.
pub enum Target<'a, 'b> {
    /// Into packs at once.
    Packs(&'a mut PackSet<'b>),
    /// Into a spool, to be stored with others.
    Spool(&'a mut Spool),
    /// Nowhere: only what differs is wanted. Gets the names of new blocks; their place there is their slot.
    Names(&'a mut Vec<Name>),
}

impl Target<'_, '_> {
    fn known(&self, name: &Name, session: &HashMap<Name, BlockRef>) -> Option<BlockRef> {
        match self {
            Target::Packs(_) => session.get(name).copied(),
            Target::Names(_) => None,
            Target::Spool(spool) => {
                let spooled = spool.known.get(name).map(|slot| BlockRef::Stored {
                    pack: SPOOLED,
                    slot: *slot,
                });
                spooled.or_else(|| session.get(name).copied())
            }
        }
    }

    fn push(&mut self, name: Name, block: &[u8], task: &Task<'_>) -> Result<BlockRef> {
        match self {
            Target::Packs(packs) => {
                let (pack, slot) = packs.push(name, block, task)?;
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
}

impl Limiter {
    fn wait(&self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
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
    found: Vec<Found>,
    /// What was read; more may follow that means nothing.
    data: Vec<u8>,
}

/// Buffers that are used again: the pages of fresh ones cost as much as what is read into them.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of at least so many bytes, whatever they are.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is looked at, and what it is compared with.
pub struct Look<'a> {
    /// The store.
    pub store: &'a Store,
    /// The disk.
    pub view: &'a View,
    /// What it is compared with.
    pub parent: Parent<'a>,
    /// At most so many bytes are read in a second.
    pub rate: Option<f64>,
    /// Hears of what was read.
    pub task: &'a Task<'a>,
}

/// What changed: ascending runs, of which new blocks are where `target` put them.
///
/// `session` has the blocks that other disks, saved together with this one, brought.
///
/// # Errors
/// `Source`, `Qcow2`, `Io`; `Damaged` or `Missing` if the parent's maps are; `Invalid` if the disk has too many blocks; `Cancelled`.
pub fn scan(
    look: &Look<'_>,
    target: &mut Target<'_, '_>,
    session: &mut HashMap<Name, BlockRef>,
) -> Result<ScanState> {
    go_on(look, target, session, ScanState::default(), None)
}

/// The same from where `state` is. A long scan writes down in `journal` how far it is.
///
/// # Errors
/// As `scan`.
pub fn go_on(
    look: &Look<'_>,
    target: &mut Target<'_, '_>,
    session: &mut HashMap<Name, BlockRef>,
    mut state: ScanState,
    mut journal: Option<&mut Journal>,
) -> Result<ScanState> {
    let view = look.view;
    if view.size.div_ceil(u64::from(look.store.block_size)) > MAX_BLOCKS {
        return Err(VersionsError::Invalid(format!(
            "a disk of {} bytes: with blocks of {} bytes a version has room for {MAX_BLOCKS} blocks; use a store with larger ones",
            view.size, look.store.block_size,
        )));
    }
    let limiter = Limiter {
        rate: look.rate,
        started: Instant::now(),
    };
    let meter = look.task.meter(view.bytes_to_read());
    let silent = look.task.silent();
    let groups = group(&view.regions);
    let (behind, ahead) = groups.split_at(groups.len().min(state.pieces as usize));
    match behind.len() {
        0 => resize(look, &mut state.runs),
        _ => meter.add(behind.iter().map(|regions| to_read(regions)).sum()),
    }
    let before = state.bytes_read;
    let mut recorded = before;
    let buffers = Buffers::default();
    for batch in ahead.chunks(BATCH) {
        let pieces = for_each_piece(&silent, batch.len() as u64, |piece| {
            let regions = &batch[piece as usize];
            let found = look.at(regions, &buffers)?;
            meter.add(to_read(regions));
            limiter.wait(view.bytes_read.load(std::sync::atomic::Ordering::Relaxed));
            Ok::<_, VersionsError>(found)
        })?;
        for piece in pieces {
            take(look.store, &piece, target, session, &mut state, &silent)?;
            buffers.give(piece.data);
        }
        state.pieces += batch.len() as u64;
        state.bytes_read = before + view.bytes_read.load(std::sync::atomic::Ordering::Relaxed);
        if state.bytes_read - recorded >= INTERVAL {
            record(journal.as_deref_mut(), &state, target)?;
            recorded = state.bytes_read;
        }
    }
    // What was too little to be written down on the way is quickly read again.
    if recorded > 0 && state.bytes_read > recorded {
        record(journal, &state, target)?;
    }
    state.bytes_read = before + view.bytes_read.load(std::sync::atomic::Ordering::Relaxed);
    state.runs = settle(state.runs);
    Ok(state)
}

fn record(
    journal: Option<&mut Journal>,
    state: &ScanState,
    target: &mut Target<'_, '_>,
) -> Result<()> {
    let Some(journal) = journal else {
        return Ok(());
    };
    match target {
        Target::Packs(packs) => {
            let (frames, rest) = packs.fresh();
            journal.record(state, &frames, rest)
        }
        Target::Spool(spool) => journal.record(state, &[spool.fresh()], &Unpacked::default()),
        Target::Names(_) => Ok(()),
    }
}

fn to_read(regions: &[Region]) -> u64 {
    let read = |region: &&Region| matches!(region.kept, Kept::At(_) | Kept::Compressed(..));
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
fn resize(look: &Look<'_>, runs: &mut Vec<Run>) {
    let block = u64::from(look.store.block_size);
    let parent = &look.parent;
    let (old, new) = (parent.size.div_ceil(block), look.view.size.div_ceil(block));
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

/// Later runs win; what `resize` put first gives way to what was read.
fn settle(runs: Vec<Run>) -> Vec<Run> {
    let ordered = runs.windows(2).all(|pair| pair[0].end() <= pair[1].start);
    match runs.split_first() {
        Some((first, rest)) if !ordered => overlay(std::slice::from_ref(first), rest),
        _ => runs,
    }
}

/// `upper` laid over `lower`; both ascending.
pub fn overlay(lower: &[Run], upper: &[Run]) -> Vec<Run> {
    let mut out = Vec::with_capacity(lower.len() + upper.len());
    let mut upper = upper.iter().peekable();
    for low in lower {
        let mut at = low.start;
        while let Some(up) = upper.peek() {
            if up.start >= low.end() {
                break;
            }
            if let Some(run) = low.clip(at, up.start) {
                push_run(&mut out, run);
            }
            push_run(&mut out, **up);
            at = at.max(up.end());
            upper.next();
        }
        if let Some(run) = low.clip(at, low.end()) {
            push_run(&mut out, run);
        }
        // What lies over the end of this run hides the start of the next, too.
        if at > low.end() {
            return overlay_rest(lower, out, upper.copied().collect());
        }
    }
    for up in upper {
        push_run(&mut out, *up);
    }
    out
}

/// Goes on after an upper run that reached beyond its lower one.
fn overlay_rest(lower: &[Run], mut out: Vec<Run>, upper: Vec<Run>) -> Vec<Run> {
    let at = out.last().map_or(0, Run::end);
    let rest: Vec<Run> = lower
        .iter()
        .filter_map(|run| run.clip(at, u64::MAX))
        .collect();
    for run in overlay(&rest, &upper) {
        push_run(&mut out, run);
    }
    out
}

impl Look<'_> {
    /// Finds what the parent does not have in some regions.
    fn at(&self, regions: &[Region], buffers: &Buffers) -> Result<Piece> {
        let block = u64::from(self.store.block_size);
        let padded = |region: &Region| region.len.next_multiple_of(block) as usize;
        let read = |region: &&Region| matches!(region.kept, Kept::At(_) | Kept::Compressed(..));
        let mut piece = Piece {
            found: Vec::new(),
            data: buffers.take(regions.iter().filter(read).map(padded).sum()),
        };
        let mut filled = 0;
        for region in regions {
            let (from, to) = (
                region.start / block,
                (region.start + region.len).div_ceil(block),
            );
            let old = tree::collect(&self.store.maps, self.parent.root, from, to)?;
            match region.kept {
                Kept::Zero | Kept::Base => self.mark(region.kept, &old, &mut piece),
                Kept::At(_) | Kept::Compressed(..) => {
                    let part = filled..filled + padded(region);
                    filled = part.end;
                    self.view.read(region, &mut piece.data[part.clone()])?;
                    self.view.forget(region);
                    self.data(&old, part, &mut piece)?;
                }
            }
        }
        Ok(piece)
    }

    fn mark(&self, kept: Kept, old: &[Run], piece: &mut Piece) {
        let new = match kept {
            Kept::Base => BlockRef::Base,
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
        let Piece { found, data } = piece;
        let mut blocks = (start..).step_by(size).zip(data[part].chunks_exact(size));
        for run in old {
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
                if let BlockRef::Stored { pack, slot } = was {
                    if *store.name(pack, slot)? == name {
                        continue;
                    }
                }
                found.push(Found::New { block, name, at });
            }
        }
        Ok(())
    }
}

/// Puts what is new where it belongs, in the order of the disk.
fn take(
    store: &Store,
    piece: &Piece,
    target: &mut Target<'_, '_>,
    session: &mut HashMap<Name, BlockRef>,
    state: &mut ScanState,
    task: &Task<'_>,
) -> Result<()> {
    let size = store.block_size as usize;
    let ScanState { runs, counts, .. } = state;
    for found in &piece.found {
        let run = match *found {
            Found::Known(run) => run,
            Found::New { block, name, at } => {
                let known = store.find(&name).or_else(|| target.known(&name, session));
                let kept = match known {
                    Some(kept) => {
                        counts.deduplicated += 1;
                        kept
                    }
                    None => {
                        counts.new += 1;
                        let kept = target.push(name, &piece.data[at..at + size], task)?;
                        if matches!(target, Target::Packs(_)) {
                            session.insert(name, kept);
                        }
                        kept
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_runs() -> impl Strategy<Value = Vec<Run>> {
        proptest::collection::vec((0u64..5, 1u64..9, 0u32..3), 0..8).prop_map(|parts| {
            let (mut out, mut at) = (Vec::new(), 0);
            for (gap, len, pack) in parts {
                let start = at + gap;
                let at_pack = BlockRef::Stored { pack, slot: 7 };
                out.push(Run {
                    start,
                    len,
                    at: at_pack,
                });
                at = start + len;
            }
            out
        })
    }

    fn paint(runs: &[Run], canvas: &mut [Option<BlockRef>]) {
        for run in runs {
            for i in 0..run.len {
                canvas[(run.start + i) as usize] = Some(run.at.plus(i));
            }
        }
    }

    #[test]
    fn spooled_blocks_are_not_in_the_clear_where_frames_are_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(512, Some(&[3; 32])).unwrap();
        let mut spool = Spool::create(dir.path(), &store).unwrap();
        let blocks = [[7u8; 512], [8; 512]];
        for block in &blocks {
            spool.push(store.cipher.name(block), block).unwrap();
        }
        let mut kept = vec![0; spool.file.metadata().unwrap().len() as usize];
        spool.file.read_exact_at(&mut kept, 0).unwrap();
        assert!(!kept.windows(8).any(|part| part == [7; 8] || part == [8; 8]));
        let mut found = [0; 512];
        assert_eq!(
            spool.read(1, &mut found).unwrap(),
            store.cipher.name(&blocks[1])
        );
        assert_eq!(found, blocks[1]);
    }

    #[test]
    fn a_spool_goes_on_with_what_its_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        for key in [None, Some(&[3; 32])] {
            let store = Store::new(512, key).unwrap();
            let mut spool = Spool::open(&path, &store).unwrap();
            spool.clear().unwrap();
            let mut written = Vec::new();
            for byte in 1..5 {
                let block = [byte; 512];
                spool.push(store.cipher.name(&block), &block).unwrap();
                written.push(spool.fresh());
            }
            let mut again = Spool::open(&path, &store).unwrap();
            assert!(again.go_on(&written[..3]).unwrap());
            assert_eq!(again.names, spool.names[..3]);
            assert!(again.fresh().names.is_empty());
            let mut found = [0; 512];
            again.read(2, &mut found).unwrap();
            assert_eq!(found, [3; 512]);
            // A byte of the second block.
            let at = again.step as u64 + 100;
            again.file.write_all_at(&[9], at).unwrap();
            let mut torn = Spool::open(&path, &store).unwrap();
            assert!(!torn.go_on(&written[..3]).unwrap());
            assert!(torn.names.is_empty() && torn.known.is_empty());
        }
    }

    proptest! {
        #[test]
        fn overlays_are_what_painting_gives(lower in some_runs(), upper in some_runs()) {
            let mut wanted = vec![None; 128];
            paint(&lower, &mut wanted);
            paint(&upper, &mut wanted);
            let laid = overlay(&lower, &upper);
            prop_assert!(laid.windows(2).all(|pair| pair[0].end() <= pair[1].start));
            let mut got = vec![None; 128];
            paint(&laid, &mut got);
            prop_assert_eq!(got, wanted);
        }
    }
}
