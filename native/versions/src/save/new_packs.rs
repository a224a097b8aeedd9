//! Blocks that a save has put into packs, by their names.

use std::collections::HashMap;

use crate::store::crypt::Name;
use crate::store::nodes::BlockRef;
use crate::store::pack_set::PackSet;

/// The packs of a save, and the blocks that it put there.
pub struct NewPacks {
    /// The packs.
    pub packs: PackSet,
    /// The names of their blocks, in the order in which these were given.
    names: Vec<Name>,
    /// Positions there, by the names' first bytes: a map of whole names to places takes twice the memory.
    positions: HashMap<[u8; 8], u32>,
}

impl NewPacks {
    /// Packs that have some blocks.
    pub fn new(packs: PackSet, names: impl IntoIterator<Item = Name>) -> Self {
        let mut new = Self {
            packs,
            names: Vec::new(),
            positions: HashMap::new(),
        };
        names.into_iter().for_each(|name| new.add(name));
        new
    }

    /// Adds the block that was given to the packs last.
    pub fn add(&mut self, name: Name) {
        let position = self.names.len() as u32;
        self.positions.entry(first_bytes(&name)).or_insert(position);
        self.names.push(name);
    }

    /// Where a block is, by its name.
    pub fn find(&self, name: &Name) -> Option<BlockRef> {
        let position = *self.positions.get(&first_bytes(name))?;
        let same = self.names.get(position as usize) == Some(name);
        let (pack, slot) = self.packs.place(position);
        same.then_some(BlockRef::Stored { pack, slot })
    }
}

fn first_bytes(name: &Name) -> [u8; 8] {
    std::array::from_fn(|at| name[at])
}
