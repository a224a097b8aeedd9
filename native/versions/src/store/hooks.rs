//! Files of hooks: where blocks are whose names are samples.
//!
//! One name in [`HOOK_IN`] is a *hook*. A file has the hooks of some packs, ascending, in sections of which a search needs few. Each part is
//! checked when it is read. A hook has the slot of its block, which compaction keeps; one whose block or pack was dropped leads nowhere, or
//! beside it. The format is described in the reference, "Format of the version store".

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;

use diffcache_base::words::Words;
use diffcache_core::source::{open_file, FileSource, ReadAt};

use super::check::known;
use super::codec::{Cursor, VERSION};
use super::crypt::{Name, NAME_LEN};
use super::files::{Files, Place};
use super::pack_index::{check_of, Check, PackIndex, CHECK_LEN};
use super::Store;
use crate::error::{Result, VersionsError};

/// First bytes of a file of hooks.
pub const HOOKS_MAGIC: &[u8; 8] = b"DCVHOOK1";

/// Of this many names one is a hook.
const HOOK_IN: u8 = 32;

/// Hooks that are read and checked together.
const SECTION: usize = 1024;

/// Bytes before the sections' first hooks and checksums.
const HEADER: usize = 16;

const FENCE_LEN: usize = 8 + CHECK_LEN;

const HOOK_LEN: usize = 16;

const SUM_LEN: usize = 32;

/// Bytes of files of which no part is read alone from a remote store: the hooks of 32 GiB of blocks of 4 KiB.
const WHOLE: u64 = 4 << 20;

/// Parts that are read alone of a longer file, before it is fetched whole.
const PARTS: u32 = 64;

/// Where a block is whose name is a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// The first bytes of the name.
    pub name: u64,
    /// The pack that has the block.
    pub pack: u32,
    /// Its slot there.
    pub slot: u32,
}

/// The names of a store with a key are keyed hashes, those of others hashes: any of their bits are as good.
pub fn is_hook(name: &Name) -> bool {
    name[NAME_LEN - 1] % HOOK_IN == 0
}

/// The first bytes of a name.
pub(super) fn head(name: &Name) -> u64 {
    Words(name).le64(0)
}

/// What a file says of one section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    /// The name of its first hook.
    first: u64,
    check: [u8; CHECK_LEN],
}

/// What a file of hooks has before the hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fences {
    hooks: usize,
    fences: Vec<Fence>,
}

impl Fences {
    /// Bytes before the hooks in a file of a length, and its hooks; `None` if no file is so long.
    pub fn layout(len: u64) -> Option<(usize, usize)> {
        let rest = usize::try_from(len).ok()?.checked_sub(HEADER + SUM_LEN)?;
        let sections = rest.div_ceil(SECTION * HOOK_LEN + FENCE_LEN);
        let hooks = rest.checked_sub(sections * FENCE_LEN)?;
        let fits = hooks % HOOK_LEN == 0 && (hooks / HOOK_LEN).div_ceil(SECTION) == sections;
        fits.then_some((HEADER + sections * FENCE_LEN, hooks / HOOK_LEN))
    }

    /// Reads what a file has before its hooks, whose checksum was compared.
    ///
    /// # Errors
    /// `Damaged` if what it says is impossible.
    pub fn parse(head: &[u8], object: &str) -> Result<Self> {
        let mut cursor = Cursor::new(head, object);
        cursor.head(HOOKS_MAGIC, "file of hooks")?;
        let hooks = cursor.u32()? as usize;
        let fences = (0..hooks.div_ceil(SECTION)).map(|_| {
            Ok(Fence {
                first: cursor.u64()?,
                check: cursor.array()?,
            })
        });
        let fences = fences.collect::<Result<Vec<_>>>()?;
        let ascending = fences.windows(2).all(|pair| pair[0].first < pair[1].first);
        match cursor.is_empty() && ascending {
            true => Ok(Self { hooks, fences }),
            false => Err(cursor.error("what it says is impossible")),
        }
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.fences.len()
    }

    /// The section that has a name if any has.
    fn section_of(&self, name: u64) -> Option<usize> {
        let after = self.fences.partition_point(|fence| fence.first <= name);
        after.checked_sub(1)
    }

