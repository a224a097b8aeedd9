//! The file format of a qcow2 patch, version 1. Integers are little-endian.
//!
//! ```text
//! header   256 bytes, see `Header`; its last 32 bytes are the BLAKE3 of the rest of it and of the recipe
//! recipe   zstd: the target's recipe (see `crate::recipe`), with its sequence if the base is raw; empty if the target is raw
//! stored   streams of compressed clusters that are carried as they are, in the order of the file
//! content  a block patch between the guests' contents; clusters that are stored or copied are zero in its target
//! ```
//!
//! Hashes are BLAKE3 of whole files. The header says how base and target are stored, and whether the base must be the very file that the
//! patch was created from.

use diffcache_base::words::Words;
use diffcache_core::manifest::Hash;
use diffcache_core::source::ReadAt;

use super::part::Section;
use crate::error::Qcow2Error;
use crate::recipe::Recipe;

/// First bytes of every patch of this codec.
pub const MAGIC: &[u8; 8] = b"DCQCOW21";
/// Version of the format.
const VERSION: u64 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = 256;
const CHECKED: usize = HEADER_LEN - 32;
/// Bytes of an encoded recipe that are accepted, compressed or not.
const MAX_RECIPE: u64 = 128 << 20;

const BASE_QCOW2: u64 = 1;
const TARGET_QCOW2: u64 = 2;
const NEEDS_BASE_FILE: u64 = 4;

/// The fixed part of a patch. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The base was a qcow2 image when the patch was created.
    pub base_is_qcow2: bool,
    /// The target is a qcow2 image.
    pub target_is_qcow2: bool,
    /// The base must be the file that `base_hash` names; its content alone is not enough.
    pub needs_base_file: bool,
    /// Size of the base's file.
    pub base_size: u64,
    /// Size of the target's file.
    pub target_size: u64,
    /// Hash of the base's file.
    pub base_hash: Hash,
    /// Hash of the target's file.
    pub target_hash: Hash,
    /// Hash of the stored streams.
    pub stored_hash: Hash,
    /// Bytes of the recipe in the patch, compressed.
    pub recipe_len: u64,
    /// Bytes of the recipe, decompressed.
    pub recipe_size: u64,
    /// Bytes of stored streams.
    pub stored_len: u64,
    /// Bytes of the content patch.
    pub content_len: u64,
    /// Compressed clusters of the target.
    pub clusters_compressed: u64,
    /// Of these, the stored ones.
    pub clusters_stored: u64,
    /// Of these, the ones that can only be copied from the base.
    pub clusters_copied: u64,
}

impl Header {
    fn encode(&self, recipe: &[u8]) -> [u8; HEADER_LEN] {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = flag(self.base_is_qcow2, BASE_QCOW2)
            | flag(self.target_is_qcow2, TARGET_QCOW2)
            | flag(self.needs_base_file, NEEDS_BASE_FILE);
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8..40].copy_from_slice(&self.base_hash);
        out[40..72].copy_from_slice(&self.target_hash);
        let numbers = [
            flags,
            self.base_size,
            self.target_size,
            self.recipe_len,
            self.recipe_size,
            self.stored_len,
            self.content_len,
            self.clusters_compressed,
            self.clusters_stored,
            self.clusters_copied,
            VERSION,
        ];
        out[72..104].copy_from_slice(&self.stored_hash);
        for (slot, number) in out[104..].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        let check = checksum(&out, recipe);
        out[CHECKED..].copy_from_slice(&check);
        out
    }

    fn decode(raw: &[u8; HEADER_LEN], name: &str) -> Result<Self, Qcow2Error> {
        if raw[..8] != *MAGIC {
            return Err(Qcow2Error::bad_patch("no patch of this codec"));
        }
        let words = Words(raw);
        let number = |n: usize| words.le64(104 + n * 8);
        if number(10) != VERSION {
            let version = number(10);
            return Err(Qcow2Error::bad_patch(format!(
                "version {version} of the format of {name} is unknown here; this program reads version {VERSION}"
            )));
        }
        Ok(Self {
            base_is_qcow2: number(0) & BASE_QCOW2 != 0,
            target_is_qcow2: number(0) & TARGET_QCOW2 != 0,
            needs_base_file: number(0) & NEEDS_BASE_FILE != 0,
            base_size: number(1),
            target_size: number(2),
            base_hash: words.array(8),
            target_hash: words.array(40),
            stored_hash: words.array(72),
            recipe_len: number(3),
            recipe_size: number(4),
            stored_len: number(5),
            content_len: number(6),
            clusters_compressed: number(7),
            clusters_stored: number(8),
            clusters_copied: number(9),
        })
    }

    /// Returns the size of the whole patch; `None` if that of its parts overflows.
    fn patch_size(&self) -> Option<u64> {
        let parts = self
            .recipe_len
            .checked_add(self.stored_len)?
            .checked_add(self.content_len)?;
        parts.checked_add(HEADER_LEN as u64)
    }

    /// Returns where the stored streams start.
    pub fn stored_at(&self) -> u64 {
        HEADER_LEN as u64 + self.recipe_len
    }

    /// Returns where the content patch starts.
    pub fn content_at(&self) -> u64 {
        self.stored_at() + self.stored_len
    }
}

