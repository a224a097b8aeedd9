//! Writes of the mode write-back, reads that fill the cache meanwhile, and rounds that write back.

use std::time::Instant;

use super::*;
use crate::cache::state::dirty::{DirtyBlock, Selection};

/// What an operation does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Read(Block),
    Write(Block, u32),
    Round,
}

/// What an operation does next.
#[derive(Debug, Clone)]
enum Next {
    Begin,
    /// Of a read: to read the origin, to ask for the slot, and to write its data.
    ReadOrigin,
    Take(u32),
    Fill(Slot, u32),
    /// Of a write: to write data to the slot, and to publish it.
    Store(Slot),
    Publish(Slot),
    /// Of a round: to end the commit and choose blocks, to copy them, and to note that.
    Choose(Vec<DirtyBlock>),
    Copy(Vec<DirtyBlock>),
    Note(Vec<DirtyBlock>),
    Done,
}

struct World {
    state: State,
    partition: usize,
    origin: [u32; 2],
    slots: [u32; 3],
    /// What each block has been since the last write that is complete.
    content: [u32; 2],
    operations: Vec<(Kind, Token, Next)>,
}

impl World {
    fn new(kinds: &[Kind], capacity: u32) -> Self {
        let mut blocks = Partitioner::new(Settings {
            capacity,
            eviction: Policy::Lru,
            admission: 1,
            seed: 0,
        });
        let partition = blocks.add_partition(capacity).unwrap();
        blocks.add_volume(partition).unwrap();
        Self {
            state: State::new(blocks),
            partition,
            origin: [1, 2],
            slots: [0; 3],
            content: [1, 2],
            operations: kinds.iter().map(|&kind| (kind, 0, Next::Begin)).collect(),
        }
    }

    fn next(&mut self, n: usize) -> Next {
        let (kind, token, next) = self.operations[n].clone();
        match (kind, next) {
            (_, Next::Done) => Next::Done,
            (Kind::Read(block), next) => self.read(block, (n, token), next),
            (Kind::Write(block, value), next) => self.write(block, value, n, next),
            (Kind::Round, next) => self.round(next),
        }
    }

    fn read(&mut self, block: Block, (n, token): (usize, Token), next: Next) -> Next {
        match next {
            Next::Begin => {
                let token = self.state.token();
                self.operations[n].1 = token;
                match self.state.read(V, block, token, false) {
                    Source::Cached(..) => Next::Done,
                    Source::Fill(_) | Source::Origin => Next::ReadOrigin,
                }
            }
            Next::ReadOrigin => Next::Take(self.origin[block as usize]),
            Next::Take(found) => {
                let slot = self.state.begin_data(V, block, token);
                slot.map_or(Next::Done, |slot| Next::Fill(slot, found))
            }
            Next::Fill(slot, found) => {
                self.slots[slot as usize] = found;
                if self.state.end_data((V, block), slot, token) {
                    self.state.blocks.set_checksum(slot, Some(found));
                } else {
                    self.state.forget(slot);
                }
                Next::Done
            }
            _ => Next::Done,
        }
    }

    fn write(&mut self, block: Block, value: u32, n: usize, next: Next) -> Next {
        match next {
            // Another write has locked the block.
            Next::Begin if self.is_locked(block, n) => Next::Begin,
            Next::Begin => {
                let reserved = self.state.reserve((V, self.partition), block, u32::MAX);
                // Without room the write goes past the cache.
                reserved.map_or(Next::Done, |reserved| Next::Store(reserved.slot))
            }
            Next::Store(slot) => {
                self.slots[slot as usize] = value;
                Next::Publish(slot)
            }
            Next::Publish(slot) => {
                let published = self.state.publish(slot, value, Instant::now());
                let older = published.erased.into_iter();
                older.for_each(|older| self.state.leave_version(older));
                self.content[block as usize] = value;
                Next::Done
            }
            _ => Next::Done,
        }
    }

