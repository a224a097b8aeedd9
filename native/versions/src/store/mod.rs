//! What a store holds, as one process sees it: packs, maps, base images, and the blocks in them.

pub mod base;
mod cache;
pub mod check;
pub mod codec;
pub mod crypt;
mod files;
pub mod frames;
pub mod hooks;
pub mod map;
pub mod nodes;
pub mod pack_index;
pub mod pack_set;
mod reading;
mod search;
#[cfg(test)]
mod tests;
pub mod tree;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use diffcache_base::locks::Unpoisoned;

use crate::error::{Result, VersionsError};
use crate::store::base::BaseIndex;
use crate::store::crypt::{Cipher, Name};
use crate::store::map::Maps;
use crate::store::nodes::BlockRef;
use crate::store::pack_index::{Check, PackIndex, SECTION};
use crate::store::pack_set::Written;

use self::cache::Cache;
use self::files::Files;
pub use self::files::{Place, Remote};
use self::hooks::{Hook, HookFile};
pub use self::reading::StoredNames;
use self::search::Search;
pub use self::search::Slots;

/// Decompressed frames kept in memory, in bytes, unless it is said otherwise: while a disk is put together from its start to its end,
/// each of a hundred versions that have blocks of it has a frame open.
const FRAMES: usize = 128 << 20;

/// Bytes in memory of indexes without names: those of some 60 GiB of packs.
const INDEXES: usize = 4 << 20;

/// Bytes in memory of names: those of 4 GiB of blocks, in sections; a hundred versions may have one in use each.
const NAMES: usize = 24 << 20;

/// Bytes in memory of hooks: those of some 30 GiB of blocks, in sections.
const HOOKS: usize = 4 << 20;

/// A pack of the store.
#[derive(Debug)]
pub struct Pack {
    /// Its number.
    pub id: u32,
    /// Who wrote it: blocks of packs of one origin were written one after the other.
    pub origin: u64,
    /// The number of the key that names its blocks and seals its frames.
    pub key: u32,
    /// Its blocks.
    pub blocks: u32,
    /// Its bytes.
    pub data_len: u64,
    /// Where its bytes are.
    pub place: Place,
    /// Where its index is.
    pub index: Place,
    /// The checksum that the index ends with.
    pub check: Check,
}

impl Pack {
    /// What errors call the pack.
    pub fn object(&self) -> String {
        format!("pack {}", self.id)
    }
}

/// A pack of the store, and its file once it was read.
pub struct KeptPack {
    pack: Pack,
    file: OnceLock<File>,
}

impl Deref for KeptPack {
    type Target = Pack;

    fn deref(&self) -> &Pack {
        &self.pack
    }
}

/// Packs by their numbers, as far as they were asked for; `None` for one that the store does not have.
type Packs = BTreeMap<u32, Option<Arc<KeptPack>>>;

/// The index of a base image: its file, the checksum that it ends with if that is known, and what it says once it was read.
struct KeptBase {
    place: Place,
    check: Option<Check>,
    index: OnceLock<BaseIndex>,
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
    packs: Mutex<Packs>,
    bases: HashMap<String, KeptBase>,
    /// Files of hooks, the newest with the highest number.
    hooks: BTreeMap<u32, HookFile>,
    files: Arc<Files>,
    search: Mutex<Search>,
    is_large: bool,
    read: Read,
}

