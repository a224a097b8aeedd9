//! Where blocks of all packs are, by name.

use std::collections::BTreeMap;

use diffcache_base::words::Words;

use super::crypt::{Name, NAME_LEN};
use super::nodes::BlockRef;
use super::Pack;

/// Where blocks are, by name: open addressing, one word for each block. A word has the pack's place in the list (24 bits), the block's
/// rank (24 bits) and 16 bits of the name; zero is empty.
pub(super) struct Table {
    words: Vec<u64>,
    ids: Vec<u32>,
}

impl Table {
    pub(super) fn build(packs: &BTreeMap<u32, Pack>) -> Table {
        let blocks: usize = packs.values().map(|pack| pack.index.names.len()).sum();
        let mut table = Table {
            words: vec![0; (blocks * 2).next_power_of_two().max(16)],
            ids: packs.keys().copied().collect(),
        };
        for (place, pack) in packs.values().enumerate().take((1 << 24) - 1) {
            for (rank, name) in pack.index.names.iter().enumerate() {
                let word = (place as u64 + 1) << 40 | (rank as u64) << 16 | u64::from(tag(name));
                table.insert(home(name), word);
            }
        }
        table
    }

    pub(super) fn insert(&mut self, home: u64, word: u64) {
        let mask = self.words.len() - 1;
        let mut at = home as usize & mask;
        while self.words[at] != 0 {
            at = (at + 1) & mask;
        }
        self.words[at] = word;
    }

    pub(super) fn find(&self, packs: &BTreeMap<u32, Pack>, name: &Name) -> Option<BlockRef> {
        let mask = self.words.len() - 1;
        let mut at = home(name) as usize & mask;
        while self.words[at] != 0 {
            let word = self.words[at];
            if word as u16 == tag(name) {
                let id = self.ids[(word >> 40) as usize - 1];
                let rank = (word >> 16 & 0xff_ffff) as u32;
                let index = &packs.get(&id)?.index;
                if index.names.get(rank as usize) == Some(name) {
                    return Some(BlockRef::Stored {
                        pack: id,
                        slot: index.slot(rank),
                    });
                }
            }
            at = (at + 1) & mask;
        }
        None
    }
}

fn home(name: &Name) -> u64 {
    Words(name).le64(0)
}

fn tag(name: &Name) -> u16 {
    Words(name).le16(NAME_LEN - 2)
}