    /// Offset and length of a section.
    fn part(&self, section: usize) -> (u64, usize) {
        let first = section * SECTION;
        let start = HEADER + self.fences.len() * FENCE_LEN + first * HOOK_LEN;
        let hooks = self.hooks.saturating_sub(first).min(SECTION);
        (start as u64, hooks * HOOK_LEN)
    }

    fn decode(&self, section: usize, bytes: &[u8], object: &str) -> Result<Vec<Hook>> {
        let expected = self.fences.get(section).map(|fence| fence.check);
        if expected != Some(section_check(bytes)) {
            return Err(VersionsError::damaged(
                object,
                "its bytes do not match its checksum",
            ));
        }
        let mut cursor = Cursor::new(bytes, object);
        let count = bytes.len() / HOOK_LEN;
        let hooks = (0..count).map(|_| {
            Ok(Hook {
                name: cursor.u64()?,
                pack: cursor.u32()?,
                slot: cursor.u32()?,
            })
        });
        hooks.collect()
    }
}

fn section_check(bytes: &[u8]) -> [u8; CHECK_LEN] {
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK_LEN]);
    check
}

/// Writes hooks as a file; they are ascending, and no two have one name.
///
/// # Errors
/// What `out` returns.
pub fn encode(hooks: &[Hook], out: &mut dyn Write) -> std::io::Result<()> {
    let mut head = HOOKS_MAGIC.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&(hooks.len() as u32).to_le_bytes());
    for section in hooks.chunks(SECTION).map(section_bytes) {
        head.extend_from_slice(&section[..8]);
        head.extend_from_slice(&section_check(&section));
    }
    out.write_all(&head)?;
    for section in hooks.chunks(SECTION).map(section_bytes) {
        out.write_all(&section)?;
    }
    out.write_all(blake3::hash(&head).as_bytes())
}

fn section_bytes(hooks: &[Hook]) -> Vec<u8> {
    let mut out = Vec::with_capacity(hooks.len() * HOOK_LEN);
    for hook in hooks {
        out.extend_from_slice(&hook.name.to_le_bytes());
        out.extend_from_slice(&hook.pack.to_le_bytes());
        out.extend_from_slice(&hook.slot.to_le_bytes());
    }
    out
}

/// A file of hooks, which is read when it is needed.
pub(super) struct HookFile {
    place: Place,
    len: u64,
    check: Check,
    fences: OnceLock<Fences>,
    file: OnceLock<FileSource>,
    parts: AtomicU32,
    /// It was found to be damaged or missing, and is not searched again.
    is_damaged: AtomicBool,
}

impl HookFile {
    pub(super) fn new(place: Place, len: u64, check: Check) -> Self {
        Self {
            place,
            len,
            check,
            fences: OnceLock::new(),
            file: OnceLock::new(),
            parts: AtomicU32::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }

    fn read(&self, files: &Files, offset: u64, len: usize) -> Result<Vec<u8>> {
        let parts = self.parts.fetch_add(1, Ordering::Relaxed);
        if let Place::Blob(name) = &self.place {
            if self.len > WHOLE && parts < PARTS {
                let bytes = files.remote(name)?.read(name, offset, len)?;
                return match bytes.len() == len {
                    true => Ok(bytes),
                    false => Err(VersionsError::damaged(name, "it ends early")),
                };
            }
        }
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = files.open(&self.place)?;
                self.file.get_or_init(|| file)
            }
        };
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn fences(&self, files: &Files) -> Result<&Fences> {
        if let Some(fences) = self.fences.get() {
            return Ok(fences);
        }
        let object = self.place.name();
        let damaged = |reason: &str| VersionsError::damaged(&object, reason);
        let layout = Fences::layout(self.len);
        let (head, hooks) = layout.ok_or_else(|| damaged("no file of hooks is so long"))?;
        let head = self.read(files, 0, head)?;
        if *blake3::hash(&head).as_bytes() != self.check {
            return Err(damaged("it is not the one that the catalogue names"));
        }
        let fences = Fences::parse(&head, &object)?;
        match fences.hooks == hooks {
            true => Ok(self.fences.get_or_init(|| fences)),
            false => Err(damaged("it has another length than it says")),
        }
    }

    fn section(&self, files: &Files, section: usize) -> Result<Vec<Hook>> {
        let fences = self.fences(files)?;
        let (offset, len) = fences.part(section);
        let bytes = self.read(files, offset, len)?;
        fences.decode(section, &bytes, &self.place.name())
    }

