//! Tests of sizes: against all possible ones.

use diffcache_partitions::curve::Step;
use proptest::prelude::*;

use super::latency::{most_hits, Sizes};
use super::pool::shared;
use super::*;

fn curve(hits: &[u64]) -> Curve {
    let mut steps = Vec::new();
    let (mut size, mut sum) = (0, 0);
    for &more in hits {
        size += 1;
        sum += more;
        if more > 0 {
            steps.push(Step { size, hits: sum });
        }
    }
    let distinct = hits.len() as u64;
    Curve {
        references: sum + distinct,
        distinct,
        steps,
    }
}

fn demand(curve: &Curve) -> Demand<'_> {
    Demand {
        curve,
        weight: 1.0,
        min: 0,
        max: u64::MAX,
    }
}

fn value(demands: &[Demand<'_>], sizes: &[u64]) -> f64 {
    let pairs = demands.iter().zip(sizes);
    pairs
        .map(|(each, &size)| each.weight * each.curve.hits(size) as f64)
        .sum()
}

/// The best value of all sizes; none if no sizes are possible.
fn best_of_all(demands: &[Demand<'_>], capacity: u64, step: u64) -> Option<f64> {
    let Some((first, rest)) = demands.split_first() else {
        return Some(0.0);
    };
    (first.min.div_ceil(step)..=first.max.min(capacity) / step)
        .filter_map(|steps| {
            let size = steps * step;
            let others = best_of_all(rest, capacity - size, step)?;
            Some(others + first.weight * first.curve.hits(size) as f64)
        })
        .reduce(f64::max)
}

#[test]
fn everything_fits() {
    let (one, other) = (curve(&[5, 3]), curve(&[0, 0, 9]));
    let found = most_hits(&[demand(&one), demand(&other)], 5, 1).unwrap();
    assert_eq!(
        Sizes {
            blocks: vec![2, 3],
            optimal: true
        },
        found
    );
}

#[test]
fn a_cliff_is_worth_more_than_a_slope() {
    // Greedy by the next block would never give the second volume anything.
    let (slope, cliff) = (curve(&[10, 9, 8, 7]), curve(&[0, 0, 0, 100]));
    let found = most_hits(&[demand(&slope), demand(&cliff)], 5, 1).unwrap();
    assert_eq!(
        Sizes {
            blocks: vec![1, 4],
            optimal: true
        },
        found
    );
}

#[test]
fn least_sizes_that_do_not_fit() {
    let one = curve(&[1]);
    let demands = [
        Demand {
            min: 3,
            ..demand(&one)
        },
        demand(&one),
    ];
    assert_eq!(None, most_hits(&demands, 2, 1));
    assert_eq!(
        None,
        most_hits(
            &[Demand {
                min: 3,
                max: 3,
                ..demand(&one)
            }],
            8,
            2
        )
    );
    let found = most_hits(&demands, 4, 1).unwrap();
    assert_eq!(vec![3, 1], found.blocks);
    assert_eq!(vec![0; 0], most_hits(&[], 4, 1).unwrap().blocks);
}

#[test]
fn many_blocks_of_many_volumes() {
    // Nearly linear curves with noise, of which nearly any sizes are nearly optimal.
    let mut state = 7_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 60
    };
    let curves: Vec<Curve> = (0..6)
        .map(|_| curve(&(0..20_000).map(|_| random()).collect::<Vec<_>>()))
        .collect();
    let demands: Vec<_> = curves.iter().map(demand).collect();
    let found = most_hits(&demands, 60_000, 1).unwrap();
    assert!(found.optimal);
    assert!(found.blocks.iter().sum::<u64>() <= 60_000);
}

#[test]
fn shared_caches_are_taken_by_those_with_more_misses() {
    let (busy, calm) = (curve(&[0; 900]), curve(&[0; 300]));
    let demands = [demand(&busy), demand(&calm)];
    assert_eq!(vec![300, 100], shared(&demands, 400));
    assert_eq!(vec![900, 300], shared(&demands, 5000));
    let reserved = [
        demand(&busy),
        Demand {
            min: 250,
            max: 260,
            ..demand(&calm)
        },
    ];
    assert_eq!(vec![150, 250], shared(&reserved, 400));
}

/// Hits of one block more, for each size of each volume; weights, least and most sizes.
fn instances() -> impl Strategy<Value = Vec<(Vec<u64>, u8, u64, u64)>> {
    let volume = (
        proptest::collection::vec(0..8_u64, 0..9),
        1..4_u8,
        0..4_u64,
        0..9_u64,
    );
    proptest::collection::vec(volume, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_sizes_do_better(
        volumes in instances(), capacity in 0..20_u64, step in 1..4_u64
    ) {
        let curves: Vec<_> = volumes.iter().map(|(hits, ..)| curve(hits)).collect();
        let demands: Vec<_> = volumes
            .iter()
            .zip(&curves)
            .map(|((_, weight, min, more), curve)| Demand {
                curve,
                weight: f64::from(*weight) / 3.0,
                min: *min,
                max: min + more,
            })
            .collect();
        let best = best_of_all(&demands, capacity, step);
        let found = most_hits(&demands, capacity, step);
        prop_assert_eq!(best.is_none(), found.is_none());
        if let (Some(best), Some(found)) = (best, found) {
            prop_assert!(found.optimal);
            prop_assert!(found.blocks.iter().sum::<u64>() <= capacity);
            for (size, each) in found.blocks.iter().zip(&demands) {
                prop_assert!(size % step == 0 && (each.min..=each.max).contains(size));
            }
            prop_assert!((value(&demands, &found.blocks) - best).abs() < 1e-9);
        }
    }

    #[test]
    fn shared_sizes_fill_the_cache(volumes in instances(), capacity in 0..20_u64) {
        let curves: Vec<_> = volumes.iter().map(|(hits, ..)| curve(hits)).collect();
        let demands: Vec<_> = curves.iter().map(demand).collect();
        let sizes = shared(&demands, capacity);
        let wanted: u64 = curves.iter().map(|each| each.distinct).sum();
        let sum: u64 = sizes.iter().sum();
        prop_assert!(sum <= capacity.min(wanted));
        prop_assert!(sum + demands.len() as u64 >= capacity.min(wanted));
    }
}
