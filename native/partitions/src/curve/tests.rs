//! Tests of what curves are found with.

use proptest::prelude::*;

use super::positions::Positions;
use super::sampled::{is_sampled, Sample, Sampler};
use super::table::Table;
use super::*;
use crate::Block;

/// Repeatable numbers below `end`.
fn numbers(count: usize, end: u64) -> Vec<Block> {
    let mut state = 1_u64;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        })
        .collect()
}

#[test]
fn many_positions() {
    let mut positions = Positions::default();
    let count = 3_000_000;
    for expected in 0..count {
        assert_eq!(expected, positions.push());
    }
    // Each second one, so that ranks have lines with gaps before them.
    for position in (0..count).step_by(2) {
        assert_eq!(count - 1 - position, positions.take(position));
    }
    assert!(positions.contains(1) && !positions.contains(2) && !positions.contains(count));
    for position in (1..count).step_by(2) {
        assert_eq!((count - 1 - position) / 2, positions.take(position));
    }
    assert_eq!(0, positions.members());
}

#[test]
fn a_sample_stays_small() {
    let mut sampler = Sampler::new(Sample::Blocks(100));
    sampler.take(numbers(200_000, 50_000));
    assert!(
        (0.001..0.004).contains(&sampler.rate()),
        "{}",
        sampler.rate()
    );
}

#[test]
fn memory_of_a_sample_is_bounded() {
    let mut sampler = Sampler::new(Sample::Blocks(100));
    sampler.take(numbers(1_000_000, 50));
    assert!(sampler.positions() <= 70_000, "{}", sampler.positions());
}

#[test]
fn epochs_have_curves_of_their_own() {
    let mut sampler = Sampler::new(Sample::Blocks(100));
    sampler.take([1, 2, 3, 1]);
    let expected = Curve {
        references: 4,
        distinct: 3,
        steps: vec![Step { size: 3, hits: 1 }],
    };
    assert_eq!(expected, sampler.cut(0));
    // Block 2 was referenced before, three blocks ago.
    sampler.take([2, 2]);
    let steps = [(1, 1), (3, 2)].map(|(size, hits)| Step { size, hits });
    let expected = Curve {
        references: 2,
        distinct: 1,
        steps: steps.to_vec(),
    };
    assert_eq!(expected, sampler.cut(0));
    assert_eq!(Curve::default(), sampler.cut(0));
}

#[test]
fn references_outside_of_the_sample_are_counted() {
    let mut sampler = Sampler::new(Sample::Blocks(10));
    sampler.take(numbers(1000, 1000));
    sampler.cut(0);
    let threshold = sampler.threshold();
    let sampled = (0..1000).find(|block| is_sampled(*block, threshold));
    sampler.take_sampled(sampled.unwrap());
    let curve = sampler.cut(100);
    assert_eq!(100, curve.references);
    assert!(curve.distinct <= 100);
}

proptest! {
    #[test]
    fn ranks_are_of_members_before(removed in proptest::collection::vec(0..3000_u64, 0..2000)) {
        let mut positions = Positions::first(3000);
        for position in removed {
            if positions.contains(position) {
                positions.take(position);
            }
        }
        let mut before = 0;
        for position in 0..3000 {
            prop_assert_eq!(before, positions.rank(position));
            before += u64::from(positions.contains(position));
        }
        prop_assert_eq!(before, positions.rank(3000));
    }

    #[test]
    fn the_table_is_a_map(
        steps in proptest::collection::vec((0..60_u64, any::<bool>()), 0..400), seed in any::<u64>()
    ) {
        let mut table = Table::with_seed(seed);
        let mut model = std::collections::HashMap::new();
        for (position, (block, removes)) in steps.into_iter().enumerate() {
            let position = position as u64;
            if removes {
                prop_assert_eq!(model.remove(&block), table.remove(block));
            } else {
                prop_assert_eq!(model.insert(block, position), table.replace(block, position));
            }
            prop_assert_eq!(model.len(), table.len());
        }
    }
}
