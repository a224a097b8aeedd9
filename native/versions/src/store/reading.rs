//! Reading what a store's packs and base images are made of, as far as it is needed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use diffcache_core::source::open_file;

use crate::error::{Result, VersionsError};
use crate::store::base::BaseIndex;
use crate::store::crypt::{Cipher, Name, NAME_LEN};
use crate::store::files::Place;
use crate::store::frames::decode_frame;
use crate::store::pack_index::{expect, Check, PackIndex, SECTION};
use crate::store::{Pack, Store};

/// The names of blocks that are stored one after the other.
pub struct StoredNames<'a> {
    names: Vec<Name>,
    former: Option<&'a Cipher>,
}

impl StoredNames<'_> {
    /// Whether the stored block `at` is this one, which has the name `name`.
    pub fn holds(&self, at: u64, name: &Name, block: &[u8]) -> bool {
        let stored = self.names.get(at as usize);
        stored.is_some_and(|stored| match self.former {
            None => stored == name,
            Some(cipher) => *stored == cipher.name(block),
        })
    }
}

impl Store {
    /// The index of a base image, if there is one that is known and intact.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn base(&self, id: Option<&str>) -> Result<Option<&BaseIndex>> {
        let Some((id, base)) = id.and_then(|id| self.bases.get_key_value(id)) else {
            return Ok(None);
        };
        if let Some(index) = base.index.get() {
            return Ok(Some(index));
        }
        match self.read_base(id, &base.place, base.check.as_ref()) {
            Ok(index) => Ok(Some(base.index.get_or_init(|| index))),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the index of a base image.
    ///
    /// # Errors
    /// `Damaged`, `Missing`, `Io`, `Unavailable`.
    pub fn read_base(&self, id: &str, place: &Place, check: Option<&Check>) -> Result<BaseIndex> {
        let read = || {
            let object = format!("base {id}");
            let bytes = self.files.read(place)?;
            if let Some(check) = check {
                expect(&bytes, check, &object)?;
            }
            BaseIndex::decode(&bytes, self.block_size, &object)
        };
        self.files.noted(place, read())
    }

    /// The index of a pack.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Io`, `Unavailable`; `Invalid` if it belongs to another store.
    pub fn index(&self, id: u32) -> Result<Arc<PackIndex>> {
        let pack = self.pack(id)?;
        self.read.indexes.get_or(id, || {
            let read = self.read_index(&pack);
            let index = self.files.noted(&pack.index, read)?;
            let memory = index.memory();
            Ok((index, memory))
        })
    }

    fn read_index(&self, pack: &Pack) -> Result<PackIndex> {
        let object = format!("the index of {}", pack.object());
        let index = PackIndex::read(&self.files.open(&pack.index)?, &pack.check, &object)?;
        if index.id != pack.id {
            return Err(VersionsError::damaged(object, "it is another pack's"));
        }
        if index.block_size != self.block_size || index.sealed != self.cipher.seals() {
            return Err(VersionsError::Invalid(format!(
                "pack {} has blocks of {} bytes, {}: open the store accordingly",
                pack.id,
                index.block_size,
                if index.sealed {
                    "sealed with a key"
                } else {
                    "without a key"
                },
            )));
        }
        Ok(index)
    }

    /// The names of a section of a pack's blocks, by rank.
    ///
    /// # Errors
    /// As `index`.
    pub fn section(&self, id: u32, section: u32) -> Result<Arc<Vec<Name>>> {
        self.read.names.get_or((id, section), || {
            let (pack, index) = (self.pack(id)?, self.index(id)?);
            let file = self.files.open(&pack.index);
            let read = file.and_then(|file| index.read_section(&file, section));
            let names = self.files.noted(&pack.index, read)?;
            let memory = names.len() * NAME_LEN;
            Ok((names, memory))
        })
    }

    /// Reads all of a pack's index, and calls `each` with the names of every section. None of it is kept in memory.
    ///
    /// # Errors
    /// As `index`.
    pub fn each_section(&self, id: u32, each: &mut dyn FnMut(u32, Vec<Name>)) -> Result<()> {
        let pack = self.pack(id)?;
        let index = self.files.noted(&pack.index, self.read_index(&pack))?;
        let read = self.files.open(&pack.index).and_then(|file| {
            for section in 0..index.sections.len() as u32 {
                each(section, index.read_section(&file, section)?);
            }
            Ok(())
        });
        self.files.noted(&pack.index, read)
    }

    /// Reads all of a pack's index.
    ///
    /// # Errors
    /// As `index`.
    pub fn check_index(&self, id: u32) -> Result<()> {
        self.each_section(id, &mut |_, _| {})
    }

    /// The name of a block, by its rank in the pack.
    ///
    /// # Errors
    /// As `index`; `Missing` if there is no such rank.
    pub fn name_at(&self, pack: u32, rank: u32) -> Result<Name> {
        let names = self.section(pack, rank / SECTION)?;
        let name = names.get((rank % SECTION) as usize).copied();
        name.ok_or_else(|| VersionsError::Missing(format!("a block of pack {pack}")))
    }

    /// The name of a stored block.
    ///
    /// # Errors
    /// As `index`; `Missing` if it was dropped or never was.
    pub fn name(&self, pack: u32, slot: u32) -> Result<Name> {
        let rank = self.index(pack)?.rank(slot);
        let rank = rank.ok_or_else(|| no_block(pack, slot))?;
        self.name_at(pack, rank)
    }

    /// The names of blocks in successive slots, and the cipher that they are by if that is a former key's.
    ///
    /// # Errors
    /// As `index`; `Missing` if one was dropped or never was.
    pub fn names(&self, pack: u32, slot: u32, count: u64) -> Result<StoredNames<'_>> {
        let (entry, index) = (self.pack(pack)?, self.index(pack)?);
        let mut names = Vec::new();
        let mut read: Option<(u32, Arc<Vec<Name>>)> = None;
        for slot in (0..count).map(|i| slot.wrapping_add(i as u32)) {
            let rank = index.rank(slot).ok_or_else(|| no_block(pack, slot))?;
            let number = rank / SECTION;
            let section = match read.take() {
                Some((of, section)) if of == number => section,
                _ => self.section(pack, number)?,
            };
            let name = section.get((rank % SECTION) as usize);
            names.push(*name.ok_or_else(|| no_block(pack, slot))?);
            read = Some((number, section));
        }
        Ok(StoredNames {
            names,
            former: match entry.key == self.key {
                true => None,
                false => Some(self.cipher_of(&entry)?),
            },
        })
    }

