//! Restoring versions: to a raw file, or to a qcow2 file with or without a backing file.

pub mod content;
pub mod in_place;
pub mod manifest;
pub mod nbd;

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use diffcache_base::output::Output;
use diffcache_core::manifest::is_zero;
use diffcache_core::source::{data_after, ReadAt};
use diffcache_core::task::{for_each_in_order, Task};
use diffcache_qcow2::header::Backing;
use diffcache_qcow2::writer::{Content as Kind, Layout, CLUSTER, TABLE_CLUSTERS};

use crate::error::{Result, VersionsError};
use crate::store::nodes::{BlockRef, NodeRef, Run};
use crate::store::tree;
use crate::store::Store;

/// Bytes of a disk that one thread puts together at a time.
const WINDOW: u64 = 4 << 20;
/// Windows that are put together while others are written.
const AHEAD: usize = 4;

/// A version's content.
pub struct Image<'a> {
    /// The store.
    pub store: &'a Store,
    /// The version's tree.
    pub root: NodeRef,
    /// Bytes of the disk.
    pub size: u64,
    /// The base image's content, if there is one.
    pub base: Option<&'a dyn ReadAt>,
}

/// A part of a disk that is not all zeroes.
pub(crate) struct Window {
    pub bytes: Vec<u8>,
    /// Successive blocks that are not zero: where they start in `bytes`, and their bytes.
    pub data: Vec<(usize, usize)>,
}

