//! A qcow2 image's guest content as a source of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{read_padded, ReadAt, SourceError};

use crate::cluster::Cluster;
use crate::compress;
use crate::error::Qcow2Error;
use crate::header::Compression;
use crate::map::Map;

/// Decompressed clusters kept in memory for each image, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// Clusters that one answer of `next_data` covers at most, so that asking is cheap.
const LONGEST_RUN: u64 = 1024;

/// What a guest reads from a qcow2 image.
pub struct Qcow2Source {
    file: Arc<dyn ReadAt>,
    map: Map,
    cache: Mutex<Cache>,
}

impl Qcow2Source {
    /// Checks the tables of `file` and opens it.
    pub fn open(file: Arc<dyn ReadAt>) -> Result<Self, Qcow2Error> {
        let map = Map::read(&file)?;
        let room = (CACHE_BYTES >> map.header().cluster_bits).max(4);
        Ok(Self {
            file,
            map,
            cache: Mutex::new(Cache::new(room)),
        })
    }

    /// Returns the image's tables.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Returns the image's bytes as a file.
    pub fn file(&self) -> &dyn ReadAt {
        &*self.file
    }

    /// Returns how compressed clusters are compressed.
    pub fn compression(&self) -> Compression {
        self.map.header().compression
    }

    /// Reads a compressed cluster: replaces `stream` by its bytes in the file, `cluster` by the guest's. Returns the stream's length.
    pub fn read_compressed(
        &self,
        offset: u64,
        length: u64,
        stream: &mut Vec<u8>,
        cluster: &mut Vec<u8>,
    ) -> Result<usize, Qcow2Error> {
        // Both lengths are at most two clusters, by the width of their fields.
        stream.clear();
        stream.resize(length as usize, 0);
        self.file.read_exact_at(stream, offset)?;
        cluster.clear();
        cluster.resize(self.map.header().cluster_size() as usize, 0);
        let used = compress::decompress(self.compression(), stream, cluster)?;
        stream.truncate(used);
        Ok(used)
    }

    fn cached(&self, offset: u64, length: u64) -> Result<Arc<Vec<u8>>, Qcow2Error> {
        if let Some(cluster) = self.cache().get(offset) {
            return Ok(cluster);
        }
        let (mut stream, mut cluster) = (Vec::new(), Vec::new());
        self.read_compressed(offset, length, &mut stream, &mut cluster)?;
        let cluster = Arc::new(cluster);
        self.cache().put(offset, Arc::clone(&cluster));
        Ok(cluster)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // The cache holds whole clusters or none: a panic elsewhere cannot have left it half-changed.
        self.cache.lock().unpoisoned()
    }

    /// Fills `buf` with the guest's bytes from `start` within cluster `index` on.
    fn read_within(&self, index: u64, start: usize, buf: &mut [u8]) -> Result<(), Qcow2Error> {
        match self.map.cluster(index) {
            Cluster::Unallocated | Cluster::Zero => buf.fill(0),
            Cluster::Plain(offset) => {
                // The file may end inside its last cluster; the rest reads as zeroes.
                read_padded(self.file.as_ref(), offset + start as u64, buf)?;
            }
            Cluster::Compressed { offset, length } => {
                let cluster = self.cached(offset, length)?;
                buf.copy_from_slice(&cluster[start..start + buf.len()]);
            }
        }
        Ok(())
    }
}

impl ReadAt for Qcow2Source {
    fn len(&self) -> u64 {
        self.map.header().size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let name = || "qcow2 image".to_owned();
        let end = offset
            .checked_add(buf.len() as u64)
            .filter(|&end| end <= self.len());
        if end.is_none() {
            let end = offset.saturating_add(buf.len() as u64);
            return Err(SourceError::PastEnd {
                name: name(),
                len: self.len(),
                end,
            });
        }
        let cluster_size = self.map.header().cluster_size();
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let start = (at % cluster_size) as usize;
            let count = (cluster_size as usize - start).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            self.read_within(at / cluster_size, start, now)
                .map_err(|error| match error {
                    Qcow2Error::Source(error) => error,
                    other => SourceError::Corrupt {
                        name: name(),
                        reason: other.to_string(),
                    },
                })?;
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let cluster_size = self.map.header().cluster_size();
        let Some(first) = self.map.next_data(offset / cluster_size) else {
            return Ok(None);
        };
        let mut last = first;
        while last - first < LONGEST_RUN && self.map.cluster(last + 1).has_data() {
            last += 1;
        }
        let start = offset.max(first * cluster_size);
        let end = ((last + 1) * cluster_size).min(self.len());
        Ok((start < end).then_some((start, end)))
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        self.file.check_unchanged()
    }
}

/// The clusters decompressed last, by their place in the file; the oldest leaves first.
struct Cache {
    room: usize,
    clusters: HashMap<u64, Arc<Vec<u8>>>,
    order: VecDeque<u64>,
}

impl Cache {
    fn new(room: usize) -> Self {
        Self {
            room,
            clusters: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    fn get(&self, key: u64) -> Option<Arc<Vec<u8>>> {
        self.clusters.get(&key).cloned()
    }

    fn put(&mut self, key: u64, cluster: Arc<Vec<u8>>) {
        if self.clusters.insert(key, cluster).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > self.room {
            if let Some(oldest) = self.order.pop_front() {
                self.clusters.remove(&oldest);
            }
        }
    }
}
