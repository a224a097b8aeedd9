//! What a store holds, as one process sees it: packs, maps, base images, and the blocks in them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use diffcache_base::locks::Unpoisoned;
use diffcache_base::words::Words;
use diffcache_core::source::open_file;

use crate::base::BaseIndex;
use crate::crypt::{Cipher, Name, NAME_LEN};
use crate::error::{Result, VersionsError};
use crate::map::{BlockRef, Maps};
use crate::pack::{decode_frame, PackIndex, Written};

/// Decompressed frames kept in memory, in bytes, unless it is said otherwise: while a disk is put together from its start to its end,
/// each of a hundred older versions has a frame open.
const CACHE_BYTES: usize = 256 << 20;

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

/// The frames used last, by second chance: what was used since it last came to the front of the queue goes to its end once more.
struct Cache {
    frames: HashMap<(u32, usize), Cached>,
    order: VecDeque<(u32, usize)>,
    bytes: usize,
    limit: usize,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            frames: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit: CACHE_BYTES,
        }
    }
}

struct Cached {
    frame: Arc<Vec<u8>>,
    used: bool,
}

impl Cache {
    fn get(&mut self, key: (u32, usize)) -> Option<Arc<Vec<u8>>> {
        self.frames.get_mut(&key).map(|cached| {
            cached.used = true;
            Arc::clone(&cached.frame)
        })
    }

    fn put(&mut self, key: (u32, usize), frame: Arc<Vec<u8>>) {
        self.bytes += frame.len();
        let used = false;
        if let Some(old) = self.frames.insert(key, Cached { frame, used }) {
            self.bytes -= old.frame.len();
            return;
        }
        self.order.push_back(key);
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            match self.frames.get_mut(&oldest) {
                Some(cached) if cached.used => {
                    cached.used = false;
                    self.order.push_back(oldest);
                }
                Some(cached) => {
                    self.bytes -= cached.frame.len();
                    self.frames.remove(&oldest);
                }
                None => {}
            }
        }
    }
}

/// Where blocks are, by name: open addressing, one word for each block. A word has the pack's place in the list (24 bits), the block's
/// rank (24 bits) and 16 bits of the name; zero is empty.
struct Table {
    words: Vec<u64>,
    ids: Vec<u32>,
}

impl Table {
    fn build(packs: &BTreeMap<u32, Pack>) -> Table {
        let blocks: usize = packs.values().map(|pack| pack.index.names.len()).sum();
        let mut table = Table {
            words: vec![0; (blocks * 2).next_power_of_two().max(16)],
            ids: packs.keys().copied().collect(),
        };
        for (place, pack) in packs.values().enumerate().take((1 << 24) - 1) {
            for (rank, name) in pack.index.names.iter().enumerate() {
                let word = (place as u64 + 1) << 40 | (rank as u64) << 16 | u64::from(tag(name));
                table.insert(home(name), word);
            }
        }
        table
    }

    fn insert(&mut self, home: u64, word: u64) {
        let mask = self.words.len() - 1;
        let mut at = home as usize & mask;
        while self.words[at] != 0 {
            at = (at + 1) & mask;
        }
        self.words[at] = word;
    }

    fn find(&self, packs: &BTreeMap<u32, Pack>, name: &Name) -> Option<BlockRef> {
        let mask = self.words.len() - 1;
        let mut at = home(name) as usize & mask;
        while self.words[at] != 0 {
            let word = self.words[at];
            if word as u16 == tag(name) {
                let id = self.ids[(word >> 40) as usize - 1];
                let rank = (word >> 16 & 0xff_ffff) as u32;
                let index = &packs.get(&id)?.index;
                if index.names.get(rank as usize) == Some(name) {
                    return Some(BlockRef::Stored {
                        pack: id,
                        slot: index.slot(rank),
                    });
                }
            }
            at = (at + 1) & mask;
        }
        None
    }
}

fn home(name: &Name) -> u64 {
    Words(name).le64(0)
}

fn tag(name: &Name) -> u16 {
    Words(name).le16(NAME_LEN - 2)
}

#[cfg(test)]
mod tests {
    use diffcache_core::task::Task;

    use super::*;
    use crate::check::{compact, repack, verify_pack};
    use crate::map::{MapFile, NodeRef, Run};
    use crate::pack::{PackOptions, PackSet};
    use crate::tree::{update, Live};

