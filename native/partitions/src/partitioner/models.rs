//! The partitioner again, plain and slow: what the property tests compare it with.

use std::collections::BTreeMap;

use super::{PartitionId, VolumeId};
use crate::eviction::Policy;
use crate::Block;

pub type Key = (VolumeId, Block);

/// Queues of one policy; the newest first.
#[derive(Debug)]
enum Order {
    Lru(Vec<Key>),
    Sieve { list: Vec<Key>, hand: Option<Key> },
    S3Fifo { small: Vec<Key>, main: Vec<Key> },
}

#[derive(Debug, Default)]
struct Ghost {
    window: u32,
    time: u32,
    /// When each key was added, and its count.
    known: BTreeMap<Key, (u32, u32)>,
}

impl Ghost {
    fn take(&mut self, key: Key) -> Option<u32> {
        let (time, window) = (self.time, self.window);
        self.known.retain(|_, (added, _)| time - *added <= window);
        self.known.remove(&key).map(|(_, count)| count)
    }

    fn count(&mut self, key: Key) -> u32 {
        if self.window == 0 {
            return 1;
        }
        let count = self.take(key).unwrap_or(0) + 1;
        self.known.insert(key, (self.time, count));
        self.time += 1;
        count
    }
}

#[derive(Debug)]
pub struct Part {
    order: Order,
    /// The newest first.
    pub dirty: Vec<Key>,
    frequencies: BTreeMap<Key, u8>,
    ghost: Ghost,
    admission: u8,
    pub limit: u32,
}

impl Part {
    fn clean(&self) -> Vec<Key> {
        match &self.order {
            Order::Lru(list) | Order::Sieve { list, .. } => list.clone(),
            Order::S3Fifo { small, main } => [small.clone(), main.clone()].concat(),
        }
    }

    pub fn keys(&self) -> Vec<Key> {
        [self.clean(), self.dirty.clone()].concat()
    }

    pub fn held(&self) -> u32 {
        self.keys().len() as u32
    }

    fn put(&mut self, key: Key, returned: bool) {
        self.frequencies.insert(key, 0);
        match &mut self.order {
            Order::Lru(list) | Order::Sieve { list, .. } => list.insert(0, key),
            Order::S3Fifo { main, .. } if returned => main.insert(0, key),
            Order::S3Fifo { small, .. } => small.insert(0, key),
        }
    }

    fn drop_clean(&mut self, key: Key) {
        match &mut self.order {
            Order::Lru(list) => list.retain(|&other| other != key),
            Order::Sieve { list, hand } => {
                let place = list.iter().position(|&other| other == key);
                if *hand == Some(key) {
                    *hand = place.and_then(|n| n.checked_sub(1)).map(|n| list[n]);
                }
                list.retain(|&other| other != key);
            }
            Order::S3Fifo { small, main } => {
                small.retain(|&other| other != key);
                main.retain(|&other| other != key);
            }
        }
    }

    fn raise(&mut self, key: Key) {
        let frequency = self.frequencies.entry(key).or_default();
        *frequency = (*frequency + 1).min(3);
    }

    fn touch(&mut self, key: Key) {
        self.raise(key);
        if self.dirty.contains(&key) {
            return;
        }
        if let Order::Lru(list) = &mut self.order {
            list.retain(|&other| other != key);
            list.insert(0, key);
        }
    }

    fn evict(&mut self) -> Option<Key> {
        let frequencies = &mut self.frequencies;
        match &mut self.order {
            Order::Lru(list) => list.pop(),
            Order::Sieve { list, hand } => {
                let start = hand.or(list.last().copied())?;
                let mut at = list.iter().position(|&key| key == start)?;
                while frequencies[&list[at]] > 0 {
                    frequencies.insert(list[at], 0);
                    at = if at == 0 { list.len() - 1 } else { at - 1 };
                }
                *hand = at.checked_sub(1).map(|n| list[n]);
                Some(list.remove(at))
            }
            Order::S3Fifo { small, main } => loop {
                let target = (self.limit as usize / 10).max(1);
                if small.len() >= target || main.is_empty() {
                    let key = small.pop()?;
                    if frequencies[&key] > 1 {
                        frequencies.insert(key, 0);
                        main.insert(0, key);
                    } else {
                        self.ghost.count(key);
                        return Some(key);
                    }
                } else {
                    let key = main.pop()?;
                    if frequencies[&key] == 0 {
                        return Some(key);
                    }
                    frequencies.insert(key, frequencies[&key] - 1);
                    main.insert(0, key);
                }
            },
        }
    }
}

