//! A group of leaves that arrives in the compressed form.

use std::ops::Range;

use diffcache_core::compressed::{data_leaves, Arriving, CompressedError, Frame, GROUP_LEAVES};
use diffcache_core::leaf::LEAF_LEN;
use diffcache_core::manifest::Manifest;

use crate::sizes::{CHUNK, GROUP_CHUNKS};

/// Bytes of the image, as far as the frame of their group has come.
pub struct Group {
    frame: Arriving,
    number: u64,
    bytes: Vec<u8>,
    /// Data leaves: where they are in the group, and in what the frame decompresses to.
    leaves: Vec<(usize, Range<usize>)>,
    /// Leaves that have come.
    come: usize,
}

impl Group {
    /// Expect the frame of a group.
    ///
    /// # Errors
    /// `Zstd` if there is no decoder.
    pub fn new(frame: &Frame, manifest: &Manifest) -> Result<Group, CompressedError> {
        let start = frame.group * GROUP_CHUNKS * CHUNK;
        let len = manifest
            .size()
            .saturating_sub(start)
            .min(GROUP_CHUNKS * CHUNK) as usize;
        let mut raw = 0;
        let place = |(leaf, length): (u64, usize)| {
            let at = (leaf - frame.group * GROUP_LEAVES) as usize * LEAF_LEN;
            raw += length;
            (at, raw - length..raw)
        };
        Ok(Group {
            frame: Arriving::new(frame)?,
            number: frame.group,
            bytes: vec![0; len],
            leaves: data_leaves(manifest, frame.group).map(place).collect(),
            come: 0,
        })
    }

    /// Take all bytes of the frame that have come, and return the bytes of the group that are known, from its beginning.
    pub fn extend(&mut self, frame: &[u8]) -> &[u8] {
        let raw = self.frame.extend(frame);
        while let Some((at, within)) = self.leaves.get(self.come) {
            let Some(leaf) = raw.get(within.clone()) else {
                break;
            };
            self.bytes[*at..*at + leaf.len()].copy_from_slice(leaf);
            self.come += 1;
        }
        let known = self.leaves.get(self.come);
        &self.bytes[..known.map_or(self.bytes.len(), |(at, _)| *at)]
    }

    /// Return where chunks are in the group.
    pub fn span(&self, run: &Range<u64>) -> Range<usize> {
        let first = self.number * GROUP_CHUNKS;
        let at = |chunk: u64| ((chunk - first) * CHUNK) as usize;
        at(run.start)..at(run.end).min(self.bytes.len())
    }

    /// Return the chunks, by number; none if some have not come.
    pub fn chunks(&self) -> Option<Vec<(u64, Vec<u8>)>> {
        let numbered = self.bytes.chunks(CHUNK as usize).map(<[u8]>::to_vec);
        let numbers = self.number * GROUP_CHUNKS..;
        (self.come == self.leaves.len()).then(|| numbers.zip(numbered).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diffcache_core::compressed::Encoder;
    use diffcache_core::manifest::{leaf_hash, Builder, LeafHash};
    use diffcache_core::task::Task;

    /// Leaves of text, but for the second, which is zeros.
    fn content() -> Vec<u8> {
        let numbers = (0u32..).flat_map(|number| number.to_string().into_bytes());
        let mut content: Vec<u8> = numbers.take(5 * LEAF_LEN + 77).collect();
        content[LEAF_LEN..2 * LEAF_LEN].fill(0);
        content
    }

    fn manifest(content: &[u8]) -> Manifest {
        let mut builder = Builder::new(content.len() as u64);
        for (index, leaf) in (0..).zip(content.chunks(LEAF_LEN)) {
            let hash = match leaf.iter().all(|byte| *byte == 0) {
                true => LeafHash::Zero,
                false => LeafHash::Data(leaf_hash(index, leaf)),
            };
            builder.add(index, &[hash]);
        }
        builder.finish(&Task::default()).unwrap()
    }

    #[test]
    fn chunks_come_with_the_bytes_of_their_frame() {
        let content = content();
        let manifest = manifest(&content);
        let raw = [&content[..LEAF_LEN], &content[2 * LEAF_LEN..]].concat();
        let mut bytes = Vec::new();
        assert!(Encoder::new(3).unwrap().encode(&raw, &mut bytes).unwrap());
        let frame = Frame {
            group: 0,
            offset: 0,
            length: bytes.len(),
            raw: raw.len(),
        };
        let mut group = Group::new(&frame, &manifest).unwrap();
        assert_eq!(group.span(&(1..2)), CHUNK as usize..content.len());
        let mut known = Vec::new();
        for come in (0..bytes.len()).step_by(1000) {
            let found = group.extend(&bytes[..come]);
            assert_eq!(found, &content[..found.len()]);
            known.push(found.len());
            assert_eq!(group.chunks(), None);
        }
        known.dedup();
        // A block of zstd has two leaves, between which are the zeros.
        assert_eq!(known[..2], [0, 3 * LEAF_LEN]);
        assert_eq!(group.extend(&bytes), &content[..]);
        let chunks = content.chunks(CHUNK as usize).map(<[u8]>::to_vec);
        assert_eq!(group.chunks(), Some((0..).zip(chunks).collect()));
    }

    #[test]
    fn a_damaged_frame_gives_no_chunks() {
        let content = content();
        let manifest = manifest(&content);
        let frame = Frame {
            group: 0,
            offset: 0,
            length: 100,
            raw: content.len() - LEAF_LEN,
        };
        let mut group = Group::new(&frame, &manifest).unwrap();
        group.extend(&[7; 100]);
        assert_eq!(group.chunks(), None);
    }
}
