//! Where the frames of a compressed form are.

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
    /// `Format` if they are damaged, of another content or version, or not those of a form of `total` bytes.
    pub fn parse(bytes: &[u8], total: u64, manifest: &Manifest) -> Result<Index, CompressedError> {
        let wrong = |what: &str| CompressedError::Format(what.to_owned());
        let groups = data_groups(manifest).count();
        let (header, lengths) = bytes
            .split_at_checked(HEADER_LEN)
            .ok_or_else(|| wrong("it is shorter than its header"))?;
        if !header.starts_with(MAGIC) {
            return Err(wrong("it begins with other bytes"));
        }
        if u32_at(header, 8) != VERSION || u64::from(u32_at(header, 12)) != GROUP_LEAVES {
            return Err(wrong("this program does not know its version"));
        }
        if header[16..24] != manifest.size().to_le_bytes()
            || header[32..64] != manifest.content_id()
        {
            return Err(wrong("it is of other content"));
        }
        if u32_at(header, 24) as usize != groups || lengths.len() != 4 * groups {
            return Err(wrong("it has another number of frames than its manifest"));
        }
        if header[64..96] != *blake3::hash(lengths).as_bytes() {
            return Err(wrong("the lengths of its frames are damaged"));
        }
        let mut frames = Vec::with_capacity(groups);
        let mut offset = bytes.len() as u64;
        for (group, length) in data_groups(manifest).zip(lengths.chunks_exact(4)) {
            let (length, raw) = (u32_at(length, 0) as usize, raw_len(manifest, group));
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

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
