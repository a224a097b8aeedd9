//! Finding copies of blocks in all packs, with memory that does not grow with these.
//!
//! A block is copied together with its neighbours, mostly: where hooks among new blocks are found, and where the parent has the blocks
//! that these replace, the names of the blocks that were written there are read, a section of an index, and blocks are searched in the
//! sections that were read last. So some copies are stored again (sparse indexing: Lillibridge and others, FAST 2009). A store that is small
//! beside what is searched is searched whole.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::check::known;
use super::crypt::Name;
use super::hooks::{head, is_hook, take_hooks, Hook};
use super::nodes::BlockRef;
use super::pack_index::SECTION;
use super::Store;
use crate::error::Result;

/// Sections in which blocks are searched, at most: the names of 1 GiB of blocks of 4 KiB.
const NEAR: usize = 256;

/// Sections that are read for the blocks of one call, at most.
const BEST: usize = 128;

/// A store of this many sections is searched whole for any block.
const SMALL: usize = 16;

/// A larger one is searched whole once a block was searched for this many of its blocks.
const FEW: usize = 64;

/// Where a hook is so near to a section's end, the section behind that end is read, too.
const EDGE: u32 = 128;

/// Blocks that a hook stands for.
const HOOK_WEIGHT: u64 = 32;

/// A section of a pack's index.
type Section = (u32, u32);

/// Blocks of a pack in successive slots: the pack, the first slot, and how many.
pub type Slots = (u32, u32, u64);

/// Where blocks are, as far as hooks lead to them.
#[derive(Default)]
pub(super) struct Search {
    /// Hooks of packs that this process wrote, by the names' first bytes.
    own: HashMap<u64, Hook>,
    /// Packs and ranks of blocks in the sections that were read, by the names' first bytes.
    near: HashMap<u64, (u32, u32)>,
    /// The sections that were read, those used last at the end.
    read: VecDeque<(Section, Arc<Vec<Name>>)>,
    /// Blocks that were searched.
    searched: usize,
    /// All sections were read.
    is_whole: bool,
}

impl Search {
    /// Adds a pack that was just written, with all of its blocks.
    ///
    /// # Errors
    /// As `Store::index`.
    pub(super) fn add(&mut self, store: &Store, pack: u32) -> Result<()> {
        let index = store.index(pack)?;
        let mut hooks = Vec::new();
        store.each_section(pack, &mut |section, names| {
            take_hooks(&index, section, &names, &mut hooks);
            self.keep((pack, section), Arc::new(names));
        })?;
        self.own
            .extend(hooks.into_iter().map(|hook| (hook.name, hook)));
        Ok(())
    }

