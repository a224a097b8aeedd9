//! The rest of the file that a read belongs to.
//!
//! A program that reads a part of a file often reads the rest of it, and a file may be stored in pieces that do not follow each other.

use std::collections::BTreeMap;

use crate::chunks::Chunk;

/// Bytes of an image that hold a file's content from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// The first byte in the image.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// Number of the file.
    pub file: u64,
    /// Where in the file the first byte is.
    pub position: u64,
}

/// The files of an image, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// By the first byte.
    extents: BTreeMap<u64, FileExtent>,
    /// The first byte of each extent, by its file and the position in that: one tree for all, of which files of one extent take no more than others.
    places: BTreeMap<(u64, u64), u64>,
}

impl Files {
    /// The files with these extents. Of extents that overlap, any may be found.
    #[must_use]
    pub fn new(extents: impl IntoIterator<Item = FileExtent>) -> Self {
        let mut files = Self::default();
        extents.into_iter().for_each(|extent| files.add(extent));
        files
    }

    /// Adds an extent, in place of one that begins with the same byte.
    pub fn add(&mut self, extent: FileExtent) {
        if extent.start < extent.end {
            self.places
                .insert((extent.file, extent.position), extent.start);
            self.extents.insert(extent.start, extent);
        }
    }

    /// Returns the chunks that hold what follows a byte of the image in its file, in the file's order: at most this many, without the chunk of
    /// the byte itself. None if it belongs to no file that is known.
    #[must_use]
    pub fn rest(&self, byte: u64, chunk_bytes: u64, most: usize) -> Vec<Chunk> {
        let before = self.extents.range(..=byte).next_back();
        let here = before.filter(|(_, extent)| byte < extent.end && chunk_bytes > 0);
        let Some((_, here)) = here else {
            return Vec::new();
        };
        let own = byte / chunk_bytes;
        let following = (here.file, here.position)..=(here.file, u64::MAX);
        let following = self.places.range(following);
        // Of extents that overlap, one may have taken another's place.
        let following = following.filter_map(|(_, start)| self.extents.get(start));
        let mut found: Vec<Chunk> = Vec::new();
        for extent in following {
            let start = match extent == here {
                true => byte,
                false => extent.start,
            };
            for chunk in start / chunk_bytes..=(extent.end - 1) / chunk_bytes {
                if found.len() >= most {
                    return found;
                }
                let Ok(number) = Chunk::try_from(chunk) else {
                    continue;
                };
                if chunk != own && !found.contains(&number) {
                    found.push(number);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(start: u64, end: u64, file: u64, position: u64) -> FileExtent {
        FileExtent {
            start,
            end,
            file,
            position,
        }
    }

    #[test]
    fn follows_the_pieces_of_the_file() {
        let files = Files::new(vec![
            extent(1000, 1500, 7, 2000),
            extent(3000, 5000, 7, 0),
            extent(5000, 9000, 8, 0),
        ]);
        assert_eq!(vec![4, 1], files.rest(3100, 1000, 9));
        assert_eq!(vec![4], files.rest(3100, 1000, 1));
        assert_eq!(vec![1], files.rest(4999, 1000, 9));
        assert!(files.rest(1200, 1000, 9).is_empty());
        for nowhere in [0, 999, 1500, 2999, 9000, u64::MAX] {
            assert!(files.rest(nowhere, 1000, 9).is_empty());
        }
        assert!(Files::default().rest(0, 1000, 9).is_empty());
    }

    proptest! {
        #[test]
        fn finds_chunks_of_the_file_once(
            rows in prop::collection::vec((0u64..9000, 0u64..3000, 0u64..4, 0u64..9000), 0..12),
            byte in 0u64..12_000,
            most in 0usize..9,
        ) {
            let extents: Vec<_> = rows
                .iter()
                .map(|&(start, length, file, position)| extent(start, start + length, file, position))
                .collect();
            let found = Files::new(extents.clone()).rest(byte, 1000, most);
            prop_assert!(found.len() <= most);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), found.len());
            for chunk in found {
                let chunk = u64::from(chunk);
                let holds = |e: &&FileExtent| e.start < (chunk + 1) * 1000 && chunk * 1000 < e.end;
                prop_assert!(chunk != byte / 1000);
                prop_assert!(extents.iter().any(|e| holds(&e)));
            }
        }
    }
}
