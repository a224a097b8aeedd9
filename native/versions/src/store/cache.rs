//! Frames that were decompressed last.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Decompressed frames kept in memory, in bytes, unless it is said otherwise: while a disk is put together from its start to its end,
/// each of a hundred older versions has a frame open.
const CACHE_BYTES: usize = 256 << 20;

/// The frames used last, by second chance: what was used since it last came to the front of the queue goes to its end once more.
pub(super) struct Cache {
    frames: HashMap<(u32, usize), Cached>,
    order: VecDeque<(u32, usize)>,
    bytes: usize,
    pub(super) limit: usize,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            frames: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit: CACHE_BYTES,
        }
    }
}

struct Cached {
    frame: Arc<Vec<u8>>,
    used: bool,
}

impl Cache {
    pub(super) fn get(&mut self, key: (u32, usize)) -> Option<Arc<Vec<u8>>> {
        self.frames.get_mut(&key).map(|cached| {
            cached.used = true;
            Arc::clone(&cached.frame)
        })
    }

    pub(super) fn put(&mut self, key: (u32, usize), frame: Arc<Vec<u8>>) {
        self.bytes += frame.len();
        let used = false;
        if let Some(old) = self.frames.insert(key, Cached { frame, used }) {
            self.bytes -= old.frame.len();
            return;
        }
        self.order.push_back(key);
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            match self.frames.get_mut(&oldest) {
                Some(cached) if cached.used => {
                    cached.used = false;
                    self.order.push_back(oldest);
                }
                Some(cached) => {
                    self.bytes -= cached.frame.len();
                    self.frames.remove(&oldest);
                }
                None => {}
            }
        }
    }
}
