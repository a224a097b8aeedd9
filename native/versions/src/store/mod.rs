//! What a store holds, as one process sees it: packs, maps, base images, and the blocks in them.

pub mod base;
mod cache;
pub mod check;
pub mod codec;
pub mod crypt;
pub mod frames;
pub mod map;
pub mod nodes;
pub mod pack_index;
pub mod pack_set;
mod table;
#[cfg(test)]
mod tests;
pub mod tree;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::open_file;

use crate::error::{Result, VersionsError};
use crate::store::base::BaseIndex;
use crate::store::crypt::{Cipher, Name};
use crate::store::frames::decode_frame;
use crate::store::map::Maps;
use crate::store::nodes::BlockRef;
use crate::store::pack_index::PackIndex;
use crate::store::pack_set::Written;

use self::cache::Cache;
use self::table::Table;

/// Reads packs that are not local files.
pub trait Remote: Send + Sync {
    /// `len` bytes of the blob `name` from `offset` on.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>>;
}

/// Where a pack's bytes are.
#[derive(Debug, Clone)]
pub enum Place {
    /// A local file.
    File(PathBuf),
    /// A blob that `Remote` reads.
    Blob(String),
}

/// A pack of the store.
pub struct Pack {
    /// Its index.
    pub index: PackIndex,
    /// Who wrote it: blocks of packs of one origin were written one after the other.
    pub origin: u64,
    /// Where its bytes are.
    pub place: Place,
    /// The number of the key that names its blocks and seals its frames.
    pub key: u32,
    file: OnceLock<File>,
}

/// The store.
pub struct Store {
    /// Bytes of a block.
    pub block_size: u32,
    /// Names and seals what is written.
    pub cipher: Cipher,
    /// The number of its key. Keys are numbered in the order in which they replaced each other.
    key: u32,
    /// Those of former keys, which packs may still have.
    former: BTreeMap<u32, Cipher>,
    /// All maps.
    pub maps: Maps,
    packs: BTreeMap<u32, Pack>,
    bases: HashMap<String, BaseIndex>,
    remote: Option<Box<dyn Remote>>,
    table: OnceLock<Table>,
    cache: Mutex<Cache>,
}

impl Store {
    /// An empty store of blocks of a size; `key` is the project's.
    ///
    /// # Errors
    /// `Invalid` if blocks cannot have that size.
    pub fn new(block_size: u32, key: Option<&[u8; 32]>) -> Result<Self> {
        if !block_size.is_power_of_two() || !(512..=65536).contains(&block_size) {
            return Err(VersionsError::Invalid(format!(
                "blocks of {block_size} bytes: choose a power of two from 512 to 65536"
            )));
        }
        Ok(Self {
            block_size,
            cipher: Cipher::new(key),
            key: 1,
            former: BTreeMap::new(),
            maps: Maps::default(),
            packs: BTreeMap::new(),
            bases: HashMap::new(),
            remote: None,
            table: OnceLock::new(),
            cache: Mutex::default(),
        })
    }

    /// Sets how many bytes of decompressed frames are kept in memory.
    pub fn set_cache(&self, bytes: usize) {
        self.cache().limit = bytes;
    }

    /// Closes the files of packs; those that are read again are opened again. What was deleted takes space until then.
    pub fn close_files(&mut self) {
        for pack in self.packs.values_mut() {
            pack.file = OnceLock::new();
        }
    }

    /// Sets who reads packs that are not local files.
    pub fn set_remote(&mut self, remote: Box<dyn Remote>) {
        self.remote = Some(remote);
    }

    /// Sets the number of the key, and former keys by their numbers.
    pub fn set_keys(&mut self, number: u32, former: &[(u32, [u8; 32])]) {
        self.key = number;
        let ciphers = former
            .iter()
            .map(|(number, key)| (*number, Cipher::new(Some(key))));
        self.former = ciphers.collect();
    }