    const OLD: [u8; 32] = [1; 32];
    const NEW: [u8; 32] = [2; 32];
    const SIZE: usize = 4096;

    fn blocks() -> Vec<Vec<u8>> {
        (1..6).map(|each| vec![each; SIZE]).collect()
    }

    /// A store with one pack, which was written with the old key.
    fn store(dir: &std::path::Path, key: &[u8; 32]) -> (Store, Written) {
        let mut store = Store::new(SIZE as u32, Some(&OLD)).unwrap();
        let options = PackOptions {
            dir: dir.to_path_buf(),
            block_size: SIZE as u32,
            level: 3,
        };
        let mut packs = PackSet::new(options, &store.cipher, 1);
        for block in blocks() {
            let name = store.cipher.name(&block);
            packs.push(name, &block, &Task::default()).unwrap();
        }
        let written = packs.finish(&Task::default()).unwrap().remove(0);
        if *key != OLD {
            store = Store::new(SIZE as u32, Some(key)).unwrap();
            store.set_keys(2, &[(1, OLD)]);
        }
        add(&mut store, &written, 1);
        (store, written)
    }

    fn add(store: &mut Store, written: &Written, key: u32) {
        let index = std::fs::read(&written.index).unwrap();
        let place = Place::File(written.data.clone());
        store.add_pack(1, 1, &index, place, key).unwrap();
    }

    /// What a version needs that has all five blocks.
    fn live() -> Live {
        let (maps, mut map) = (Maps::default(), MapFile::new(1, 0));
        let run = Run {
            start: 0,
            len: 5,
            at: BlockRef::Stored { pack: 1, slot: 0 },
        };
        let root = update(&maps, NodeRef::Zero, &[run], &mut map).unwrap();
        maps.insert(Arc::new(map));
        let mut live = Live::default();
        live.add(&maps, root).unwrap();
        live
    }

    #[test]
    fn blocks_of_a_former_key_are_found_and_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = store(dir.path(), &NEW);
        for (slot, block) in (0..).zip(blocks()) {
            let name = store.cipher.name(&block);
            let at = BlockRef::Stored { pack: 1, slot };
            assert_eq!(store.find(&name), None);
            assert_eq!(store.find_block(&name, &block), Some(at));
            assert!(store.holds(1, slot, &name, &block).unwrap());
            assert!(!store.holds(1, (slot + 1) % 5, &name, &block).unwrap());
            assert_eq!(store.present_name(1, slot).unwrap(), name);
        }
        assert_eq!(store.find_block(&[0; NAME_LEN], &[9; SIZE]), None);
    }

    #[test]
    fn a_pack_written_again_has_the_present_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = store(dir.path(), &NEW);
        for again in [compact, repack] {
            let next = tempfile::tempdir().unwrap();
            let task = Task::default();
            let written = again(&store, 1, &live(), next.path(), 3, &task).unwrap();
            add(&mut store, &written, 2);
            let length = written.data_len;
            assert!(verify_pack(&store, 1, length, &task)
                .unwrap()
                .reasons
                .is_empty());
            for (slot, block) in (0..).zip(blocks()) {
                let mut out = vec![0; SIZE];
                store.read_block(1, slot, &mut out).unwrap();
                assert_eq!(out, block);
                assert_eq!(*store.name(1, slot).unwrap(), store.cipher.name(&block));
            }
            // With the old key no frame opens, and no name is that of a known block.
            let mut old = Store::new(SIZE as u32, Some(&OLD)).unwrap();
            add(&mut old, &written, 1);
            assert_eq!(verify_pack(&old, 1, length, &task).unwrap().slots.len(), 5);
            for block in blocks() {
                assert_eq!(old.find(&old.cipher.name(&block)), None);
            }
            let (again, _) = self::store(dir.path(), &NEW);
            store = again;
        }
    }

    #[test]
    fn a_retired_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (_, written) = store(dir.path(), &OLD);
        let mut store = Store::new(SIZE as u32, Some(&NEW)).unwrap();
        store.set_keys(3, &[]);
        let index = std::fs::read(&written.index).unwrap();
        let place = Place::File(written.data);
        let error = store.add_pack(1, 1, &index, place, 1).unwrap_err();
        assert!(error.to_string().contains("retired"), "{error}");
    }
}
