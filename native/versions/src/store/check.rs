//! Is everything still there, and what can go?

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diffcache_core::task::{for_each_piece, Task};

use crate::error::{Result, VersionsError};
use crate::store::crypt::Name;
use crate::store::frames::{decode_frame, Encoded, Encoder};
use crate::store::nodes::{BlockRef, NodeRef, HEIGHT};
use crate::store::pack_index::{PackIndex, FRAME_BLOCKS, PACK_HEADER};
use crate::store::pack_set::{pack_header, PackWriter, Written};
use crate::store::tree::Live;
use crate::store::{KeptPack, Pack, Store};

/// What is wrong with a pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// One line for each fault.
    pub reasons: Vec<String>,
    /// The slots whose blocks cannot be had.
    pub slots: BTreeSet<u32>,
}

impl Damage {
    /// Whether nothing is wrong.
    pub fn is_none(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Reads a whole pack, and checks its header, its length, every frame and every block's name. `len` is the length that the pack's blob has.
///
/// # Errors
/// `Cancelled`, `Unavailable`; that something is damaged is no error but the answer.
pub fn verify_pack(store: &Store, id: u32, len: u64, task: &Task<'_>) -> Result<Damage> {
    let (pack, index) = (store.pack(id)?, store.index(id)?);
    let mut damage = Damage::default();
    if len != index.data_len {
        damage
            .reasons
            .push(format!("it has {len} bytes instead of {}", index.data_len));
    }
    match store.read(&pack, 0, PACK_HEADER as usize) {
        Ok(header) if header == pack_header(&index) => {}
        Ok(_) => damage.reasons.push("its header is damaged".to_owned()),
        Err(error) => damage.reasons.push(reason(error)?),
    }
    let frames = for_each_piece(task, index.frames.len() as u64, |frame| match verify_frame(
        store,
        &pack,
        &index,
        frame as usize,
    ) {
        Ok(()) => Ok(None),
        Err(error) => reason(error).map(Some),
    })?;
    for (frame, why) in index.frames.iter().zip(frames) {
        if let Some(why) = why {
            damage.reasons.push(why);
            let ranks = frame.first..frame.first + frame.count;
            damage.slots.extend(ranks.map(|rank| index.slot(rank)));
        }
    }
    Ok(damage)
}

/// Returns the reason of damage; other errors are returned as they are.
fn reason(error: VersionsError) -> Result<String> {
    match error {
        VersionsError::Damaged { reason, .. } => Ok(reason),
        VersionsError::Missing(what) => Ok(format!("{what} is missing")),
        VersionsError::Io { name, source } => Ok(format!("{name}: {source}")),
        other => Err(other),
    }
}

fn verify_frame(store: &Store, pack: &Pack, index: &PackIndex, at: usize) -> Result<()> {
    let frame = &index.frames[at];
    let kept = store.read(pack, frame.offset, frame.len as usize)?;
    let cipher = store.cipher_of(pack)?;
    let blocks = decode_frame(index, frame, kept, cipher)?;
    let ranks = frame.first..frame.first + frame.count;
    for (block, rank) in blocks.chunks_exact(index.block_size as usize).zip(ranks) {
        if cipher.name(block) != store.name_at(pack.id, rank)? {
            return Err(VersionsError::damaged(
                index.object(),
                "a block is not what its name says",
            ));
        }
    }
    Ok(())
}

/// Finds the trees that damage affects.
pub struct Hits<'a> {
    store: &'a Store,
    /// Slots that cannot be had, by pack.
    damaged: &'a HashMap<u32, BTreeSet<u32>>,
    known: HashMap<NodeRef, bool>,
    /// Whether the indexes of packs are intact.
    intact: HashMap<u32, bool>,
}

impl<'a> Hits<'a> {
    /// Packs that are missing altogether are simply not in the store.
    pub fn new(store: &'a Store, damaged: &'a HashMap<u32, BTreeSet<u32>>) -> Self {
        Self {
            store,
            damaged,
            known: HashMap::new(),
            intact: HashMap::new(),
        }
    }

    /// Whether a tree needs something that is damaged or missing. Packs themselves are not read.
    ///
    /// # Errors
    /// `Unavailable`: it is not known.
    pub fn hits(&mut self, root: NodeRef) -> Result<bool> {
        self.below(root, HEIGHT)
    }

