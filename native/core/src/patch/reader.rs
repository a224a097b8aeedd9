//! Reading the target of a patch through base and patch.

use std::sync::Arc;

use diffcache_base::hex;

use super::error::PatchError;
use super::format::{
    decode_frames, decode_map, frame_check, read_meta, Coded, Frame, FrameKind, Header, HEADER_LEN,
};
use super::frame_cache::{decompress, Decoded, FrameCache};
use super::leaves::{changed_leaves, leaf_runs};
use super::runs::{within, Run, Src, BLOCK, BLOCK_LEN};
use crate::manifest::{leaf_count, Hash, LeafHash, Manifest, LEAF_SIZE};
use crate::near::pack::unpack;
use crate::source::{read_padded, ReadAt, SourceError};
use crate::task::Task;

/// Ranges of the base closer than this are read in one go.
const BASE_GAP: u64 = 16 << 10;
/// Frames that are decoded at a time, and most blocks of them (32 MiB) but for the first.
const DECODED_FRAMES: usize = 32;
const DECODED_BLOCKS: u32 = 1 << 13;

/// An opened and checked patch: everything but the frames themselves is in memory.
pub struct PatchFile<P> {
    patch: P,
    header: Header,
    runs: Vec<Run>,
    coded: Coded,
    /// Changed leaves of the target in order, and their chaining values.
    changed: Vec<u32>,
    hashes: Vec<u8>,
}

impl<P: ReadAt> PatchFile<P> {
    /// Reads and checks everything but the frames: in two reads, at the start and at the end of the file.
    ///
    /// # Errors
    /// `Format` if this is no patch that we know, `Corrupt` if it was damaged or cut, `Source`.
    pub fn open(patch: P) -> Result<PatchFile<P>, PatchError> {
        let header = Header::read(&patch)?;
        let meta = read_meta(&patch, &header)?;
        let (map, rest) = meta.split_at(header.map_len as usize);
        let (records, hashes) = rest.split_at(header.frames_len as usize);
        let (runs, literals) = decode_map(map, &header)?;
        let (frames, pieces) = decode_frames(records, &header, literals)?;
        let changed = changed_leaves(&header, &runs);
        if changed.len() as u64 != header.leaves {
            return Err(PatchError::Format(
                "the leaves contradict the map".to_owned(),
            ));
        }
        Ok(PatchFile {
            patch,
            header,
            runs,
            coded: Coded { frames, pieces },
            changed,
            hashes: hashes.to_vec(),
        })
    }

    /// Returns the fixed part.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the runs of the target's blocks, in order, without gaps.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the leaves that are neither all zero nor the base's at the same place, in order.
    pub fn changed_leaves(&self) -> &[u32] {
        &self.changed
    }

    /// Returns the leaves that have to be built where all others are the base's already: the changed ones, or the only one.
    pub fn leaves_to_build(&self) -> Vec<u32> {
        match leaf_count(self.header.target_size) {
            1 => vec![0],
            _ => self.changed.clone(),
        }
    }

    /// Returns whether a leaf is among the changed ones, and if so its chaining value.
    pub fn changed_hash(&self, leaf: u64) -> Option<Hash> {
        let at = self
            .changed
            .binary_search(&u32::try_from(leaf).ok()?)
            .ok()?;
        let mut hash = [0; 32];
        hash.copy_from_slice(self.hashes.get(at * 32..at * 32 + 32)?);
        Some(hash)
    }

    /// Returns whether all blocks of a leaf are marked zero.
    pub fn is_zero_leaf(&self, leaf: u64) -> bool {
        leaf_runs(&self.runs, leaf).all(|run| run.src == Src::Zero)
    }

    /// Returns the target's manifest, from the base's.
    ///
    /// # Errors
    /// `BaseMismatch` if the manifest is of another base; `Corrupt` if the outcome is not the target that the header names; `Cancelled`.
    pub fn target_manifest(
        &self,
        base: &Manifest,
        task: &Task<'_>,
    ) -> Result<Manifest, PatchError> {
        if base.content_id() != self.header.base_hash {
            return Err(self.base_mismatch(format!("its content id is {}", base.content_id_hex())));
        }
        if self.header.target_size <= LEAF_SIZE {
            return Ok(Manifest::of_hash(
                self.header.target_size,
                self.header.target_hash,
            )?);
        }
        let leaf = |leaf: u64| {
            let inherited = || base.leaf(leaf).unwrap_or(LeafHash::Zero);
            match self.changed_hash(leaf) {
                Some(hash) => LeafHash::Data(hash),
                None if self.is_zero_leaf(leaf) => LeafHash::Zero,
                None => inherited(),
            }
        };
        let target = Manifest::from_leaves(
            self.header.target_size,
            (0..leaf_count(self.header.target_size)).map(leaf),
            task,
        )?;
        if target.content_id() != self.header.target_hash {
            return Err(PatchError::Corrupt(
                "base and leaves do not merge to the target's content id".to_owned(),
            ));
        }
        Ok(target)
    }

