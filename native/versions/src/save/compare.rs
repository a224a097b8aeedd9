//! Comparing disks and versions with versions.

use diffcache_core::task::Task;

use crate::error::{Result, VersionsError};
use crate::save::disk::{DiskSource, SnapshotId, View};
use crate::save::groups::stored_blocks;
use crate::save::scan::{self, Parent, Scan, Target};
use crate::save::scan_state::ScanState;
use crate::save::spool::SPOOLED;
use crate::store::base::{BaseBlock, BaseIndex};
use crate::store::crypt::Name;
use crate::store::nodes::{BlockRef, NodeRef};
use crate::store::tree;
use crate::store::Store;

/// A version that a disk is compared with.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The version's tree; a mark if there is no version.
    pub root: NodeRef,
    /// Bytes of its disk; 0 if there is no version.
    pub size: u64,
    /// A snapshot of the disk that has the version's state, if there is one.
    pub snapshot: Option<SnapshotId>,
}

impl Reference {
    /// The scan of a disk that is compared with this version.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn scan<'a>(
        &self,
        store: &'a Store,
        source: &DiskSource,
        view: &'a View,
        task: &'a Task<'a>,
    ) -> Result<Scan<'a>> {
        Ok(Scan {
            store,
            view,
            parent: Parent {
                root: self.root,
                size: self.size,
                base: store.base(source.base_id.as_deref())?,
                has_base: source.has_base,
            },
            rate: source.rate,
            task,
        })
    }
}

/// In what a disk differs from a version.
#[derive(Debug)]
pub struct Comparison {
    /// Ranges of blocks: first, count.
    pub ranges: Vec<(u64, u64)>,
    /// Bytes that were read of the disk.
    pub bytes_read: u64,
    /// Blocks of the version that the store has, and that are neither zero nor the base's.
    pub blocks_stored: u64,
}

/// Compares a disk with `version`, of the same size. Reads what changed on the disk since `against`, which may be the same version.
///
/// # Errors
/// As `scan::run`.
pub fn compare_disk(
    store: &Store,
    source: &DiskSource,
    against: &Reference,
    version: &Reference,
    task: &Task<'_>,
) -> Result<Comparison> {
    let (view, _) = View::open(source, against.snapshot.as_ref(), store.block_size)?;
    let scan = against.scan(store, source, &view, task)?;
    let mut names = Vec::new();
    let target = &mut Target::Names(&mut names);
    let state = scan::run(&scan, target, ScanState::default(), None)?;
    let present = tree::preview(
        &store.maps,
        against.root,
        &state.runs,
        store.maps.unused_id(),
    )?;
    let end = version.size.div_ceil(u64::from(store.block_size));
    let old = (present, names.as_slice());
    let empty = match source.has_base {
        true => NodeRef::Base,
        false => NodeRef::Zero,
    };
    Ok(Comparison {
        ranges: differences(store, old, version.root, scan.parent.base, end)?,
        bytes_read: state.bytes_read,
        blocks_stored: stored_blocks(store, empty, version.root)?,
    })
}

/// What a block holds, as far as that is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zero,
    Base,
    Named(Name),
}

fn content(
    store: &Store,
    names: &[Name],
    base: Option<&BaseIndex>,
    block: u64,
    at: BlockRef,
) -> Result<Content> {
    match (at, base) {
        (BlockRef::Zero, _) => Ok(Content::Zero),
        (BlockRef::Base, None) => Ok(Content::Base),
        (BlockRef::Base, Some(base)) => Ok(match base.block(block) {
            BaseBlock::Zero => Content::Zero,
            BaseBlock::Data(name) => Content::Named(*name),
        }),
        (BlockRef::Stored { pack, slot }, _) if pack == SPOOLED => names
            .get(slot as usize)
            .copied()
            .map(Content::Named)
            .ok_or_else(|| VersionsError::Missing(format!("block {slot} of the disk"))),
        (BlockRef::Stored { pack, slot }, _) => Ok(Content::Named(store.present_name(pack, slot)?)),
    }
}

/// The blocks in which two trees really differ: ascending ranges (first, count). `names` are those of blocks of the old tree that are not in
/// a pack.
///
/// # Errors
/// As `tree::diff`.
pub fn differences(
    store: &Store,
    (old, names): (NodeRef, &[Name]),
    new: NodeRef,
    base: Option<&BaseIndex>,
    end: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    tree::diff(&store.maps, old, new, &mut |part| {
        // Blocks beyond the disks' end do not count, and marks may cover more than any disk has.
        for i in 0..part.len.min(end.saturating_sub(part.start)) {
            let block = part.start + i;
            let was = content(store, names, base, block, part.old.plus(i))?;
            let is = content(store, &[], base, block, part.new.plus(i))?;
            if was == is {
                continue;
            }
            match out.last_mut() {
                Some((start, len)) if *start + *len == block => *len += 1,
                _ => out.push((block, 1)),
            }
        }
        Ok(())
    })?;
    Ok(out)
}
