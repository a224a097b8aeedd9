//! Sizes that volumes take in an LRU cache which they share.
//!
//! All blocks of a shared LRU cache are evicted at the same age. While it fills, a volume grows by
//! a block at each of its misses; so the time after which it has `s` blocks is the sum, over all
//! sizes below, of the time between two misses (Xiang et al., "HOTL: a higher order theory of
//! locality", ASPLOS 2013). The sizes are those of all volumes at the time at which they fill the
//! cache together.

use diffcache_partitions::curve::Curve;

use super::Demand;

/// Halvings of the time; doubles have no more digits.
const HALVINGS: u32 = 64;

/// Returns the blocks of each volume.
///
/// A volume has at least `min` and at most `max` blocks, and no more than its different blocks
/// unless `min` is more. The sum is at most the capacity, if the least sizes leave that.
pub fn shared(demands: &[Demand<'_>], capacity: u64) -> Vec<u64> {
    let sizes_at = |time: f64| -> Vec<u64> {
        demands
            .iter()
            .map(|each| size_at(each.curve, time).min(each.max).max(each.min))
            .collect()
    };
    let fits = |sizes: &[u64]| {
        let sum = sizes
            .iter()
            .try_fold(0_u64, |sum, &size| sum.checked_add(size));
        sum.is_some_and(|sum| sum <= capacity)
    };
    // By then each volume has all of its blocks: the last one takes the whole trace.
    let mut high = demands
        .iter()
        .map(|each| time_of(each.curve))
        .fold(0.0, f64::max);
    let all = sizes_at(high);
    if fits(&all) {
        return all;
    }
    let mut low = 0.0;
    for _halving in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if fits(&sizes_at(middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    sizes_at(low)
}

/// Returns the time after which a volume has all of its blocks.
fn time_of(curve: &Curve) -> f64 {
    let mut time = 0.0;
    walk(curve, |blocks, pause| {
        time += blocks as f64 * pause;
        true
    });
    time
}

/// Returns the blocks that a volume has at a time, in parts of the trace.
fn size_at(curve: &Curve, time: f64) -> u64 {
    let (mut size, mut left) = (0, time);
    walk(curve, |blocks, pause| {
        let reached = (left / pause).min(blocks as f64);
        size += reached as u64;
        left -= blocks as f64 * pause;
        left > 0.0
    });
    size
}

/// Calls `visit` with numbers of blocks, and the time between two misses while they are added.
///
/// Stops when it returns false.
fn walk(curve: &Curve, mut visit: impl FnMut(u64, f64) -> bool) {
    let (mut size, mut hits) = (0, 0);
    let ends = curve.steps.iter().map(|step| (step.size, step.hits));
    for (end, next) in ends.chain([(curve.distinct, curve.most_hits())]) {
        let end = end.min(curve.distinct);
        // Blocks may be known from before the references that the curve is of.
        let misses = curve.references.saturating_sub(hits).max(1);
        if end > size && !visit(end - size, 1.0 / misses as f64) {
            return;
        }
        (size, hits) = (size.max(end), next);
    }
}
