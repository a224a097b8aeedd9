//! Which leaves of a target are not the base's: those whose chaining values a patch has to carry.

use super::format::{Header, LEAF_BLOCKS};
use super::runs::{within, Run, Src};
use crate::leaf::{leaf_count, leaf_len, LEAF_SIZE};

/// Returns the runs of one leaf.
pub fn leaf_runs(runs: &[Run], leaf: u64) -> impl Iterator<Item = Run> + '_ {
    let first = leaf as u32 * LEAF_BLOCKS;
    within(runs, first, first + LEAF_BLOCKS)
}

/// Returns the leaves whose chaining values a patch has to carry.
pub fn changed_leaves(header: &Header, runs: &[Run]) -> Vec<u32> {
    let leaves = leaf_count(header.target_size);
    let mut changed = Vec::new();
    if leaves < 2 {
        return changed;
    }
    let mut at = 0;
    for run in runs {
        // Leaves wholly inside a run of zeroes or of unmoved blocks are judged at once.
        let last = u64::from(run.end() - 1) / u64::from(LEAF_BLOCKS);
        let mut leaf = (u64::from(run.start) / u64::from(LEAF_BLOCKS)).max(at);
        if run.src == Src::Zero
            || (run.src == Src::Base(run.start) && leaf_count(header.base_size) > 1)
        {
            let inside = |leaf: u64| {
                leaf as u32 * LEAF_BLOCKS >= run.start
                    && (leaf as u32 + 1) * LEAF_BLOCKS <= run.end()
            };
            if leaf <= last && !inside(leaf) {
                judge(header, runs, leaf, &mut changed);
                leaf += 1;
            }
            // The base's last leaf may be shorter than the target's at the same place: never skipped.
            let full = if run.src == Src::Zero {
                u64::MAX
            } else {
                header.base_size / LEAF_SIZE
            };
            let whole = u64::from(run.end() / LEAF_BLOCKS).min(full);
            leaf = leaf.max(whole.min(last + 1));
        }
        while leaf <= last {
            judge(header, runs, leaf, &mut changed);
            leaf += 1;
        }
        at = at.max(leaf);
    }
    changed
}

fn judge(header: &Header, runs: &[Run], leaf: u64, changed: &mut Vec<u32>) {
    let zero = leaf_runs(runs, leaf).all(|run| run.src == Src::Zero);
    if !zero && !is_inherited(header, leaf, leaf_runs(runs, leaf)) {
        changed.push(leaf as u32);
    }
}

/// Returns whether leaf `leaf` of the target is the base's at the same place, judged by the runs that touch it.
fn is_inherited(header: &Header, leaf: u64, mut runs: impl Iterator<Item = Run>) -> bool {
    // An image of a single leaf has no chaining values to inherit.
    leaf_count(header.base_size) > 1
        && leaf_len(header.base_size, leaf) == leaf_len(header.target_size, leaf)
        && runs.all(|run| run.src == Src::Base(run.start))
}
