//! Reads, writes and evictions of few blocks, cut into steps that run in any order.

mod dirty;

use diffcache_partitions::{Partitioner, Settings, Slot, VolumeId};
use proptest::prelude::*;

use super::*;
use crate::cache::state::entries::Begun;
use crate::cache::state::{Source, State, Token};

const BLOCKS: u64 = 3;
const V: VolumeId = 0;

/// Where an operation is.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Begin,
    /// To read or write the origin.
    Origin,
    /// To ask for the slot for a value.
    Take(u32),
    /// To write the slot's data.
    Data(Slot, u32),
    /// To end the writing of data.
    EndData(Slot, u32),
    EndWrite,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    block: Block,
    /// What it writes; reads have nothing.
    value: Option<u32>,
    token: Token,
    phase: Phase,
}

/// Values stand for data and for their checksums.
struct World {
    state: State,
    origin: [u32; BLOCKS as usize],
    slots: [u32; 2],
    operations: Vec<Operation>,
    /// Whether what fills is no request of a client.
    warms: bool,
}

impl World {
    fn new(operations: &[(Block, bool)]) -> Self {
        let mut blocks = Partitioner::new(Settings {
            capacity: 2,
            eviction: Policy::Lru,
            admission: 1,
            seed: 0,
        });
        let partition = blocks.add_partition(2).unwrap();
        blocks.add_volume(partition).unwrap();
        let operation = |(n, &(block, is_write)): (usize, &(Block, bool))| Operation {
            block,
            value: is_write.then_some(n as u32 + 100),
            token: 0,
            phase: Phase::Begin,
        };
        Self {
            state: State::new(blocks),
            origin: [1, 2, 3],
            slots: [0; 2],
            operations: operations.iter().enumerate().map(operation).collect(),
            warms: false,
        }
    }

    fn begin(&mut self, block: Block, value: Option<u32>, token: Token) -> Phase {
        if value.is_some() {
            if self.state.begin_write(V, block, token).is_none() {
                self.state.take_for_write(V, block, token);
            }
            return Phase::Origin;
        }
        if self.warms {
            let taken = self.state.take_unrequested(V, block, token);
            return taken.map_or(Phase::Done, |_| Phase::Origin);
        }
        match self.state.read(V, block, token, false) {
            Source::Cached(..) => Phase::Done,
            Source::Fill(_) | Source::Origin => Phase::Origin,
        }
    }
}

impl Steps for World {
    fn step(&mut self, n: usize) {
        let mut operation = self.operations[n];
        let Operation {
            block,
            value,
            token,
            phase,
        } = operation;
        operation.phase = match phase {
            Phase::Begin => {
                operation.token = self.state.token();
                self.begin(block, value, operation.token)
            }
            Phase::Origin => {
                if let Some(value) = value {
                    self.origin[block as usize] = value;
                }
                Phase::Take(self.origin[block as usize])
            }
            Phase::Take(found) => {
                // What a writer stores is what it wrote, whatever the origin has by now.
                let stored = value.unwrap_or(found);
                let slot = self.state.begin_data(V, block, token);
                slot.map_or(end(value), |slot| Phase::Data(slot, stored))
            }
            Phase::Data(slot, stored) => {
                self.slots[slot as usize] = stored;
                Phase::EndData(slot, stored)
            }
            Phase::EndData(slot, stored) => {
                if self.state.end_data((V, block), slot, token) {
                    self.state.blocks.set_checksum(slot, Some(stored));
                } else {
                    self.state.forget(slot);
                }
                end(value)
            }
            Phase::EndWrite => {
                if let Some(slot) = self.state.end_write(V, block, token) {
                    self.state.forget(slot);
                }
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        self.operations[n] = operation;
        write_entries(&mut self.state);
    }

    /// Checks that no block that may be read from the cache is other than its origin, unless it is
    /// being written.
    fn check(&self) {
        for block in 0..BLOCKS {
            let writes = self.operations.iter().any(|operation| {
                let under_way = !matches!(operation.phase, Phase::Begin | Phase::Done);
                operation.block == block && operation.value.is_some() && under_way
            });
            let Some(slot) = self.state.blocks.find(V, block) else {
                continue;
            };
            if let Some(checksum) = self.state.blocks.checksum(slot) {
                assert!(
                    writes || checksum == self.origin[block as usize],
                    "block {block} is old"
                );
            }
        }
    }

    /// Checks that, when nothing is under way, all that is cached is there and nothing is pending.
    fn check_end(&self) {
        for block in 0..BLOCKS {
            if let Some(slot) = self.state.blocks.find(V, block) {
                let checksum = self.state.blocks.checksum(slot);
                assert_eq!(Some(self.origin[block as usize]), checksum, "block {block}");
                assert_eq!(self.origin[block as usize], self.slots[slot as usize]);
            }
        }
        assert!(self.state.is_idle());
    }
}

/// Writes all entries that were changed.
fn write_entries(state: &mut State) {
    for slot in state.take_fresh() {
        if let Begun::Write(writing) = state.begin_entry(slot) {
            state.end_entry(&writing);
        }
    }
}

fn end(value: Option<u32>) -> Phase {
    if value.is_some() {
        Phase::EndWrite
    } else {
        Phase::Done
    }
}

/// Operations that are cut into steps.
trait Steps {
    /// Executes the next step of an operation.
    fn step(&mut self, n: usize);

    /// Checks what holds at any time.
    fn check(&self);

    /// Checks what holds when all operations are complete.
    fn check_end(&self);
}

/// Runs all orders of steps, of which each operation has the number that is `left`.
fn enumerate<W: Steps>(
    world: &mut dyn FnMut() -> W,
    order: &mut Vec<usize>,
    left: &mut [usize],
) -> usize {
    if left.iter().all(|&n| n == 0) {
        let mut world = world();
        for &n in order.iter() {
            world.step(n);
            world.check();
        }
        // Those that had to wait for others.
        for n in (0..left.len()).flat_map(|n| [n; STEPS]) {
            world.step(n);
            world.check();
        }
        world.check_end();
        return 1;
    }
    let mut orders = 0;
    for n in 0..left.len() {
        if left[n] > 0 {
            left[n] -= 1;
            order.push(n);
            orders += enumerate(world, order, left);
            order.pop();
            left[n] += 1;
        }
    }
    orders
}

/// Steps of the longest operation.
const STEPS: usize = 6;

#[test]
fn a_fill_that_races_with_a_write_never_leaves_the_older_bytes() {
    for operations in [
        [(0, false), (0, true)],
        [(0, true), (0, true)],
        [(0, false), (0, false)],
        [(0, true), (1, true)],
    ] {
        for (cached, warms) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut world = || {
                let mut all = operations.to_vec();
                all.push((0, false));
                let mut world = World::new(&all);
                for _ in 0..STEPS {
                    if cached {
                        world.step(2);
                    }
                }
                world.warms = warms;
                world
            };
            let orders = enumerate(&mut world, &mut Vec::new(), &mut [STEPS, STEPS]);
            assert_eq!(924, orders);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn nothing_old_is_cached_in_any_order_of_steps(
        operations in proptest::collection::vec((0..BLOCKS, any::<bool>()), 2..7),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let mut world = World::new(&operations);
        let count = operations.len();
        let rest = (0..count).flat_map(|n| [n; STEPS]);
        for n in order.iter().map(|index| index.index(count)).chain(rest) {
            world.step(n);
            world.check();
        }
        world.check_end();
    }
}
