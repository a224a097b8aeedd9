//! Where the blocks are that a save found last, in memory that does not grow with the disk.

use std::collections::HashMap;

use crate::store::crypt::Name;

/// Names of a generation, at most: those of 3.5 GiB of blocks of 4 KiB, of which a table of 40 MB is just full.
const LIMIT: usize = 7 << 17;

/// Places by name: all of the last ones, of which there is room for two generations.
pub struct Recent<V> {
    young: HashMap<Name, V>,
    old: HashMap<Name, V>,
    limit: usize,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl<V> Recent<V> {
    fn new(limit: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            limit,
        }
    }

    /// Adds a place; forgets the older generation if the younger one is full.
    pub fn insert(&mut self, name: Name, place: V) {
        if self.young.len() == self.limit {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(name, place);
    }

    /// The place of the block with a name, if it is one of the last.
    pub fn get(&self, name: &Name) -> Option<&V> {
        self.young.get(name).or_else(|| self.old.get(name))
    }

    /// Forgets all places.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::crypt::NAME_LEN;

    fn name(number: u32) -> Name {
        let mut name = [0; NAME_LEN];
        name[..4].copy_from_slice(&number.to_le_bytes());
        name
    }

    #[test]
    fn the_last_ones_are_known_and_no_more_than_there_is_room_for() {
        let mut recent = Recent::new(10);
        for number in 0..1000 {
            recent.insert(name(number), number);
            let from = number.saturating_sub(9);
            assert!((from..=number).all(|each| recent.get(&name(each)) == Some(&each)));
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert_eq!(recent.get(&name(5)), None);
        recent.clear();
        assert_eq!(recent.get(&name(999)), None);
    }
}
