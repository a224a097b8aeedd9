//! Manifests: the BLAKE3 subtree hashes of an image's 64 KiB leaves.
//!
//! BLAKE3 is a tree (BLAKE3 paper, section 2.1): the chaining values of aligned 64 KiB subtrees merge to the hash of the whole, so the list of them
//! proves itself from the image's content id, which is what `b3sum` prints, and each leaf of an image proves itself from the list. A leaf that is all
//! zeroes is kept as a mark and its chaining value, which depends on its place, comes from [`crate::zeroes`] when it is needed.
//!
//! File format, version 1, little-endian: `DCMANIF1`, u32 version, u32 reserved (0), u64 image size, content id (32 bytes), u64 leaves,
//! u64 leaves that are not zero, one bit per leaf (least significant first; 1 = not zero) padded to whole bytes, 32 bytes per leaf that is not zero
//! (none if the image is a single leaf: the content id says it all), and the first 8 bytes of the BLAKE3 of everything before.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::source::{data_pieces, ReadAt, SourceError};
use crate::task::{for_each_piece, Cancelled, Task};
pub use crate::tree::{leaf_hash, Hash};
use crate::{tree, zeroes};

/// Bytes per leaf; only an image's last leaf may be shorter.
pub const LEAF_SIZE: u64 = 65536;
/// `LEAF_SIZE` as a length in memory.
pub const LEAF_LEN: usize = 65536;
/// Leaves per piece of work: a power of two, so that pieces are subtrees.
const PIECE_LEAVES: u64 = 16;
/// Pieces whose leaves wait for being gathered.
const ROUND: u64 = 1 << 14;
/// Leaves merged by one piece of work: 256 MiB.
const GROUP_LEAVES: u64 = 4096;
const MAGIC: &[u8; 8] = b"DCMANIF1";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 72;
/// 2^48 bytes: larger images are refused, and so are files that claim them.
pub const MAX_SIZE: u64 = 1 << 48;

static ZEROES: [u8; LEAF_LEN] = [0; LEAF_LEN];

/// Why a manifest could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Reading or writing the manifest itself failed.
    #[error("manifest: {0}")]
    Io(#[from] io::Error),
    /// The file is no manifest, is damaged, or is of a version that this program does not know.
    #[error("manifest: {0}")]
    Format(String),
    /// The manifest's leaves do not merge to the content id it claims.
    #[error("manifest: the leaves do not merge to content id {claimed}; fetch it again")]
    Root {
        /// The content id that the file claims.
        claimed: String,
    },
    /// The image differs from the manifest.
    #[error("leaf {leaf} (byte {offset}) differs from what the manifest of {content_id} promises")]
    Leaf {
        /// Index of the first leaf that differs.
        leaf: u64,
        /// Where it starts in the image, in bytes.
        offset: u64,
        /// Content id of the manifest.
        content_id: String,
    },
    /// The image is not as long as the manifest says.
    #[error("the image has {actual} bytes where the manifest of {content_id} says {expected}")]
    Size {
        /// Bytes of the image.
        actual: u64,
        /// Bytes that the manifest promises.
        expected: u64,
        /// Content id of the manifest.
        content_id: String,
    },
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ManifestError {
    /// Whether the same call may succeed later, or with another source.
    pub fn is_retryable(&self) -> bool {
        match self {
            ManifestError::Source(error) => error.is_retryable(),
            ManifestError::Root { .. }
            | ManifestError::Leaf { .. }
            | ManifestError::Cancelled(_) => true,
            ManifestError::Io(_) | ManifestError::Format(_) | ManifestError::Size { .. } => false,
        }
    }
}

/// What a manifest says of one leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafHash {
    /// All bytes are zero.
    Zero,
    /// The chaining value of the leaf's subtree, at the leaf's place.
    Data(Hash),
}

/// 64 hex digits of a hash.
pub fn to_hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Whether all bytes are zero. Runs at memory speed.
pub fn is_zero(data: &[u8]) -> bool {
    // Most data show in their first bytes that they are not zero, and most of the others within 4 KiB; in between an OR over a fixed width vectorises.
    let (head, rest) = data.split_at(data.len().min(64));
    no_bit(head) && rest.chunks(4032).all(no_bit)
}