    /// Returns the error for a base that is another one.
    pub fn base_mismatch(&self, reason: String) -> PatchError {
        PatchError::BaseMismatch {
            expected: hex::encode(&self.header.base_hash),
            reason,
        }
    }

    /// Fails if the base cannot be the one that the patch was made from, by its size.
    ///
    /// # Errors
    /// `BaseMismatch`.
    pub fn check_base_size(&self, base: &dyn ReadAt) -> Result<(), PatchError> {
        if base.len() == self.header.base_size {
            return Ok(());
        }
        Err(self.base_mismatch(format!(
            "it has {} bytes, not {}",
            base.len(),
            self.header.base_size
        )))
    }

    /// Fills `buf` with the target's bytes from block `first` on; past the target's end with zeroes. What comes out is as good as base and patch
    /// are: the caller compares it with a manifest. `cache` keeps decoded frames for the next call.
    ///
    /// # Errors
    /// `Source`, `Corrupt` if a frame is damaged.
    pub fn rebuild(
        &self,
        base: &dyn ReadAt,
        first: u32,
        buf: &mut [u8],
        cache: &FrameCache,
    ) -> Result<(), PatchError> {
        let end = first + buf.len().div_ceil(BLOCK_LEN) as u32;
        let mut from_base = Vec::new();
        let mut from_patch = Vec::new();
        let mut at = first;
        for run in within(&self.runs, first, end) {
            at = run.end();
            match run.src {
                Src::Zero => slot(buf, first, run).fill(0),
                Src::Base(block) => from_base.push((block, run)),
                Src::Literal(_) => from_patch.push(run),
            }
        }
        if at < end {
            slot(
                buf,
                first,
                Run {
                    start: at,
                    len: end - at,
                    src: Src::Zero,
                },
            )
            .fill(0);
        }
        copy_from_base(base, from_base, first, buf)?;
        self.copy_literals(base, &from_patch, first, buf, cache)
    }

