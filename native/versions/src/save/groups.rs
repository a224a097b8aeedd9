//! Which chunk groups of a version are stored as differential.
//!
//! A version stored as what changed since its parent (*incremental*) is restored from many packs; stored as what differs from the base image
//! (*differential*) it is restored from one. Section 3.3 of the `CloudVS` paper (Tang, Lee, Wong: A tunable version control system for virtual
//! machines in an open-source cloud) chooses between the two for each *chunk group* of the differential delta by one parameter, alpha. The
//! automatic choice stores as few groups as keep a restore below a cost.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::error::{Result, VersionsError};
use crate::save::spool::SPOOLED;
use crate::store::nodes::{BlockRef, NodeRef};
use crate::store::tree;
use crate::store::Store;

/// A read that does not follow the one before counts as this many bytes of sequential reading. Restores read each frame once, and frames of
/// one version are in the order of the disk: the cost is that frames have blocks that the version does not need, which is counted apart. Of
/// a hundred versions the newest took no more CPU than the oldest, so little is left for the seek itself.
const SEEK_BYTES: f64 = 64.0;
/// Writing a block to the disk that is restored costs this many times what reading it from the store does.
const WRITE: f64 = 1.0;
/// Bytes of a compressed block in a store without packs.
const BLOCK_BYTES: f64 = 2048.0;

/// How many groups are stored as differential.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Alpha {
    /// This share of them, 0 (none) to 1 (all): those with the most non-sequential reads.
    Share(f64),
    /// As few as keep a restore below this multiple of the cost of a wholly differential version.
    Automatic(f64),
}

/// Which blocks that the store already has are stored again, with the new ones.
#[derive(Debug, Clone, Copy)]
pub struct Regrouping {
    /// How many groups.
    pub alpha: Alpha,
    /// Blocks of a group.
    pub group_blocks: u64,
    /// The tree that the differential delta is computed from.
    pub reference: NodeRef,
    /// The tree of a disk of which nothing is stored: zeroes, or the base image.
    pub empty: NodeRef,
}

/// The part of a run of the differential delta that belongs to one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    group: usize,
    start: u64,
    len: u64,
    /// The version that stored it; blocks of one version are stored one after the other.
    origin: u64,
    pack: u32,
    slot: u32,
}

/// What restoring each group costs, in bytes read.
#[derive(Debug, Clone, Default)]
struct Costs {
    /// As the groups are stored now.
    now: Vec<f64>,
    /// If they were stored contiguously.
    contiguous: Vec<f64>,
    /// Bytes that storing them contiguously adds.
    added: Vec<f64>,
    /// What restoring costs besides, however the groups are stored.
    common: f64,
}

impl Regrouping {
    /// Ranges of blocks (first, count), ascending, that are to be stored with the new ones. `root` is the tree of the version, in which new
    /// blocks have the pack `SPOOLED`, and `origin` the version's number.
    ///
    /// # Errors
    /// `Damaged`, `Missing`, `Io`; `Invalid` if an option is out of range.
    pub fn ranges(&self, store: &Store, root: NodeRef, origin: u64) -> Result<Vec<(u64, u64)>> {
        self.check()?;
        let pieces = self.pieces(store, root, origin)?;
        let groups = pieces.last().map_or(0, |piece| piece.group + 1);
        let chosen = match self.alpha {
            Alpha::Share(share) => most_scattered(&non_sequential_reads(&pieces, groups), share),
            Alpha::Automatic(_) if groups == 0 => Vec::new(),
            Alpha::Automatic(factor) => {
                let blocks: u64 = pieces.iter().map(|piece| piece.len).sum();
                let stored = stored_blocks(store, self.empty, root)?;
                let shared = stored.saturating_sub(blocks);
                cheapest(&costs(store, &pieces, groups, shared)?, factor)
            }
        };
        Ok(ranges(&pieces, &chosen))
    }

    fn check(&self) -> Result<()> {
        let problem = match self.alpha {
            _ if self.group_blocks == 0 => {
                "a chunk group of 0 blocks: choose at least 1".to_owned()
            }
            Alpha::Share(share) if !(0.0..=1.0).contains(&share) => {
                format!("alpha is {share}: choose 0 (incremental) to 1 (differential)")
            }
            Alpha::Automatic(factor) if !(1.0..).contains(&factor) => {
                format!("a restore factor of {factor}: choose 1 or more")
            }
            _ => return Ok(()),
        };
        Err(VersionsError::Invalid(problem))
    }

