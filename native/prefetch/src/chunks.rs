//! Numbers of chunks, and sets of them.

/// The number of a chunk: its offset in the image divided by the chunk size.
pub type Chunk = u32;

const PAGE_BITS: usize = 1024;
const WORD_BITS: usize = 64;
type Page = [u64; PAGE_BITS / WORD_BITS];

/// A set of chunks: bits, in pages that are allocated when one of their chunks is added.
#[derive(Debug, Clone, Default)]
pub struct ChunkSet {
    pages: Vec<Option<Box<Page>>>,
}

impl ChunkSet {
    /// Adds a chunk; returns whether it was missing.
    pub fn insert(&mut self, chunk: Chunk) -> bool {
        let (page, word, bit) = place(chunk);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let page = self.pages[page].get_or_insert_with(Box::default);
        let added = page[word] & bit == 0;
        page[word] |= bit;
        added
    }

    /// Removes a chunk; returns whether it was there.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let (page, word, bit) = place(chunk);
        let Some(Some(page)) = self.pages.get_mut(page) else {
            return false;
        };
        let removed = page[word] & bit != 0;
        page[word] &= !bit;
        removed
    }

    /// Whether the chunk is in the set.
    #[must_use]
    pub fn contains(&self, chunk: Chunk) -> bool {
        let (page, word, bit) = place(chunk);
        matches!(self.pages.get(page), Some(Some(page)) if page[word] & bit != 0)
    }

    /// The chunks, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + '_ {
        let end = self.pages.len() * PAGE_BITS;
        (0..end)
            .filter_map(|chunk| Chunk::try_from(chunk).ok())
            .filter(|&chunk| self.contains(chunk))
    }
}

fn place(chunk: Chunk) -> (usize, usize, u64) {
    let at = chunk as usize;
    (
        at / PAGE_BITS,
        at % PAGE_BITS / WORD_BITS,
        1 << (at % WORD_BITS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..5000), 0..200)) {
            let (mut set, mut model) = (ChunkSet::default(), BTreeSet::new());
            for (add, chunk) in steps {
                if add {
                    prop_assert_eq!(set.insert(chunk), model.insert(chunk));
                } else {
                    prop_assert_eq!(set.remove(chunk), model.remove(&chunk));
                }
                prop_assert_eq!(set.contains(chunk), model.contains(&chunk));
            }
            prop_assert!(set.iter().eq(model));
        }
    }
}