fn no_bit(data: &[u8]) -> bool {
    let mut words = data.chunks_exact(8);
    let any = words.by_ref().fold(0u64, |any, word| {
        any | u64::from_ne_bytes([
            word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
        ])
    });
    any == 0 && words.remainder().iter().all(|byte| *byte == 0)
}

/// Number of leaves of an image of `size` bytes.
pub fn leaf_count(size: u64) -> u64 {
    size.div_ceil(LEAF_SIZE)
}

/// Length in bytes of leaf `index` of an image of `size` bytes: `LEAF_SIZE`, or less for the last.
pub fn leaf_len(size: u64, index: u64) -> usize {
    size.saturating_sub(index.saturating_mul(LEAF_SIZE))
        .min(LEAF_SIZE) as usize
}

/// A manifest in the making: starts as one of zeroes, and is told of leaves in order.
pub struct Builder {
    size: u64,
    marks: Vec<u64>,
    cvs: Vec<Hash>,
}

impl Builder {
    /// For an image of `size` bytes, at most `MAX_SIZE`.
    pub fn new(size: u64) -> Builder {
        Builder {
            size,
            marks: vec![0; leaf_count(size.min(MAX_SIZE)).div_ceil(64) as usize],
            cvs: Vec::new(),
        }
    }

    /// Adds leaves from number `first` on, which comes after all those before. Leaves past the end of the image are ignored.
    pub fn add(&mut self, first: u64, leaves: &[LeafHash]) {
        for (leaf, hash) in (first..leaf_count(self.size)).zip(leaves) {
            if let LeafHash::Data(cv) = hash {
                self.marks[(leaf / 64) as usize] |= 1 << (leaf % 64);
                self.cvs.push(*cv);
            }
        }
    }

    /// The manifest of these leaves.
    ///
    /// # Errors
    /// `Format` if the image is a single leaf, whose content id is not told by its leaves, or too large; `Cancelled`.
    pub fn finish(self, task: &Task<'_>) -> Result<Manifest, ManifestError> {
        if leaf_count(self.size) == 1 || self.size > MAX_SIZE {
            return Err(ManifestError::Format(format!(
                "an image of {} bytes cannot be built from its leaves",
                self.size
            )));
        }
        let mut manifest = Manifest {
            size: self.size,
            root: [0; 32],
            ranks: ranks(&self.marks),
            marks: self.marks,
            cvs: self.cvs,
        };
        manifest.root = manifest.merge(task)?;
        Ok(manifest)
    }
}

/// The leaves of one image: who is zero, and the chaining values of the others.
///
/// Memory: 1 bit and 1/16 byte per leaf, and 32 bytes per leaf that is not zero.
#[derive(Clone, PartialEq, Eq)]
pub struct Manifest {
    size: u64,
    root: Hash,
    /// One bit per leaf, 1 = not zero.
    marks: Vec<u64>,
    /// For each word of `marks`, the number of leaves that are not zero before it.
    ranks: Vec<u32>,
    /// Chaining values of the leaves that are not zero, in order; empty for an image of a single leaf.
    cvs: Vec<Hash>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("content_id", &to_hex(&self.root))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Reads an image once, holes not at all, and hashes it.
    ///
    /// # Errors
    /// `Source` if it cannot be read or was written to meanwhile, `Cancelled`.
    pub fn from_source(source: &dyn ReadAt, task: &Task<'_>) -> Result<Manifest, ManifestError> {
        let size = source.len();
        let meter = task.meter(size);
        if leaf_count(size) == 1 {
            let mut data = vec![0; leaf_len(size, 0)];
            source.read_exact_at(&mut data, 0)?;
            meter.add(size);
            return Ok(Manifest::of_single_leaf(&data));
        }
        let pieces = data_pieces(source, PIECE_LEAVES * LEAF_SIZE)?;
        let mut builder = Builder::new(size);
        for first in (0..pieces.count()).step_by(ROUND as usize) {
            let round = ROUND.min(pieces.count() - first);
            let parts = for_each_piece(task, round, |i| {
                let piece = pieces.number(first + i);
                let leaves = hash_piece(source, piece)?;
                meter.add(piece_len(size, piece) as u64);
                Ok::<_, ManifestError>((piece, leaves))
            })?;
            for (piece, leaves) in parts {
                builder.add(piece * PIECE_LEAVES, &leaves);
            }
        }
        source.check_unchanged()?;
        builder.finish(&task.silent())
    }

