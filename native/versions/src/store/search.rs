//! Finding copies of blocks in all packs, with memory that grows little with these.
//!
//! One name in [`HOOK_IN`] is a *hook*. A block is copied together with its neighbours, mostly: where a hook is found, the names of the
//! blocks that were written beside it are read, a section of an index, and blocks are searched in the sections that were read last. So some
//! copies are stored again (sparse indexing: Lillibridge and others, FAST 2009). A store of few blocks is searched whole.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use diffcache_base::words::Words;

use super::check::known;
use super::crypt::{Name, NAME_LEN};
use super::nodes::BlockRef;
use super::pack_index::SECTION;
use super::Store;
use crate::error::Result;

/// Of so many names one is a hook.
const HOOK_IN: u8 = 32;

/// Sections in which blocks are searched, at most: the names of 1 GiB of blocks of 4 KiB.
const NEAR: usize = 256;

/// Sections that are read for some blocks, at most.
const BEST: usize = 16;

/// A section of a pack's index.
type Section = (u32, u32);

/// Where blocks are, as far as hooks lead to them.
#[derive(Default)]
pub(super) struct Search {
    /// Where blocks whose names are hooks were written last, by the names' first bytes.
    hooks: HashMap<u64, Section>,
    /// Packs and ranks of blocks in the sections that were read, by the names' first bytes.
    near: HashMap<u64, (u32, u32)>,
    /// The sections that were read, those used last at the end.
    read: VecDeque<(Section, Arc<Vec<Name>>)>,
}

impl Search {
    /// Finds the hooks of all packs. Those whose indexes are damaged are left out.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn build(store: &Store) -> Result<Search> {
        let mut search = Search::default();
        let sections = |blocks: u32| blocks.div_ceil(SECTION) as usize;
        let all = store
            .packs()
            .map(|pack| sections(pack.blocks))
            .sum::<usize>();
        for pack in store.packs() {
            known(search.add(store, pack.id, all <= NEAR))?;
        }
        Ok(search)
    }

    /// Adds the hooks of a pack, and if they are wanted all of its blocks.
    ///
    /// # Errors
    /// As `Store::index`.
    pub(super) fn add(&mut self, store: &Store, pack: u32, whole: bool) -> Result<()> {
        store.each_section(pack, &mut |section, names| {
            let hooks = names.iter().filter(|name| is_hook(name));
            self.hooks
                .extend(hooks.map(|name| (head(name), (pack, section))));
            if whole {
                self.keep((pack, section), Arc::new(names));
            }
        })
    }

    /// Reads the sections to which the hooks among some names lead most often.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn look_around(&mut self, store: &Store, names: &[Name]) -> Result<()> {
        let mut hits: HashMap<Section, usize> = HashMap::new();
        for name in names.iter().filter(|name| is_hook(name)) {
            if let Some(section) = self.hooks.get(&head(name)) {
                *hits.entry(*section).or_default() += 1;
            }
        }
        let mut best: Vec<(usize, Section)> = hits.into_iter().map(|(at, n)| (n, at)).collect();
        best.sort_unstable_by(|one, other| other.cmp(one));
        best.truncate(BEST);
        // The best ones are to stay the longest.
        for (_, section) in best.into_iter().rev() {
            let read = self.read.iter().position(|(read, _)| *read == section);
            if let Some(read) = read.and_then(|at| self.read.remove(at)) {
                self.read.push_back(read);
            } else if let Some(names) = known(store.section(section.0, section.1))? {
                self.keep(section, names);
            }
        }
        Ok(())
    }

    fn keep(&mut self, section: Section, names: Arc<Vec<Name>>) {
        self.near.extend(places(section, &names));
        self.read.push_back((section, names));
        if self.read.len() <= NEAR {
            return;
        }
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

/// The names of a store with a key are keyed hashes, those of others hashes: any of their bits are as good.
pub(super) fn is_hook(name: &Name) -> bool {
    name[NAME_LEN - 1] % HOOK_IN == 0
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

fn head(name: &Name) -> u64 {
    Words(name).le64(0)
}
