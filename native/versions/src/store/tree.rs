//! Trees of map nodes: reading, changing and comparing them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::store::map::{MapFile, Maps};
use crate::store::nodes::{
    encode_inner, encode_leaf, push_run, span, BlockRef, NodeRef, Run, HEIGHT,
};

/// Calls `each` with the runs of blocks `from..to` of a tree, in order.
///
/// # Errors
/// As `Maps::get`; what `each` returns.
pub fn runs(
    maps: &Maps,
    root: NodeRef,
    from: u64,
    to: u64,
    each: &mut dyn FnMut(Run) -> Result<()>,
) -> Result<()> {
    find::<()>(maps, root, from, to, &mut |run| each(run).map(|()| None)).map(|_| ())
}

/// Calls `look` with the runs of blocks `from..to` of a tree, in order, until it returns something; returns that. Nodes behind it are not read.
///
/// # Errors
/// As `Maps::get`; what `look` returns.
pub fn find<T>(
    maps: &Maps,
    root: NodeRef,
    from: u64,
    to: u64,
    look: &mut dyn FnMut(Run) -> Result<Option<T>>,
) -> Result<Option<T>> {
    find_below(maps, (root, HEIGHT, 0), from, to, look)
}

fn find_below<T>(
    maps: &Maps,
    (node, level, start): (NodeRef, u32, u64),
    from: u64,
    to: u64,
    look: &mut dyn FnMut(Run) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let whole = node.uniform().map(|at| Run {
        start,
        len: span(level),
        at,
    });
    if let Some(run) = whole {
        return run.clip(from, to).map_or(Ok(None), look);
    }
    if level == 0 {
        for run in maps.leaf(node, start)? {
            if let Some(found) = run.clip(from, to).map_or(Ok(None), &mut *look)? {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    let below = span(level - 1);
    for (child, at) in maps.children(node, level)?.into_iter().zip(0..) {
        let begin = start + at * below;
        if begin < to && from < begin + below {
            let found = find_below(maps, (child, level - 1, begin), from, to, look)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// The runs of blocks `from..to` of a tree, joined where they continue each other.
///
/// # Errors
/// As `Maps::get`.
pub fn collect(maps: &Maps, root: NodeRef, from: u64, to: u64) -> Result<Vec<Run>> {
    let mut out = Vec::new();
    runs(maps, root, from, to, &mut |run| {
        push_run(&mut out, run);
        Ok(())
    })?;
    Ok(out)
}

/// A tree in memory only, in which new blocks have the pack `spool::SPOOLED`. `id` is a number that no map has.
///
/// # Errors
/// As `update`.
pub fn preview(maps: &Maps, parent: NodeRef, changes: &[Run], id: u32) -> Result<NodeRef> {
    let mut map = MapFile::new(id, 0);
    let root = update(maps, parent, changes, &mut map)?;
    maps.insert(Arc::new(map));
    Ok(root)
}

/// The tree that differs from `root` in `changes` (ascending, not overlapping). New nodes go into `map`; whatever stays equal is shared.
///
/// # Errors
/// As `Maps::get`.
pub fn update(maps: &Maps, root: NodeRef, changes: &[Run], map: &mut MapFile) -> Result<NodeRef> {
    update_below(maps, (root, HEIGHT, 0), changes, map)
}

fn update_below(
    maps: &Maps,
    (node, level, start): (NodeRef, u32, u64),
    changes: &[Run],
    map: &mut MapFile,
) -> Result<NodeRef> {
    let end = start + span(level);
    let first = changes.partition_point(|run| run.end() <= start);
    let last = changes.partition_point(|run| run.start < end);
    let changes = &changes[first..last];
    let Some(change) = changes.first() else {
        return Ok(node);
    };
    if change.start <= start && change.end() >= end {
        match change.at {
            BlockRef::Zero => return Ok(NodeRef::Zero),
            BlockRef::Base => return Ok(NodeRef::Base),
            BlockRef::Stored { .. } => {}
        }
    }
    if level == 0 {
        return update_leaf(maps, (node, start), changes, map);
    }
    let old = maps.children(node, level)?;
    let below = span(level - 1);
    let mut children = Vec::with_capacity(old.len());
    for (child, at) in old.iter().zip(0..) {
        let place = (*child, level - 1, start + at * below);
        children.push(update_below(maps, place, changes, map)?);
    }
    if children == old {
        return Ok(node);
    }
    match children.first() {
        Some(mark) if mark.uniform().is_some() && children.iter().all(|child| child == mark) => {
            Ok(*mark)
        }
        _ => Ok(map.push(&encode_inner(level, &children))),
    }
}

fn update_leaf(
    maps: &Maps,
    (node, start): (NodeRef, u64),
    changes: &[Run],
    map: &mut MapFile,
) -> Result<NodeRef> {
    let end = start + span(0);
    let old = maps.leaf(node, start)?;
    let mut new = Vec::with_capacity(old.len() + changes.len() * 2);
    let mut at = start;
    for change in changes.iter().filter_map(|run| run.clip(start, end)) {
        for run in old.iter().filter_map(|run| run.clip(at, change.start)) {
            push_run(&mut new, run);
        }
        push_run(&mut new, change);
        at = change.end();
    }
    for run in old.iter().filter_map(|run| run.clip(at, end)) {
        push_run(&mut new, run);
    }
    if new == old {
        return Ok(node);
    }
    match new.as_slice() {
        [Run {
            at: BlockRef::Zero, ..
        }] => Ok(NodeRef::Zero),
        [Run {
            at: BlockRef::Base, ..
        }] => Ok(NodeRef::Base),
        _ => Ok(map.push(&encode_leaf(&new))),
    }
}

/// Blocks that two trees keep at different places: from where, how many, where the first tree keeps them and where the second does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub len: u64,
    /// Where the first tree keeps the first block.
    pub old: BlockRef,
    /// Where the second tree keeps it.
    pub new: BlockRef,
}

/// Calls `each` with what differs, in order. Costs what differs: nodes that both trees share are not read.
///
/// Blocks kept at different places may still be equal: their names tell.
///
/// # Errors
/// As `Maps::get`; what `each` returns.
pub fn diff(
    maps: &Maps,
    old: NodeRef,
    new: NodeRef,
    each: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    diff_below(maps, (old, new), HEIGHT, 0, each)
}

fn diff_below(
    maps: &Maps,
    (old, new): (NodeRef, NodeRef),
    level: u32,
    start: u64,
    each: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    if let (Some(old), Some(new)) = (old.uniform(), new.uniform()) {
        return each(Difference {
            start,
            len: span(level),
            old,
            new,
        });
    }
    if level == 0 {
        return diff_runs(&maps.leaf(old, start)?, &maps.leaf(new, start)?, each);
    }
    let below = span(level - 1);
    let pairs = maps
        .children(old, level)?
        .into_iter()
        .zip(maps.children(new, level)?);
    for (pair, at) in pairs.zip(0..) {
        diff_below(maps, pair, level - 1, start + at * below, each)?;
    }
    Ok(())
}

/// Compares runs that cover the same blocks.
fn diff_runs(
    old: &[Run],
    new: &[Run],
    each: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut at = old.peek().map_or(0, |run| run.start);
    while let (Some(a), Some(b)) = (old.peek(), new.peek()) {
        let end = a.end().min(b.end());
        let (was, is) = (a.at.plus(at - a.start), b.at.plus(at - b.start));
        if was != is {
            each(Difference {
                start: at,
                len: end - at,
                old: was,
                new: is,
            })?;
        }
        at = end;
        let (next_old, next_new) = (a.end() == end, b.end() == end);
        if next_old {
            old.next();
        }
        if next_new {
            new.next();
        }
    }
    Ok(())
}

/// What some trees need of the store.
#[derive(Debug, Default)]
pub struct Live {
    /// By map and by pack.
    nodes: BTreeMap<u32, Bits>,
    slots: BTreeMap<u32, Bits>,
}

#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, from: u32, len: u64) {
        for bit in u64::from(from)..u64::from(from) + len {
            let word = (bit / 64) as usize;
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= 1 << (bit % 64);
        }
    }

    fn clear(&mut self, bit: u32) {
        if let Some(word) = self.0.get_mut(bit as usize / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn has(&self, bit: u32) -> bool {
        let word = self.0.get(bit as usize / 64);
        word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

impl Live {
    /// Adds what a tree needs. Nodes that another tree brought in are not walked again.
    ///
    /// # Errors
    /// As `Maps::get`; then a part of what it needs was added.
    pub fn add(&mut self, maps: &Maps, root: NodeRef) -> Result<()> {
        self.add_below(maps, root, HEIGHT)
    }

    fn add_below(&mut self, maps: &Maps, node: NodeRef, level: u32) -> Result<()> {
        let NodeRef::Node { map, index } = node else {
            return Ok(());
        };
        if self.has_node(map, index) {
            return Ok(());
        }
        self.nodes.entry(map).or_default().set(index, 1);
        self.add_inner(maps, node, level).inspect_err(|_| {
            // Another tree that has it fails, too.
            if let Some(nodes) = self.nodes.get_mut(&map) {
                nodes.clear(index);
            }
        })
    }

    fn add_inner(&mut self, maps: &Maps, node: NodeRef, level: u32) -> Result<()> {
        if level > 0 {
            for child in maps.children(node, level)? {
                self.add_below(maps, child, level - 1)?;
            }
            return Ok(());
        }
        for run in maps.leaf(node, 0)? {
            if let BlockRef::Stored { pack, slot } = run.at {
                self.slots.entry(pack).or_default().set(slot, run.len);
            }
        }
        Ok(())
    }

    /// Whether a node is needed.
    pub fn has_node(&self, map: u32, index: u32) -> bool {
        self.nodes.get(&map).is_some_and(|bits| bits.has(index))
    }

    /// Nodes of a map that are needed.
    pub fn nodes_of(&self, map: u32) -> u64 {
        self.nodes.get(&map).map_or(0, Bits::count)
    }

    /// Whether a block is needed.
    pub fn has_slot(&self, pack: u32, slot: u32) -> bool {
        self.slots.get(&pack).is_some_and(|bits| bits.has(slot))
    }

    /// Blocks of a pack that are needed.
    pub fn slots_of(&self, pack: u32) -> u64 {
        self.slots.get(&pack).map_or(0, Bits::count)
    }

    /// The maps of which something is needed.
    pub fn maps(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.keys().copied()
    }

    /// The packs of which something is needed.
    pub fn packs(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    const BLOCKS: u64 = 3000;

    fn a_ref() -> impl Strategy<Value = BlockRef> {
        prop_oneof![
            Just(BlockRef::Zero),
            Just(BlockRef::Base),
            (1u32..4, 0u32..5000).prop_map(|(pack, slot)| BlockRef::Stored { pack, slot }),
        ]
    }

    fn some_changes() -> impl Strategy<Value = Vec<Run>> {
        proptest::collection::vec((0u64..400, 1u64..1500, a_ref()), 0..12).prop_map(|parts| {
            let (mut out, mut at) = (Vec::new(), 0);
            for (gap, len, kept) in parts {
                let start = at + gap;
                let len = len.min(BLOCKS.saturating_sub(start));
                if len > 0 {
                    out.push(Run {
                        start,
                        len,
                        at: kept,
                    });
                }
                at = start + len;
            }
            out
        })
    }

    fn flat(maps: &Maps, root: NodeRef) -> Vec<BlockRef> {
        let mut out = Vec::new();
        for run in collect(maps, root, 0, BLOCKS).unwrap() {
            assert_eq!(run.start, out.len() as u64);
            out.extend((0..run.len).map(|i| run.at.plus(i)));
        }
        out
    }

    proptest! {
        #[test]
        fn trees_do_what_arrays_do(first in some_changes(), second in some_changes()) {
            let maps = Maps::default();
            let mut model = vec![BlockRef::Base; BLOCKS as usize];
            let mut roots = vec![NodeRef::Base];
            for (id, changes) in [(1, &first), (2, &second)] {
                let mut map = MapFile::new(id, 0);
                let before = model.clone();
                let root = update(&maps, *roots.last().unwrap(), changes, &mut map).unwrap();
                let read = MapFile::decode(&map.encode().unwrap(), "map").unwrap();
                maps.insert(Arc::new(read));
                for run in changes {
                    for i in 0..run.len {
                        model[(run.start + i) as usize] = run.at.plus(i);
                    }
                }
                prop_assert_eq!(&flat(&maps, root), &model);
                let zero = |block: &BlockRef| *block == BlockRef::Zero;
                let from = model.len() / 3;
                let expected = model[from..].iter().position(|block| !zero(block));
                let found = find(&maps, root, from as u64, BLOCKS, &mut |run| {
                    Ok((!zero(&run.at)).then_some(run.start as usize - from))
                }).unwrap();
                prop_assert_eq!(found, expected);
                let mut differs = vec![false; BLOCKS as usize];
                diff(&maps, *roots.last().unwrap(), root, &mut |part| {
                    for i in 0..part.len {
                        let block = (part.start + i) as usize;
                        assert_eq!(part.old.plus(i), before[block]);
                        assert_eq!(part.new.plus(i), model[block]);
                        differs[block] = true;
                    }
                    Ok(())
                }).unwrap();
                for block in 0..BLOCKS as usize {
                    prop_assert_eq!(differs[block], before[block] != model[block]);
                }
                roots.push(root);
            }
            let mut live = Live::default();
            live.add(&maps, roots[2]).unwrap();
            for kept in &model {
                if let BlockRef::Stored { pack, slot } = kept {
                    prop_assert!(live.has_slot(*pack, *slot));
                }
            }
        }
    }

    #[test]
    fn equal_changes_share_the_tree() {
        let maps = Maps::default();
        let mut map = MapFile::new(1, 0);
        let change = [Run {
            start: 5,
            len: 2,
            at: BlockRef::Stored { pack: 1, slot: 0 },
        }];
        let root = update(&maps, NodeRef::Zero, &change, &mut map).unwrap();
        maps.insert(Arc::new(map));
        let mut again = MapFile::new(2, 0);
        assert_eq!(update(&maps, root, &change, &mut again).unwrap(), root);
        assert!(again.is_empty());
    }
}