    fn is_locked(&self, block: Block, n: usize) -> bool {
        let writes = self.operations.iter().enumerate();
        writes.into_iter().any(|(other, (kind, _, next))| {
            let same = matches!(kind, Kind::Write(of, _) if *of == block);
            other != n && same && matches!(next, Next::Store(_) | Next::Publish(_))
        })
    }

    fn round(&mut self, next: Next) -> Next {
        match next {
            Next::Begin => {
                self.state.choose_written(V);
                Next::Choose(self.state.begin_commit(V, 9))
            }
            Next::Choose(versions) => {
                self.state.end_commit(&versions);
                let all = Selection::All;
                let mut found = Vec::new();
                let ids = (V, self.partition);
                self.state.to_write_back(ids, &all, (None, 9), &mut found);
                Next::Copy(found)
            }
            Next::Copy(mut chosen) => {
                chosen.retain(|dirty| self.slots[dirty.slot as usize] == dirty.checksum);
                for dirty in &chosen {
                    self.origin[dirty.block as usize] = dirty.checksum;
                }
                Next::Note(chosen)
            }
            Next::Note(copied) => {
                for dirty in &copied {
                    if self.state.is_current(dirty) {
                        self.state.end_write_back(dirty);
                    }
                }
                Next::Done
            }
            _ => Next::Done,
        }
    }
}

impl Steps for World {
    fn step(&mut self, n: usize) {
        self.operations[n].2 = self.next(n);
        write_entries(&mut self.state);
    }

    fn check(&self) {
        for block in 0..2 {
            let slot = self.state.blocks.find(V, block);
            let cached = slot.and_then(|slot| Some((slot, self.state.blocks.checksum(slot)?)));
            let expected = self.content[block as usize];
            let Some((slot, checksum)) = cached else {
                assert_eq!(expected, self.origin[block as usize], "block {block}");
                continue;
            };
            assert_eq!(expected, checksum, "block {block} is old in the cache");
            if self.state.blocks.is_dirty(slot) {
                assert_eq!(expected, self.slots[slot as usize], "block {block} is lost");
            } else {
                assert_eq!(
                    expected, self.origin[block as usize],
                    "block {block} is not clean"
                );
            }
        }
    }

    fn check_end(&self) {
        for (kind, _, next) in &self.operations {
            assert!(matches!(next, Next::Done), "{kind:?} is at {next:?}");
        }
        assert!(self.state.is_idle());
    }
}

/// Steps of the longest operation.
const STEPS: usize = 4;

fn steps(kind: Kind) -> usize {
    match kind {
        Kind::Read(_) | Kind::Round => STEPS,
        Kind::Write(..) => 3,
    }
}

#[test]
fn writes_fills_and_rounds_in_any_order_leave_the_newest_bytes() {
    use Kind::{Read, Round, Write};
    let mut orders = 0;
    for kinds in [
        [Read(0), Write(0, 5), Round],
        [Read(0), Write(1, 5), Round],
        [Read(0), Read(1), Write(0, 5)],
        [Write(0, 4), Write(1, 5), Round],
        [Write(0, 4), Write(0, 5), Round],
    ] {
        for (capacity, before) in [(1, None), (2, Some(7))] {
            let mut world = || {
                let mut all = kinds.to_vec();
                // A version that is durable before.
                all.extend(before.map(|value| Write(0, value)));
                all.extend(before.map(|_| Round));
                let mut world = World::new(&all, capacity);
                for (n, kind) in all.iter().enumerate().skip(kinds.len()) {
                    let ended = if matches!(kind, Round) { 2 } else { 3 };
                    (0..ended).for_each(|_| world.step(n));
                }
                world.operations.truncate(kinds.len());
                world
            };
            orders += enumerate(&mut world, &mut Vec::new(), &mut kinds.map(steps));
        }
    }
    assert!(orders > 80_000, "{orders}");
}
