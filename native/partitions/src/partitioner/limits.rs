//! How many blocks partitions have, and at which reference to them they are cached.

use super::{
    ghost_key, window, Evicted, Partition, PartitionError, PartitionId, Partitioner, NEVER,
};

impl Partitioner {
    /// Changes limits together. Blocks above a lowered limit stay until [`shrink`](Self::shrink).
    ///
    /// # Errors
    /// The limits add up to more than the cache has; none is changed.
    pub fn set_limits(&mut self, limits: &[(PartitionId, u32)]) -> Result<(), PartitionError> {
        self.check_limits(limits)?;
        for &(id, limit) in limits {
            let partition = &mut self.partitions[id];
            let window = window(partition.order.as_ref(), limit, partition.admission);
            partition.limit = limit;
            partition.order.resize(limit);
            partition.ghost.resize(window);
        }
        Ok(())
    }

    /// Changes at which reference to them the blocks of a partition are cached; 0: as `settings` say,
    /// [`NEVER`]: none is.
    /// References that are remembered count.
    pub fn set_admission(&mut self, id: PartitionId, admission: u8) {
        let admission = match admission {
            0 => self.settings.admission,
            _ => admission,
        };
        let partition = &mut self.partitions[id];
        partition.admission = admission;
        let window = window(partition.order.as_ref(), partition.limit, admission);
        partition.ghost.resize(window);
    }

    /// At which reference to them the blocks of a partition are cached.
    #[must_use]
    pub fn admission(&self, id: PartitionId) -> u8 {
        self.partitions[id].admission
    }

    /// Evicts one clean block of a partition above its limit. `None`: it is within its limit, or
    /// its [`oldest dirty block`](Self::oldest_dirty) must be written back first.
    pub fn shrink(&mut self, partition: PartitionId) -> Option<Evicted> {
        let Partition { held, limit, .. } = self.partitions[partition];
        if held <= limit {
            return None;
        }
        self.evict(partition)
    }

    /// Whether a partition takes new blocks without evicting others.
    #[must_use]
    pub fn has_room(&self, id: PartitionId) -> bool {
        let partition = &self.partitions[id];
        partition.admission != NEVER && partition.held < partition.limit && self.unused() > 0
    }

    /// The most blocks of a partition.
    #[must_use]
    pub fn limit(&self, partition: PartitionId) -> u32 {
        self.partitions[partition].limit
    }

    /// The cached blocks of a partition.
    #[must_use]
    pub fn held(&self, partition: PartitionId) -> u32 {
        self.partitions[partition].held
    }

    /// Evicts a block if a partition cannot take one more.
    pub(super) fn make_room(&mut self, id: PartitionId) -> Result<Option<Evicted>, PartitionError> {
        let Partition { held, limit, .. } = self.partitions[id];
        // Others may hold, above their limits, what is missing below this one's.
        if held < limit && self.slots.unused() > 0 {
            return Ok(None);
        }
        if held > limit {
            return Err(PartitionError::Full);
        }
        self.evict(id).map(Some).ok_or(PartitionError::Full)
    }

    fn evict(&mut self, id: PartitionId) -> Option<Evicted> {
        let partition = &mut self.partitions[id];
        let victim = partition.order.evict(&mut self.slots)?;
        if victim.remember {
            let (volume, block) = (
                self.slots.volume(victim.slot),
                self.slots.block(victim.slot),
            );
            partition.ghost.count(ghost_key(volume, block));
        }
        Some(self.release(victim.slot))
    }

    pub(super) fn check_limits(
        &self,
        changed: &[(PartitionId, u32)],
    ) -> Result<(), PartitionError> {
        let stays = |id: PartitionId| changed.iter().all(|&(of, _)| of != id);
        let kept = self.partitions.iter().enumerate();
        let kept = kept.filter(|&(id, _)| stays(id));
        let sum = kept.map(|(_, p)| u64::from(p.limit)).sum::<u64>()
            + changed
                .iter()
                .map(|&(_, limit)| u64::from(limit))
                .sum::<u64>();
        let capacity = self.capacity();
        if sum > u64::from(capacity) {
            return Err(PartitionError::Limits { sum, capacity });
        }
        Ok(())
    }
}
