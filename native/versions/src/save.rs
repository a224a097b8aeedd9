//! Saving a disk: a draft, and the packs and the map that make it a version.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use diffcache_core::task::Task;

use crate::crypt::Name;
use crate::disk::{Kept as Lies, View};
use crate::error::{Result, VersionsError};
use crate::journal::{Journal, Left, Place};
use crate::map::{push_run, BlockRef, MapFile, NodeRef, Run};
use crate::pack::{PackOptions, PackSet, Written};
use crate::scan::{go_on, overlay, scan, Look, Spool, Target, SPOOLED};
use crate::scan_state::{Counts, ScanState};
use crate::store::Store;
use crate::tree;

/// What changed on a disk, found but not yet a version.
pub struct Draft {
    /// Bytes of the disk.
    pub size: u64,
    /// How many blocks are what.
    pub counts: Counts,
    /// Bytes that were read of the disk.
    pub bytes_read: u64,
    /// Of these, the ones that an interrupted save had read.
    pub bytes_before: u64,
    changes: Vec<Run>,
    kept: Kept,
}

enum Kept {
    Packs(Vec<Written>),
    Spool(Spool),
    Names(Vec<Name>),
}

/// Where and how a draft is stored.
pub struct SaveOptions {
    /// How packs are made.
    pub packs: PackOptions,
    /// The first number for new packs.
    pub next_pack: u32,
    /// Where the save writes down how far it is; nowhere if it is not to be gone on with.
    pub journal: Option<Place>,
}

/// Finds what changed, and stores what is new in packs at once (the incremental delta).
///
/// # Errors
/// As `scan::scan`.
pub fn incremental(
    look: &Look<'_>,
    options: &SaveOptions,
    session: &mut HashMap<Name, BlockRef>,
) -> Result<Draft> {
    let Some(place) = &options.journal else {
        let mut packs = packs_of(look, options);
        let found = scan(look, &mut Target::Packs(&mut packs), session)?;
        let kept = Kept::Packs(packs.finish(&look.task.silent())?);
        return Ok(draft(look.view, found, 0, kept));
    };
    let (mut journal, left) = journal_of(look, options, place, "packs")?;
    let (state, mut packs) = match left {
        Some(left) => take_up(look, options, left, session)?,
        None => None,
    }
    .map_or_else(
        || {
            let packs = packs_of(look, options);
            journal.forget().map(|()| (ScanState::default(), packs))
        },
        Ok,
    )?;
    let before = state.bytes_read;
    let mut target = Target::Packs(&mut packs);
    let found = go_on(look, &mut target, session, state, Some(&mut journal))?;
    let kept = Kept::Packs(packs.finish(&look.task.silent())?);
    Ok(draft(look.view, found, before, kept))
}

/// Opens the journal of a save, whose new blocks go to a kind of place. Returns also what it had done if it was interrupted.
fn journal_of(
    look: &Look<'_>,
    options: &SaveOptions,
    place: &Place,
    kind: &str,
) -> Result<(Journal, Option<Left>)> {
    let key = key_of(look, options, &format!("{kind} {}", place.tag));
    let (block_size, cipher) = (look.store.block_size, &look.store.cipher);
    Journal::open(&place.path, &key, block_size, cipher)
}

fn packs_of<'a>(look: &Look<'a>, options: &SaveOptions) -> PackSet<'a> {
    let cipher = &look.store.cipher;
    PackSet::new(options.packs.clone(), cipher, options.next_pack)
}

/// Goes on with the packs of an interrupted save; `None` if they do not have what its journal says.
fn take_up<'a>(
    look: &Look<'a>,
    options: &SaveOptions,
    left: Left,
    session: &mut HashMap<Name, BlockRef>,
) -> Result<Option<(ScanState, PackSet<'a>)>> {
    let mut packs = packs_of(look, options);
    if !packs.go_on(&left.frames, left.rest)? {
        return Ok(None);
    }
    for (name, (pack, slot)) in packs.places(&left.frames) {
        session.insert(name, BlockRef::Stored { pack, slot });
    }
    Ok(Some((left.state, packs)))
}

