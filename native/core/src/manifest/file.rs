//! The file of a manifest.
//!
//! File format, version 1, little-endian: `DCMANIF1`, u32 version, u32 reserved (0), u64 image size, content id (32 bytes), u64 leaves,
//! u64 leaves that are not zero, one bit per leaf (least significant first; 1 = not zero) padded to whole bytes, 32 bytes per leaf that is not zero
//! (none if the image is a single leaf: the content id is enough), and the first 8 bytes of the BLAKE3 of everything before.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::{ranks, Manifest, ManifestError, MAX_SIZE, ZEROES};
use crate::hash_tree::Hash;
use crate::leaf::leaf_count;
use crate::source::SourceError;
use crate::task::Task;
use diffcache_base::output::Output;
use diffcache_base::words::Words;

const MAGIC: &[u8; 8] = b"DCMANIF1";
pub(super) const VERSION: u32 = 1;
const HEADER_LEN: usize = 72;

impl Manifest {
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
    /// `Format`, `Version`, `Root`, `Io`.
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
        let words = Words(&header);
        // The reserved word must be 0 until a version gives it a meaning, so both are read as one.
        let version = words.le64(8);
        if version != u64::from(VERSION) {
            return Err(ManifestError::Version {
                name: "the manifest".to_owned(),
                version,
            });
        }
        let (size, count, data_count) = (words.le64(16), words.le64(56), words.le64(64));
        let root = words.array(24);
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
        let read = Manifest::read_from(&mut BufReader::with_capacity(1 << 16, file));
        read.map_err(|error| match error {
            ManifestError::Version { version, .. } => ManifestError::Version {
                name: path.display().to_string(),
                version,
            },
            error => error,
        })
    }

    /// Writes a manifest's file beside `path` and renames it.
    ///
    /// # Errors
    /// `Io`; nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<(), ManifestError> {
        let out = Output::create(path)?;
        let mut writer = BufWriter::with_capacity(1 << 16, out.file());
        self.write_to(&mut writer)?;
        writer.flush()?;
        drop(writer);
        out.commit()?;
        Ok(())
    }
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
