//! Counts what instances read, and answers their misses with hints.

use std::ops::Range;

use crate::chunks::{Chunk, ChunkSet};
use crate::profile::{Profile, Record};
use crate::tree::{NodeCache, Source, Tree, Visit};

/// What a deployment knows of an image: its profile, and the tree over its chunks.
#[derive(Debug, Clone)]
pub struct Learner {
    profile: Profile,
    tree: Tree,
    least: u64,
}

/// What one instance has read, and the hints it got.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    read: ChunkSet,
    given: ChunkSet,
    cache: NodeCache,
}

impl Reader {
    /// Whether the instance was given the chunk, as a hint or as what it asked for.
    #[must_use]
    pub fn was_given(&self, chunk: Chunk) -> bool {
        self.given.contains(chunk)
    }
}

/// A chunk to prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// The chunk.
    pub chunk: Chunk,
    /// What was known of it when the hint was given.
    pub record: Record,
}

/// The answer to a miss.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// Chunks to prefetch, most frequent first, then earliest, then lowest.
    pub hints: Vec<Hint>,
    /// Nodes of the tree that were looked at.
    pub visit: Visit,
}

impl Learner {
    /// Starts with what earlier deployments read.
    ///
    /// `least` is the number of readers from which on a chunk is a hint.
    #[must_use]
    pub fn new(chunks: Chunk, least: u64, profile: Profile) -> Self {
        let mut tree = Tree::new(chunks);
        for (chunk, count, _) in profile.rows() {
            tree.add(chunk, count);
        }
        Self {
            profile,
            tree,
            least,
        }
    }

    /// Counts a read of a chunk this long after the instance's start; later reads of it do not
    /// count.
    pub fn read(&mut self, reader: &mut Reader, chunk: Chunk, since_start_ns: u64) {
        if reader.read.insert(chunk) {
            self.profile.record(chunk, since_start_ns);
            self.tree.add(chunk, 1);
        }
    }

    /// Counts a read of a chunk that the instance does not have, and returns hints.
    ///
    /// Hints are chunks that had `least` readers before, and that the instance neither has
    /// (`has`) nor was given.
    pub fn miss(
        &mut self,
        reader: &mut Reader,
        chunk: Chunk,
        since_start_ns: u64,
        has: impl Fn(Chunk) -> bool,
    ) -> Reply {
        self.read(reader, chunk, since_start_ns);
        self.look(reader, chunk, has, |_, _| {})
    }

    /// Walks the tree for a miss that was counted; `seen` gets every node.
    fn look(
        &self,
        reader: &mut Reader,
        chunk: Chunk,
        has: impl Fn(Chunk) -> bool,
        seen: impl FnMut(&Range<Chunk>, Source),
    ) -> Reply {
        let Reader { cache, given, .. } = reader;
        // What is asked for is no hint, now or later.
        given.insert(chunk);
        let mut hints = Vec::new();
        let visit = self.tree.walk(chunk, self.least, cache, seen, |leaf| {
            if !given.contains(leaf) && !has(leaf) {
                given.insert(leaf);
                hints.push(Hint {
                    chunk: leaf,
                    record: self.profile.get(leaf),
                });
            }
        });
        hints.sort_by(|one, other| {
            let urgency = one.record.urgency(&other.record);
            urgency.then(one.chunk.cmp(&other.chunk))
        });
        Reply { hints, visit }
    }

    /// Whether enough instances read the chunk for it to be a hint.
    #[must_use]
    pub fn knows(&self, chunk: Chunk) -> bool {
        self.profile.get(chunk).count >= self.least
    }

    /// What was read so far, earlier deployments included.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    const A: Chunk = 0;
    const B: Chunk = 1;
    const C: Chunk = 2;
    const D: Chunk = 3;

    /// Figure 3 of the paper: four instances, four chunks, a threshold of 2.
    struct Figure {
        learner: Learner,
        readers: [Reader; 4],
        clock: u64,
    }

    type Nodes = Vec<(Range<Chunk>, Source)>;

    impl Figure {
        /// Figure 3(a) up to, but without, the first chunk that differs.
        fn after_chunk_a() -> Self {
            let mut figure = Self {
                learner: Learner::new(4, 2, Profile::default()),
                readers: Default::default(),
                clock: 0,
            };
            for instance in 0..4 {
                let (hints, visit, _) = figure.read(instance, A);
                // "does not generate any prefetching hints, as it is the only chunk"
                assert!(hints.is_empty());
                assert_eq!((3, 0, 4), (visit.remote, visit.cached, visit.skipped));
            }
            figure
        }

        fn read(&mut self, instance: usize, chunk: Chunk) -> (Vec<Chunk>, Visit, Nodes) {
            self.clock += 1;
            let reader = &mut self.readers[instance];
            let had = reader.read.clone();
            let mut nodes = Vec::new();
            self.learner.read(reader, chunk, self.clock);
            let reply = self.learner.look(
                reader,
                chunk,
                |c| had.contains(c),
                |range, source| nodes.push((range.clone(), source)),
            );
            nodes.sort_by_key(|(range, _)| (range.end - range.start, range.start));
            let hints = reply.hints.iter().map(|hint| hint.chunk).collect();
            (hints, reply.visit, nodes)
        }

        fn cached(&self, instance: usize) -> Vec<(Range<Chunk>, u64)> {
            let cache = &self.readers[instance].cache;
            let mut nodes: Vec<_> = self.learner.tree.cached(cache).collect();
            nodes.sort_by_key(|(range, _)| (range.end - range.start, range.start));
            nodes
        }
    }

