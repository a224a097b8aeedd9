//! Where the frames of a compressed form are.

use diffcache_base::words::Words;

use super::{data_groups, raw_len, CompressedError, GROUP_LEAVES, HEADER_LEN, MAGIC, VERSION};
use crate::manifest::Manifest;

/// One frame of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The group of leaves that it holds.
    pub group: u64,
    /// Where it starts in the form, in bytes.
    pub offset: u64,
    /// Its length in the form, in bytes; at most `raw`.
    pub length: usize,
    /// The bytes that it decompresses to, by the manifest.
    pub raw: usize,
}

/// The frames of one form, in order of group. Memory: 32 bytes for each group with data.
#[derive(Debug)]
pub struct Index {
    frames: Vec<Frame>,
}

impl Index {
    /// Returns the bytes of header and lengths of the form that belongs to a manifest.
    pub fn length(manifest: &Manifest) -> u64 {
        HEADER_LEN as u64 + 4 * data_groups(manifest).count() as u64
    }

    /// Reads header and lengths.
    ///
    /// `total` is the length of the whole form in bytes. Nothing is believed that the manifest does not bound: no frame is longer than what it holds.
    ///
    /// # Errors
    /// `Format` if they are damaged, of another content, or not those of a form of `total` bytes; `Version`.
    pub fn parse(bytes: &[u8], total: u64, manifest: &Manifest) -> Result<Index, CompressedError> {
        let wrong = |what: &str| CompressedError::Format(what.to_owned());
        let groups = data_groups(manifest).count();
        let (header, lengths) = bytes
            .split_at_checked(HEADER_LEN)
            .ok_or_else(|| wrong("it is shorter than its header"))?;
        if !header.starts_with(MAGIC) {
            return Err(wrong("it begins with other bytes"));
        }
        let (version, leaves) = (Words(header).le32(8), Words(header).le32(12));
        if version != VERSION || u64::from(leaves) != GROUP_LEAVES {
            return Err(CompressedError::Version {
                name: format!("the compressed form of {}", manifest.content_id_hex()),
                version,
                leaves,
            });
        }
        if header[16..24] != manifest.size().to_le_bytes()
            || header[32..64] != manifest.content_id()
        {
            return Err(wrong("it is of other content"));
        }
        if Words(header).le32(24) as usize != groups || lengths.len() != 4 * groups {
            return Err(wrong("it has another number of frames than its manifest"));
        }
        if header[64..96] != *blake3::hash(lengths).as_bytes() {
            return Err(wrong("the lengths of its frames are damaged"));
        }
        let mut frames = Vec::with_capacity(groups);
        let mut offset = bytes.len() as u64;
        for (group, length) in data_groups(manifest).zip(lengths.chunks_exact(4)) {
            let (length, raw) = (Words(length).le32(0) as usize, raw_len(manifest, group));
            if length == 0 || length > raw {
                return Err(wrong("a frame is longer than what it holds, or empty"));
            }
            frames.push(Frame {
                group,
                offset,
                length,
                raw,
            });
            offset += length as u64;
        }
        match offset == total {
            true => Ok(Index { frames }),
            false => Err(wrong("its frames do not fill it")),
        }
    }

    /// Returns the frame that holds a leaf; `None` if that is zero or past the end.
    pub fn frame_of(&self, leaf: u64) -> Option<&Frame> {
        let group = leaf / GROUP_LEAVES;
        let at = self
            .frames
            .binary_search_by_key(&group, |frame| frame.group);
        self.frames.get(at.ok()?)
    }

    /// Returns all frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use proptest::prelude::*;

    fn sealed(manifest: &Manifest, groups: u32, lengths: &[u8]) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(GROUP_LEAVES as u32).to_le_bytes());
        head.extend_from_slice(&manifest.size().to_le_bytes());
        head.extend_from_slice(&groups.to_le_bytes());
        head.resize(32, 0);
        head.extend_from_slice(&manifest.content_id());
        head.extend_from_slice(blake3::hash(lengths).as_bytes());
        head.resize(HEADER_LEN, 0);
        head.extend_from_slice(lengths);
        head
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_lengths_are_answered_and_bounded(
            leaves in 1u64..80,
            groups in prop_oneof![0u32..12, any::<u32>()],
            lengths in proptest::collection::vec(prop_oneof![1u32..70_000, any::<u32>()], 0..12),
            more in 0u64..3,
            noise in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let content = vec![7u8; (leaves * crate::manifest::LEAF_SIZE) as usize];
            let manifest = Manifest::from_source(&content, &Task::default()).unwrap();
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
            let form = sealed(&manifest, groups, &bytes);
            let total = lengths.iter().fold(form.len() as u64, |sum, length| sum + u64::from(*length));
            if let Ok(index) = Index::parse(&form, total + more, &manifest) {
                prop_assert_eq!(more, 0);
                let end = index.frames().last().map_or(0, |frame| frame.offset + frame.length as u64);
                prop_assert_eq!(end, total);
                prop_assert!(index.frames().iter().all(|frame| frame.length <= frame.raw));
            }
            let _ = Index::parse(&noise, noise.len() as u64, &manifest);
        }
    }
}
