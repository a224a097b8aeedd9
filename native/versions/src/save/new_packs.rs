//! Blocks that a save has put into packs, by their names.

use crate::save::recent::Recent;
use crate::store::crypt::Name;
use crate::store::nodes::BlockRef;
use crate::store::pack_set::PackSet;

/// The packs of a save, and the blocks that it put there.
pub struct NewPacks {
    /// The packs.
    pub packs: PackSet,
    /// How many blocks were given to them.
    given: u32,
    /// When the last ones were given.
    positions: Recent<u32>,
}

impl NewPacks {
    /// Packs that have some blocks.
    pub fn new(packs: PackSet, names: impl IntoIterator<Item = Name>) -> Self {
        let mut new = Self {
            packs,
            given: 0,
            positions: Recent::default(),
        };
        names.into_iter().for_each(|name| new.add(name));
        new
    }

    /// Adds the block that was given to the packs last.
    pub fn add(&mut self, name: Name) {
        self.positions.insert(name, self.given);
        self.given += 1;
    }

    /// Where a block is, by its name, if it is one of the last.
    pub fn find(&self, name: &Name) -> Option<BlockRef> {
        let (pack, slot) = self.packs.place(*self.positions.get(name)?);
        Some(BlockRef::Stored { pack, slot })
    }
}