    /// Builds a manifest from what is known of every leaf, in order.
    ///
    /// An image of a single leaf is its content id; use `of_single_leaf` for it.
    ///
    /// # Errors
    /// `Format` if the number of leaves does not fit the size, or is one; `Cancelled`.
    pub fn from_leaves(
        size: u64,
        leaves: impl Iterator<Item = LeafHash>,
        task: &Task<'_>,
    ) -> Result<Manifest, ManifestError> {
        let count = leaf_count(size);
        if count == 1 || size > MAX_SIZE {
            return Err(ManifestError::Format(format!(
                "an image of {size} bytes cannot be built from its leaves"
            )));
        }
        let mut builder = Builder::new(size);
        let mut seen = 0u64;
        for leaf in leaves {
            if let (LeafHash::Data(_), true) = (leaf, seen < count) {
                builder.add(seen, &[leaf]);
            }
            seen += 1;
        }
        if seen != count {
            return Err(ManifestError::Format(format!(
                "{seen} leaves were given for an image of {count}"
            )));
        }
        builder.finish(task)
    }

    /// The manifest of an image of at most `LEAF_SIZE` bytes.
    pub fn of_single_leaf(data: &[u8]) -> Manifest {
        let root = *blake3::hash(data).as_bytes();
        let marks = match data.len() {
            0 => vec![],
            _ => vec![u64::from(!is_zero(data))],
        };
        Manifest {
            size: data.len() as u64,
            root,
            ranks: ranks(&marks),
            marks,
            cvs: Vec::new(),
        }
    }

    /// The manifest of an image of at most `LEAF_SIZE` bytes of which only the hash is known.
    ///
    /// # Errors
    /// `Format` if such an image has more than one leaf.
    pub fn of_hash(size: u64, root: Hash) -> Result<Manifest, ManifestError> {
        let zeroes = usize::try_from(size).ok().and_then(|len| ZEROES.get(..len));
        let zeroes = zeroes.ok_or_else(|| {
            ManifestError::Format(format!("an image of {size} bytes is more than its hash"))
        })?;
        let manifest = Manifest::of_single_leaf(zeroes);
        if manifest.root == root {
            return Ok(manifest);
        }
        let marks = vec![1; leaf_count(size) as usize];
        Ok(Manifest {
            size,
            root,
            ranks: ranks(&marks),
            marks,
            cvs: Vec::new(),
        })
    }

    /// The hash of the image: exactly what `b3sum` prints, as bytes.
    pub fn content_id(&self) -> Hash {
        self.root
    }

    /// The content id as 64 hex digits.
    pub fn content_id_hex(&self) -> String {
        to_hex(&self.root)
    }

    /// Bytes of the image.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Leaves of the image: `size / LEAF_SIZE`, rounded up.
    pub fn leaf_count(&self) -> u64 {
        leaf_count(self.size)
    }

    /// Leaves that are all zeroes.
    pub fn zero_leaf_count(&self) -> u64 {
        self.leaf_count()
            - self
                .marks
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>()
    }

    /// Bytes of the leaves that are not all zeroes: what the image takes at least, stored sparsely by leaves.
    pub fn data_size(&self) -> u64 {
        let count = self.leaf_count();
        let mut bytes = (count - self.zero_leaf_count()) * LEAF_SIZE;
        if count > 0 && !self.is_zero_leaf(count - 1) {
            bytes -= LEAF_SIZE - leaf_len(self.size, count - 1) as u64;
        }
        bytes
    }

    /// Whether leaf `index` is all zeroes; so is everything past the end.
    pub fn is_zero_leaf(&self, index: u64) -> bool {
        let word = usize::try_from(index / 64)
            .ok()
            .and_then(|word| self.marks.get(word));
        word.is_none_or(|word| word >> (index % 64) & 1 == 0)
    }

    /// The first index of a leaf that is not zero, at or after `index`.
    pub fn next_data_leaf(&self, index: u64) -> Option<u64> {
        let first = usize::try_from(index / 64).ok()?;
        let masked = self.marks.get(first)? & (u64::MAX << (index % 64));
        if masked != 0 {
            return Some(first as u64 * 64 + u64::from(masked.trailing_zeros()));
        }
        let word = self
            .marks
            .get(first + 1..)?
            .iter()
            .position(|word| *word != 0)?
            + first
            + 1;
        Some(word as u64 * 64 + u64::from(self.marks[word].trailing_zeros()))
    }

