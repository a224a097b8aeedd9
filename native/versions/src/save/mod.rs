//! Saving a disk: one call compares it with a version, and writes the packs and the map that make it a version of its own.

pub mod compare;
pub mod disk;
pub mod export;
pub mod groups;
pub mod journal;
pub mod new_packs;
mod overlay;
pub mod recent;
pub mod scan;
pub mod scan_state;
pub mod spool;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Scope;

use diffcache_core::task::Task;

use crate::error::{Result, VersionsError};
use crate::save::compare::{differences, Reference};
use crate::save::disk::{DiskSource, Location, View};
use crate::save::groups::Regrouping;
use crate::save::journal::{Interrupted, Journal};
use crate::save::new_packs::NewPacks;
use crate::save::overlay::overlay;
use crate::save::scan::{Scan, Target};
use crate::save::scan_state::ScanState;
use crate::save::spool::{Spool, SPOOLED};
use crate::store::map::MapFile;
use crate::store::nodes::{push_run, BlockRef, NodeRef, Run};
use crate::store::pack_set::{PackOptions, PackSet, Written};
use crate::store::tree;
use crate::store::Store;

/// Where a save writes its files, and the numbers that they get.
#[derive(Debug, Clone)]
pub struct SaveTarget {
    /// The directory for packs, indexes and the map.
    pub directory: PathBuf,
    /// The number of the new version.
    pub version: u64,
    /// The first number for new packs.
    pub next_pack: u32,
    /// The number of the new map.
    pub next_map: u32,
    /// zstd level of new packs.
    pub level: i32,
    /// Where the save records its progress, if it may be resumed.
    pub journal: Option<JournalPlace>,
}

/// The file of a save's journal, and what identifies the save.
#[derive(Debug, Clone)]
pub struct JournalPlace {
    /// The file.
    pub path: PathBuf,
    /// What the caller knows that must be the same: the store's catalogue, and the disk's state.
    pub tag: String,
}

impl SaveTarget {
    /// The packs of a save. Threads that compress are started in `scope`.
    fn packs<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        store: &'scope Store,
        task: &Task<'_>,
    ) -> PackSet {
        let options = PackOptions {
            dir: self.directory.clone(),
            block_size: store.block_size,
            level: self.level,
        };
        PackSet::new(scope, options, &store.cipher, self.next_pack, task)
    }
}

/// A disk to save, the versions that it is compared with, and where the result is written.
pub struct SaveRequest {
    /// The disk.
    pub source: DiskSource,
    /// The version that the disk is compared with: the parent, or one whose state a snapshot of the disk has.
    pub against: Reference,
    /// The parent, if that is another version.
    pub parent: Option<Reference>,
    /// Which stored blocks are stored again with the new ones; `None` for an incremental version.
    pub regrouping: Option<Regrouping>,
    /// Where the result is written.
    pub target: SaveTarget,
}

/// What a save adds to the store.
#[derive(Debug)]
pub struct SavedDisk {
    /// Bytes of the disk.
    pub size: u64,
    /// The new tree.
    pub root: NodeRef,
    /// The new packs.
    pub packs: Vec<Written>,
    /// The file of the new map; `None` if the tree is that of `against`.
    pub map: Option<PathBuf>,
    /// Bytes of that file.
    pub map_len: u64,
    /// Blocks that differ from the parent's.
    pub blocks_changed: u64,
    /// Bytes that were read of the disk.
    pub bytes_read: u64,
    /// Of these, the ones that an interrupted save had read.
    pub bytes_resumed: u64,
    /// Only what changed since the snapshot of `against` was read.
    pub is_delta: bool,
}

/// What a scan found, and the packs that hold it.
struct Stored {
    state: ScanState,
    bytes_resumed: u64,
    /// What changed, with blocks in packs.
    changes: Vec<Run>,
    packs: Vec<Written>,
}

