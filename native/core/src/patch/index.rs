//! Finding a block of the base by its content.

/// Most blocks that an index holds; of larger bases one block in 2^k is indexed. 8 million entries of 8 bytes at half load are 128 MiB.
const MAX_ENTRIES: u64 = 1 << 23;
/// Copies of one content that are indexed: more would only slow down lookups.
const MAX_COPIES: usize = 4;
const EMPTY: u64 = u64::MAX;

/// Returns the hash by which blocks are found. A hit is always compared byte by byte, so that the hash need not withstand an adversary.
pub fn block_hash(block: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(block)
}

/// Which blocks of a base take part in its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    mask: u64,
}

impl Sampling {
    /// Takes every block for a base of up to 32 GiB of data, fewer for larger ones.
    pub fn for_blocks(blocks: u64) -> Sampling {
        let keep = blocks.div_ceil(MAX_ENTRIES).next_power_of_two();
        Sampling { mask: keep - 1 }
    }

    /// Returns whether blocks with this hash take part.
    pub fn takes(self, hash: u64) -> bool {
        hash & self.mask == 0
    }

    /// Estimates how many of this many blocks take part.
    pub fn expected(self, blocks: u64) -> usize {
        (blocks / (self.mask + 1)) as usize
    }

    /// Returns whether all blocks take part.
    pub fn is_complete(self) -> bool {
        self.mask == 0
    }
}

/// An open-addressing table from block hashes to block numbers.
pub struct BlockIndex {
    slots: Vec<u64>,
    sampling: Sampling,
    /// Slots in use.
    taken: usize,
}

impl BlockIndex {
    /// Returns an empty index with room for `count` blocks.
    pub fn with_room(sampling: Sampling, count: usize) -> BlockIndex {
        BlockIndex {
            slots: vec![EMPTY; (count * 2).next_power_of_two().max(16)],
            sampling,
            taken: 0,
        }
    }

    /// Builds the index from (hash, block) pairs, which should come in order of block: the first copies of a content are kept.
    pub fn new(
        sampling: Sampling,
        count: usize,
        entries: impl Iterator<Item = (u64, u32)>,
    ) -> BlockIndex {
        let mut index = BlockIndex::with_room(sampling, count);
        for (hash, block) in entries {
            index.insert(hash, block);
        }
        index
    }

    fn home(&self, hash: u64) -> usize {
        // The low bits choose the sample, so the place comes from the middle and the tag from the top.
        (hash >> 12) as usize & (self.slots.len() - 1)
    }

    /// Adds a block, unless the index is nearly full.
    pub fn insert(&mut self, hash: u64, block: u32) {
        if self.taken >= self.slots.len() / 4 * 3 {
            return;
        }
        let tag = hash >> 32;
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        let mut copies = 0;
        while self.slots[at] != EMPTY {
            if self.slots[at] >> 32 == tag {
                copies += 1;
                if copies == MAX_COPIES {
                    return;
                }
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = tag << 32 | u64::from(block);
        self.taken += 1;
    }

    /// Returns the blocks that may have the content with this hash, in order of insertion.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let tag = hash >> 32;
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        let slots = std::iter::from_fn(move || {
            let slot = self.slots[at];
            at = (at + 1) & mask;
            (slot != EMPTY).then_some(slot)
        });
        slots
            .filter(move |slot| slot >> 32 == tag)
            .map(|slot| slot as u32)
    }

    /// Returns which blocks are indexed.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inserted_block_is_found() {
        let hashes: Vec<u64> = (0..1000u64).map(|i| block_hash(&i.to_le_bytes())).collect();
        let entries = hashes.iter().enumerate().map(|(i, hash)| (*hash, i as u32));
        let index = BlockIndex::new(Sampling::for_blocks(1000), 1000, entries);
        for (i, hash) in hashes.iter().enumerate() {
            assert!(index.candidates(*hash).any(|block| block == i as u32));
        }
        assert_eq!(index.candidates(block_hash(b"another")).count(), 0);
    }

    #[test]
    fn copies_beyond_a_few_are_forgotten() {
        let index = BlockIndex::new(Sampling::for_blocks(100), 100, (0..100).map(|i| (42, i)));
        assert_eq!(index.candidates(42).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn huge_bases_are_sampled() {
        assert!(Sampling::for_blocks(1 << 23).is_complete());
        let sampling = Sampling::for_blocks((1 << 23) + 1);
        assert!(sampling.takes(2) && !sampling.takes(1));
    }
}