/// What tells a save from all others that would find something else, or put it elsewhere.
fn key_of(look: &Look<'_>, options: &SaveOptions, tag: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let (view, parent) = (look.view, &look.parent);
    let root = match parent.root {
        NodeRef::Zero => [0, 0, 0],
        NodeRef::Base => [1, 0, 0],
        NodeRef::Node { map, index } => [2, map, index],
    };
    for number in root.into_iter().chain([
        options.next_pack,
        look.store.block_size,
        options.packs.level as u32,
        u32::from(parent.has_base),
        u32::from(parent.base.is_some()),
    ]) {
        hasher.update(&number.to_le_bytes());
    }
    for number in [view.size, parent.size, view.regions.len() as u64] {
        hasher.update(&number.to_le_bytes());
    }
    for region in &view.regions {
        let place = match region.kept {
            Lies::Zero => [0, 0, 0],
            Lies::Base => [1, 0, 0],
            Lies::At(offset) => [2, offset, 0],
            Lies::Compressed(offset, len) => [3, offset, len],
        };
        for number in [region.start, region.len].into_iter().chain(place) {
            hasher.update(&number.to_le_bytes());
        }
    }
    hasher.update(tag.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Finds what changed, and spools what is new, so that it can be stored together with blocks that the store already has.
///
/// # Errors
/// As `scan::scan`.
pub fn spooled(
    look: &Look<'_>,
    options: &SaveOptions,
    session: &mut HashMap<Name, BlockRef>,
) -> Result<Draft> {
    let Some(place) = &options.journal else {
        let mut spool = Spool::create(&options.packs.dir, look.store)?;
        let found = scan(look, &mut Target::Spool(&mut spool), session)?;
        return Ok(draft(look.view, found, 0, Kept::Spool(spool)));
    };
    let (mut journal, left) = journal_of(look, options, place, "spool")?;
    let mut spool = Spool::open(&place.path.with_extension("spool"), look.store)?;
    let state = match left {
        Some(left) if spool.go_on(&left.frames)? => left.state,
        _ => {
            journal.forget()?;
            spool.clear()?;
            ScanState::default()
        }
    };
    let before = state.bytes_read;
    let mut target = Target::Spool(&mut spool);
    let found = go_on(look, &mut target, session, state, Some(&mut journal))?;
    Ok(draft(look.view, found, before, Kept::Spool(spool)))
}

/// Finds what changed, and stores nothing.
///
/// # Errors
/// As `scan::scan`.
pub fn compare(look: &Look<'_>) -> Result<Draft> {
    let mut names = Vec::new();
    let found = scan(look, &mut Target::Names(&mut names), &mut HashMap::new())?;
    Ok(draft(look.view, found, 0, Kept::Names(names)))
}

fn draft(view: &View, found: ScanState, before: u64, kept: Kept) -> Draft {
    Draft {
        size: view.size,
        counts: found.counts,
        bytes_read: found.bytes_read,
        bytes_before: before,
        changes: found.runs,
        kept,
    }
}

/// What a save adds to the store.
pub struct Saved {
    /// The new tree.
    pub root: NodeRef,
    /// Its packs.
    pub packs: Vec<Written>,
    /// The file of its map; `None` if the tree is its parent's.
    pub map: Option<PathBuf>,
    /// Bytes of that file.
    pub map_len: u64,
    /// Blocks that were written again though the store had them.
    pub rewritten: u64,
}

impl Draft {
    /// What changed: ascending runs. Blocks that are in no pack yet have the pack `SPOOLED`.
    pub fn changes(&self) -> &[Run] {
        &self.changes
    }

    /// The name of a block that is in no pack yet.
    pub fn spooled_name(&self, slot: u32) -> Option<&Name> {
        match &self.kept {
            Kept::Names(names) => names.get(slot as usize),
            _ => None,
        }
    }

    /// The draft's tree, in memory only; new blocks have the pack `SPOOLED`. `id` is a number no map has.
    ///
    /// # Errors
    /// As `tree::update`.
    pub fn preview(&self, store: &Store, parent: NodeRef, id: u32) -> Result<NodeRef> {
        let mut map = MapFile::new(id, 0);
        let root = tree::update(&store.maps, parent, &self.changes, &mut map)?;
        store.maps.insert(Arc::new(map));
        Ok(root)
    }

    /// Writes what makes the draft a version. `again` are the blocks, ascending ranges (first, count), that are to be stored with the new
    /// ones in the order of the disk though the store has them: the differential groups. Needs a spooled draft if there are any.
    ///
    /// # Errors
    /// `Io`, `Damaged`, `Missing`, `Cancelled`; `Invalid` if the draft was not spooled.
    pub fn store(
        &self,
        store: &Store,
        parent: NodeRef,
        map_id: u32,
        again: &[(u64, u64)],
        options: &SaveOptions,
        task: &Task<'_>,
    ) -> Result<Saved> {
        let (changes, packs, rewritten) = match &self.kept {
            Kept::Packs(packs) if again.is_empty() => (self.changes.clone(), packs.clone(), 0),
            Kept::Spool(spool) => {
                let root = self.preview(store, parent, map_id)?;
                let mut writer = Rewriter::new(store, spool, options);
                writer.run(&self.changes, again, root, task)?;
                writer.finish(task)?
            }
            _ => {
                return Err(VersionsError::Invalid(
                    "this draft was not spooled: it cannot be stored like that".to_owned(),
                ))
            }
        };
        let mut map = MapFile::new(map_id, 0);
        let root = tree::update(&store.maps, parent, &changes, &mut map)?;
        let mut saved = Saved {
            root,
            packs,
            map: None,
            map_len: 0,
            rewritten,
        };
        if !map.is_empty() {
            let bytes = map.encode()?;
            let path = options.packs.dir.join(format!("map-{map_id}-0"));
            std::fs::write(&path, &bytes).map_err(VersionsError::io(path.display().to_string()))?;
            saved.map_len = bytes.len() as u64;
            saved.map = Some(path);
        }
        store.maps.insert(Arc::new(map));
        Ok(saved)
    }
}

/// Writes new blocks and differential groups in the order of the disk.
struct Rewriter<'a> {
    store: &'a Store,
    spool: &'a Spool,
    packs: PackSet<'a>,
    /// Where spooled blocks went.
    placed: HashMap<u32, BlockRef>,
    out: Vec<Run>,
    rewritten: u64,
    block: Vec<u8>,
}

impl<'a> Rewriter<'a> {
    fn new(store: &'a Store, spool: &'a Spool, options: &SaveOptions) -> Self {
        Self {
            store,
            spool,
            packs: PackSet::new(options.packs.clone(), &store.cipher, options.next_pack),
            placed: HashMap::new(),
            out: Vec::new(),
            rewritten: 0,
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
            self.rewritten += 1;
            self.store.read_block(pack, slot, &mut self.block)?;
            *self.store.name(pack, slot)?
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

    fn finish(self, task: &Task<'_>) -> Result<(Vec<Run>, Vec<Written>, u64)> {
        Ok((self.out, self.packs.finish(task)?, self.rewritten))
    }
}