    /// What is known of leaf `index`; `None` past the end, and for the leaf of an image of a single leaf if it is not zero.
    pub fn leaf(&self, index: u64) -> Option<LeafHash> {
        if index >= self.leaf_count() {
            return None;
        }
        if self.is_zero_leaf(index) {
            return Some(LeafHash::Zero);
        }
        let word = usize::try_from(index / 64).ok()?;
        let before = self.marks.get(word)? & ((1u64 << (index % 64)) - 1);
        let rank = *self.ranks.get(word)? as usize + before.count_ones() as usize;
        self.cvs.get(rank).map(|cv| LeafHash::Data(*cv))
    }

    /// Whether `data` are the bytes of leaf `index`.
    pub fn verify_leaf(&self, index: u64, data: &[u8]) -> bool {
        if index >= self.leaf_count() || data.len() != leaf_len(self.size, index) {
            return false;
        }
        match self.leaf(index) {
            Some(LeafHash::Zero) => is_zero(data),
            Some(LeafHash::Data(cv)) => leaf_hash(index, data) == cv,
            None => *blake3::hash(data).as_bytes() == self.root,
        }
    }

    /// Compares an image with this manifest, leaf by leaf; holes are not read.
    ///
    /// # Errors
    /// `Size` or `Leaf` if the image differs, `Source` if it cannot be read, `Cancelled`.
    pub fn verify_source(&self, source: &dyn ReadAt, task: &Task<'_>) -> Result<(), ManifestError> {
        if source.len() != self.size {
            return Err(ManifestError::Size {
                actual: source.len(),
                expected: self.size,
                content_id: self.content_id_hex(),
            });
        }
        let meter = task.meter(self.size);
        for_each_piece(task, self.leaf_count().div_ceil(PIECE_LEAVES), |piece| {
            self.verify_piece(source, piece)?;
            meter.add(piece_len(self.size, piece) as u64);
            Ok::<_, ManifestError>(())
        })?;
        Ok(())
    }

    fn verify_piece(&self, source: &dyn ReadAt, piece: u64) -> Result<(), ManifestError> {
        let first = piece * PIECE_LEAVES;
        let data = read_piece(source, piece)?;
        for leaf in first..(first + PIECE_LEAVES).min(self.leaf_count()) {
            let fits = match &data {
                None => self.is_zero_leaf(leaf),
                Some(data) => {
                    let start = ((leaf - first) * LEAF_SIZE) as usize;
                    self.verify_leaf(leaf, &data[start..start + leaf_len(self.size, leaf)])
                }
            };
            if !fits {
                return Err(ManifestError::Leaf {
                    leaf,
                    offset: leaf * LEAF_SIZE,
                    content_id: self.content_id_hex(),
                });
            }
        }
        Ok(())
    }

    /// Merges all leaves to the root.
    fn merge(&self, task: &Task<'_>) -> Result<Hash, ManifestError> {
        let count = self.leaf_count();
        if count == 0 {
            return Ok(*blake3::hash(&[]).as_bytes());
        }
        if count <= GROUP_LEAVES {
            let left = tree::left_count(count);
            return Ok(tree::root(
                &self.node(0, left),
                &self.node(left, count - left),
            ));
        }
        let groups = for_each_piece(task, count.div_ceil(GROUP_LEAVES), |group| {
            let first = group * GROUP_LEAVES;
            Ok::<_, ManifestError>(self.node(first, GROUP_LEAVES.min(count - first)))
        })?;
        Ok(tree::merge_root(&groups))
    }

    /// The chaining value of the subtree of `count` leaves from `first` on. Subtrees of zeroes are not descended into.
    fn node(&self, first: u64, count: u64) -> Hash {
        let full = (first + count) * LEAF_SIZE <= self.size;
        let any = self
            .next_data_leaf(first)
            .is_some_and(|leaf| leaf < first + count);
        if !any && full && count.is_power_of_two() {
            return zeroes::subtree(first, count);
        }
        if count == 1 {
            return match self.leaf(first) {
                Some(LeafHash::Data(cv)) => cv,
                _ => leaf_hash(first, &ZEROES[..leaf_len(self.size, first)]),
            };
        }
        let left = tree::left_count(count);
        tree::inner(
            &self.node(first, left),
            &self.node(first + left, count - left),
        )
    }