    fn all(&self, files: &Files) -> Result<Vec<Hook>> {
        let mut hooks = Vec::new();
        for section in 0..self.fences(files)?.sections() {
            hooks.extend(self.section(files, section)?);
        }
        Ok(hooks)
    }
}

impl Store {
    /// Adds a file of hooks: its number, its place, its bytes, and the checksum that it ends with. It is read when it is needed.
    pub fn add_hooks(&mut self, number: u32, place: Place, len: u64, check: Check) {
        let file = HookFile::new(place, len, check);
        self.hooks.insert(number, file);
    }

    /// Where the block with a name was written last that is a hook; files that are damaged are left out.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) fn hook(&self, name: u64) -> Result<Option<Hook>> {
        let files = self.hooks.iter().rev();
        for (number, file) in files.filter(|(_, file)| !file.is_damaged.load(Ordering::Relaxed)) {
            let found = known(self.hook_in(*number, name))?;
            file.is_damaged.store(found.is_none(), Ordering::Relaxed);
            if let Some(hook) = found.flatten() {
                if known(self.find_pack(hook.pack))?.flatten().is_some() {
                    return Ok(Some(hook));
                }
            }
        }
        Ok(None)
    }

    fn hook_in(&self, number: u32, name: u64) -> Result<Option<Hook>> {
        let file = self.hook_file(number)?;
        let fences = self.files.noted(&file.place, file.fences(&self.files))?;
        let Some(section) = fences.section_of(name) else {
            return Ok(None);
        };
        let hooks = self.read.hooks.get_or((number, section), || {
            let hooks = file.section(&self.files, section);
            let hooks = self.files.noted(&file.place, hooks)?;
            let memory = hooks.len() * HOOK_LEN;
            Ok::<_, VersionsError>((hooks, memory))
        })?;
        let at = hooks.binary_search_by_key(&name, |hook| hook.name);
        Ok(at.ok().map(|at| hooks[at]))
    }

    fn hook_file(&self, number: u32) -> Result<&HookFile> {
        let file = self.hooks.get(&number);
        file.ok_or_else(|| VersionsError::Missing(format!("file {number} of hooks")))
    }

    /// Reads all of a file of hooks.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Io`, `Unavailable`.
    pub fn check_hooks(&self, number: u32) -> Result<()> {
        let file = self.hook_file(number)?;
        let read = self.files.noted(&file.place, file.all(&self.files));
        read.map(|_| ())
    }

    /// Adds the hooks of a pack to others.
    ///
    /// # Errors
    /// As `each_section`.
    pub(super) fn hooks_of(&self, pack: u32, hooks: &mut Vec<Hook>) -> Result<()> {
        let index = self.index(pack)?;
        self.each_section(pack, &mut |section, names| {
            take_hooks(&index, section, &names, hooks);
        })
    }

    /// The packs of hooks that the store has.
    fn current(&self, hooks: &[Hook]) -> Result<BTreeSet<u32>> {
        let mut current: BTreeSet<u32> = hooks.iter().map(|hook| hook.pack).collect();
        for pack in current.clone() {
            if self.find_pack(pack)?.is_none() {
                current.remove(&pack);
            }
        }
        Ok(current)
    }

    /// Writes a file of the hooks of several: of some files, of some packs of the store, and of the packs of new indexes, whose hooks
    /// elsewhere are out of date. Packs whose indexes are damaged are left out. Returns how many hooks it has; without any no file is written.
    ///
    /// # Errors
    /// As `check_hooks`; `Io`.
    pub fn write_hooks(&self, merge: &Merge, out: &Path) -> Result<u32> {
        let mut fresh = Vec::new();
        let mut renewed = Vec::new();
        for path in &merge.indexes {
            renewed.push(read_new(path, &mut fresh)?);
        }
        let mut hooks = Vec::new();
        for number in &merge.files {
            let file = self.hook_file(*number)?;
            hooks.extend(self.files.noted(&file.place, file.all(&self.files))?);
        }
        // Those of packs that are gone go: of a large store with the next prune, which knows all packs.
        let current = match self.is_large() {
            true => None,
            false => Some(self.current(&hooks)?),
        };
        hooks.retain(|hook| {
            let is_current = current.as_ref().is_none_or(|all| all.contains(&hook.pack));
            is_current && !renewed.contains(&hook.pack)
        });
        hooks.append(&mut fresh);
        for pack in &merge.packs {
            known(self.hooks_of(*pack, &mut hooks))?;
        }
        hooks.sort_unstable();
        // Of copies the one that was written last counts.
        hooks.reverse();
        hooks.dedup_by_key(|hook| hook.name);
        hooks.reverse();
        if !hooks.is_empty() {
            let written = File::create(out).and_then(|file| {
                let mut file = BufWriter::new(file);
                encode(&hooks, &mut file)?;
                file.flush()
            });
            written.map_err(VersionsError::io(out.display().to_string()))?;
        }
        Ok(hooks.len() as u32)
    }
}