    /// The differential delta in the order of the disk, cut where groups end.
    fn pieces(&self, store: &Store, root: NodeRef, origin: u64) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut at = 0;
        tree::diff(&store.maps, self.reference, root, &mut |part| {
            let BlockRef::Stored { pack, slot } = part.new else {
                return Ok(());
            };
            let origin = match pack {
                SPOOLED => origin,
                _ => store.pack(pack)?.origin,
            };
            let mut done = 0;
            while done < part.len {
                let len = (self.group_blocks - at % self.group_blocks).min(part.len - done);
                pieces.push(Piece {
                    group: (at / self.group_blocks) as usize,
                    start: part.start + done,
                    len,
                    origin,
                    pack,
                    slot: slot + done as u32,
                });
                done += len;
                at += len;
            }
            Ok(())
        })?;
        Ok(pieces)
    }
}

/// How many blocks of a tree are stored, and neither zero nor the base's.
///
/// # Errors
/// As `tree::diff`.
pub fn stored_blocks(store: &Store, empty: NodeRef, root: NodeRef) -> Result<u64> {
    let mut blocks = 0;
    tree::diff(&store.maps, empty, root, &mut |part| {
        if matches!(part.new, BlockRef::Stored { .. }) {
            blocks += part.len;
        }
        Ok(())
    })?;
    Ok(blocks)
}

/// Non-sequential reads of each group: a chunk is stored by another version than the one before it in the same group.
fn non_sequential_reads(pieces: &[Piece], groups: usize) -> Vec<u64> {
    let mut counts = vec![0; groups];
    for pair in pieces.windows(2) {
        if pair[0].group == pair[1].group && pair[0].origin != pair[1].origin {
            counts[pair[1].group] += 1;
        }
    }
    counts
}

/// The share of the groups with the most reads, rounded to the nearest number, halves up. Of equal ones the first.
fn most_scattered(reads: &[u64], share: f64) -> Vec<usize> {
    let wanted = (share * reads.len() as f64 + 0.5).floor() as usize;
    let mut groups: Vec<usize> = (0..reads.len()).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(reads[*group]));
    groups.truncate(wanted);
    groups.sort_unstable();
    groups
}

/// What restoring each group costs, and what storing it again adds. A frame that several groups need is read once: each pays for the share
/// that it uses. `shared` blocks are restored besides those of the delta.
fn costs(store: &Store, pieces: &[Piece], groups: usize, shared: u64) -> Result<Costs> {
    let mean = mean_block_bytes(store);
    let (mut blocks, mut new) = (vec![0.0; groups], vec![0.0; groups]);
    for piece in pieces {
        blocks[piece.group] += piece.len as f64;
        if piece.pack == SPOOLED {
            new[piece.group] += piece.len as f64;
        }
    }
    let mut costs = Costs {
        common: shared as f64 * mean * (1.0 + WRITE),
        ..Costs::default()
    };
    for (group, read) in frame_costs(store, pieces, groups)?.into_iter().enumerate() {
        let contiguous = blocks[group] * mean + SEEK_BYTES;
        let write = blocks[group] * mean * WRITE;
        let now = new[group] * mean + read;
        costs.now.push(now.max(contiguous) + write);
        costs.contiguous.push(contiguous + write);
        costs.added.push((blocks[group] - new[group]) * mean);
    }
    Ok(costs)
}

fn mean_block_bytes(store: &Store) -> f64 {
    let (mut bytes, mut blocks) = (0, 0);
    for pack in store.packs().iter().filter(|pack| pack.blocks > 0) {
        bytes += pack.data_len;
        blocks += u64::from(pack.blocks);
    }
    match bytes {
        0 => BLOCK_BYTES,
        _ => bytes as f64 / blocks.max(1) as f64,
    }
}

/// A frame of which a group uses some blocks.
struct UsedFrame {
    group: usize,
    frame: (u32, usize),
    bytes: f64,
    blocks: f64,
}

/// Bytes and seeks that reading each group's blocks from packs costs.
fn frame_costs(store: &Store, pieces: &[Piece], groups: usize) -> Result<Vec<f64>> {
    let used = used_frames(store, pieces)?;
    let mut blocks: HashMap<(u32, usize), f64> = HashMap::new();
    for each in &used {
        *blocks.entry(each.frame).or_default() += each.blocks;
    }
    let mut costs = vec![0.0; groups];
    let mut last = None;
    for each in &used {
        let all = blocks.get(&each.frame).copied().unwrap_or(each.blocks);
        costs[each.group] += each.bytes * each.blocks / all;
        let (pack, frame) = each.frame;
        let follows = last == Some(each.frame) || (frame > 0 && last == Some((pack, frame - 1)));
        if !follows {
            costs[each.group] += SEEK_BYTES;
        }
        last = Some(each.frame);
    }
    Ok(costs)
}

