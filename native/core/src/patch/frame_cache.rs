//! Decoded frames that are kept for the next read, and contexts of zstd.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use zstd_safe::{DCtx, SafeResult};

use super::error::PatchError;

/// Frames kept decoded for the next read: a 256 KiB window touches three at most, for two readers.
const CACHED_FRAMES: usize = 6;
/// Most bytes of frames that are kept, but for the last one.
const CACHED_BYTES: usize = 8 << 20;

/// How a dictionary of zstd's own format begins (RFC 8878, section 5).
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

/// Index and bytes of a decoded frame.
pub(super) type Decoded = (u32, Arc<Vec<u8>>);

/// Decompresses a frame whose dictionary was its prefix; returns the number of bytes, or zstd's error.
pub(super) fn decompress(
    bytes: &[u8],
    dict: &[u8],
    raw: &mut Vec<u8>,
    cache: &FrameCache,
) -> Result<SafeResult, PatchError> {
    if dict.starts_with(&DICTIONARY_MAGIC) {
        // What a base has is content, and no dictionary of zstd's own format.
        let mut context = new_context()?;
        context.ref_prefix(dict).map_err(PatchError::from_zstd)?;
        return Ok(context.decompress(raw, bytes));
    }
    cache.with_context(|context| context.decompress_using_dict(raw, bytes, dict))
}

fn new_context<'a>() -> Result<DCtx<'a>, PatchError> {
    DCtx::try_create().ok_or(PatchError::Zstd("out of memory"))
}

/// The frames decoded last. Shared by threads; one that is poisoned by a panic elsewhere still holds only whole frames.
#[derive(Default)]
pub struct FrameCache {
    frames: Mutex<VecDeque<Decoded>>,
    /// Contexts of zstd that are not in use: to create one costs about as much as to decompress a small frame.
    contexts: Mutex<Vec<DCtx<'static>>>,
}

impl FrameCache {
    /// Runs `work` with a context that was used before, or with a new one.
    fn with_context<T>(&self, work: impl FnOnce(&mut DCtx<'static>) -> T) -> Result<T, PatchError> {
        let kept = self.contexts.lock().unpoisoned().pop();
        let mut context = kept.map_or_else(new_context, Ok)?;
        let result = work(&mut context);
        self.contexts.lock().unpoisoned().push(context);
        Ok(result)
    }

    pub(super) fn get(&self, index: u32) -> Option<Arc<Vec<u8>>> {
        let frames = self.frames.lock().unpoisoned();
        frames
            .iter()
            .find(|(have, _)| *have == index)
            .map(|(_, bytes)| Arc::clone(bytes))
    }

    pub(super) fn put(&self, index: u32, bytes: &Arc<Vec<u8>>) {
        let mut frames = self.frames.lock().unpoisoned();
        let mut kept = frames.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        while frames.len() >= CACHED_FRAMES || kept + bytes.len() > CACHED_BYTES {
            let Some((_, oldest)) = frames.pop_front() else {
                break;
            };
            kept -= oldest.len();
        }
        frames.push_back((index, Arc::clone(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use zstd_safe::CCtx;

    use super::*;
    use crate::images::noise;
    use crate::patch::runs::BLOCK_LEN;

    #[test]
    fn large_frames_are_not_kept_beyond_some_bytes() {
        let cache = FrameCache::default();
        let lens = [1 << 20, 4 << 20, 4 << 20, 1 << 10, CACHED_BYTES + 1];
        let kept =
            |last: u32| -> Vec<u32> { (0..=last).filter(|i| cache.get(*i).is_some()).collect() };
        let expected: [&[u32]; 5] = [&[0], &[0, 1], &[1, 2], &[2, 3], &[4]];
        for ((index, len), expected) in (0..).zip(lens).zip(expected) {
            cache.put(index, &Arc::new(vec![0; len]));
            assert_eq!(kept(index), expected);
        }
        for index in 5..20 {
            cache.put(index, &Arc::new(Vec::new()));
        }
        assert_eq!(kept(19), [14, 15, 16, 17, 18, 19]);
    }

    /// Contexts are used again, whatever the frame before was.
    #[test]
    fn a_dictionary_is_content_whatever_it_begins_with() {
        let cache = FrameCache::default();
        let mut magic = noise(1, 3 * BLOCK_LEN);
        magic[..4].copy_from_slice(&DICTIONARY_MAGIC);
        let target = [&magic[100..9000], &noise(2, 500)[..]].concat();
        for dict in [&magic[..], &magic[4..], &[], b"ab", &magic[..]] {
            let mut coder = CCtx::create();
            coder.ref_prefix(dict).unwrap();
            let mut coded = Vec::with_capacity(2 * target.len());
            coder.compress2(&mut coded, &target).unwrap();
            let mut raw = Vec::with_capacity(target.len());
            let length = decompress(&coded, dict, &mut raw, &cache).unwrap();
            assert_eq!(length, Ok(target.len()));
            assert!(raw == target);
            // What is damaged leaves a context that can be used.
            let mut short = Vec::with_capacity(target.len());
            assert!(
                decompress(&coded[..coded.len() - 9], dict, &mut short, &cache)
                    .unwrap()
                    .is_err()
            );
        }
        assert_eq!(cache.contexts.lock().unpoisoned().len(), 1);
    }
}
