//! Tests of curves: against the definition, and against each other.

use diffcache_core::task::Task;
use diffcache_partitions::curve::sampled::{Sample, Sampler};
use diffcache_partitions::curve::{Curve, Step};
use diffcache_partitions::Block;
use proptest::prelude::*;

use super::analysis::{analyse, Method, References, Volume};
use super::exact::{Counter, Finder};
use crate::trace::Reader;

fn exact(references: &[Block]) -> Curve {
    let (mut finder, mut counter) = (Finder::default(), Counter::default());
    let mut before = references.to_vec();
    for part in before.chunks_mut(100) {
        finder.find(part);
        counter.count(part);
    }
    counter.curve()
}

fn sampled(references: &[Block], sample: Sample) -> Curve {
    let mut sampler = Sampler::new(sample);
    sampler.take(references.iter().copied());
    sampler.curve()
}

/// Distances as they are defined.
fn by_definition(references: &[Block]) -> Curve {
    let mut distances = vec![0; references.len()];
    let mut distinct = 0;
    for (at, block) in references.iter().enumerate() {
        match references[..at].iter().rposition(|each| each == block) {
            None => distinct += 1,
            Some(before) => {
                let between = &references[before + 1..at];
                let different: std::collections::HashSet<_> = between.iter().collect();
                distances[different.len()] += 1;
            }
        }
    }
    Curve::from_distances(distinct, references.len() as u64, &distances)
}

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
fn the_example_of_the_paper() {
    let references: Vec<Block> = "dacbccebadac".bytes().map(u64::from).collect();
    let curve = exact(&references);
    assert_eq!((12, 5), (curve.references, curve.distinct));
    let hits: Vec<u64> = (1..=6).map(|size| curve.hits(size)).collect();
    assert_eq!(vec![1, 3, 4, 5, 7, 7], hits);
    let sizes: Vec<_> = (0..=8).map(|hits| curve.size_for(hits)).collect();
    let expected = [0, 1, 2, 2, 3, 4, 5, 5].map(Some);
    assert_eq!((&expected[..], &[None][..]), sizes.split_at(8));
    assert_eq!(0, curve.hits(0));
    assert_eq!(7, curve.most_hits());
    assert_eq!(curve, sampled(&references, Sample::Rate(1.0)));
    assert_eq!(curve, sampled(&references, Sample::Blocks(5)));
}

#[test]
fn no_reference() {
    let curve = exact(&[]);
    assert_eq!(Curve::default(), curve);
    assert_eq!(0, curve.hits(10));
    assert_eq!(curve, sampled(&[], Sample::Rate(0.1)));
}

#[test]
fn parts_of_a_stream_have_distances_beyond_their_begin() {
    let (mut finder, mut counter) = (Finder::default(), Counter::default());
    let mut part = |references: &[Block]| {
        let mut before = references.to_vec();
        finder.find(&mut before);
        counter.count(&before);
        counter.take()
    };
    let (size, hits) = (2, 1);
    let steps = vec![Step { size, hits }];
    let (references, distinct) = (3, 2);
    assert_eq!(
        Curve {
            references,
            distinct,
            steps
        },
        part(&[1, 2, 1])
    );
    let steps = vec![Step { size: 1, hits: 1 }, Step { size: 2, hits: 3 }];
    assert_eq!(
        Curve {
            references,
            distinct,
            steps
        },
        part(&[1, 2, 1])
    );
    assert_eq!(Curve::default(), part(&[]));
}

#[test]
fn thinned_curves_keep_their_ends() {
    let curve = exact(&numbers(50_000, 5000));
    assert!(curve.steps.len() > 1000);
    let few = curve.thinned(100);
    assert!((90..=101).contains(&few.len()), "{}", few.len());
    assert_eq!(curve.steps.last(), few.last());
    assert!(few.iter().all(|step| curve.hits(step.size) == step.hits));
    assert_eq!(curve.steps, curve.thinned(curve.steps.len()));
}