fn used_frames(store: &Store, pieces: &[Piece]) -> Result<Vec<UsedFrame>> {
    let mut used = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.pack != SPOOLED) {
        let index = store.index(piece.pack)?;
        let mut at = 0;
        while at < piece.len {
            let (frame, within) = store.locate(piece.pack, piece.slot + at as u32)?;
            let entry = &index.frames[frame];
            let count = u64::from(entry.count - within).min(piece.len - at);
            used.push(UsedFrame {
                group: piece.group,
                frame: (piece.pack, frame),
                bytes: f64::from(entry.len),
                blocks: count as f64,
            });
            at += count;
        }
    }
    Ok(used)
}

/// The groups to store again so that a restore costs at most `factor` times that of a wholly differential version, at about the least
/// storage: by gain per byte (the greedy rule for the covering knapsack), less every group that turns out not to be needed.
fn cheapest(costs: &Costs, factor: f64) -> Vec<usize> {
    let gain = |group: usize| costs.now[group] - costs.contiguous[group];
    let worth = |group: usize| gain(group) / costs.added[group].max(1.0);
    let (now, contiguous): (f64, f64) = (costs.now.iter().sum(), costs.contiguous.iter().sum());
    let mut excess = now + costs.common - factor * (contiguous + costs.common);
    let mut order: Vec<usize> = (0..costs.now.len()).collect();
    order.sort_by(|one, other| descending(worth(*one), worth(*other)));
    let mut chosen = Vec::new();
    for group in order {
        if excess <= 0.0 || gain(group) <= 0.0 {
            break;
        }
        chosen.push(group);
        excess -= gain(group);
    }
    chosen.sort_by(|one, other| descending(costs.added[*one], costs.added[*other]));
    chosen.retain(|group| {
        let needed = excess + gain(*group) > 0.0;
        if !needed {
            excess += gain(*group);
        }
        needed
    });
    chosen.sort_unstable();
    chosen
}

fn descending(one: f64, other: f64) -> Ordering {
    other.partial_cmp(&one).unwrap_or(Ordering::Equal)
}

