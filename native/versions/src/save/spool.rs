//! Blocks that are new to a store and not in a pack yet.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Result, VersionsError};
use crate::save::recent::Recent;
use crate::store::crypt::{Cipher, Name, SEAL_LEN};
use crate::store::nodes::BlockRef;
use crate::store::pack_index::CHECK_LEN;
use crate::store::pack_set::Packed;
use crate::store::Store;

/// The pack number of blocks that are not in a pack yet; their slot is their position in the spool.
pub const SPOOLED: u32 = u32::MAX;
/// What messages call the spool.
const SPOOL: &str = "the spool of new blocks";

/// New blocks in a file, sealed if frames are, before it is known which others they are stored with.
pub struct Spool {
    file: File,
    cipher: Cipher,
    names: Vec<Name>,
    /// Of these, the ones that are in the journal.
    recorded: usize,
    /// The slots of the last ones.
    known: Recent<u32>,
    /// Bytes that a block takes in the file.
    step: usize,
}

impl Spool {
    /// Creates an empty spool in a directory, for blocks of a store. Its file has no name, since no other save resumes it.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(dir: &Path, store: &Store) -> Result<Self> {
        let path = dir.join(format!("spool-{}", std::process::id()));
        let spool = Self::open(&path, store)?;
        std::fs::remove_file(&path).map_err(VersionsError::io(path.display().to_string()))?;
        Ok(spool)
    }

    /// Opens the spool in a file, which is created if it does not exist. Its content is used only after `resume`.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(path: &Path, store: &Store) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(VersionsError::io(path.display().to_string()))?;
        let sealing = if store.cipher.seals() { SEAL_LEN } else { 0 };
        Ok(Self {
            file,
            cipher: store.cipher.clone(),
            names: Vec::new(),
            recorded: 0,
            known: Recent::default(),
            step: store.block_size as usize + sealing,
        })
    }

    /// Uses the blocks that an interrupted save recorded. Returns `false` if the file does not have them, and is then empty.
    ///
    /// # Errors
    /// `Io`.
    pub fn resume(&mut self, written: &[Packed]) -> Result<bool> {
        let names = written.iter().flat_map(|part| &part.names);
        self.names = names.copied().collect();
        self.recorded = self.names.len();
        let whole = (0..self.recorded as u32).all(|slot| self.has(slot));
        match whole {
            true => {
                self.known.clear();
                for (name, slot) in self.names.iter().zip(0..) {
                    self.known.insert(*name, slot);
                }
            }
            false => self.clear()?,
        }
        Ok(whole)
    }

    /// Whether the file has the block of a slot.
    fn has(&self, slot: u32) -> bool {
        let sealing = if self.cipher.seals() { SEAL_LEN } else { 0 };
        let mut block = vec![0; self.step - sealing];
        let name = self.read(slot, &mut block);
        name.is_ok_and(|name| self.cipher.name(&block) == name)
    }

    /// Forgets all blocks.
    ///
    /// # Errors
    /// `Io`.
    pub fn clear(&mut self) -> Result<()> {
        self.names.clear();
        self.known.clear();
        self.recorded = 0;
        self.file.set_len(0).map_err(VersionsError::io(SPOOL))
    }

    /// Returns the blocks that were added since the last call, for a journal: only the names count.
    pub fn fresh(&mut self) -> Packed {
        let names = self.names.split_at(self.recorded).1.to_vec();
        self.recorded = self.names.len();
        Packed {
            pack: SPOOLED,
            len: 0,
            raw: true,
            check: [0; CHECK_LEN],
            names,
        }
    }

    /// Adds a block.
    ///
    /// # Errors
    /// `Io`.
    pub fn push(&mut self, name: Name, block: &[u8]) -> Result<BlockRef> {
        let slot = self.names.len() as u32;
        let offset = u64::from(slot) * self.step as u64;
        self.file
            .write_all_at(&self.cipher.seal(block.to_vec())?, offset)
            .map_err(VersionsError::io(SPOOL))?;
        self.names.push(name);
        self.known.insert(name, slot);
        Ok(BlockRef::Stored {
            pack: SPOOLED,
            slot,
        })
    }

    /// Reads a block; returns its name.
    ///
    /// # Errors
    /// `Io`, `Missing`, `Damaged`.
    pub fn read(&self, slot: u32, out: &mut [u8]) -> Result<Name> {
        let name = self.names.get(slot as usize);
        let name = name.ok_or_else(|| VersionsError::Missing(format!("spooled block {slot}")))?;
        let mut kept = vec![0; self.step];
        self.file
            .read_exact_at(&mut kept, u64::from(slot) * self.step as u64)
            .map_err(VersionsError::io(SPOOL))?;
        out.copy_from_slice(&self.cipher.open(kept, SPOOL)?);
        Ok(*name)
    }

    /// The place of the block with a name, if there is one.
    pub fn find(&self, name: &Name) -> Option<BlockRef> {
        self.known.get(name).map(|slot| BlockRef::Stored {
            pack: SPOOLED,
            slot: *slot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spooled_blocks_are_not_in_the_clear_where_frames_are_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(512, Some(&[3; 32])).unwrap();
        let mut spool = Spool::create(dir.path(), &store).unwrap();
        let blocks = [[7u8; 512], [8; 512]];
        for block in &blocks {
            spool.push(store.cipher.name(block), block).unwrap();
        }
        let mut kept = vec![0; spool.file.metadata().unwrap().len() as usize];
        spool.file.read_exact_at(&mut kept, 0).unwrap();
        assert!(!kept.windows(8).any(|part| part == [7; 8] || part == [8; 8]));
        let mut found = [0; 512];
        assert_eq!(
            spool.read(1, &mut found).unwrap(),
            store.cipher.name(&blocks[1])
        );
        assert_eq!(found, blocks[1]);
    }

    #[test]
    fn a_spool_resumes_with_what_its_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        for key in [None, Some(&[3; 32])] {
            let store = Store::new(512, key).unwrap();
            let mut spool = Spool::open(&path, &store).unwrap();
            spool.clear().unwrap();
            let mut written = Vec::new();
            for byte in 1..5 {
                let block = [byte; 512];
                spool.push(store.cipher.name(&block), &block).unwrap();
                written.push(spool.fresh());
            }
            let mut again = Spool::open(&path, &store).unwrap();
            assert!(again.resume(&written[..3]).unwrap());
            assert_eq!(again.names, spool.names[..3]);
            assert!(again.fresh().names.is_empty());
            let mut found = [0; 512];
            again.read(2, &mut found).unwrap();
            assert_eq!(found, [3; 512]);
            // A byte of the second block.
            let at = again.step as u64 + 100;
            again.file.write_all_at(&[9], at).unwrap();
            let mut torn = Spool::open(&path, &store).unwrap();
            assert!(!torn.resume(&written[..3]).unwrap());
            assert!(torn.names.is_empty() && torn.find(&written[0].names[0]).is_none());
        }
    }
}
