//! The rest of the file that a read belongs to.
//!
//! A program that reads a part of a file often reads the rest of it, and a file may be stored in pieces that do not follow each other.

use std::collections::HashMap;

use crate::chunks::Chunk;

/// Bytes of an image that hold a file's content from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// The first byte in the image.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// Number of the file.
    pub file: u32,
    /// Where in the file the first byte is.
    pub position: u64,
}

/// The files of an image.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// By their place in the image.
    extents: Vec<FileExtent>,
    /// Which extents a file has, by position.
    files: HashMap<u32, Vec<usize>>,
}

impl Files {
    /// The files with these extents. Of extents that overlap, any may be found.
    #[must_use]
    pub fn new(mut extents: Vec<FileExtent>) -> Self {
        extents.retain(|extent| extent.start < extent.end);
        extents.sort_unstable_by_key(|extent| (extent.start, extent.file));
        let mut files: HashMap<u32, Vec<usize>> = HashMap::new();
        for (number, extent) in extents.iter().enumerate() {
            files.entry(extent.file).or_default().push(number);
        }
        for numbers in files.values_mut() {
            numbers.sort_by_key(|&number| extents[number].position);
        }
        Self { extents, files }
    }

    /// Returns the chunks that hold what follows a byte of the image in its file, in the file's order: at most so many, without the chunk of
    /// the byte itself. None if it belongs to no file.
    #[must_use]
    pub fn rest(&self, byte: u64, chunk_bytes: u64, most: usize) -> Vec<Chunk> {
        let mut found: Vec<Chunk> = Vec::new();
        let after = self.extents.partition_point(|extent| extent.start <= byte);
        let Some(here) = after.checked_sub(1).map(|at| self.extents[at]) else {
            return found;
        };
        if byte >= here.end || chunk_bytes == 0 {
            return found;
        }
        let own = byte / chunk_bytes;
        let numbers = self.files.get(&here.file).map_or(&[][..], Vec::as_slice);
        let first = numbers.partition_point(|&n| self.extents[n].position < here.position);
        for &number in &numbers[first..] {
            let extent = self.extents[number];
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

    fn extent(start: u64, end: u64, file: u32, position: u64) -> FileExtent {
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
            rows in prop::collection::vec((0u64..9000, 0u64..3000, 0u32..4, 0u64..9000), 0..12),
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
