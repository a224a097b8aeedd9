//! The binary segment tree over the chunks of an image, and what an instance caches of it.
//!
//! A leaf covers one chunk and counts the instances that read it; a node above covers the chunks
//! of its two children and has the sum of their counts. The left child gets the larger half.
//! Nodes exist here once one of their chunks was read: all others count 0.

use std::ops::Range;

use crate::chunks::Chunk;

/// Number of a node that exists.
type NodeId = u32;
const ROOT: NodeId = 0;
const ABSENT: NodeId = NodeId::MAX;

#[derive(Debug, Clone)]
struct Node {
    range: Range<Chunk>,
    count: u64,
    children: [NodeId; 2],
}

/// The counts of all nodes.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// The nodes that one instance has fetched, each with the count that it had then.
#[derive(Debug, Clone, Default)]
pub struct NodeCache {
    counts: Vec<u64>,
}

/// How a visit came to know a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Fetched from the host that keeps the node, and cached.
    Remote,
    /// Cached by an earlier visit.
    Cached,
    /// The topmost node of a subtree that was not visited.
    Skipped,
}

/// Numbers of nodes, by how a visit came to know them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Visit {
    /// Fetched from other hosts.
    pub remote: u64,
    /// Found in the instance's cache.
    pub cached: u64,
    /// In subtrees that were skipped.
    pub skipped: u64,
}

impl NodeCache {
    /// The count that a node had when it was cached; 0 if it is not.
    fn count(&self, node: NodeId) -> u64 {
        self.counts.get(node as usize).copied().unwrap_or(0)
    }

    fn store(&mut self, node: NodeId, count: u64) {
        let at = node as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] = count;
    }
}

impl Node {
    fn new(range: Range<Chunk>) -> Self {
        Self {
            range,
            count: 0,
            children: [ABSENT; 2],
        }
    }

    /// The chunks of the two children.
    fn halves(&self) -> [Range<Chunk>; 2] {
        let middle = self.range.start + (self.range.end - self.range.start).div_ceil(2);
        [self.range.start..middle, middle..self.range.end]
    }

    fn is_leaf(&self) -> bool {
        self.range.end - self.range.start == 1
    }
}

/// The number of nodes of the subtree over a range of chunks.
fn size(range: &Range<Chunk>) -> u64 {
    2 * u64::from(range.end - range.start) - 1
}

impl Tree {
    /// The tree of an image of this many chunks, none of them read. An image has one at least.
    #[must_use]
    pub fn new(chunks: Chunk) -> Self {
        Self {
            nodes: vec![Node::new(0..chunks.max(1))],
        }
    }

    /// Counts more readers of a chunk. Chunks beyond the end of the image are ignored.
    pub fn add(&mut self, chunk: Chunk, readers: u64) {
        if !self.nodes[ROOT as usize].range.contains(&chunk) {
            return;
        }
        let mut at = ROOT;
        loop {
            let node = &mut self.nodes[at as usize];
            node.count += readers;
            if node.is_leaf() {
                return;
            }
            at = self.child(at, chunk);
        }
    }

