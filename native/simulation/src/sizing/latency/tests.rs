//! Tests of the search: against all divisions, of curves with cliffs.

use diffcache_partitions::curve::{Curve, Step};
use proptest::prelude::*;

use super::hull::Corner;
use super::*;

fn demand(curve: &Curve, weight: f64) -> Demand<'_> {
    Demand {
        curve,
        weight,
        min: 0,
        max: u64::MAX,
    }
}

/// Returns a curve of flights of stairs: this many blocks without a hit, then each block fewer more.
fn stairs(flights: &[(u64, u64, u64)]) -> Curve {
    let mut steps: Vec<Step> = Vec::new();
    let (mut size, mut hits) = (0, 0);
    for &(flat, length, height) in flights {
        size += flat;
        for block in 0..length {
            size += 1;
            let more = height * (length - block) / length;
            if more > 0 {
                hits += more;
                steps.push(Step { size, hits });
            }
        }
    }
    Curve {
        references: hits + size,
        distinct: size,
        steps,
    }
}

/// Returns the best value of all divisions, block by block.
fn best_of_all(demands: &[Demand<'_>], capacity: u64, step: u64) -> f64 {
    let capacity = (capacity / step) as usize;
    let mut best = vec![0.0; capacity + 1];
    for each in demands {
        let gain = |steps: usize| each.weight * each.curve.hits(steps as u64 * step) as f64;
        let gains: Vec<f64> = (0..=capacity).map(gain).collect();
        best = (0..=capacity)
            .map(|all| {
                let values = (0..=all).map(|own| best[all - own] + gains[own]);
                values.fold(0.0, f64::max)
            })
            .collect();
    }
    best[capacity]
}

/// Checks that sizes are within the capacity, proven, and of a value.
fn check(demands: &[Demand<'_>], capacity: u64, step: u64, expected: f64) {
    let found = most_hits(demands, capacity, step).unwrap();
    let pairs = || demands.iter().zip(&found.blocks);
    assert!(pairs().map(|(_, &size)| size).sum::<u64>() <= capacity);
    let value: f64 = pairs()
        .map(|(each, &size)| each.weight * each.curve.hits(size) as f64)
        .sum();
    assert!(
        (value - expected).abs() <= 1e-9 * expected,
        "{value} instead of {expected}"
    );
    assert!(found.optimal);
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    /// Returns curves of several flights, of about as many blocks.
    fn curves(&mut self, count: u64, blocks: u64) -> Vec<Curve> {
        let mut curve = || {
            let flights = 1 + self.below(5);
            let part = blocks / flights;
            let flights: Vec<_> = (0..flights)
                .map(|_| (self.below(part), 1 + self.below(part), 1 + self.below(1000)))
                .collect();
            stairs(&flights)
        };
        (0..count).map(|_| curve()).collect()
    }
}

#[test]
fn stairs_of_several_volumes_have_the_sizes_of_all_divisions() {
    let mut random = Random(11);
    for _ in 0..4 {
        let curves = random.curves(5, 1500);
        let demands: Vec<_> = (1..)
            .zip(&curves)
            .map(|(n, curve)| demand(curve, f64::from(n).sqrt()))
            .collect();
        let capacity = 1000 + random.below(3000);
        for step in [1, 7] {
            let expected = best_of_all(&demands, capacity, step);
            check(&demands, capacity, step, expected);
        }
    }
}

#[test]
fn stairs_of_many_blocks_are_proven() {
    // Each pair of sizes that could be near the bound is beyond any time.
    let mut random = Random(5);
    for count in [3, 8, 64] {
        let curves = random.curves(count, 4_000_000 / count);
        let demands: Vec<_> = curves.iter().map(|curve| demand(curve, 1.0)).collect();
        let found = most_hits(&demands, 1_500_000, 1).unwrap();
        assert!(found.optimal, "{count} volumes");
        assert!(found.blocks.iter().sum::<u64>() <= 1_500_000);
    }
}

#[test]
fn loops_that_are_hit_as_often_fill_the_cache() {
    // Any of them is worth as much as any other: the bound says nothing but that.
    let mut random = Random(3);
    let curves: Vec<Curve> = (0..64)
        .map(|_| {
            let size = 20_000 + random.below(20_000);
            let hits = 9 * size;
            Curve {
                references: hits + size,
                distinct: size,
                steps: vec![Step { size, hits }],
            }
        })
        .collect();
    let demands: Vec<_> = curves.iter().map(|curve| demand(curve, 1.0)).collect();
    check(&demands, 500_000, 1, 9.0 * 500_000.0);
}

#[test]
fn convex_curves_are_whole_or_empty() {
    let curve = |blocks: u64| Curve {
        references: 2 * blocks * blocks,
        distinct: blocks,
        steps: (1..=blocks)
            .map(|size| Step {
                size,
                hits: size * size,
            })
            .collect(),
    };
    let curves: Vec<Curve> = [900, 1000, 1100, 1300].map(curve).to_vec();
    let demands: Vec<_> = curves.iter().map(|curve| demand(curve, 1.0)).collect();
    let expected = best_of_all(&demands, 2500, 1);
    check(&demands, 2500, 1, expected);
}

#[test]
fn the_largest_capacity_is_no_limit() {
    let curve = stairs(&[(3, 2, 5)]);
    let found = most_hits(&[demand(&curve, 1.0)], u64::MAX, 1).unwrap();
    assert_eq!((vec![5], true), (found.blocks, found.optimal));
}

/// Ascending sizes and gains.
fn choices() -> impl Strategy<Value = Vec<Choice>> {
    proptest::collection::vec((1..5_u64, 1..9_u64), 1..30).prop_map(|more| {
        let (mut steps, mut gain) = (0, 0);
        more.into_iter()
            .map(|(wider, higher)| {
                steps += wider;
                gain += higher;
                Choice {
                    steps,
                    gain: gain as f64,
                }
            })
            .collect()
    })
}

fn corners(hull: &Hull, offset: usize) -> Vec<(usize, u64)> {
    let pair = |corner: &Corner| (corner.at + offset, corner.steps);
    hull.corners().iter().map(pair).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn hulls_of_ranges(choices in choices(), first in 0..30_usize, last in 0..30_usize) {
        let last = last.min(choices.len() - 1);
        let first = first.min(last);
        let part = Hull::of(&choices).up_to(&choices, last).beginning_at(&choices, first);
        let expected = Hull::of(&choices[first..=last]);
        prop_assert_eq!(corners(&expected, first), corners(&part, 0));
        let other = Hull::of(&choices).beginning_at(&choices, first).up_to(&choices, last);
        prop_assert_eq!(corners(&expected, first), corners(&other, 0));
        for choice in &choices[first..=last] {
            let above = part.corners().windows(2).any(|pair| {
                let more = choice.steps.abs_diff(pair[0].steps) as f64 * pair[1].slope;
                (pair[0].steps..=pair[1].steps).contains(&choice.steps)
                    && choice.gain <= pair[0].gain + more + 1e-9
            });
            prop_assert!(above || part.corners().len() == 1);
        }
    }

    #[test]
    fn no_sizes_of_stairs_do_better(
        flights in proptest::collection::vec(
            (proptest::collection::vec((0..40_u64, 1..40_u64, 1..60_u64), 1..5), 1..1000_u32),
            1..7,
        ),
        capacity in 1..300_u64,
        step in 1..5_u64,
    ) {
        let curves: Vec<_> = flights.iter().map(|(each, _)| stairs(each)).collect();
        let demands: Vec<_> = curves
            .iter()
            .zip(&flights)
            .map(|(curve, (_, weight))| demand(curve, f64::from(*weight) / 7.0))
            .collect();
        check(&demands, capacity, step, best_of_all(&demands, capacity, step));
    }

    #[test]
    fn searches_that_divide_at_once_find_the_same(
        flights in proptest::collection::vec(
            proptest::collection::vec((0..40_u64, 1..40_u64, 1..60_u64), 1..5), 2..6,
        ),
        capacity in 1..200_u64,
    ) {
        let curves: Vec<_> = flights.iter().map(|each| stairs(each)).collect();
        let demands: Vec<_> = curves.iter().map(|curve| demand(curve, 1.0)).collect();
        let choices: Vec<_> = demands
            .iter()
            .filter_map(|each| choices_of(each, capacity, 1))
            .collect();
        let mut tree = Tree::new(&choices, capacity);
        tree.least_effort = 8;
        let (best, optimal) = tree.search().unwrap();
        prop_assert!(optimal);
        prop_assert!((best.gain - best_of_all(&demands, capacity, 1)).abs() < 1e-6);
    }
}