    /// The number of the key that new packs are sealed with.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The cipher of a pack's key.
    ///
    /// # Errors
    /// `Invalid` if the store does not have that key.
    pub fn cipher_of(&self, pack: &Pack) -> Result<&Cipher> {
        if pack.key == self.key {
            return Ok(&self.cipher);
        }
        self.former.get(&pack.key).ok_or_else(|| {
            VersionsError::Invalid(format!(
                "{} is sealed with key {}, which was retired",
                pack.index.object(),
                pack.key
            ))
        })
    }

    /// Adds a pack from the bytes of its index. `key` is the number of the key that it is sealed with.
    ///
    /// # Errors
    /// `Damaged`; `Invalid` if it belongs to another store.
    pub fn add_pack(
        &mut self,
        id: u32,
        origin: u64,
        index: &[u8],
        place: Place,
        key: u32,
    ) -> Result<()> {
        let index = PackIndex::decode(index, &format!("the index of pack {id}"))?;
        if index.id != id {
            return Err(VersionsError::damaged(
                format!("the index of pack {id}"),
                "it is another pack's",
            ));
        }
        if index.block_size != self.block_size || index.sealed != self.cipher.seals() {
            return Err(VersionsError::Invalid(format!(
                "pack {id} has blocks of {} bytes, {}: open the store accordingly",
                index.block_size,
                if index.sealed {
                    "sealed with a key"
                } else {
                    "without a key"
                },
            )));
        }
        let pack = Pack {
            index,
            origin,
            place,
            key,
            file: OnceLock::new(),
        };
        self.cipher_of(&pack)?;
        self.packs.insert(id, pack);
        // Built again when it is needed.
        self.table = OnceLock::new();
        Ok(())
    }

    /// Adds packs that were just written, so that blocks in them are found.
    ///
    /// # Errors
    /// As `add_pack`; `Io`.
    pub fn add_written(&mut self, packs: &[Written], origin: u64) -> Result<()> {
        for pack in packs {
            let name = pack.index.display().to_string();
            let index = std::fs::read(&pack.index).map_err(VersionsError::io(name))?;
            let place = Place::File(pack.data.clone());
            self.add_pack(pack.id, origin, &index, place, self.key)?;
        }
        Ok(())
    }

    /// Adds the index of a base image.
    pub fn add_base(&mut self, id: String, base: BaseIndex) {
        self.bases.insert(id, base);
    }

    /// The index of a base image, if it is known.
    pub fn base(&self, id: &str) -> Option<&BaseIndex> {
        self.bases.get(id)
    }

    /// A pack.
    ///
    /// # Errors
    /// `Missing`.
    pub fn pack(&self, id: u32) -> Result<&Pack> {
        let pack = self.packs.get(&id);
        pack.ok_or_else(|| VersionsError::Missing(format!("pack {id}")))
    }

    /// All packs, by number.
    pub fn packs(&self) -> impl Iterator<Item = &Pack> {
        self.packs.values()
    }

    /// The name of a stored block.
    ///
    /// # Errors
    /// `Missing` if it was dropped or never was.
    pub fn name(&self, pack: u32, slot: u32) -> Result<&Name> {
        let name = self.pack(pack)?.index.name(slot);
        name.ok_or_else(|| VersionsError::Missing(format!("block {slot} of pack {pack}")))
    }

    /// Whether a stored block is this one, which has the name `name`.
    ///
    /// # Errors
    /// `Missing` if it was dropped or never was.
    pub fn holds(&self, pack: u32, slot: u32, name: &Name, block: &[u8]) -> Result<bool> {
        let entry = self.pack(pack)?;
        let stored = self.name(pack, slot)?;
        match entry.key == self.key {
            true => Ok(stored == name),
            false => Ok(*stored == self.cipher_of(entry)?.name(block)),
        }
    }

    /// The name that a stored block has with the present key. The blocks of packs with a former key have to be read.
    ///
    /// # Errors
    /// As `frame`; `Missing` if it was dropped or never was.
    pub fn present_name(&self, pack: u32, slot: u32) -> Result<Name> {
        if self.pack(pack)?.key == self.key {
            return self.name(pack, slot).copied();
        }
        let mut block = vec![0; self.block_size as usize];
        self.read_block(pack, slot, &mut block)?;
        Ok(self.cipher.name(&block))
    }

