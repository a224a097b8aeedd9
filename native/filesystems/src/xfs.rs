//! Free space of XFS, from the by-block free space trees of its allocation groups ("XFS Algorithms & Data Structures", chapters "Allocation Groups" and
//! "Journaling Log"), and files that are [`Arriving`].

mod arriving;

use diffcache_base::words::Words;

use super::{crc32c, refuse, Collector, Range, Refusal, Volume};
use diffcache_core::source::SourceError;

pub use arriving::Arriving;

/// Features of version 5 that do not change what the trees mean: file types, sparse inodes, a changed identity, large times, large counts of extents,
/// exchanged ranges, parent pointers.
const KNOWN_INCOMPAT: u32 = 0xef;
const NULL_BLOCK: u32 = u32::MAX;
const LOG_MAGIC: u32 = 0xfeed_babe;
/// Flag of the log's operation that says that the filesystem was unmounted.
const UNMOUNTED: u8 = 0x20;
/// Bytes of the log that are read at a time.
const LOG_STEP: u64 = 1 << 20;
/// Longest log: what the format allows is 2 GiB.
const MAX_LOG: u64 = 1 << 31;

/// Returns whether a superblock is there.
///
/// # Errors
/// Those of reading.
pub fn recognises(volume: &Volume<'_>) -> Result<bool, SourceError> {
    if volume.size < 512 {
        return Ok(false);
    }
    let mut magic = [0; 4];
    volume.image.read_exact_at(&mut magic, volume.start)?;
    Ok(&magic == b"XFSB")
}

/// Returns what the trees mark free, in bytes of the image.
pub fn free(volume: &Volume<'_>) -> Result<Vec<Range>, Refusal> {
    let layout = Layout::read(volume)?;
    layout.check_log(volume)?;
    let mut collector = Collector::new(volume);
    for group in 0..layout.groups {
        layout.group_free(volume, group, &mut collector)?;
    }
    Ok(collector.ranges)
}

/// What the superblock says, checked.
struct Layout {
    /// Bytes of a block.
    block: u64,
    blocks: u64,
    /// Blocks of a group; the last one may have fewer.
    group_blocks: u64,
    groups: u64,
    /// Bits of a block's number within its group.
    group_bits: u32,
    sector: u64,
    /// Bytes of an inode, and bits of its number within its block.
    inode_len: u64,
    inode_bits: u32,
    /// First block of the log within the filesystem, and its blocks; 0 if it is on another device.
    log: (u64, u64),
    has_checksums: bool,
}

impl Layout {
    fn read(volume: &Volume<'_>) -> Result<Layout, Refusal> {
        let superblock = volume.read(0, 512)?;
        let words = Words(&superblock);
        let has_checksums = words.be16(100) & 0xf == 5;
        let layout = Layout {
            block: words.be32(4).into(),
            blocks: words.be64(8),
            group_blocks: words.be32(84).into(),
            groups: words.be32(88).into(),
            group_bits: superblock[124].into(),
            sector: words.be16(102).into(),
            inode_len: words.be16(104).into(),
            inode_bits: superblock[123].into(),
            log: (words.be64(48), words.be32(96).into()),
            has_checksums,
        };
        layout.check(volume)?;
        if superblock[126] != 0 {
            return refuse("it is being created or grown");
        }
        if has_checksums {
            if words.be32(216) & !KNOWN_INCOMPAT != 0 {
                return refuse("it has features that are not known here, or needs a repair");
            }
            check_sum(&volume.read(0, layout.sector as usize)?, 224)?;
        }
        Ok(layout)
    }

    fn check(&self, volume: &Volume<'_>) -> Result<(), Refusal> {
        let fits = self
            .blocks
            .checked_mul(self.block)
            .is_some_and(|bytes| bytes <= volume.size);
        let sane = self.block.is_power_of_two()
            && (512..=65536).contains(&self.block)
            && self.sector.is_power_of_two()
            && (512..=32768).contains(&self.sector)
            && fits
            && self.group_blocks > 0
            && self.group_bits <= 31
            && self.group_blocks <= 1 << self.group_bits
            && self.groups == self.blocks.div_ceil(self.group_blocks);
        match sane {
            true => Ok(()),
            false => refuse("the superblock contradicts itself or the partition"),
        }
    }