/// Mean difference of two curves' hit ratios over sizes up to `end`.
fn mean_error(one: &Curve, other: &Curve, end: u64) -> f64 {
    let sizes = (1..=100).map(|part| end * part / 100);
    let ratio = |curve: &Curve, size| curve.hits(size) as f64 / curve.references as f64;
    sizes
        .map(|size| (ratio(one, size) - ratio(other, size)).abs())
        .sum::<f64>()
        / 100.0
}

#[test]
fn samples_resemble_the_whole() {
    // Half of the references to a tenth of the blocks.
    let mut references = numbers(600_000, 100_000);
    for each in references.iter_mut().step_by(2) {
        *each %= 10_000;
    }
    let whole = exact(&references);
    for sample in [Sample::Rate(0.05), Sample::Blocks(5000)] {
        let part = sampled(&references, sample);
        assert_eq!(whole.references, part.references);
        let error = mean_error(&whole, &part, 100_000);
        assert!(error < 0.01, "{sample:?}: {error}");
        let distinct = part.distinct as f64 / whole.distinct as f64;
        assert!((0.95..1.05).contains(&distinct), "{sample:?}: {distinct}");
    }
}

#[test]
fn positions_are_numbered_anew() {
    // So many references to so few blocks that it happens several times.
    let references = numbers(300_000, 400);
    let curve = sampled(&references, Sample::Blocks(1000));
    assert_eq!(exact(&references), curve);
}

#[test]
fn epochs_and_new_numbers() {
    let mut sampler = Sampler::new(Sample::Blocks(1000));
    let mut counter = Counter::default();
    let mut finder = Finder::default();
    let references = numbers(400_000, 400);
    for epoch in references.chunks(33_333) {
        sampler.take(epoch.iter().copied());
        let mut before = epoch.to_vec();
        finder.find(&mut before);
        counter.count(&before);
        assert_eq!(counter.take(), sampler.cut(0));
    }
}

fn volumes(text: &str, writes: bool, method: Method) -> Vec<Volume> {
    let reader = Reader::new(text.as_bytes()).unwrap();
    let references = References {
        block: 4096,
        writes,
    };
    analyse(reader, references, method, 0, &Task::default()).unwrap()
}

#[test]
fn volumes_have_curves_of_their_own() {
    let text = "1,a,r,0,8192\n2,b,w,0,4096\n3,a,r,4096,4096\n4,b,r,0,4096\n";
    for method in [Method::Exact, Method::Shards(Sample::Rate(1.0))] {
        let found = volumes(text, true, method);
        assert_eq!(
            vec!["a", "b"],
            found.iter().map(|v| &v.name).collect::<Vec<_>>()
        );
        let step = Step { size: 1, hits: 1 };
        for (volume, references, distinct) in [(&found[0], 3, 2), (&found[1], 2, 1)] {
            let steps = vec![step];
            assert_eq!(
                Curve {
                    references,
                    distinct,
                    steps
                },
                volume.curve
            );
        }
        let found = volumes(text, false, method);
        assert_eq!(
            (1, 0),
            (found[1].curve.references, found[1].curve.most_hits())
        );
    }
}

#[test]
fn a_volume_of_which_nothing_counts() {
    let found = volumes("1,a,r,0,4096\n2,b,w,0,4096\n", false, Method::Exact);
    assert_eq!(Curve::default(), found[1].curve);
}

#[test]
fn a_trace_with_an_error_has_no_curves() {
    for method in [Method::Exact, Method::Shards(Sample::Blocks(10))] {
        let reader = Reader::new(&b"1,a,r,0,4096\nx\n"[..]).unwrap();
        let references = References {
            block: 4096,
            writes: true,
        };
        let error = analyse(reader, references, method, 0, &Task::default()).unwrap_err();
        assert!(error.to_string().starts_with("line 2: "), "{error}");
    }
}

proptest! {
    #[test]
    fn distances_are_as_defined(references in proptest::collection::vec(0..40_u64, 0..300)) {
        let curve = by_definition(&references);
        prop_assert_eq!(&curve, &exact(&references));
        prop_assert_eq!(&curve, &sampled(&references, Sample::Rate(1.0)));
        prop_assert_eq!(&curve, &sampled(&references, Sample::Blocks(40)));
    }
}