/// What was read last of the packs.
struct Read {
    frames: Cache<(u32, usize), Vec<u8>>,
    indexes: Cache<u32, PackIndex>,
    /// By pack and section.
    names: Cache<(u32, u32), Vec<Name>>,
    /// By file and section.
    hooks: Cache<(u32, usize), Vec<Hook>>,
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
            packs: Mutex::default(),
            bases: HashMap::new(),
            hooks: BTreeMap::new(),
            files: Arc::default(),
            search: Mutex::default(),
            is_large: false,
            read: Read {
                frames: Cache::new(FRAMES),
                indexes: Cache::new(INDEXES),
                names: Cache::new(NAMES),
                hooks: Cache::new(HOOKS),
            },
        })
    }

    /// Sets how many bytes of decompressed frames are kept in memory.
    pub fn set_cache(&self, bytes: usize) {
        self.read.frames.set_limit(bytes);
    }

    /// Keeps all indexes that are read, whose files may be gone later; names not.
    pub fn keep_indexes(&self) {
        self.read.indexes.set_limit(usize::MAX);
    }

    /// What was found to be damaged or missing of indexes and maps so far, by file, and why.
    pub fn damage(&self) -> BTreeMap<String, String> {
        self.files.damage()
    }

    /// Closes the files of packs; those that are read again are opened again. What was deleted takes space until then.
    pub fn close_files(&mut self) {
        for kept in self.kept().values_mut().flatten() {
            if let Some(kept) = Arc::get_mut(kept) {
                kept.file = OnceLock::new();
            }
        }
    }

    /// Sets who reads what is not in local files.
    pub fn set_remote(&mut self, remote: Box<dyn Remote>) {
        self.files = Arc::new(Files::new(remote));
        self.maps.set_files(Arc::clone(&self.files));
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
                pack.object(),
                pack.key
            ))
        })
    }

    /// Adds a pack. Its index is read when it is needed.
    ///
    /// # Errors
    /// `Invalid` if the store does not have its key.
    pub fn add_pack(&mut self, pack: Pack) -> Result<()> {
        self.cipher_of(&pack)?;
        self.read.indexes.remove(pack.id);
        for section in 0..pack.blocks.div_ceil(SECTION) {
            self.read.names.remove((pack.id, section));
        }
        self.keep(pack);
        *self.search.lock().unpoisoned() = Search::default();
        Ok(())
    }

    /// Adds packs that were just written, so that blocks in them are found.
    ///
    /// # Errors
    /// As `add_pack`.
    pub fn add_written(&mut self, packs: &[Written], origin: u64) -> Result<()> {
        let mut search = std::mem::take(&mut *self.search.lock().unpoisoned());
        for written in packs {
            self.add_pack(Pack {
                id: written.id,
                origin,
                key: self.key,
                blocks: written.blocks,
                data_len: written.data_len,
                place: Place::File(written.data.clone()),
                index: Place::File(written.index.clone()),
                check: written.check,
            })?;
            search.add(self, written.id)?;
        }
        *self.search.lock().unpoisoned() = search;
        Ok(())
    }

    /// Removes a pack, as if it had never been in the store.
    pub fn remove_pack(&mut self, id: u32) {
        self.kept().insert(id, None);
        *self.search.lock().unpoisoned() = Search::default();
    }

    /// Adds the index of a base image: its file, and the checksum that it ends with, if that is known. It is read when it is needed.
    pub fn add_base(&mut self, id: String, place: Place, check: Option<Check>) {
        let index = OnceLock::new();
        let base = KeptBase {
            place,
            check,
            index,
        };
        self.bases.insert(id, base);
    }

    fn kept(&self) -> MutexGuard<'_, Packs> {
        self.packs.lock().unpoisoned()
    }

    fn keep(&self, pack: Pack) -> Arc<KeptPack> {
        let (id, file) = (pack.id, OnceLock::new());
        let kept = Arc::new(KeptPack { pack, file });
        self.kept().insert(id, Some(Arc::clone(&kept)));
        kept
    }

    /// A pack.
    ///
    /// # Errors
    /// `Missing`, `Unavailable`.
    pub fn pack(&self, id: u32) -> Result<Arc<KeptPack>> {
        let found = self.find_pack(id)?;
        found.ok_or_else(|| VersionsError::Missing(format!("pack {id}")))
    }

    /// A pack, if the store has it: one that was added, or that `Remote` knows.
    ///
    /// # Errors
    /// `Unavailable`; `Invalid` if the store does not have its key.
    pub fn find_pack(&self, id: u32) -> Result<Option<Arc<KeptPack>>> {
        if let Some(known) = self.kept().get(&id) {
            return Ok(known.clone());
        }
        // Without the lock: others may ask for it at the same time.
        let Some(pack) = self.files.pack(id)? else {
            self.kept().insert(id, None);
            return Ok(None);
        };
        self.cipher_of(&pack)?;
        Ok(Some(self.keep(pack)))
    }

    /// The packs that were asked for or added, by number.
    pub fn packs(&self) -> Vec<Arc<KeptPack>> {
        self.kept().values().flatten().cloned().collect()
    }

    /// Whether packs and maps that were not added are asked for: a store of many.
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// Has `Remote` asked for packs and maps that were not added; maps from `next` on do not exist.
    pub fn set_large(&mut self, next: u32) {
        self.is_large = true;
        self.maps.set_next(next);
    }

    /// Where copies of some blocks are kept, as far as they are found, by their names: with the present key, or a former one. `beside` are
    /// blocks that copies may have been written with.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn find_blocks(
        &self,
        blocks: &[(Name, &[u8])],
        beside: &[Slots],
    ) -> Result<Vec<Option<BlockRef>>> {
        let names: Vec<Name> = blocks.iter().map(|(name, _)| *name).collect();
        let mut found = self.find(&names, beside)?;
        for cipher in self.former.values() {
            let left: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
            let names: Vec<Name> = left.iter().map(|at| cipher.name(blocks[*at].1)).collect();
            for (at, copy) in left.into_iter().zip(self.find(&names, beside)?) {
                found[at] = copy;
            }
        }
        Ok(found)
    }

    /// Where copies of blocks with some names are kept, as far as they are found.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn find(&self, names: &[Name], beside: &[Slots]) -> Result<Vec<Option<BlockRef>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut search = self.search.lock().unpoisoned();
        search.look_around(self, names, beside)?;
        names.iter().map(|name| search.find(self, name)).collect()
    }
}