    /// The name that a stored block has with the present key. The blocks of packs with a former key have to be read.
    ///
    /// # Errors
    /// As `frame`; `Missing` if it was dropped or never was.
    pub fn present_name(&self, pack: u32, slot: u32) -> Result<Name> {
        if self.pack(pack)?.key == self.key {
            return self.name(pack, slot);
        }
        let mut block = vec![0; self.block_size as usize];
        self.read_block(pack, slot, &mut block)?;
        Ok(self.cipher.name(&block))
    }

    /// Bytes of a pack as they are kept.
    ///
    /// # Errors
    /// `Io`, `Missing`, `Unavailable`, `Damaged` if the pack is shorter.
    pub fn read(&self, pack: &Pack, offset: u64, len: usize) -> Result<Vec<u8>> {
        match &pack.place {
            Place::Blob(name) => {
                let bytes = self.files.remote(name)?.read(name, offset, len)?;
                match bytes.len() == len {
                    true => Ok(bytes),
                    false => Err(VersionsError::damaged(pack.object(), "it ends early")),
                }
            }
            Place::File(path) => {
                let mut bytes = vec![0; len];
                let kept = self.pack(pack.id)?;
                let kept = &kept.file;
                let read = match kept.get() {
                    Some(file) => file.read_exact_at(&mut bytes, offset),
                    None => open_file(path).and_then(|file| {
                        kept.get_or_init(|| file).read_exact_at(&mut bytes, offset)
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
        self.read.frames.get_or((pack, frame), || {
            let (entry, index) = (self.pack(pack)?, self.index(pack)?);
            let what = index.frames.get(frame);
            let what =
                what.ok_or_else(|| VersionsError::Missing(format!("a frame of pack {pack}")))?;
            let kept = self.read(&entry, what.offset, what.len as usize)?;
            let blocks = decode_frame(&index, what, kept, self.cipher_of(&entry)?)?;
            let bytes = blocks.len();
            Ok((blocks, bytes))
        })
    }

    /// Returns the frame that contains a block, and its position in it.
    ///
    /// # Errors
    /// `Missing`.
    pub fn locate(&self, pack: u32, slot: u32) -> Result<(usize, u32)> {
        let index = self.index(pack)?;
        let frame = index.rank(slot).and_then(|rank| index.frame_of(rank));
        frame.ok_or_else(|| no_block(pack, slot))
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

fn no_block(pack: u32, slot: u32) -> VersionsError {
    VersionsError::Missing(format!("block {slot} of pack {pack}"))
}

fn unreadable(pack: &Pack, path: &std::path::Path, error: std::io::Error) -> VersionsError {
    match error.kind() {
        std::io::ErrorKind::NotFound => VersionsError::Missing(pack.object()),
        std::io::ErrorKind::UnexpectedEof => VersionsError::damaged(pack.object(), "it ends early"),
        _ => VersionsError::Io {
            name: path.display().to_string(),
            source: error,
        },
    }
}