    /// Writes the file format of the module's documentation.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_to(&self, writer: &mut dyn Write) -> Result<(), ManifestError> {
        let mut out = HashingWriter {
            writer,
            hasher: blake3::Hasher::new(),
        };
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&0u32.to_le_bytes())?;
        out.write_all(&self.size.to_le_bytes())?;
        out.write_all(&self.root)?;
        out.write_all(&self.leaf_count().to_le_bytes())?;
        out.write_all(&(self.leaf_count() - self.zero_leaf_count()).to_le_bytes())?;
        let bytes: Vec<u8> = self
            .marks
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        out.write_all(&bytes[..self.leaf_count().div_ceil(8) as usize])?;
        for cv in &self.cvs {
            out.write_all(cv)?;
        }
        let check = *out.hasher.finalize().as_bytes();
        out.write_all(&check[..8])?;
        Ok(())
    }

    /// Reads the file format of the module's documentation, and checks that the leaves merge to the content id. Memory grows with the bytes that
    /// were read, never with what the header claims.
    ///
    /// # Errors
    /// `Format`, `Root`, `Io`.
    pub fn read_from(reader: &mut dyn Read) -> Result<Manifest, ManifestError> {
        let mut input = HashingReader {
            reader,
            hasher: blake3::Hasher::new(),
        };
        let header: [u8; HEADER_LEN] = input.array("header")?;
        if &header[..8] != MAGIC {
            return Err(ManifestError::Format(
                "the file does not start like a manifest".to_owned(),
            ));
        }
        let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
        // The reserved word must be 0 until a version gives it a meaning, so both are read as one.
        let version = word(8);
        if version != u64::from(VERSION) {
            return Err(ManifestError::Format(format!(
                "version {version} is unknown here; this program reads version {VERSION}"
            )));
        }
        let (size, count, data_count) = (word(16), word(56), word(64));
        let mut root = [0; 32];
        root.copy_from_slice(&header[24..56]);
        if size > MAX_SIZE || count != leaf_count(size) || data_count > count {
            return Err(ManifestError::Format(
                "the header contradicts itself".to_owned(),
            ));
        }
        let manifest = Manifest::read_body(&mut input, size, root, data_count)?;
        manifest.check_root()?;
        Ok(manifest)
    }

    fn read_body(
        input: &mut HashingReader<'_>,
        size: u64,
        root: Hash,
        data_count: u64,
    ) -> Result<Manifest, ManifestError> {
        let count = leaf_count(size);
        let bytes = input.bytes(count.div_ceil(8), "marks")?;
        let mut marks = vec![0u64; count.div_ceil(64) as usize];
        for (i, byte) in bytes.iter().enumerate() {
            marks[i / 8] |= u64::from(*byte) << (i % 8 * 8);
        }
        let set: u64 = marks.iter().map(|word| u64::from(word.count_ones())).sum();
        let beyond = marks
            .last()
            .is_some_and(|word| count % 64 != 0 && word >> (count % 64) != 0);
        if set != data_count || beyond {
            return Err(ManifestError::Format(
                "the marks contradict the header".to_owned(),
            ));
        }
        let stored = if count == 1 { 0 } else { data_count };
        let copy = |cv: &[u8]| {
            let mut hash = [0; 32];
            hash.copy_from_slice(cv);
            hash
        };
        let cvs = input
            .bytes(stored * 32, "leaves")?
            .chunks_exact(32)
            .map(copy)
            .collect();
        let expected = *input.hasher.finalize().as_bytes();
        let check: [u8; 8] = input.array("checksum")?;
        if check != expected[..8] {
            return Err(ManifestError::Format(
                "the checksum is wrong: the file is damaged".to_owned(),
            ));
        }
        Ok(Manifest {
            size,
            root,
            ranks: ranks(&marks),
            marks,
            cvs,
        })
    }

    fn check_root(&self) -> Result<(), ManifestError> {
        let merged = match self.leaf_count() {
            // A single leaf that is not zero has nothing but its content id.
            1 if !self.is_zero_leaf(0) => return Ok(()),
            1 => *blake3::hash(&ZEROES[..self.size as usize]).as_bytes(),
            _ => self.merge(&Task::default())?,
        };
        if merged == self.root {
            Ok(())
        } else {
            Err(ManifestError::Root {
                claimed: self.content_id_hex(),
            })
        }
    }

    /// Reads a manifest's file; see `read_from`.
    ///
    /// # Errors
    /// As `read_from`; `Source` names the path if it cannot be opened.
    pub fn load(path: &Path) -> Result<Manifest, ManifestError> {
        let file = File::open(path).map_err(|source| SourceError::Io {
            name: path.display().to_string(),
            source,
        })?;
        Manifest::read_from(&mut BufReader::with_capacity(1 << 16, file))
    }

    /// Writes a manifest's file beside `path` and renames it.
    ///
    /// # Errors
    /// `Io`; nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<(), ManifestError> {
        let out = crate::output::Output::create(path)?;
        let mut writer = BufWriter::with_capacity(1 << 16, out.file());
        self.write_to(&mut writer)?;
        writer.flush()?;
        drop(writer);
        out.commit()?;
        Ok(())
    }
}