/// Saves a disk.
///
/// # Errors
/// `Source`, `Qcow2`, `Io`; `Damaged` or `Missing` if what the store has of `against` is; `Invalid` if the disk has too many blocks, or an
/// option is out of range; `Cancelled`.
pub fn save_disk(store: &Store, request: &SaveRequest, task: &Task<'_>) -> Result<SavedDisk> {
    let (source, against) = (&request.source, &request.against);
    let (view, is_delta) = View::open(source, against.snapshot.as_ref(), store.block_size)?;
    let scan = against.scan(store, source, &view, task)?;
    let stored = std::thread::scope(|scope| {
        let packs = || request.target.packs(scope, store, task);
        match &request.regrouping {
            None => store_new(&scan, &request.target, &packs),
            Some(regrouping) => store_regrouped(&scan, regrouping, &request.target, &packs),
        }
    })?;
    let mut saved = SavedDisk {
        size: view.size,
        root: against.root,
        packs: stored.packs,
        map: None,
        map_len: 0,
        blocks_changed: stored.state.counts.changed,
        bytes_read: stored.state.bytes_read,
        bytes_resumed: stored.bytes_resumed,
        is_delta,
    };
    let mut map = MapFile::new(request.target.next_map, 0);
    saved.root = tree::update(&store.maps, against.root, &stored.changes, &mut map)?;
    if !map.is_empty() {
        let bytes = map.encode()?;
        let name = format!("map-{}-0", request.target.next_map);
        let path = request.target.directory.join(name);
        std::fs::write(&path, &bytes).map_err(VersionsError::io(path.display().to_string()))?;
        saved.map_len = bytes.len() as u64;
        saved.map = Some(path);
    }
    store.maps.insert(Arc::new(map));
    Ok(saved)
}

/// Blocks in which a saved disk differs from its parent. The packs of the save must have been added to the store.
///
/// # Errors
/// As `differences`.
pub fn blocks_changed(store: &Store, request: &SaveRequest, saved: &SavedDisk) -> Result<u64> {
    let Some(parent) = &request.parent else {
        return Ok(saved.blocks_changed);
    };
    let base = store.base(request.source.base_id.as_deref())?;
    let end = saved
        .size
        .max(parent.size)
        .div_ceil(u64::from(store.block_size));
    let ranges = differences(store, (parent.root, &[]), saved.root, base, end)?;
    Ok(ranges.iter().map(|(_, count)| count).sum())
}

/// Begins the packs of a save.
type Begin<'a> = &'a dyn Fn() -> PackSet;

/// Stores new blocks in packs at once: the incremental delta.
fn store_new(scan: &Scan<'_>, target: &SaveTarget, packs: Begin<'_>) -> Result<Stored> {
    let (mut journal, interrupted) = open_journal(scan, target, "packs")?.unzip();
    let resumed = match interrupted.flatten() {
        Some(interrupted) => resume_packs(packs(), interrupted)?,
        None => None,
    };
    let (state, mut new) = match resumed {
        Some(resumed) => resumed,
        None => {
            journal.as_mut().map_or(Ok(()), Journal::forget)?;
            (ScanState::default(), NewPacks::new(packs(), []))
        }
    };
    if journal.is_some() {
        new.packs.record();
    }
    let bytes_resumed = state.bytes_read;
    let state = scan::run(scan, &mut Target::Packs(&mut new), state, journal.as_mut())?;
    Ok(Stored {
        bytes_resumed,
        changes: state.runs.clone(),
        packs: new.packs.finish(&scan.task.silent())?,
        state,
    })
}

/// Opens the journal of a save, if it has one. Returns also what the save had done if it was interrupted.
fn open_journal(
    scan: &Scan<'_>,
    target: &SaveTarget,
    kind: &str,
) -> Result<Option<(Journal, Option<Interrupted>)>> {
    let Some(place) = &target.journal else {
        return Ok(None);
    };
    let key = journal_key(scan, target, &format!("{kind} {}", place.tag));
    let (block_size, cipher) = (scan.store.block_size, &scan.store.cipher);
    Journal::open(&place.path, &key, block_size, cipher).map(Some)
}

/// The packs of an interrupted save; `None` if they do not have what its journal says.
fn resume_packs(
    mut packs: PackSet,
    interrupted: Interrupted,
) -> Result<Option<(ScanState, NewPacks)>> {
    let Interrupted {
        state,
        frames,
        rest,
    } = interrupted;
    let left = rest.names.clone();
    if !packs.resume(&frames, rest)? {
        return Ok(None);
    }
    let names = frames.iter().flat_map(|frame| &frame.names).chain(&left);
    Ok(Some((state, NewPacks::new(packs, names.copied()))))
}