    fn copy_literals(
        &self,
        base: &dyn ReadAt,
        runs: &[Run],
        first: u32,
        buf: &mut [u8],
        cache: &FrameCache,
    ) -> Result<(), PatchError> {
        let mut wanted: Vec<u32> = Vec::new();
        for run in runs {
            if let Src::Literal(at) = run.src {
                wanted.extend(self.coded.frames_of(at, run.len));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        // A few at a time bounds the memory for any length of `buf`.
        let mut rest = wanted.as_slice();
        while !rest.is_empty() {
            let (group, after) = rest.split_at(self.affordable(rest));
            let decoded = self.decode(base, group, cache)?;
            for run in runs {
                self.copy_run(run, &decoded, first, buf);
            }
            rest = after;
        }
        Ok(())
    }

    /// Returns how many of the first frames of a list are decoded at a time, at least one.
    fn affordable(&self, wanted: &[u32]) -> usize {
        let blocks = wanted.iter().scan(0, |sum, index| {
            *sum += self.coded.frames[*index as usize].blocks;
            Some(*sum)
        });
        let few = blocks.take(DECODED_FRAMES);
        few.take_while(|sum| *sum <= DECODED_BLOCKS).count().max(1)
    }

    /// Copies what a run of literals takes from the decoded frames.
    fn copy_run(&self, run: &Run, decoded: &[Decoded], first: u32, buf: &mut [u8]) {
        let Src::Literal(at) = run.src else { return };
        for (index, bytes) in decoded {
            let frame = &self.coded.frames[*index as usize];
            let from = at.max(frame.first);
            let to = (at + run.len).min(frame.first + frame.blocks);
            if from < to {
                let part = Run {
                    start: run.start + (from - at),
                    len: to - from,
                    src: Src::Zero,
                };
                let target = slot(buf, first, part);
                let start = (from - frame.first) as usize * BLOCK_LEN;
                target.copy_from_slice(&bytes[start..start + target.len()]);
            }
        }
    }

    /// Decodes frames given by index in order; neighbours are read in one go.
    fn decode(
        &self,
        base: &dyn ReadAt,
        wanted: &[u32],
        cache: &FrameCache,
    ) -> Result<Vec<Decoded>, PatchError> {
        let mut out: Vec<Decoded> = wanted
            .iter()
            .filter_map(|i| cache.get(*i).map(|bytes| (*i, bytes)))
            .collect();
        let missing: Vec<u32> = wanted
            .iter()
            .copied()
            .filter(|i| !out.iter().any(|(have, _)| have == i))
            .collect();
        for group in missing.chunk_by(|a, b| a + 1 == *b) {
            let (Some(head), Some(tail)) = (group.first(), group.last()) else {
                continue;
            };
            let (head, tail) = (
                &self.coded.frames[*head as usize],
                &self.coded.frames[*tail as usize],
            );
            let mut bytes = vec![0; (tail.offset + u64::from(tail.len) - head.offset) as usize];
            self.patch.read_exact_at(&mut bytes, head.offset)?;
            for index in group {
                let frame = &self.coded.frames[*index as usize];
                let start = (frame.offset - head.offset) as usize;
                let coded = &bytes[start..start + frame.len as usize];
                let raw = Arc::new(self.decode_frame(base, frame, coded, cache)?);
                cache.put(*index, &raw);
                out.push((*index, raw));
            }
        }
        Ok(out)
    }

    fn decode_frame(
        &self,
        base: &dyn ReadAt,
        frame: &Frame,
        bytes: &[u8],
        cache: &FrameCache,
    ) -> Result<Vec<u8>, PatchError> {
        let damaged = || {
            PatchError::Corrupt(format!(
                "the frame at byte {} does not match its checksum",
                frame.offset
            ))
        };
        if frame_check(bytes) != frame.check {
            return Err(damaged());
        }
        if frame.kind == FrameKind::Stored {
            return Ok(bytes.to_vec());
        }
        let dict = self.dictionary(base, frame)?;
        let len = frame.blocks as usize * BLOCK_LEN;
        if frame.kind == FrameKind::Near {
            let mut raw = vec![0; len];
            // Its checksum was right, so it is the base that differs.
            return match unpack(bytes, &dict, &mut raw) {
                Ok(()) => Ok(raw),
                Err(_) => Err(self.base_mismatch(
                    "a piece of it that a frame is coded against differs".to_owned(),
                )),
            };
        }
        let mut raw: Vec<u8> = Vec::with_capacity(len);
        match decompress(bytes, &dict, &mut raw, cache)? {
            Ok(got) if got == len => Ok(raw),
            // Its checksum was right, so it is the dictionary that differs.
            _ if !dict.is_empty() => Err(self.base_mismatch(
                "a piece of it that a frame needs as dictionary differs".to_owned(),
            )),
            _ => Err(damaged()),
        }
    }

    fn dictionary(&self, base: &dyn ReadAt, frame: &Frame) -> Result<Vec<u8>, PatchError> {
        let pieces = self.coded.dict(frame);
        let blocks: u32 = pieces.iter().map(|(_, len)| len).sum();
        let mut dict = vec![0; blocks as usize * BLOCK_LEN];
        let mut at = 0;
        for (start, len) in pieces {
            let end = at + *len as usize * BLOCK_LEN;
            read_padded(base, u64::from(*start) * BLOCK, &mut dict[at..end])?;
            at = end;
        }
        Ok(dict)
    }

    /// Returns the frames that a read of the blocks `first..end` takes, in the order of the file.
    pub fn frames_within(&self, first: u32, end: u32) -> Vec<Frame> {
        self.coded.frames_within(&self.runs, first, end)
    }

    /// Returns how many bytes of base and of patch a read of the blocks `first..end` takes, without any cache.
    pub fn read_cost(&self, first: u32, end: u32) -> (u64, u64) {
        self.coded.read_cost(&self.runs, first, end)
    }

    /// Returns the size of all frames in bytes; they end where meta starts.
    pub fn data_len(&self) -> u64 {
        self.header.meta_offset - HEADER_LEN
    }
}

/// Returns the part of `buf` (which starts at block `first`) that a run of blocks fills.
fn slot(buf: &mut [u8], first: u32, run: Run) -> &mut [u8] {
    let start = (run.start - first) as usize * BLOCK_LEN;
    let end = (start + run.len as usize * BLOCK_LEN).min(buf.len());
    &mut buf[start..end]
}

/// Fills the runs' slots from the base, in order of the base, with neighbours read in one go.
fn copy_from_base(
    base: &dyn ReadAt,
    mut parts: Vec<(u32, Run)>,
    first: u32,
    buf: &mut [u8],
) -> Result<(), SourceError> {
    parts.sort_unstable_by_key(|(block, _)| *block);
    let close = |a: &(u32, Run), b: &(u32, Run)| {
        u64::from(b.0) * BLOCK <= u64::from(a.0 + a.1.len) * BLOCK + BASE_GAP
    };
    for group in parts.chunk_by(close) {
        if let [(block, run)] = group {
            read_padded(base, u64::from(*block) * BLOCK, slot(buf, first, *run))?;
            continue;
        }
        let start = group.first().map_or(0, |(block, _)| *block);
        let end = group
            .iter()
            .map(|(block, run)| block + run.len)
            .max()
            .unwrap_or(start);
        let mut bytes = vec![0; (end - start) as usize * BLOCK_LEN];
        read_padded(base, u64::from(start) * BLOCK, &mut bytes)?;
        for (block, run) in group {
            let target = slot(buf, first, *run);
            let from = (block - start) as usize * BLOCK_LEN;
            target.copy_from_slice(&bytes[from..from + target.len()]);
        }
    }
    Ok(())
}