/// Bytes of piece `piece` of an image of `size` bytes.
fn piece_len(size: u64, piece: u64) -> usize {
    (size - piece * PIECE_LEAVES * LEAF_SIZE).min(PIECE_LEAVES * LEAF_SIZE) as usize
}

/// The bytes of a piece, or `None` if the source knows that it is a hole.
fn read_piece(source: &dyn ReadAt, piece: u64) -> Result<Option<Vec<u8>>, SourceError> {
    let start = piece * PIECE_LEAVES * LEAF_SIZE;
    let len = piece_len(source.len(), piece);
    let end = start + len as u64;
    let mut data = Vec::new();
    let mut at = start;
    while let Some((from, to)) = source.next_data(at)? {
        if from >= end {
            break;
        }
        let to = to.min(end);
        data.resize(len, 0);
        source.read_exact_at(
            &mut data[(from - start) as usize..(to - start) as usize],
            from,
        )?;
        at = to;
        if at >= end {
            break;
        }
    }
    Ok((!data.is_empty()).then_some(data))
}

/// The leaves of a piece; none at all for a hole.
fn hash_piece(source: &dyn ReadAt, piece: u64) -> Result<Vec<LeafHash>, SourceError> {
    let Some(data) = read_piece(source, piece)? else {
        return Ok(Vec::new());
    };
    let first = piece * PIECE_LEAVES;
    let hash = |(i, leaf): (usize, &[u8])| match is_zero(leaf) {
        true => LeafHash::Zero,
        false => LeafHash::Data(leaf_hash(first + i as u64, leaf)),
    };
    Ok(data.chunks(LEAF_LEN).enumerate().map(hash).collect())
}

/// For each word, the number of ones in the words before.
fn ranks(marks: &[u64]) -> Vec<u32> {
    let mut before = 0u32;
    let rank = |word: &u64| {
        let here = before;
        before += word.count_ones();
        here
    };
    marks.iter().map(rank).collect()
}

struct HashingWriter<'a> {
    writer: &'a mut dyn Write,
    hasher: blake3::Hasher,
}

impl HashingWriter<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.writer.write_all(bytes)
    }
}

struct HashingReader<'a> {
    reader: &'a mut dyn Read,
    hasher: blake3::Hasher,
}

impl HashingReader<'_> {
    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ManifestError> {
        let mut bytes = [0; N];
        self.reader
            .read_exact(&mut bytes)
            .map_err(|error| cut_short(error, what))?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    /// Reads `len` bytes, growing as they come.
    fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>, ManifestError> {
        let mut bytes = Vec::new();
        let read = (&mut *self.reader).take(len).read_to_end(&mut bytes)?;
        if read as u64 != len {
            return Err(cut_short(io::ErrorKind::UnexpectedEof.into(), what));
        }
        self.hasher.update(&bytes);
        Ok(bytes)
    }
}