    fn below(&mut self, node: NodeRef, level: u32) -> Result<bool> {
        if node.uniform().is_some() {
            return Ok(false);
        }
        if let Some(hit) = self.known.get(&node) {
            return Ok(*hit);
        }
        let hit = match level {
            0 => self.leaf(node)?,
            _ => match known(self.store.maps.children(node, level))? {
                None => true,
                Some(children) => {
                    let mut hit = false;
                    for child in children {
                        hit = hit || self.below(child, level - 1)?;
                    }
                    hit
                }
            },
        };
        self.known.insert(node, hit);
        Ok(hit)
    }

    fn leaf(&mut self, node: NodeRef) -> Result<bool> {
        let Some(runs) = known(self.store.maps.leaf(node, 0))? else {
            return Ok(true);
        };
        for run in runs {
            if let BlockRef::Stored { pack, slot } = run.at {
                let slots = slot..=slot.saturating_add(run.len as u32 - 1);
                if !self.is_intact(pack)? || self.lacks(pack, slots)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn is_intact(&mut self, pack: u32) -> Result<bool> {
        if let Some(intact) = self.intact.get(&pack) {
            return Ok(*intact);
        }
        let intact = known(self.store.check_index(pack))?.is_some();
        self.intact.insert(pack, intact);
        Ok(intact)
    }

    fn lacks(&self, pack: u32, slots: RangeInclusive<u32>) -> Result<bool> {
        let damaged = self.damaged.get(&pack);
        if damaged.is_some_and(|bad| bad.range(slots.clone()).next().is_some()) {
            return Ok(true);
        }
        let index = known(self.store.index(pack))?;
        Ok(index.is_none_or(|index| slots.into_iter().any(|slot| index.rank(slot).is_none())))
    }
}

/// What was read of the store; `None` if it is damaged or missing.
///
/// # Errors
/// Those for which it may be neither.
pub fn known<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// How much of a pack is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Blocks that some version needs.
    pub live: u64,
    /// Blocks that no version needs.
    pub dead: u64,
}

/// How much of a pack some trees need. Of a pack whose index cannot be read it is only known what is needed.
///
/// # Errors
/// `Unavailable`.
pub fn need(store: &Store, id: u32, live: &Live) -> Result<Need> {
    let mut need = Need::default();
    let Some(index) = known(store.index(id))? else {
        need.live = live.slots_of(id);
        return Ok(need);
    };
    for slot in index.all_slots() {
        match live.has_slot(id, slot) {
            true => need.live += 1,
            false => need.dead += 1,
        }
    }
    Ok(need)
}

/// How many nodes of a map some trees need. Of a map that cannot be read it is only known what is needed.
///
/// # Errors
/// `Unavailable`.
pub fn need_nodes(store: &Store, id: u32, live: &Live) -> Result<Need> {
    let needed = live.nodes_of(id);
    let dead = known(store.maps.get(id))?.map_or(0, |map| {
        let all = (0..map.len() as u32).filter(|index| map.node(*index).is_ok());
        (all.count() as u64).saturating_sub(needed)
    });
    Ok(Need { live: needed, dead })
}

/// Writes the next generation of a pack: without the blocks that no tree needs. Frames of which all is needed are copied as they are.
///
/// # Errors
/// `Damaged` if what is needed cannot be read; `Io`, `Cancelled`.
pub fn compact(
    store: &Store,
    id: u32,
    live: &Live,
    dir: &Path,
    level: i32,
    task: &Task<'_>,
) -> Result<Written> {
    let mut compactor = Compactor::new(store, id, dir, level)?;
    for at in 0..compactor.index.frames.len() {
        task.check()?;
        compactor.frame(at, live)?;
    }
    compactor.finish()
}

/// The same, but compresses all frames again.
///
/// # Errors
/// As `compact`.
pub fn repack(
    store: &Store,
    id: u32,
    live: &Live,
    dir: &Path,
    level: i32,
    task: &Task<'_>,
) -> Result<Written> {
    let mut compactor = Compactor::new(store, id, dir, level)?;
    let frames = compactor.index.frames.len();
    let meter = task.meter(compactor.index.data_len);
    for at in 0..frames {
        task.check()?;
        let ranks = compactor.needed(at, live);
        compactor.take(at, &ranks)?;
        meter.add(u64::from(compactor.index.frames[at].len));
    }
    compactor.finish()
}

struct Compactor<'a> {
    store: &'a Store,
    pack: Arc<KeptPack>,
    index: Arc<PackIndex>,
    writer: PackWriter,
    encoder: Encoder,
    /// The slots of all blocks that are kept.
    slots: Vec<u32>,
    /// Blocks of frames that are not copied as they are.
    names: Vec<Name>,
    blocks: Vec<u8>,
}

impl<'a> Compactor<'a> {
    fn new(store: &'a Store, id: u32, dir: &Path, level: i32) -> Result<Self> {
        let (pack, old) = (store.pack(id)?, store.index(id)?);
        let new = PackIndex::new(id, old.generation + 1, old.block_size, old.sealed);
        Ok(Self {
            store,
            pack,
            index: old,
            writer: PackWriter::create(dir, new)?,
            encoder: Encoder::new(level),
            slots: Vec::new(),
            names: Vec::new(),
            blocks: Vec::new(),
        })
    }