impl Image<'_> {
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.store.block_size)
    }

    /// The bytes `start..start + len` (whole blocks), zeroes after the disk's end.
    pub(crate) fn window(&self, start: u64, len: u64) -> Result<Window> {
        let block = self.block();
        let mut window = Window {
            bytes: vec![0; len as usize],
            data: Vec::new(),
        };
        let end = (start + len).min(self.size.next_multiple_of(block));
        let runs = tree::collect(
            &self.store.maps,
            self.root,
            start / block,
            end.div_ceil(block),
        )?;
        for run in runs {
            let from = (run.start * block - start) as usize;
            let to = from + (run.len * block) as usize;
            let bytes = &mut window.bytes[from..to];
            match run.at {
                BlockRef::Zero => continue,
                BlockRef::Base => self.read_base(run.start * block, bytes)?,
                BlockRef::Stored { .. } => self.read_stored(&run, bytes)?,
            }
            let size = block as usize;
            for (i, bytes) in window.bytes[from..to].chunks_exact(size).enumerate() {
                if run.at == BlockRef::Base && is_zero(bytes) {
                    continue;
                }
                let at = from + i * size;
                match window.data.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += size,
                    _ => window.data.push((at, size)),
                }
            }
        }
        Ok(window)
    }

    fn read_base(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let base = self.base.ok_or_else(|| {
            VersionsError::Invalid("this version has a base image: name it".to_owned())
        })?;
        let end = (offset + out.len() as u64).min(base.len());
        let mut at = offset;
        while at < end {
            let Some((from, to)) = data_after(base, at)? else {
                break;
            };
            let (from, to) = (from.max(at), to.min(end));
            if from >= end {
                break;
            }
            let range = (from - offset) as usize..(to - offset) as usize;
            base.read_exact_at(&mut out[range], from)?;
            at = to;
        }
        Ok(())
    }

    /// Blocks of successive slots: frame by frame.
    fn read_stored(&self, run: &Run, out: &mut [u8]) -> Result<()> {
        let BlockRef::Stored { pack, slot } = run.at else {
            return Ok(());
        };
        let size = self.block() as usize;
        let mut last: Option<(usize, std::sync::Arc<Vec<u8>>)> = None;
        for (i, out) in out.chunks_exact_mut(size).enumerate() {
            let (frame, at) = self.store.locate(pack, slot + i as u32)?;
            let blocks = match last.take() {
                Some((number, blocks)) if number == frame => blocks,
                _ => self.store.frame(pack, frame)?,
            };
            let start = at as usize * size;
            match blocks.get(start..start + size) {
                Some(bytes) => out.copy_from_slice(bytes),
                None => return Err(VersionsError::Missing(format!("block {slot}"))),
            }
            last = Some((frame, blocks));
        }
        Ok(())
    }

    /// Returns the first range in `start..end` whose bytes may be anything else than zero.
    pub(crate) fn next_range(&self, start: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let block = self.block();
        let (from, to) = (start / block, end.div_ceil(block));
        tree::find(&self.store.maps, self.root, from, to, &mut |run| {
            let (from, to) = (run.start * block, run.end() * block);
            match (run.at, self.base) {
                (BlockRef::Zero, _) => Ok(None),
                (BlockRef::Base, Some(base)) => {
                    // From where it was asked for: a base may end within the block that has that place.
                    let from = from.max(start);
                    let data = base.next_data(from)?;
                    let data = data.map(|(start, end)| (start.max(from), end.min(to)));
                    Ok(data.filter(|(start, end)| start < end))
                }
                // Without a base the window says what is missing.
                _ => Ok(Some((from, to))),
            }
        })
    }

    /// Returns the first offset of that range.
    fn next_data(&self, start: u64, end: u64) -> Result<Option<u64>> {
        Ok(self.next_range(start, end)?.map(|(start, _)| start))
    }

    /// Puts together the windows of the disk that have something wanted and calls `each` with them in order. `next` returns the first
    /// wanted offset of a range.
    fn windows(
        &self,
        next: &dyn Fn(u64, u64) -> Result<Option<u64>>,
        task: &Task<'_>,
        each: &mut dyn FnMut(u64, Window) -> Result<()>,
    ) -> Result<()> {
        let meter = task.meter(self.size);
        let count = self.size.div_ceil(WINDOW);
        let end = |window: u64| ((window + 1) * WINDOW).min(self.size);
        let mut first = 0;
        let wanted = std::iter::from_fn(|| {
            let from = first;
            // What nothing is wanted of costs no time, whatever size a damaged or forged version states.
            let found = (from < count)
                .then(|| self.wanted(next, from * WINDOW, end(from)))?
                .transpose()?;
            let found = found.map(|at| (at / WINDOW).max(from));
            first = *found.as_ref().unwrap_or(&count) + 1;
            Some(found)
        });
        let mut done = 0;
        let build = |window: Result<u64>| {
            let window = window?;
            let start = window * WINDOW;
            let len = (end(window) - start).next_multiple_of(CLUSTER.max(self.block()));
            Ok::<_, VersionsError>((window, self.window(start, len)?))
        };
        for_each_in_order(&task.silent(), wanted, AHEAD, build, |(window, built)| {
            each(window * WINDOW, built)?;
            meter.add(end(window) - done);
            done = end(window);
            Ok(())
        })?;
        meter.add(self.size - done);
        Ok(())
    }

    /// Returns the first wanted offset from `start` on: most often it is before `end`.
    fn wanted(
        &self,
        next: &dyn Fn(u64, u64) -> Result<Option<u64>>,
        start: u64,
        end: u64,
    ) -> Result<Option<u64>> {
        match next(start, end)? {
            Some(found) => Ok(Some(found)),
            None => next(end, self.size),
        }
    }

    /// Writes the disk to a raw, sparse file, which appears when it is complete and durable. Returns the bytes written.
    ///
    /// # Errors
    /// `Damaged`, `Missing`, `Source`, `Io`, `Cancelled`; `Invalid` if the base image is needed and not given.
    pub fn to_raw(&self, path: &Path, task: &Task<'_>) -> Result<u64> {
        let name = path.display().to_string();
        let output = Output::create(path).map_err(VersionsError::io(&name))?;
        let file = output.file();
        file.set_len(self.size).map_err(VersionsError::io(&name))?;
        let mut written = 0;
        let next = |start, end| self.next_data(start, end);
        self.windows(&next, task, &mut |start, window| {
            for (at, len) in &window.data {
                let offset = start + *at as u64;
                let len = (*len as u64).min(self.size - offset) as usize;
                file.write_all_at(&window.bytes[*at..*at + len], offset)
                    .map_err(VersionsError::io(&name))?;
                written += len as u64;
            }
            Ok(())
        })?;
        output
            .commit_durably()
            .map_err(VersionsError::io(path.display().to_string()))?;
        Ok(written)
    }

    /// Writes the disk to a qcow2 file: tables first, then data, once and in order. With a base image the file names `backing` as its
    /// backing file and has only what differs from it. Returns the bytes written.
    ///
    /// # Errors
    /// As `to_raw`.
    pub fn to_qcow2(
        &self,
        path: &Path,
        backing: Option<Backing<'_>>,
        task: &Task<'_>,
    ) -> Result<u64> {
        let name = path.display().to_string();
        let clusters = Clusters {
            image: self,
            backed: backing.is_some(),
        };
        let classify = |part: Range<u64>| clusters.classify(part);
        let layout = Layout::new(self.size, classify)?;
        let output = Output::create(path).map_err(VersionsError::io(&name))?;
        let file = output.file();
        let mut at = 0;
        layout.write(backing, classify, |bytes| {
            file.write_all_at(bytes, at)
                .map_err(VersionsError::io(&name))?;
            at += bytes.len() as u64;
            Ok(())
        })?;
        let mut buffer = Vec::new();
        let next = |start, end| clusters.next_data(start, end);
        self.windows(&next, task, &mut |start, window| {
            buffer.clear();
            let first = start / CLUSTER;
            let kinds = clusters.classify(first..first + window.bytes.len() as u64 / CLUSTER)?;
            for (cluster, kind) in window.bytes.chunks_exact(CLUSTER as usize).zip(kinds) {
                if kind == Kind::Data {
                    buffer.extend_from_slice(cluster);
                }
            }
            file.write_all_at(&buffer, at)
                .map_err(VersionsError::io(&name))?;
            at += buffer.len() as u64;
            Ok(())
        })?;
        output
            .commit_durably()
            .map_err(VersionsError::io(path.display().to_string()))?;
        Ok(at)
    }
}