fn cut_short(error: io::Error, what: &str) -> ManifestError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            ManifestError::Format(format!("the file ends within its {what}"))
        }
        _ => ManifestError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(len: usize) -> Vec<u8> {
        let mut data = vec![0u8; len];
        for (i, leaf) in data.chunks_mut(LEAF_LEN).enumerate() {
            // Every third leaf stays zero.
            if i % 3 != 1 {
                leaf.iter_mut()
                    .enumerate()
                    .for_each(|(j, byte)| *byte = (i * 31 + j * 7 + j / 251) as u8);
            }
        }
        data
    }

    fn sizes() -> Vec<usize> {
        vec![
            0,
            1,
            1023,
            65535,
            65536,
            65537,
            3 * 65536,
            16 * 65536,
            16 * 65536 + 5,
            17 * 65536,
            33 * 65536,
            48 * 65536 - 1,
        ]
    }

    fn bytes_of(manifest: &Manifest) -> Vec<u8> {
        let mut bytes = Vec::new();
        manifest.write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_content_id_is_the_plain_hash() {
        for len in sizes() {
            let data = sample(len);
            let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
            assert_eq!(
                manifest.content_id(),
                *blake3::hash(&data).as_bytes(),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn files_come_back_as_they_went() {
        for len in sizes() {
            let manifest = Manifest::from_source(&sample(len), &Task::default()).unwrap();
            let again = Manifest::read_from(&mut bytes_of(&manifest).as_slice()).unwrap();
            assert_eq!(again, manifest);
            assert_eq!(
                again.zero_leaf_count(),
                (0..again.leaf_count())
                    .filter(|i| again.is_zero_leaf(*i))
                    .count() as u64
            );
        }
    }

    #[test]
    fn leaves_prove_themselves() {
        let data = sample(5 * LEAF_LEN + 100);
        let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
        for (i, leaf) in data.chunks(LEAF_LEN).enumerate() {
            assert!(manifest.verify_leaf(i as u64, leaf));
            let mut wrong = leaf.to_vec();
            wrong[50] ^= 1;
            assert!(!manifest.verify_leaf(i as u64, &wrong));
            assert!(!manifest.verify_leaf(i as u64 + 1, leaf));
        }
        // Leaves 1 and 4 of the six are zero; the last has 100 bytes.
        assert_eq!(manifest.data_size(), 3 * LEAF_SIZE + 100);
    }

    #[test]
    fn data_leaves_are_found_in_order() {
        let manifest = Manifest::from_source(&sample(200 * LEAF_LEN), &Task::default()).unwrap();
        let expected: Vec<u64> = (0..200).filter(|i| i % 3 != 1).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(leaf) = manifest.next_data_leaf(at) {
            found.push(leaf);
            at = leaf + 1;
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn a_changed_image_is_told_by_its_leaf() {
        let mut data = sample(40 * LEAF_LEN);
        let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
        manifest.verify_source(&data, &Task::default()).unwrap();
        data[33 * LEAF_LEN + 17] ^= 4;
        let task = Task {
            threads: 1,
            ..Task::default()
        };
        assert!(matches!(
            manifest.verify_source(&data, &task),
            Err(ManifestError::Leaf { leaf: 33, .. })
        ));
        data.pop();
        assert!(matches!(
            manifest.verify_source(&data, &task),
            Err(ManifestError::Size { .. })
        ));
    }

    #[test]
    fn an_absurd_header_allocates_nothing() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&u64::from(VERSION).to_le_bytes());
        bytes.extend_from_slice(&MAX_SIZE.to_le_bytes());
        bytes.extend_from_slice(&[0; 32]);
        bytes.extend_from_slice(&leaf_count(MAX_SIZE).to_le_bytes());
        bytes.extend_from_slice(&leaf_count(MAX_SIZE).to_le_bytes());
        assert!(matches!(
            Manifest::read_from(&mut bytes.as_slice()),
            Err(ManifestError::Format(_))
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_flipped_bit_goes_unseen(len in 0usize..(6 * LEAF_LEN), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = bytes_of(&Manifest::from_source(&sample(len), &Task::default()).unwrap());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Manifest::read_from(&mut bytes.as_slice()).is_err());
        }

        #[test]
        fn no_cut_goes_unseen(len in 0usize..(6 * LEAF_LEN), at in any::<prop::sample::Index>()) {
            let bytes = bytes_of(&Manifest::from_source(&sample(len), &Task::default()).unwrap());
            prop_assert!(Manifest::read_from(&mut &bytes[..at.index(bytes.len())]).is_err());
        }
    }
}