    fn finish(mut self) -> Result<Written> {
        self.flush()?;
        let total = self.index.slots_total;
        let dropped = (self.slots.len() as u32) < total;
        self.writer.finish(dropped.then_some((self.slots, total)))
    }

    /// The blocks of a frame that are needed, by rank.
    fn needed(&self, at: usize, live: &Live) -> Vec<u32> {
        let index = &self.index;
        let frame = &index.frames[at];
        (frame.first..frame.first + frame.count)
            .filter(|rank| live.has_slot(index.id, index.slot(*rank)))
            .collect()
    }

    fn frame(&mut self, at: usize, live: &Live) -> Result<()> {
        let ranks = self.needed(at, live);
        let whole = ranks.len() == self.index.frames[at].count as usize;
        // A few blocks that wait are better joined with this frame than kept in a small one. The new pack has the present key.
        let whole = whole && self.pack.key == self.store.key();
        match whole && (self.names.is_empty() || self.names.len() >= FRAME_BLOCKS / 2) {
            true => self.copy(at, &ranks),
            false => self.take(at, &ranks),
        }
    }

    /// Keeps a whole frame as it is.
    fn copy(&mut self, at: usize, ranks: &[u32]) -> Result<()> {
        self.flush()?;
        let index = &self.index;
        let frame = &index.frames[at];
        let kept = self
            .store
            .read(&self.pack, frame.offset, frame.len as usize)?;
        decode_frame(index, frame, kept.clone(), &self.store.cipher)?;
        self.slots
            .extend(ranks.iter().map(|rank| index.slot(*rank)));
        let names = self.names_of(ranks)?;
        let encoded = Encoded {
            bytes: kept,
            raw: frame.raw,
            check: frame.check,
        };
        self.writer.append(&names, &encoded)
    }

    /// Keeps some blocks of a frame together with others.
    fn take(&mut self, at: usize, ranks: &[u32]) -> Result<()> {
        if ranks.is_empty() {
            return Ok(());
        }
        let index = Arc::clone(&self.index);
        let blocks = self.store.frame(index.id, at)?;
        let size = index.block_size as usize;
        for (rank, name) in ranks.iter().zip(self.names_of(ranks)?) {
            let start = (rank - index.frames[at].first) as usize * size;
            let block = &blocks[start..start + size];
            self.blocks.extend_from_slice(block);
            self.names.push(match self.pack.key == self.store.key() {
                true => name,
                false => self.store.cipher.name(block),
            });
            self.slots.push(index.slot(*rank));
            if self.names.len() == FRAME_BLOCKS {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn names_of(&self, ranks: &[u32]) -> Result<Vec<Name>> {
        let name = |rank: &u32| self.store.name_at(self.index.id, *rank);
        ranks.iter().map(name).collect()
    }

    fn flush(&mut self) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let frame = self.encoder.encode(&self.blocks, &self.store.cipher)?;
        self.writer.append(&self.names, &frame)?;
        self.names.clear();
        self.blocks.clear();
        Ok(())
    }
}

/// Writes the next generation of a map: without the nodes that no tree needs. Returns the file and its bytes.
///
/// # Errors
/// `Damaged`, `Io`.
pub fn compact_map(store: &Store, id: u32, live: &Live, dir: &Path) -> Result<(PathBuf, u64)> {
    let map = store.maps.get(id)?;
    let bytes = map.without(|index| live.has_node(id, index)).encode()?;
    let path = dir.join(format!("map-{id}-next"));
    std::fs::write(&path, &bytes).map_err(VersionsError::io(path.display().to_string()))?;
    Ok((path, bytes.len() as u64))
}
