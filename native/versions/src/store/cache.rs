//! What was read last of a store.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;

/// What was used last, up to a number of bytes, by second chance: what was used since it last came to the front of the queue goes to its end
/// once more.
pub(super) struct Cache<K, V>(Mutex<Entries<K, V>>);

struct Entries<K, V> {
    kept: HashMap<K, Cached<V>>,
    order: VecDeque<K>,
    bytes: usize,
    limit: usize,
}

struct Cached<V> {
    value: Arc<V>,
    bytes: usize,
    used: bool,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty one of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self(Mutex::new(Entries {
            kept: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit,
        }))
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.0.lock().unpoisoned().limit = limit;
    }

    pub(super) fn get(&self, key: K) -> Option<Arc<V>> {
        let mut entries = self.0.lock().unpoisoned();
        entries.kept.get_mut(&key).map(|cached| {
            cached.used = true;
            Arc::clone(&cached.value)
        })
    }

    /// Returns what has a key; reads it if it is not there, which others may do at the same time.
    ///
    /// # Errors
    /// What `read` returns, which also returns the bytes that it takes.
    pub(super) fn get_or<E>(
        &self,
        key: K,
        read: impl FnOnce() -> Result<(V, usize), E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let (value, bytes) = read()?;
        let value = Arc::new(value);
        self.put(key, Arc::clone(&value), bytes);
        Ok(value)
    }

    /// Forgets what has a key.
    pub(super) fn remove(&self, key: K) {
        let mut entries = self.0.lock().unpoisoned();
        if let Some(cached) = entries.kept.remove(&key) {
            entries.bytes -= cached.bytes;
            entries.order.retain(|other| *other != key);
        }
    }

    fn put(&self, key: K, value: Arc<V>, bytes: usize) {
        let mut entries = self.0.lock().unpoisoned();
        let cached = Cached {
            value,
            bytes,
            used: false,
        };
        entries.bytes += bytes;
        if let Some(old) = entries.kept.insert(key, cached) {
            entries.bytes -= old.bytes;
            return;
        }
        entries.order.push_back(key);
        entries.shrink();
    }
}

impl<K: Copy + Eq + Hash, V> Entries<K, V> {
    fn shrink(&mut self) {
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            match self.kept.get_mut(&oldest) {
                Some(cached) if cached.used => {
                    cached.used = false;
                    self.order.push_back(oldest);
                }
                Some(cached) => {
                    self.bytes -= cached.bytes;
                    self.kept.remove(&oldest);
                }
                None => {}
            }
        }
    }
}