fn checksum(header: &[u8; HEADER_LEN], recipe: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..CHECKED]);
    hasher.update(recipe);
    *hasher.finalize().as_bytes()
}

/// Encodes the header and the recipe, which start a patch. Sets the header's lengths of the recipe.
pub fn encode(mut header: Header, recipe: Option<&[u8]>) -> Result<(Header, Vec<u8>), Qcow2Error> {
    let recipe = recipe.unwrap_or_default();
    let packed = match recipe {
        [] => Vec::new(),
        recipe => zstd::bulk::compress(recipe, RECIPE_LEVEL).map_err(Qcow2Error::Write)?,
    };
    header.recipe_len = packed.len() as u64;
    header.recipe_size = recipe.len() as u64;
    if header.recipe_size > MAX_RECIPE {
        return Err(Qcow2Error::refused(
            "its recipe takes more memory than this codec allows",
        ));
    }
    let mut out = header.encode(&packed).to_vec();
    out.extend_from_slice(&packed);
    Ok((header, out))
}

const RECIPE_LEVEL: i32 = 9;

/// An opened patch.
pub struct Container<P> {
    patch: P,
    header: Header,
    recipe: Option<Recipe>,
}

impl<P: ReadAt> Container<P> {
    /// Reads and checks header and recipe. What is allocated is bounded by the patch's own size and by a fixed limit.
    pub fn open(patch: P) -> Result<Self, Qcow2Error> {
        let (header, packed) = read_checked(&patch)?;
        let recipe = match header.target_is_qcow2 {
            true => Some(Recipe::decode(&unpack(&packed, header.recipe_size)?)?),
            false => None,
        };
        let stored = recipe.as_ref().map_or(0, Recipe::stored);
        if stored != header.stored_len
            || recipe
                .as_ref()
                .is_some_and(|recipe| recipe.layout.file_size != header.target_size)
        {
            return Err(Qcow2Error::bad_patch("its header contradicts its recipe"));
        }
        Ok(Self {
            patch,
            header,
            recipe,
        })
    }

    /// Returns the fixed part.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the target's recipe; none for a raw target.
    pub fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// Returns the stored streams.
    pub fn stored(&self) -> Section<&P> {
        Section::new(&self.patch, self.header.stored_at(), self.header.stored_len)
    }

    /// Returns the content patch.
    pub fn content(&self) -> Section<&P> {
        Section::new(
            &self.patch,
            self.header.content_at(),
            self.header.content_len,
        )
    }
}

fn read_checked(patch: &dyn ReadAt) -> Result<(Header, Vec<u8>), Qcow2Error> {
    if patch.len() < HEADER_LEN as u64 {
        return Err(Qcow2Error::bad_patch("it is shorter than a header"));
    }
    let mut raw = [0; HEADER_LEN];
    patch.read_exact_at(&mut raw, 0)?;
    let header = Header::decode(&raw, patch.name())?;
    if header.patch_size() != Some(patch.len())
        || header.recipe_len.max(header.recipe_size) > MAX_RECIPE
    {
        return Err(Qcow2Error::bad_patch("it is not as long as it says"));
    }
    // Not longer than the file, as just checked.
    let mut recipe = vec![0; header.recipe_len as usize];
    patch.read_exact_at(&mut recipe, HEADER_LEN as u64)?;
    if checksum(&raw, &recipe)[..] != raw[CHECKED..] {
        return Err(Qcow2Error::bad_patch(
            "its header does not match its checksum",
        ));
    }
    Ok((header, recipe))
}

fn unpack(packed: &[u8], size: u64) -> Result<Vec<u8>, Qcow2Error> {
    let bad = || Qcow2Error::bad_patch("its recipe does not decompress");
    let size = usize::try_from(size).map_err(|_| bad())?;
    let recipe = zstd::bulk::decompress(packed, size).map_err(|_| bad())?;
    (recipe.len() == size).then_some(recipe).ok_or_else(bad)
}
