//! An image on its way: verified leaves in a sparse part.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use diffcache_core::manifest::{is_zero, Manifest, LEAF_LEN, LEAF_SIZE};
use diffcache_core::source::{data_after, read_data, FileSource, ReadAt, SourceError};

use crate::error::TransferError;
use crate::fetching::part::Part;
use crate::flight::Flight;
use crate::ids::ObjectKey;
use crate::progress::Meter;

/// Bytes that are shared with a twin or not: a block of the file system.
const BLOCK: usize = 4096;

/// Writes verified leaves to a part and lets readers behind it have them.
pub struct Leaves<'a> {
    /// The image.
    pub key: ObjectKey,
    /// Its leaves' hashes.
    pub manifest: Arc<Manifest>,
    part: &'a Part,
    flight: Arc<Flight>,
    meter: Meter<'a>,
    twin: Option<&'a dyn ReadAt>,
}

impl<'a> Leaves<'a> {
    /// Prepares a part for the leaves of `manifest`: what it holds already is verified and counts as arrived.
    pub fn open(
        key: ObjectKey,
        manifest: Arc<Manifest>,
        part: &'a Part,
        flight: Arc<Flight>,
        meter: Meter<'a>,
    ) -> Result<Leaves<'a>, TransferError> {
        let leaves = Leaves::begin(key, manifest, part, flight, meter)?;
        leaves.resume()?;
        leaves.mark_zeroes();
        part.check_space(leaves.missing_bytes())?;
        Ok(leaves)
    }

    /// Prepares a part that shares its blocks with `twin`: where a leaf is the same there, it need not be written.
    pub fn open_twin(
        key: ObjectKey,
        manifest: Arc<Manifest>,
        part: &'a Part,
        flight: Arc<Flight>,
        meter: Meter<'a>,
        twin: &'a dyn ReadAt,
    ) -> Result<Leaves<'a>, TransferError> {
        let mut leaves = Leaves::begin(key, manifest, part, flight, meter)?;
        leaves.clear_zeroes(twin)?;
        leaves.mark_zeroes();
        leaves.twin = Some(twin);
        Ok(leaves)
    }

    /// Has the leaves count as arrived that the twin, whose manifest is given and which is known to match it, has at the same place.
    pub fn keep(&self, of_twin: &Manifest) {
        let same = |leaf: &u64| {
            !self.manifest.is_zero_leaf(*leaf)
                && matches!(self.manifest.leaf(*leaf), found @ Some(_) if found == of_twin.leaf(*leaf))
        };
        let count = self.manifest.leaf_count();
        let mut leaf = 0;
        while let Some(first) = (leaf..count).find(same) {
            leaf = (first..count).find(|leaf| !same(leaf)).unwrap_or(count);
            let (start, end) = self.byte_range(first, leaf);
            self.arrived(first, leaf, (end - start) as usize);
        }
    }

    fn begin(
        key: ObjectKey,
        manifest: Arc<Manifest>,
        part: &'a Part,
        flight: Arc<Flight>,
        meter: Meter<'a>,
    ) -> Result<Leaves<'a>, TransferError> {
        let size = manifest.size();
        let sized = part.file().set_len(size);
        sized.map_err(|error| part.error(error))?;
        flight.begin_leaves(part.file().clone(), size, LEAF_SIZE);
        meter.set_total(manifest.data_size());
        Ok(Leaves {
            key,
            manifest,
            part,
            flight,
            meter,
            twin: None,
        })
    }

    /// Clears the leaves that are zero here but not in the twin that the part was cloned from.
    fn clear_zeroes(&self, twin: &dyn ReadAt) -> Result<(), TransferError> {
        let count = self.manifest.leaf_count();
        let mut leaf = 0;
        while leaf < count {
            let data = self.manifest.next_data_leaf(leaf).unwrap_or(count);
            let (mut at, end) = self.byte_range(leaf, data);
            while let Some((from, to)) = self.data_before(twin, at, end)? {
                self.part.punch(from, to)?;
                at = to;
            }
            leaf = data + 1;
        }
        Ok(())
    }

    /// The first data of a source in `start..end`.
    fn data_before(
        &self,
        source: &dyn ReadAt,
        start: u64,
        end: u64,
    ) -> Result<Option<(u64, u64)>, TransferError> {
        let found = data_after(source, start).map_err(|error| self.unreadable(error))?;
        let inside = found.filter(|(from, _)| *from < end);
        Ok(inside.map(|(from, to)| (from, to.min(end))))
    }

    fn unreadable(&self, error: SourceError) -> TransferError {
        self.part.error(std::io::Error::other(error))
    }

    fn mark_zeroes(&self) {
        let count = self.manifest.leaf_count();
        let mut leaf = 0;
        while leaf < count {
            let end = self.manifest.next_data_leaf(leaf).unwrap_or(count);
            self.flight.mark_leaves(leaf, end);
            leaf = end + 1;
        }
    }

    /// Verifies what an earlier attempt left in the part.
    fn resume(&self) -> Result<(), TransferError> {
        let unreadable = |error| self.unreadable(error);
        let file = self
            .part
            .file()
            .try_clone()
            .map_err(|error| self.part.error(error))?;
        let source = FileSource::from_file(file, self.key.to_string()).map_err(unreadable)?;
        let mut buffer = vec![0; LEAF_LEN];
        let mut leaf = 0;
        while let Some((start, end)) = data_after(&source, leaf * LEAF_SIZE).map_err(unreadable)? {
            leaf = leaf.max(start / LEAF_SIZE);
            while leaf * LEAF_SIZE < end {
                let position = leaf * LEAF_SIZE;
                let length = LEAF_SIZE.min(self.manifest.size() - position) as usize;
                let data = &mut buffer[..length];
                source.read_exact_at(data, position).map_err(unreadable)?;
                self.judge(leaf, data)?;
                leaf += 1;
            }
        }
        Ok(())
    }

    fn judge(&self, leaf: u64, data: &mut [u8]) -> Result<(), TransferError> {
        if self.manifest.is_zero_leaf(leaf) {
            if !is_zero(data) {
                data.fill(0);
                self.write(leaf, data)?;
            }
        } else if self.manifest.verify_leaf(leaf, data) {
            self.arrived(leaf, leaf + 1, data.len());
        }
        Ok(())
    }

    fn missing_bytes(&self) -> u64 {
        let mut bytes = 0;
        let mut from = 0;
        while let Some((first, end)) = self.next_missing(from, u64::MAX) {
            bytes += self.byte_range(first, end).1 - first * LEAF_SIZE;
            from = end;
        }
        bytes
    }

    /// The next run of at most `most` leaves, at or after `from`, that are not here yet.
    pub fn next_missing(&self, from: u64, most: u64) -> Option<(u64, u64)> {
        let missing = |leaf| !self.manifest.is_zero_leaf(leaf) && !self.flight.is_leaf_ready(leaf);
        let mut first = self.manifest.next_data_leaf(from)?;
        while !missing(first) {
            first = self.manifest.next_data_leaf(first + 1)?;
        }
        let last = self.manifest.leaf_count().min(first.saturating_add(most));
        let end = (first + 1..last)
            .find(|leaf| !missing(*leaf))
            .unwrap_or(last);
        Some((first, end))
    }

    /// The bytes of a run of leaves.
    pub fn byte_range(&self, first: u64, end: u64) -> (u64, u64) {
        (
            first * LEAF_SIZE,
            (end * LEAF_SIZE).min(self.manifest.size()),
        )
    }

    /// Whether a leaf is here, so that it need not be written again.
    pub fn is_ready(&self, leaf: u64) -> bool {
        self.flight.is_leaf_ready(leaf)
    }

    /// Verifies and writes whole leaves from leaf `first` on; fails with the index of a leaf that is wrong, after keeping those before.
    pub fn store(&self, first: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut good = 0;
        let mut wrong = None;
        for (leaf, bytes) in (first..).zip(data.chunks(LEAF_LEN)) {
            if !self.manifest.verify_leaf(leaf, bytes) {
                wrong = Some(leaf);
                break;
            }
            good += bytes.len();
        }
        self.store_verified(first, &data[..good])?;
        wrong.map_or(Ok(()), |leaf| Err(StoreError::Wrong(leaf)))
    }

    /// Writes whole leaves that are known to be right.
    pub fn store_verified(&self, first: u64, data: &[u8]) -> Result<(), TransferError> {
        if !data.is_empty() {
            self.write(first, data)?;
            self.arrived(
                first,
                first + data.len().div_ceil(LEAF_LEN) as u64,
                data.len(),
            );
        }
        Ok(())
    }

    /// Takes leaves that are right from a file that has them at the same place: shares its blocks, or else writes `data`, their bytes.
    ///
    /// False, and they do not count as arrived, if `unchanged` is false afterwards: what was shared may be something else.
    pub fn share(
        &self,
        run: Range<u64>,
        data: &[u8],
        file: &File,
        unchanged: impl Fn() -> bool,
    ) -> Result<bool, TransferError> {
        let (start, end) = self.byte_range(run.start, run.end);
        if !self.part.share_range(file, start, end) {
            self.write_at(data, start)?;
        } else if !unchanged() {
            return Ok(false);
        }
        self.arrived(run.start, run.end, data.len());
        Ok(true)
    }

    fn write(&self, first: u64, data: &[u8]) -> Result<(), TransferError> {
        let start = first * LEAF_SIZE;
        match self.twin_bytes(start, data.len()) {
            Some(there) => self.write_differences(start, data, &there),
            None => self.write_at(data, start),
        }
    }

    /// What the part holds there by sharing blocks, if it is known.
    fn twin_bytes(&self, start: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        read_data(self.twin?, start, &mut bytes).ok()?;
        Some(bytes)
    }

    fn write_differences(
        &self,
        start: u64,
        data: &[u8],
        there: &[u8],
    ) -> Result<(), TransferError> {
        let differs = |at: usize| {
            let end = data.len().min(at + BLOCK);
            data[at..end] != there[at..end]
        };
        let mut at = 0;
        while at < data.len() {
            let mut end = at;
            while end < data.len() && differs(end) {
                end += BLOCK;
            }
            if end > at {
                self.write_at(&data[at..end.min(data.len())], start + at as u64)?;
            }
            at = end.max(at + BLOCK);
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], position: u64) -> Result<(), TransferError> {
        let written = self.part.file().write_all_at(data, position);
        written.map_err(|error| self.part.error(error))
    }

    fn arrived(&self, first: u64, end: u64, bytes: usize) {
        self.flight.mark_leaves(first, end);
        self.meter.add(bytes as u64);
    }
}

