//! Saving a disk: a draft, and the packs and the map that make it a version.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use diffcache_core::task::Task;

use crate::crypt::Name;
use crate::disk::View;
use crate::error::{Result, VersionsError};
use crate::map::{push_run, BlockRef, MapFile, NodeRef, Run};
use crate::pack::{PackOptions, PackSet, Written};
use crate::scan::{overlay, scan, Counts, Look, Spool, Target, SPOOLED};
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
    let cipher = &look.store.cipher;
    let mut packs = PackSet::new(options.packs.clone(), cipher, options.next_pack);
    let found = scan(look, &mut Target::Packs(&mut packs), session)?;
    let kept = Kept::Packs(packs.finish(&look.task.silent())?);
    Ok(draft(look.view, found, kept))
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
    let mut spool = Spool::create(&options.packs.dir, look.store.block_size)?;
    let found = scan(look, &mut Target::Spool(&mut spool), session)?;
    Ok(draft(look.view, found, Kept::Spool(spool)))
}

/// Finds what changed, and stores nothing.
///
/// # Errors
/// As `scan::scan`.
pub fn compare(look: &Look<'_>) -> Result<Draft> {
    let mut names = Vec::new();
    let found = scan(look, &mut Target::Names(&mut names), &mut HashMap::new())?;
    Ok(draft(look.view, found, Kept::Names(names)))
}

fn draft(view: &View, (changes, counts): (Vec<Run>, Counts), kept: Kept) -> Draft {
    Draft {
        size: view.size,
        counts,
        bytes_read: view.bytes_read.load(std::sync::atomic::Ordering::Relaxed),
        changes,
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