/// What the clusters of a version's qcow2 file are. They are classified part by part, as often as they are needed: a list of all would take
/// memory by the size that a version states.
struct Clusters<'a> {
    image: &'a Image<'a>,
    /// The file has the base image as its backing file.
    backed: bool,
}

impl Clusters<'_> {
    /// What each of some clusters of the qcow2 file is.
    fn classify(&self, clusters: Range<u64>) -> Result<Vec<Kind>> {
        let image = self.image;
        let per_cluster = CLUSTER / image.block();
        let mut part = Part {
            first: clusters.start,
            kinds: vec![None; (clusters.end - clusters.start) as usize],
        };
        let end = image.size.div_ceil(image.block());
        let (from, to) = (clusters.start * per_cluster, clusters.end * per_cluster);
        tree::runs(
            &image.store.maps,
            image.root,
            from,
            to.min(end),
            &mut |run| {
                let clusters = run.start / per_cluster..run.end().div_ceil(per_cluster);
                let kind = match run.at {
                    BlockRef::Zero => return self.classify_zeroes(clusters, &mut part),
                    BlockRef::Base if !self.backed => return self.classify_base(&run, &mut part),
                    BlockRef::Base => Kind::Unallocated,
                    BlockRef::Stored { .. } => Kind::Data,
                };
                part.mark(clusters, kind);
                Ok(())
            },
        )?;
        let kinds = part.kinds.into_iter();
        Ok(kinds
            .map(|kind| kind.unwrap_or(Kind::Unallocated))
            .collect())
    }

    /// The bytes of the backing file, which zeroes have to hide.
    fn hidden(&self) -> u64 {
        match self.backed {
            true => self.image.base.map_or(u64::MAX, |base| base.len()),
            false => 0,
        }
    }

    /// Classifies clusters of zeroes: they hide what the backing file has there, and need no entry behind its end.
    fn classify_zeroes(&self, clusters: Range<u64>, part: &mut Part) -> Result<()> {
        let end = self
            .hidden()
            .div_ceil(CLUSTER)
            .clamp(clusters.start, clusters.end);
        part.mark(clusters.start..end, Kind::Zero);
        part.mark(end..clusters.end, Kind::Unallocated);
        Ok(())
    }

    /// Classifies the clusters of the base's blocks in a file without a backing file: where the base has no data they are left out.
    fn classify_base(&self, run: &Run, part: &mut Part) -> Result<()> {
        let block = self.image.block();
        let (from, to) = (run.start * block, run.end() * block);
        let all = from / CLUSTER..to.div_ceil(CLUSTER);
        let Some(base) = self.image.base else {
            // What is missing is found when it is read.
            part.mark(all, Kind::Data);
            return Ok(());
        };
        part.mark(all, Kind::Unallocated);
        let mut at = from;
        while at < to {
            match data_after(base, at)? {
                Some((start, end)) if start < to => {
                    let (start, end) = (start.max(at), end.min(to));
                    part.mark(start / CLUSTER..end.div_ceil(CLUSTER), Kind::Data);
                    at = end;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Returns the first offset in `start..end` of a cluster whose data the file has.
    fn next_data(&self, start: u64, end: u64) -> Result<Option<u64>> {
        let mut at = start;
        while at < end {
            // Where all is zero, nothing has to be classified; but zeroes that hide what the backing file has may share a cluster with its
            // blocks, which makes that data.
            let found = match at < self.hidden() {
                true => at,
                false => match self.image.next_data(at, end)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            let first = found / CLUSTER;
            let last = end
                .div_ceil(CLUSTER)
                .min((first / TABLE_CLUSTERS + 1) * TABLE_CLUSTERS);
            let kinds = self.classify(first..last)?;
            if let Some(place) = kinds.iter().position(|kind| *kind == Kind::Data) {
                return Ok(Some(((first + place as u64) * CLUSTER).max(start)));
            }
            at = last * CLUSTER;
        }
        Ok(None)
    }
}

/// What some successive clusters are, as far as it is known.
struct Part {
    first: u64,
    kinds: Vec<Option<Kind>>,
}

impl Part {
    /// Says what some clusters are; one of several kinds has to have data.
    fn mark(&mut self, clusters: Range<u64>, kind: Kind) {
        let slot_of = |cluster: u64| {
            let slot = cluster.saturating_sub(self.first) as usize;
            slot.min(self.kinds.len())
        };
        let slots = slot_of(clusters.start)..slot_of(clusters.end);
        for slot in &mut self.kinds[slots] {
            *slot = match slot {
                Some(other) if *other != kind => Some(Kind::Data),
                _ => Some(kind),
            };
        }
    }
}