/// Whose hooks a new file gets.
pub struct Merge {
    /// Those of these files.
    pub files: Vec<u32>,
    /// Those of these packs of the store.
    pub packs: Vec<u32>,
    /// Those of the packs of these indexes.
    pub indexes: Vec<PathBuf>,
}

/// Adds the hooks of an index that was just written; returns its pack.
fn read_new(path: &Path, hooks: &mut Vec<Hook>) -> Result<u32> {
    let object = path.display().to_string();
    let file: File = open_file(path).map_err(VersionsError::io(&object))?;
    let file = FileSource::from_file(file, object.clone())?;
    let mut sum = vec![0; SUM_LEN];
    let end = file.len().saturating_sub(SUM_LEN as u64);
    file.read_exact_at(&mut sum, end)?;
    let index = PackIndex::read(&file, &check_of(&sum), &object)?;
    for section in 0..index.sections.len() as u32 {
        take_hooks(&index, section, &index.read_section(&file, section)?, hooks);
    }
    Ok(index.id)
}

/// Adds the hooks among the names of a section.
pub(super) fn take_hooks(index: &PackIndex, section: u32, names: &[Name], hooks: &mut Vec<Hook>) {
    let named = names.iter().zip(index.ranks(section));
    let named = named.filter(|(name, _)| is_hook(name));
    hooks.extend(named.map(|(name, rank)| Hook {
        name: head(name),
        pack: index.id,
        slot: index.slot(rank),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(count: u32) -> Vec<Hook> {
        (0..count)
            .map(|at| Hook {
                name: u64::from(at) << 40 | 7,
                pack: at % 5,
                slot: at,
            })
            .collect()
    }

    fn encoded(hooks: &[Hook]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(hooks, &mut out).unwrap();
        out
    }

    fn open(dir: &Path, bytes: &[u8], check: Check) -> HookFile {
        let path = dir.join("hooks");
        std::fs::write(&path, bytes).unwrap();
        HookFile::new(Place::File(path), bytes.len() as u64, check)
    }

    #[test]
    fn hooks_are_read_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, 1023, 1024, 1025, 5000] {
            let hooks = hooks(count);
            let bytes = encoded(&hooks);
            let mut store = Store::new(512, None).unwrap();
            let path = dir.path().join("hooks");
            std::fs::write(&path, &bytes).unwrap();
            let len = bytes.len() as u64;
            store.add_hooks(1, Place::File(path), len, check_of(&bytes));
            for hook in &hooks {
                assert_eq!(store.hook_in(1, hook.name).unwrap(), Some(*hook));
                assert_eq!(store.hook_in(1, hook.name + 1).unwrap(), None);
            }
            assert_eq!(store.hook_in(1, 0).unwrap(), None);
            store.check_hooks(1).unwrap();
        }
    }

    #[test]
    fn flipped_bits_and_other_lengths_of_hooks_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = encoded(&hooks(1500));
        let check = check_of(&bytes);
        let files = Files::default();
        assert!(open(dir.path(), &bytes, check).all(&files).is_ok());
        let body = bytes.len() - SUM_LEN;
        for bit in (0..body * 8).step_by(61) {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let file = open(dir.path(), &changed, check);
            assert!(file.all(&files).is_err(), "bit {bit}");
        }
        for len in [0, 47, 48, 64, bytes.len() - 1] {
            let file = open(dir.path(), &bytes[..len], check);
            assert!(file.all(&files).is_err(), "{len} bytes");
        }
    }
}