    /// Fails unless the last record of the log says that the filesystem was unmounted: otherwise the trees may be older than what the log has.
    fn check_log(&self, volume: &Volume<'_>) -> Result<(), Refusal> {
        let (start, blocks) = self.log;
        let bytes = blocks.saturating_mul(self.block);
        if start == 0 || bytes > MAX_LOG {
            return refuse("its log is on another device, or of an impossible size");
        }
        let group = start >> self.group_bits;
        let within = start & ((1 << self.group_bits) - 1);
        let offset = group
            .saturating_mul(self.group_blocks)
            .saturating_add(within)
            .saturating_mul(self.block);
        let mut newest: Option<(u64, u64)> = None;
        let mut at = 0;
        while at < bytes {
            let step = volume.read(offset.saturating_add(at), LOG_STEP.min(bytes - at) as usize)?;
            for (i, sector) in step.chunks(512).enumerate() {
                let words = Words(sector);
                let lsn = words.be64(16);
                if words.be32(0) == LOG_MAGIC && newest.is_none_or(|(best, _)| lsn > best) {
                    newest = Some((lsn, offset + at + i as u64 * 512));
                }
            }
            at += LOG_STEP;
        }
        let Some((_, at)) = newest else {
            return refuse("its log is empty");
        };
        let record = volume.read(at, 512)?;
        let words = Words(&record);
        // From version 2 on, records of more than 32 KiB have longer headers.
        let header = match words.be32(8) & 2 != 0 {
            true => u64::from(words.be32(320)).div_ceil(32768).clamp(1, 64) * 512,
            false => 512,
        };
        // The log goes round: the record's body may be at its start.
        let body = offset + (at - offset + header) % bytes;
        let operation = volume.read(body, 16)?;
        match words.be32(40) == 1 && operation[9] & UNMOUNTED != 0 {
            true => Ok(()),
            false => refuse("its log must be replayed first: mount and unmount it"),
        }
    }

    /// Reads the free space of a group.
    fn group_free(
        &self,
        volume: &Volume<'_>,
        group: u64,
        collector: &mut Collector,
    ) -> Result<(), Refusal> {
        let start = group * self.group_blocks;
        let count = self.group_blocks.min(self.blocks - start);
        let header = volume.read(start * self.block + self.sector, self.sector as usize)?;
        let words = Words(&header);
        if !header.starts_with(b"XAGF") || u64::from(words.be32(12)) != count {
            return refuse("a group's header contradicts the superblock");
        }
        if self.has_checksums {
            check_sum(&header, 216)?;
        }
        let tree = Tree {
            layout: self,
            volume,
            start,
            count,
        };
        tree.walk(words.be32(16), words.be32(28), collector)
    }
}

/// The by-block free space tree of a group.
struct Tree<'a> {
    layout: &'a Layout,
    volume: &'a Volume<'a>,
    /// First block of the group, and its blocks.
    start: u64,
    count: u64,
}

impl Tree<'_> {
    /// Goes down to the first leaf and along the leaves.
    fn walk(&self, root: u32, levels: u32, collector: &mut Collector) -> Result<(), Refusal> {
        if !(1..=9).contains(&levels) {
            return refuse("a tree is of an impossible height");
        }
        let mut at = root;
        for level in (1..levels).rev() {
            let node = self.node(at, level)?;
            let most = (self.layout.block as usize - self.header_len()) / 12;
            at = Words(&node).be32(self.header_len() + 8 * most);
        }
        let mut end = 0;
        loop {
            let leaf = self.node(at, 0)?;
            let words = Words(&leaf);
            let records = usize::from(words.be16(6));
            if records * 8 > leaf.len() - self.header_len() {
                return refuse("a leaf has more records than it holds");
            }
            for i in 0..records {
                let first = u64::from(words.be32(self.header_len() + 8 * i));
                let count = u64::from(words.be32(self.header_len() + 8 * i + 4));
                if first < end || count == 0 || first + count > self.count {
                    return refuse("free space is out of order");
                }
                end = first + count;
                let block = self.layout.block;
                collector.add((self.start + first) * block, (self.start + end) * block)?;
            }
            at = words.be32(12);
            // Every leaf but an only one has records, and those ascend, so this ends.
            if at == NULL_BLOCK {
                return Ok(());
            }
            if records == 0 {
                return refuse("a leaf is empty");
            }
        }
    }

    fn header_len(&self) -> usize {
        if self.layout.has_checksums {
            56
        } else {
            16
        }
    }

    fn node(&self, at: u32, level: u32) -> Result<Vec<u8>, Refusal> {
        if u64::from(at) >= self.count {
            return refuse("a tree leaves its group");
        }
        let offset = (self.start + u64::from(at)) * self.layout.block;
        let node = self.volume.read(offset, self.layout.block as usize)?;
        let words = Words(&node);
        let magic: &[u8] = if self.layout.has_checksums {
            b"AB3B"
        } else {
            b"ABTB"
        };
        if !node.starts_with(magic) || u32::from(words.be16(4)) != level {
            return refuse("a tree's block is none");
        }
        if self.layout.has_checksums {
            check_sum(&node, 52)?;
        }
        Ok(node)
    }
}

/// Compares a structure with the checksum at `at` in it.
fn check_sum(bytes: &[u8], at: usize) -> Result<(), Refusal> {
    let mut sum = crc32c(!0, &bytes[..at]);
    sum = crc32c(sum, &[0; 4]);
    sum = crc32c(sum, &bytes[at + 4..]);
    match !sum == Words(bytes).le32(at) {
        true => Ok(()),
        false => refuse("a structure does not match its checksum"),
    }
}