    /// Reads the sections in which copies of blocks with some names may be: all of a small store, else the best.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn look_around(
        &mut self,
        store: &Store,
        names: &[Name],
        beside: &[Slots],
    ) -> Result<()> {
        self.searched += names.len();
        if self.is_whole || self.read_whole(store)? {
            return Ok(());
        }
        self.read_best(store, names, beside)
    }

    /// Reads the sections to which the hooks among some names lead most often, and those of the blocks beside.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn read_best(
        &mut self,
        store: &Store,
        names: &[Name],
        beside: &[Slots],
    ) -> Result<()> {
        let mut best: Vec<(u64, Section)> = self
            .sections(store, names, beside)?
            .into_iter()
            .map(|(section, weight)| (weight, section))
            .collect();
        best.sort_unstable_by(|one, other| other.cmp(one));
        best.truncate(BEST);
        // The best ones are to stay the longest.
        for (_, section) in best.into_iter().rev() {
            self.read_section(store, section)?;
        }
        Ok(())
    }

    /// Reads all sections if the store has few beside the blocks that were searched. Packs whose indexes are damaged are left out.
    fn read_whole(&mut self, store: &Store) -> Result<bool> {
        let sections = |blocks: u32| blocks.div_ceil(SECTION) as usize;
        let packs = match store.is_large() {
            true => return Ok(false),
            false => store.packs(),
        };
        let all: usize = packs.iter().map(|pack| sections(pack.blocks)).sum();
        let most = SMALL.max(self.searched * FEW / SECTION as usize);
        self.is_whole = all <= most.min(NEAR);
        if self.is_whole {
            self.near.clear();
            self.read.clear();
            for pack in packs {
                known(store.each_section(pack.id, &mut |section, names| {
                    self.keep((pack.id, section), Arc::new(names));
                }))?;
            }
        }
        Ok(self.is_whole)
    }

    /// The sections that may have copies of blocks with some names, and how many of the blocks speak for each.
    fn sections(
        &self,
        store: &Store,
        names: &[Name],
        beside: &[Slots],
    ) -> Result<HashMap<Section, u64>> {
        let mut weights: HashMap<Section, u64> = HashMap::new();
        for name in names.iter().filter(|name| is_hook(name)) {
            let name = head(name);
            let own = self.own.get(&name).copied();
            let hook = match own {
                Some(hook) => Some(hook),
                None => store.hook(name)?,
            };
            let Some(hook) = hook else {
                continue;
            };
            let from = hook.slot.saturating_sub(EDGE);
            let to = hook.slot.saturating_add(EDGE);
            let at = store.sections_of(hook.pack, hook.slot, hook.slot);
            let around = store.sections_of(hook.pack, from, to);
            for section in known(around)?.into_iter().flatten() {
                weights.entry((hook.pack, section)).or_default();
            }
            for section in known(at)?.into_iter().flatten() {
                *weights.entry((hook.pack, section)).or_default() += HOOK_WEIGHT;
            }
        }
        for (pack, slot, count) in beside.iter().copied().filter(|(.., count)| *count > 0) {
            let last = slot.saturating_add((count - 1) as u32);
            if let Some(sections) = known(store.sections_of(pack, slot, last))? {
                let each = count / sections.clone().count().max(1) as u64;
                for section in sections {
                    *weights.entry((pack, section)).or_default() += each;
                }
            }
        }
        Ok(weights)
    }

    fn read_section(&mut self, store: &Store, section: Section) -> Result<()> {
        let read = self.read.iter().position(|(read, _)| *read == section);
        if let Some(read) = read.and_then(|at| self.read.remove(at)) {
            self.read.push_back(read);
        } else if let Some(names) = known(store.section(section.0, section.1))? {
            self.keep(section, names);
        }
        Ok(())
    }

    fn keep(&mut self, section: Section, names: Arc<Vec<Name>>) {
        self.near.extend(places(section, &names));
        self.read.push_back((section, names));
        if self.read.len() <= NEAR {
            return;
        }
        self.is_whole = false;
        if let Some((section, names)) = self.read.pop_front() {
            for (name, place) in places(section, &names) {
                // Another section may have the block, too.
                if self.near.get(&name) == Some(&place) {
                    self.near.remove(&name);
                }
            }
        }
    }

    /// Where a block with a name is, if a section that was read has it.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn find(&self, store: &Store, name: &Name) -> Result<Option<BlockRef>> {
        let Some((pack, rank)) = self.near.get(&head(name)).copied() else {
            return Ok(None);
        };
        let found = store.name_at(pack, rank).and_then(|stored| {
            let slot = store.index(pack)?.slot(rank);
            Ok((stored == *name).then_some(BlockRef::Stored { pack, slot }))
        });
        Ok(known(found)?.flatten())
    }
}

impl Store {
    /// The sections with the names of blocks from one slot to another, or of those beside if they were dropped.
    ///
    /// # Errors
    /// As `index`.
    fn sections_of(&self, pack: u32, first: u32, last: u32) -> Result<RangeInclusive<u32>> {
        let index = self.index(pack)?;
        let section = |slot| index.rank_near(slot) / SECTION;
        Ok(section(first)..=section(last))
    }
}

/// The first bytes of the names of a section, with the pack and the ranks of the blocks.
fn places(
    (pack, section): Section,
    names: &[Name],
) -> impl Iterator<Item = (u64, (u32, u32))> + '_ {
    let ranks = section * SECTION..;
    let place = move |(name, rank)| (head(name), (pack, rank));
    names.iter().zip(ranks).map(place)
}