    /// The child of a node that covers the chunk, created if it is absent.
    fn child(&mut self, parent: NodeId, chunk: Chunk) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let node = &mut self.nodes[parent as usize];
        let [left, right] = node.halves();
        let side = usize::from(right.contains(&chunk));
        if node.children[side] != ABSENT {
            return node.children[side];
        }
        node.children[side] = next;
        self.nodes
            .push(Node::new(if side == 0 { left } else { right }));
        next
    }

    /// Walks down from the root on behalf of an instance that reads `chunk`.
    ///
    /// Visits the nodes on the path to the chunk, and those that were counted at least `least`
    /// times; all others are skipped with what is below them. Visited nodes are cached with the
    /// count that they have now. `found` gets each leaf that was visited and counted often
    /// enough, and `seen` every node with how it was come to know.
    pub fn walk(
        &self,
        chunk: Chunk,
        least: u64,
        cache: &mut NodeCache,
        mut seen: impl FnMut(&Range<Chunk>, Source),
        mut found: impl FnMut(Chunk),
    ) -> Visit {
        let mut visit = Visit::default();
        let mut open = vec![ROOT];
        while let Some(at) = open.pop() {
            let node = &self.nodes[at as usize];
            if cache.count(at) > 0 {
                visit.cached += 1;
                seen(&node.range, Source::Cached);
            } else {
                visit.remote += 1;
                seen(&node.range, Source::Remote);
                cache.store(at, node.count);
            }
            if node.is_leaf() {
                if node.count >= least {
                    found(node.range.start);
                }
                continue;
            }
            for (half, child) in node.halves().into_iter().zip(node.children).rev() {
                let wanted = child != ABSENT
                    && (half.contains(&chunk) || self.nodes[child as usize].count >= least);
                if wanted {
                    open.push(child);
                } else {
                    visit.skipped += size(&half);
                    seen(&half, Source::Skipped);
                }
            }
        }
        visit
    }

    /// The nodes that a cache holds: their chunks, and the count that each had when cached.
    pub fn cached<'a>(
        &'a self,
        cache: &'a NodeCache,
    ) -> impl Iterator<Item = (Range<Chunk>, u64)> + 'a {
        self.nodes
            .iter()
            .zip(&cache.counts)
            .filter(|(_, &count)| count > 0)
            .map(|(node, &count)| (node.range.clone(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    /// All nodes of the tree over a range, by the definition.
    fn nodes(range: Range<Chunk>) -> Vec<Range<Chunk>> {
        let length = range.end - range.start;
        let mut all = vec![range.clone()];
        if length > 1 {
            let middle = range.start + length / 2 + length % 2;
            all.extend(nodes(range.start..middle));
            all.extend(nodes(middle..range.end));
        }
        all
    }

    struct Model {
        chunks: Chunk,
        counts: BTreeMap<Chunk, u64>,
        cached: BTreeSet<(Chunk, Chunk)>,
    }

    impl Model {
        fn count(&self, range: &Range<Chunk>) -> u64 {
            self.counts
                .range(range.clone())
                .map(|(_, count)| count)
                .sum()
        }

        /// What a walk visits, node by node: all whose ancestors are visited, too, and which are
        /// on the path or counted often enough.
        fn walk(&mut self, chunk: Chunk, least: u64) -> (Visit, Vec<Chunk>) {
            let all = nodes(0..self.chunks);
            let root = all[0].clone();
            let passes =
                |r: &Range<Chunk>| *r == root || r.contains(&chunk) || self.count(r) >= least;
            let (mut visit, mut found) = (Visit::default(), Vec::new());
            let mut now = Vec::new();
            for node in &all {
                let above = |r: &&Range<Chunk>| r.start <= node.start && node.end <= r.end;
                if !all.iter().filter(above).all(passes) {
                    visit.skipped += 1;
                    continue;
                }
                if self.cached.contains(&(node.start, node.end)) {
                    visit.cached += 1;
                } else {
                    visit.remote += 1;
                    now.push((node.start, node.end));
                }
                if node.end - node.start == 1 && self.count(node) >= least {
                    found.push(node.start);
                }
            }
            self.cached.extend(now);
            (visit, found)
        }
    }

    proptest! {
        #[test]
        fn walks_as_the_definition_says(
            chunks in 1u32..40,
            least in 1u64..5,
            reads in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
        ) {
            let mut tree = Tree::new(chunks);
            let mut cache = NodeCache::default();
            let mut model = Model { chunks, counts: BTreeMap::new(), cached: BTreeSet::new() };
            for (index, walks) in reads {
                let chunk = index.index(chunks as usize) as Chunk;
                tree.add(chunk, 1);
                *model.counts.entry(chunk).or_default() += 1;
                if !walks {
                    continue;
                }
                let mut found = Vec::new();
                let visit = tree.walk(chunk, least, &mut cache, |_, _| {}, |c| found.push(c));
                prop_assert_eq!((visit, found), model.walk(chunk, least));
                let cached: BTreeSet<_> =
                    tree.cached(&cache).map(|(r, _)| (r.start, r.end)).collect();
                prop_assert_eq!(&cached, &model.cached);
                let all = visit.remote + visit.cached + visit.skipped;
                prop_assert_eq!(all, 2 * u64::from(chunks) - 1);
            }
        }
    }

    #[test]
    fn chunks_beyond_the_end_are_ignored() {
        let mut tree = Tree::new(3);
        tree.add(3, 1);
        tree.add(Chunk::MAX, 1);
        assert_eq!(0, tree.nodes[0].count);
    }
}