/// Why leaves were not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A leaf's bytes are not those of the manifest.
    #[error("leaf {0} does not match the manifest")]
    Wrong(u64),
    /// The part could not be written.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::gate::Cancel;
    use crate::ids::Kind;
    use crate::testing::Directory;
    use diffcache_core::task::Task;

    /// Bytes with a hole before `data`, and one behind it, and what was read of them.
    struct Sparse {
        bytes: Vec<u8>,
        data: Range<u64>,
        reads: Mutex<Vec<Range<u64>>>,
    }

    impl ReadAt for Sparse {
        fn len(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
            let end = offset + buf.len() as u64;
            self.reads.lock().unwrap().push(offset..end);
            self.bytes.read_exact_at(buf, offset)
        }

        fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
            Ok((offset < self.data.end).then_some((self.data.start, self.data.end)))
        }
    }

    #[test]
    fn holes_of_a_twin_are_not_read() {
        let block = BLOCK as u64;
        let data = 3 * LEAF_SIZE + 5 * block..7 * LEAF_SIZE + 2 * block;
        let mut bytes = vec![0; 10 * LEAF_LEN];
        bytes[data.start as usize..data.end as usize].fill(7);
        // Leaf 5 is cleared; the others have something new, also where the twin has a hole.
        let mut target = bytes.clone();
        target[5 * LEAF_LEN..6 * LEAF_LEN].fill(0);
        for leaf in [1, 3, 4, 7, 9] {
            target[leaf * LEAF_LEN + 9 * BLOCK..][..100].fill(1);
        }
        let manifest = Manifest::from_source(&target, &Task::default()).unwrap();
        let key = ObjectKey {
            kind: Kind::Images,
            id: manifest.content_id(),
        };
        let directory = Directory::new();
        let part = Part::open(key, &directory.path.join("image")).unwrap();
        let inside = &bytes[data.start as usize..data.end as usize];
        part.file().write_all_at(inside, data.start).unwrap();
        let twin = Sparse {
            bytes: bytes.clone(),
            data: data.clone(),
            reads: Mutex::default(),
        };
        let meter = Meter::new(None, 0, Cancel::default());
        let flight = Arc::new(Flight::default());
        let leaves =
            Leaves::open_twin(key, Arc::new(manifest), &part, flight, meter, &twin).unwrap();
        for leaf in [1, 3, 4, 7, 9] {
            leaves
                .store(leaf, &target[leaf as usize * LEAF_LEN..][..LEAF_LEN])
                .unwrap();
        }
        assert!(std::fs::read(part.path()).unwrap() == target);
        let reads = twin.reads.into_inner().unwrap();
        assert!(!reads.is_empty());
        let inside = |read: &Range<u64>| data.start <= read.start && read.end <= data.end;
        assert!(reads.iter().all(inside), "{reads:?}");
    }
}