    /// Where a block is kept, which has the name `name`, if the store has it: with the present key, or a former one.
    pub fn find_block(&self, name: &Name, block: &[u8]) -> Option<BlockRef> {
        self.find(name).or_else(|| {
            let mut former = self.former.values();
            former.find_map(|cipher| self.find(&cipher.name(block)))
        })
    }

    /// Where a block with this name is kept, if the store has one.
    pub fn find(&self, name: &Name) -> Option<BlockRef> {
        self.table
            .get_or_init(|| Table::build(&self.packs))
            .find(&self.packs, name)
    }

    /// Bytes of a pack as they are kept.
    ///
    /// # Errors
    /// `Io`, `Missing`, `Unavailable`, `Damaged` if the pack is shorter.
    pub fn read(&self, pack: &Pack, offset: u64, len: usize) -> Result<Vec<u8>> {
        match &pack.place {
            Place::Blob(name) => {
                let remote = self.remote.as_ref();
                let remote = remote.ok_or_else(|| VersionsError::Missing(name.clone()))?;
                let bytes = remote.read(name, offset, len)?;
                match bytes.len() == len {
                    true => Ok(bytes),
                    false => Err(VersionsError::damaged(pack.index.object(), "it ends early")),
                }
            }
            Place::File(path) => {
                let mut bytes = vec![0; len];
                let read = match pack.file.get() {
                    Some(file) => file.read_exact_at(&mut bytes, offset),
                    None => open_file(path).and_then(|file| {
                        pack.file
                            .get_or_init(|| file)
                            .read_exact_at(&mut bytes, offset)
                    }),
                };
                match read {
                    Ok(()) => Ok(bytes),
                    Err(error) => Err(unreadable(pack, path, error)),
                }
            }
        }
    }

    /// The blocks of a frame.
    ///
    /// # Errors
    /// As `read`; `Damaged`.
    pub fn frame(&self, pack: u32, frame: usize) -> Result<Arc<Vec<u8>>> {
        if let Some(blocks) = self.cache().get((pack, frame)) {
            return Ok(blocks);
        }
        let entry = self.pack(pack)?;
        let what = entry.index.frames.get(frame);
        let what = what.ok_or_else(|| VersionsError::Missing(format!("a frame of pack {pack}")))?;
        let kept = self.read(entry, what.offset, what.len as usize)?;
        let blocks = Arc::new(decode_frame(
            &entry.index,
            what,
            kept,
            self.cipher_of(entry)?,
        )?);
        self.cache().put((pack, frame), Arc::clone(&blocks));
        Ok(blocks)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unpoisoned()
    }

    /// Returns the frame that contains a block, and its position in it.
    ///
    /// # Errors
    /// `Missing`.
    pub fn locate(&self, pack: u32, slot: u32) -> Result<(usize, u32)> {
        let index = &self.pack(pack)?.index;
        let frame = index.rank(slot).and_then(|rank| index.frame_of(rank));
        frame.ok_or_else(|| VersionsError::Missing(format!("block {slot} of pack {pack}")))
    }

    /// Copies a stored block to `out`, which is as long as a block.
    ///
    /// # Errors
    /// As `frame`.
    pub fn read_block(&self, pack: u32, slot: u32, out: &mut [u8]) -> Result<()> {
        let (frame, at) = self.locate(pack, slot)?;
        let blocks = self.frame(pack, frame)?;
        let start = at as usize * self.block_size as usize;
        let block = blocks.get(start..start + out.len());
        let block = block.ok_or_else(|| VersionsError::Missing(format!("block {slot}")))?;
        out.copy_from_slice(block);
        Ok(())
    }
}

fn unreadable(pack: &Pack, path: &std::path::Path, error: std::io::Error) -> VersionsError {
    match error.kind() {
        std::io::ErrorKind::NotFound => VersionsError::Missing(pack.index.object()),
        std::io::ErrorKind::UnexpectedEof => {
            VersionsError::damaged(pack.index.object(), "it ends early")
        }
        _ => VersionsError::Io {
            name: path.display().to_string(),
            source: error,
        },
    }
}