    #[test]
    fn figure_3_a() {
        let mut figure = Figure::after_chunk_a();
        assert!(figure.read(0, B).0.is_empty());
        // B was read once: no hint for instances 2 and 3.
        assert!(figure.read(1, C).0.is_empty());
        assert!(figure.read(2, C).0.is_empty());
        assert_eq!(vec![C], figure.read(3, D).0);
    }

    #[test]
    fn figure_3_b() {
        let mut figure = Figure::after_chunk_a();
        // White: cached with count 1, because instance 1 was the first to read A.
        assert_eq!(vec![(0..1, 1), (0..2, 1), (0..4, 1)], figure.cached(0));
        let (hints, visit, nodes) = figure.read(0, B);
        assert!(hints.is_empty());
        assert_eq!(
            vec![
                (0..1, Source::Cached),
                (1..2, Source::Remote),
                (0..2, Source::Cached),
                (2..4, Source::Skipped),
                (0..4, Source::Cached),
            ],
            nodes
        );
        assert_eq!((1, 3, 3), (visit.remote, visit.cached, visit.skipped));
        assert_eq!(
            vec![(0..1, 1), (1..2, 1), (0..2, 1), (0..4, 1)],
            figure.cached(0)
        );
    }

    #[test]
    fn figure_3_c() {
        let mut figure = Figure::after_chunk_a();
        figure.read(0, B);
        figure.read(1, C);
        figure.read(2, C);
        assert_eq!(vec![(0..1, 4), (0..2, 4), (0..4, 4)], figure.cached(3));
        let (hints, visit, nodes) = figure.read(3, D);
        assert_eq!(vec![C], hints);
        assert_eq!(
            vec![
                (0..1, Source::Cached),
                (1..2, Source::Skipped),
                (2..3, Source::Remote),
                (3..4, Source::Remote),
                (0..2, Source::Cached),
                (2..4, Source::Remote),
                (0..4, Source::Cached),
            ],
            nodes
        );
        assert_eq!((3, 3, 1), (visit.remote, visit.cached, visit.skipped));
        assert_eq!(
            vec![
                (0..1, 4),
                (2..3, 2),
                (3..4, 1),
                (0..2, 4),
                (2..4, 3),
                (0..4, 4)
            ],
            figure.cached(3)
        );
    }

    /// The definition of hints, with every chunk looked at.
    #[derive(Default)]
    struct Model {
        times: BTreeMap<Chunk, Vec<u64>>,
        read: Vec<BTreeSet<Chunk>>,
        given: Vec<BTreeSet<Chunk>>,
    }

    impl Model {
        fn access(&mut self, who: usize, chunk: Chunk, at: u64, least: usize) -> Vec<Chunk> {
            let mut hints: Vec<_> = self
                .times
                .iter()
                .filter(|(c, times)| times.len() >= least && **c != chunk)
                .filter(|(c, _)| !self.read[who].contains(c) && !self.given[who].contains(c))
                .map(|(&c, times)| {
                    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
                    (Reverse(times.len()), (mean * 1e6) as u64, c)
                })
                .collect();
            hints.sort_unstable();
            let miss = self.read[who].insert(chunk);
            if miss {
                self.times.entry(chunk).or_default().push(at);
            }
            if !miss {
                return Vec::new();
            }
            let hints: Vec<_> = hints.into_iter().map(|(_, _, c)| c).collect();
            self.given[who].extend(&hints);
            hints
        }
    }

    proptest! {
        #[test]
        fn hints_are_those_of_the_definition(
            least in 1usize..4,
            reads in prop::collection::vec((0usize..5, 0u32..13, 0u64..50), 1..120),
        ) {
            let mut learner = Learner::new(13, least as u64, Profile::default());
            let mut readers = vec![Reader::default(); 5];
            let mut model = Model {
                read: vec![BTreeSet::new(); 5],
                given: vec![BTreeSet::new(); 5],
                ..Model::default()
            };
            for (who, chunk, at) in reads {
                let had = readers[who].read.clone();
                let expected = model.access(who, chunk, at, least);
                let reader = &mut readers[who];
                let got = if had.contains(chunk) {
                    learner.read(reader, chunk, at);
                    Vec::new()
                } else {
                    learner.miss(reader, chunk, at, |c| had.contains(c)).hints
                };
                let got: Vec<_> = got.iter().map(|hint| hint.chunk).collect();
                prop_assert_eq!(got, expected);
            }
            let counts: Vec<_> = learner.profile().rows().map(|(c, n, _)| (c, n)).collect();
            let expected: Vec<_> =
                model.times.iter().map(|(&c, times)| (c, times.len() as u64)).collect();
            prop_assert_eq!(counts, expected);
        }
    }

    #[test]
    fn first_miss_gets_the_whole_profile_in_order() {
        let rows = [
            (1, 3, 20.0),
            (4, 5, 90.0),
            (6, 5, 90.0),
            (2, 5, 10.0),
            (7, 1, 1.0),
        ];
        let mut learner = Learner::new(8, 2, Profile::from_rows(rows).unwrap());
        let reply = learner.miss(&mut Reader::default(), 0, 0, |_| false);
        let chunks: Vec<_> = reply.hints.iter().map(|hint| hint.chunk).collect();
        assert_eq!(vec![2, 4, 6, 1], chunks);
        assert!(learner.knows(1));
        assert!(!learner.knows(7));
    }
}