/// A hash of all that decides what the save finds, and where it puts that.
fn journal_key(scan: &Scan<'_>, target: &SaveTarget, tag: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let (view, parent) = (scan.view, &scan.parent);
    let root = match parent.root {
        NodeRef::Zero => [0, 0, 0],
        NodeRef::Base => [1, 0, 0],
        NodeRef::Node { map, index } => [2, map, index],
    };
    for number in root.into_iter().chain([
        target.next_pack,
        scan.store.block_size,
        target.level as u32,
        u32::from(parent.has_base),
        u32::from(parent.base.is_some()),
    ]) {
        hasher.update(&number.to_le_bytes());
    }
    for number in [view.size, parent.size, view.regions.len() as u64] {
        hasher.update(&number.to_le_bytes());
    }
    for region in &view.regions {
        let place = match region.location {
            Location::Zero => [0, 0, 0],
            Location::Base => [1, 0, 0],
            Location::At(offset) => [2, offset, 0],
            Location::Compressed(offset, len) => [3, offset, len],
        };
        for number in [region.start, region.len].into_iter().chain(place) {
            hasher.update(&number.to_le_bytes());
        }
    }
    hasher.update(tag.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Stores new blocks together with the groups that are stored again, in the order of the disk.
fn store_regrouped(
    scan: &Scan<'_>,
    regrouping: &Regrouping,
    target: &SaveTarget,
    packs: Begin<'_>,
) -> Result<Stored> {
    let (mut journal, interrupted) = open_journal(scan, target, "spool")?.unzip();
    let mut spool = match &target.journal {
        Some(place) => Spool::open(&place.path.with_extension("spool"), scan.store)?,
        None => Spool::create(&target.directory, scan.store)?,
    };
    let mut state = ScanState::default();
    match interrupted.flatten() {
        Some(interrupted) if spool.resume(&interrupted.frames)? => state = interrupted.state,
        _ => {
            if let Some(journal) = &mut journal {
                journal.forget()?;
            }
            spool.clear()?;
        }
    }
    let bytes_resumed = state.bytes_read;
    let state = scan::run(
        scan,
        &mut Target::Spool(&mut spool),
        state,
        journal.as_mut(),
    )?;
    let store = scan.store;
    let root = tree::preview(&store.maps, scan.parent.root, &state.runs, target.next_map)?;
    let again = regrouping.ranges(store, root, target.version)?;
    let silent = scan.task.silent();
    let mut rewriter = Rewriter::new(store, &spool, packs());
    rewriter.run(&state.runs, &again, root, &silent)?;
    let (changes, packs) = rewriter.finish(&silent)?;
    Ok(Stored {
        state,
        bytes_resumed,
        changes,
        packs,
    })
}

/// Writes new blocks and differential groups in the order of the disk.
struct Rewriter<'a> {
    store: &'a Store,
    spool: &'a Spool,
    packs: PackSet,
    /// Where spooled blocks went.
    placed: HashMap<u32, BlockRef>,
    out: Vec<Run>,
    block: Vec<u8>,
}

impl<'a> Rewriter<'a> {
    fn new(store: &'a Store, spool: &'a Spool, packs: PackSet) -> Self {
        Self {
            store,
            spool,
            packs,
            placed: HashMap::new(),
            out: Vec::new(),
            block: vec![0; store.block_size as usize],
        }
    }

    fn run(
        &mut self,
        changes: &[Run],
        again: &[(u64, u64)],
        root: NodeRef,
        task: &Task<'_>,
    ) -> Result<()> {
        let mut runs = Vec::new();
        for (start, len) in again {
            tree::runs(
                &self.store.maps,
                root,
                *start,
                start.saturating_add(*len),
                &mut |run| {
                    push_run(&mut runs, run);
                    Ok(())
                },
            )?;
        }
        let mut groups = runs.iter().peekable();
        for run in overlay(changes, &runs) {
            for i in 0..run.len {
                let at = run.start + i;
                while groups.next_if(|group| group.end() <= at).is_some() {}
                let again = groups.peek().is_some_and(|group| group.start <= at);
                let kept = self.place(run.at.plus(i), again, task)?;
                push_run(
                    &mut self.out,
                    Run {
                        start: at,
                        len: 1,
                        at: kept,
                    },
                );
            }
        }
        Ok(())
    }

    fn place(&mut self, kept: BlockRef, again: bool, task: &Task<'_>) -> Result<BlockRef> {
        let BlockRef::Stored { pack, slot } = kept else {
            return Ok(kept);
        };
        let name = if pack == SPOOLED {
            if let Some(placed) = self.placed.get(&slot) {
                return Ok(*placed);
            }
            self.spool.read(slot, &mut self.block)?
        } else if again {
            self.store.read_block(pack, slot, &mut self.block)?;
            self.store.present_name(pack, slot)?
        } else {
            return Ok(kept);
        };
        let (to, at) = self.packs.push(name, &self.block, task)?;
        let placed = BlockRef::Stored { pack: to, slot: at };
        if pack == SPOOLED {
            self.placed.insert(slot, placed);
        }
        Ok(placed)
    }

    fn finish(self, task: &Task<'_>) -> Result<(Vec<Run>, Vec<Written>)> {
        Ok((self.out, self.packs.finish(task)?))
    }
}