/// The blocks of some groups, ascending, as ranges (first, count).
fn ranges(pieces: &[Piece], chosen: &[usize]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for piece in pieces {
        if chosen.binary_search(&piece.group).is_err() {
            continue;
        }
        match out.last_mut() {
            Some((first, count)) if *first + *count == piece.start => *count += piece.len,
            _ => out.push((piece.start, piece.len)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The chunks of a differential delta, by the versions that have them.
    fn delta(owners: &[u64], group_blocks: usize) -> (Vec<Piece>, usize) {
        let piece = |(at, origin): (usize, &u64)| Piece {
            group: at / group_blocks,
            start: at as u64,
            len: 1,
            origin: *origin,
            pack: 1,
            slot: at as u32,
        };
        let groups = owners.len().div_ceil(group_blocks);
        (owners.iter().enumerate().map(piece).collect(), groups)
    }

    fn reads(owners: &[u64], group_blocks: usize) -> Vec<u64> {
        let (pieces, groups) = delta(owners, group_blocks);
        non_sequential_reads(&pieces, groups)
    }

    fn select(owners: &[u64], group_blocks: usize, share: f64) -> Vec<usize> {
        most_scattered(&reads(owners, group_blocks), share)
    }

    fn costs_of(now: &[f64], contiguous: &[f64], added: &[f64]) -> Costs {
        Costs {
            now: now.to_vec(),
            contiguous: contiguous.to_vec(),
            added: added.to_vec(),
            common: 0.0,
        }
    }

    const FIGURE_3: [u64; 4] = [1, 2, 1, 2];
    const FIGURE_5_C: [u64; 4] = [1, 3, 3, 3];

    #[test]
    fn figure_3_restoring_in_one_group_jumps_three_times() {
        assert_eq!(reads(&FIGURE_3, 4), [3]);
    }

    #[test]
    fn figure_4_groups_of_two_jump_once_each_and_the_first_is_stored_again() {
        assert_eq!(reads(&FIGURE_3, 2), [1, 1]);
        assert_eq!(select(&FIGURE_3, 2, 0.5), [0]);
    }

    #[test]
    fn figure_6_stores_chunks_3_and_4_of_vm_c_as_differential() {
        assert_eq!(reads(&FIGURE_5_C, 2), [1, 0]);
        assert_eq!(select(&FIGURE_5_C, 2, 0.5), [0]);
    }

    #[test]
    fn the_extremes_are_incremental_and_differential() {
        assert!(select(&FIGURE_3, 2, 0.0).is_empty());
        assert_eq!(select(&FIGURE_3, 2, 1.0), [0, 1]);
    }

    #[test]
    fn the_most_fragmented_groups_come_first() {
        let owners = [1, 1, 1, 1, 2, 1, 2, 2, 1, 2, 1, 2];
        assert_eq!(select(&owners, 4, 0.3), [2]);
        assert_eq!(select(&owners, 4, 0.6), [1, 2]);
    }

    #[test]
    fn the_last_group_may_be_shorter() {
        assert_eq!(reads(&[1, 1, 2, 3, 4], 2), [0, 1, 0]);
    }

    #[test]
    fn nothing_to_restore_has_no_groups() {
        assert!(select(&[], 500, 1.0).is_empty());
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for (alpha, group_blocks) in [
            (Alpha::Share(1.1), 2),
            (Alpha::Share(-0.1), 2),
            (Alpha::Share(f64::NAN), 2),
            (Alpha::Share(0.5), 0),
            (Alpha::Automatic(0.9), 2),
            (Alpha::Automatic(f64::NAN), 2),
        ] {
            let regrouping = Regrouping {
                alpha,
                group_blocks,
                reference: NodeRef::Zero,
                empty: NodeRef::Zero,
            };
            assert!(matches!(regrouping.check(), Err(VersionsError::Invalid(_))));
        }
    }

    #[test]
    fn what_is_fast_enough_stays() {
        let costs = costs_of(&[10.0, 11.0], &[10.0, 10.0], &[5.0, 5.0]);
        assert!(cheapest(&costs, 1.1).is_empty());
    }

    #[test]
    fn what_a_restore_costs_anyway_counts() {
        let mut costs = costs_of(&[40.0, 10.0], &[10.0, 10.0], &[30.0, 1.0]);
        assert_eq!(cheapest(&costs, 1.2), [0]);
        costs.common = 130.0;
        assert!(cheapest(&costs, 1.2).is_empty());
    }

    #[test]
    fn the_best_gain_for_its_bytes_is_stored() {
        let costs = costs_of(&[40.0, 40.0, 10.0], &[10.0; 3], &[30.0, 3.0, 1.0]);
        assert_eq!(cheapest(&costs, 2.0), [1]);
    }

    #[test]
    fn ranges_join_neighbours() {
        let (pieces, _) = delta(&[1; 7], 2);
        assert_eq!(ranges(&pieces, &[0, 1, 3]), [(0, 4), (6, 1)]);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_reading_chunk_by_chunk(
            owners in proptest::collection::vec(0u64..4, 0..60),
            size in 1usize..9,
            share in 0.0..=1.0,
        ) {
            let wanted: Vec<u64> = owners
                .chunks(size)
                .map(|group| group.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64)
                .collect();
            prop_assert_eq!(&reads(&owners, size), &wanted);
            let chosen = most_scattered(&wanted, share);
            let least = chosen.iter().map(|group| wanted[*group]).min();
            let left = (0..wanted.len()).filter(|group| !chosen.contains(group));
            if let (Some(least), Some(most)) = (least, left.map(|group| wanted[group]).max()) {
                prop_assert!(least >= most);
            }
        }

        #[test]
        fn the_goal_is_reached_and_no_group_is_in_vain(
            groups in proptest::collection::vec((1.0..100.0, 0.0..100.0, 0.0..100.0), 0..30),
            factor in 1.0..3.0,
        ) {
            let contiguous: Vec<f64> = groups.iter().map(|group| group.0).collect();
            let now: Vec<f64> = groups.iter().map(|group| group.0 + group.1).collect();
            let added: Vec<f64> = groups.iter().map(|group| group.2).collect();
            let chosen = cheapest(&costs_of(&now, &contiguous, &added), factor);
            let goal = factor * contiguous.iter().sum::<f64>();
            let cost = |without: Option<usize>| -> f64 {
                (0..groups.len())
                    .map(|i| match chosen.contains(&i) && without != Some(i) {
                        true => contiguous[i],
                        false => now[i],
                    })
                    .sum()
            };
            prop_assert!(cost(None) <= goal + 1e-6);
            for group in &chosen {
                prop_assert!(cost(Some(*group)) > goal - 1e-6);
            }
        }
    }
}
