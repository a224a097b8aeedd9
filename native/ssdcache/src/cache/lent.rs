//! What the process of a guest may read itself of a volume: its cached blocks, while requests look at
//! the cache. See [`shared`](crate::shared).

use std::io;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::atomic::Ordering;
use diffcache_base::sync::Arc;
use diffcache_partitions::Cursor;

use super::entries::STEP;
use super::volume::{Counters, Volume};
use super::{Cache, CacheError};
use crate::device::format::BLOCK;
use crate::shared::hits::Hit;
use crate::shared::index::{Facts, SERIAL_BYTES};
use crate::shared::Lent;

impl Cache {
    /// Has where the blocks of a volume are shared from now on, in place of what was before.
    ///
    /// # Errors
    /// There is no memory, or the volume is being detached.
    pub fn lend(&self, volume: &Volume) -> io::Result<Arc<Lent>> {
        if volume.ending.load(Ordering::Acquire) {
            return Err(io::Error::other(CacheError::Detaching(
                volume.name().to_owned(),
            )));
        }
        let mut serial = [0; SERIAL_BYTES];
        let name = volume.name().bytes();
        serial
            .iter_mut()
            .zip(name)
            .for_each(|(into, byte)| *into = byte);
        let facts = Facts {
            data: self.device.data_at(0),
            export: u128::from_be_bytes(volume.attachment.export),
            serial,
        };
        let most = self.lock().blocks.limit(volume.partition);
        let lent = Arc::new(Lent::new(most, &facts)?);
        let mirror = Box::new(lent.index.clone());
        self.lock().blocks.set_mirror(volume.id, Some(mirror));
        *volume.lent.write().unpoisoned() = Some(lent.clone());
        let mut cursor = Cursor::default();
        loop {
            let blocks = &mut self.lock().blocks;
            let Some(slots) = blocks.visit(volume.id, &mut cursor, STEP as u32) else {
                break;
            };
            blocks.reflect(&slots);
        }
        self.refresh_lent();
        Ok(lent)
    }

    /// Ends what [`lend`](Self::lend) began.
    pub fn take_back(&self, volume: &Volume) {
        // Without its mirror, the index has blocks that are not current.
        if let Some(lent) = volume.lent.write().unpoisoned().take() {
            lent.index.set_open(false);
        }
        self.lock().blocks.set_mirror(volume.id, None);
    }

    /// Has processes of guests see whether they may read the cache, and the sizes of volumes.
    pub(super) fn refresh_lent(&self) {
        for volume in self.volumes() {
            // Alone, or one that took an older state would set it after this.
            if let Some(lent) = volume.lent.write().unpoisoned().as_ref() {
                lent.index.set_size(volume.size());
                lent.index.set_rates(volume.throttle().rates());
                lent.index.set_open(self.is_active(&volume));
            }
        }
    }

    /// Counts reads that the process of a guest served itself, at most this many.
    pub fn take_hits(&self, volume: &Volume, most: usize) {
        let lent = volume.lent.read().unpoisoned();
        let Some(lent) = lent.as_ref() else {
            return;
        };
        let mut hits = lent.hits();
        let mut taken = hits.take(most);
        let blocks = volume.size().div_ceil(BLOCK as u64);
        taken.retain(|hit| hit.block + hit.count <= blocks);
        for some in taken.chunks(STEP) {
            self.count_hits(volume, some);
        }
    }

    fn count_hits(&self, volume: &Volume, hits: &[Hit]) {
        let mut state = self.lock();
        for Hit { block, count, .. } in hits {
            for block in *block..block + count {
                state.blocks.reference(volume.id, block);
            }
        }
        drop(state);
        for Hit { block, count, took } in hits {
            Counters::add(&volume.counters.reads, *count);
            Counters::add(&volume.counters.hits, *count);
            let bytes = BLOCK as u64;
            if !volume.passes(block * bytes, (count * bytes) as usize) {
                volume.access.note(*block..block + count);
            }
            volume.hit.note(*took);
        }
    }
}