#[derive(Debug)]
pub struct Model {
    capacity: u32,
    policy: Policy,
    admission: u8,
    pub parts: Vec<Part>,
    /// The partition of each volume.
    pub volumes: Vec<PartitionId>,
}

impl Model {
    pub fn new(capacity: u32, policy: Policy, admission: u8) -> Self {
        Self {
            capacity,
            policy,
            admission,
            parts: Vec::new(),
            volumes: Vec::new(),
        }
    }

    pub fn add_partition(&mut self, limit: u32) {
        let order = match self.policy {
            Policy::Lru => Order::Lru(Vec::new()),
            Policy::Sieve => Order::Sieve {
                list: Vec::new(),
                hand: None,
            },
            Policy::S3Fifo => Order::S3Fifo {
                small: Vec::new(),
                main: Vec::new(),
            },
        };
        self.parts.push(Part {
            order,
            dirty: Vec::new(),
            frequencies: BTreeMap::new(),
            ghost: Ghost {
                window: self.window(limit, self.admission),
                ..Ghost::default()
            },
            admission: self.admission,
            limit,
        });
    }

    fn window(&self, limit: u32, admission: u8) -> u32 {
        match (admission, self.policy) {
            (2.., _) => limit,
            (_, Policy::S3Fifo) => limit - limit / 10,
            _ => 0,
        }
    }

    fn part(&mut self, key: Key) -> &mut Part {
        &mut self.parts[self.volumes[usize::from(key.0)]]
    }

    pub fn has(&self, key: Key) -> bool {
        self.parts.iter().any(|part| part.keys().contains(&key))
    }

    pub fn is_dirty(&self, key: Key) -> bool {
        self.parts.iter().any(|part| part.dirty.contains(&key))
    }

    pub fn unused(&self) -> u32 {
        self.capacity - self.parts.iter().map(Part::held).sum::<u32>()
    }

    pub fn touch(&mut self, key: Key) {
        self.part(key).touch(key);
    }

    pub fn admit(&mut self, key: Key) -> bool {
        let part = self.part(key);
        let wanted = u32::from(part.admission);
        wanted <= 1 || part.ghost.count(key) >= wanted
    }

    /// `Err`: the partition has no room.
    pub fn insert(&mut self, key: Key) -> Result<Option<Key>, ()> {
        let unused = self.unused();
        let part = self.part(key);
        let (held, limit) = (part.held(), part.limit);
        let mut evicted = None;
        if held > limit {
            return Err(());
        }
        if held == limit || unused == 0 {
            evicted = Some(part.evict().ok_or(())?);
        }
        let returned = part.ghost.take(key).is_some();
        part.put(key, returned);
        Ok(evicted)
    }

    pub fn remove(&mut self, key: Key) {
        let part = self.part(key);
        part.drop_clean(key);
        part.dirty.retain(|&other| other != key);
    }

    pub fn mark_dirty(&mut self, key: Key) {
        let part = self.part(key);
        if !part.dirty.contains(&key) {
            part.drop_clean(key);
            part.dirty.insert(0, key);
        }
    }

    pub fn mark_clean(&mut self, key: Key) -> Option<Key> {
        let part = self.part(key);
        if !part.dirty.contains(&key) {
            return None;
        }
        let over = part.held() > part.limit;
        part.dirty.retain(|&other| other != key);
        if over {
            return Some(key);
        }
        let returned = part.frequencies[&key] > 0;
        part.put(key, returned);
        None
    }

    pub fn shrink(&mut self, id: PartitionId) -> Option<Key> {
        let part = &mut self.parts[id];
        (part.held() > part.limit).then(|| part.evict()).flatten()
    }

    /// Whether the limits fit.
    pub fn set_limit(&mut self, id: PartitionId, limit: u32) -> bool {
        let others = self.parts.iter().enumerate().filter(|&(n, _)| n != id);
        if others.map(|(_, part)| part.limit).sum::<u32>() + limit > self.capacity {
            return false;
        }
        self.parts[id].limit = limit;
        self.resize_ghost(id);
        true
    }

    pub fn set_admission(&mut self, id: PartitionId, admission: u8) {
        self.parts[id].admission = admission;
        self.resize_ghost(id);
    }

    fn resize_ghost(&mut self, id: PartitionId) {
        let window = self.window(self.parts[id].limit, self.parts[id].admission);
        let ghost = &mut self.parts[id].ghost;
        let (time, old) = (ghost.time, ghost.window);
        ghost.known.retain(|_, (added, _)| time - *added <= old);
        ghost.window = window;
    }
}
