//! ext2, ext3 and ext4: free space, from the block bitmaps (kernel documentation, filesystems/ext4: "Super Block", "Block Group Descriptors"), and
//! [`files`], and [`Arriving`] ones.

mod arriving;
mod files;
mod inodes;

use diffcache_base::words::Words;

use super::{crc32c, refuse, Collector, Range, Refusal, Volume};
use diffcache_core::source::SourceError;

pub use arriving::Arriving;
pub use files::files;
use inodes::{Run, INODE_LEN};

const MAGIC: u16 = 0xef53;
/// Features that do not change what the bitmaps mean: file types, extents, 64 bits, multiple mount protection, flexible groups, large attributes,
/// seeds, large directories, inline data, encryption, case folding.
const KNOWN_INCOMPAT: u32 = 0x3_e7c2;
/// Of those that forbid writing only: not snapshots, clusters of several blocks, replicas, shared blocks.
const KNOWN_RO_COMPAT: u32 = 0x1_a57f;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_SEED: u32 = 0x2000;
const INCOMPAT_RECOVER: u32 = 0x4;
const RO_COMPAT_GROUP_CHECKSUM: u32 = 0x10;
const RO_COMPAT_CHECKSUM: u32 = 0x400;
/// Flag of a group whose bitmap was never written.
const BLOCK_UNINIT: u16 = 2;
/// Most groups: 128 TiB with blocks of 4 KiB.
const MAX_GROUPS: u64 = 1 << 20;
/// Fewest blocks of a group, unless there is but one: mke2fs creates none with fewer.
const LEAST_PER_GROUP: u64 = 256;
/// Bytes of groups' descriptors that are read at a time: whole ones.
const DESCRIPTORS_PIECE: u64 = 1 << 16;

/// Returns whether a superblock is there.
///
/// # Errors
/// Those of reading.
pub fn recognises(volume: &Volume<'_>) -> Result<bool, SourceError> {
    if volume.size < 2048 {
        return Ok(false);
    }
    let mut magic = [0; 2];
    volume
        .image
        .read_exact_at(&mut magic, volume.start + 1024 + 0x38)?;
    Ok(u16::from_le_bytes(magic) == MAGIC)
}

/// Returns what the bitmaps mark free, in bytes of the image.
pub fn free(volume: &Volume<'_>) -> Result<Vec<Range>, Refusal> {
    let layout = Layout::read(volume)?;
    let groups = layout.groups(volume)?;
    let tables = layout.tables(&groups);
    let mut collector = Collector::new(volume);
    let mut bitmap = vec![0; layout.block as usize];
    for (number, group) in (0u64..).zip(&groups) {
        let first = layout.first_block + number * layout.per_group;
        let count = layout.per_group.min(layout.blocks - first);
        if group.flags & BLOCK_UNINIT != 0 && layout.has_group_checksums() {
            // Free but for what may be a copy of the superblock and its descriptors.
            let skip = layout.reserved.min(count);
            layout.add(&mut collector, &tables, first + skip, first + count)?;
            continue;
        }
        volume.read_into(group.bitmap * layout.block, &mut bitmap)?;
        layout.check_bitmap(group, &bitmap)?;
        let mut at = 0;
        while at < count {
            let run = run_length(&bitmap, at, count);
            if bitmap[(at / 8) as usize] >> (at % 8) & 1 == 0 {
                layout.add(&mut collector, &tables, first + at, first + at + run)?;
            }
            at += run;
        }
    }
    Ok(collector.ranges)
}

/// Returns how many bits from `at` on are the same.
fn run_length(bitmap: &[u8], at: u64, count: u64) -> u64 {
    let bit = |i: u64| bitmap[(i / 8) as usize] >> (i % 8) & 1;
    let value = bit(at);
    let whole = if value == 0 { 0 } else { 0xff };
    let mut end = at + 1;
    while end < count {
        if end % 8 == 0 && end + 8 <= count && bitmap[(end / 8) as usize] == whole {
            end += 8;
        } else if bit(end) == value {
            end += 1;
        } else {
            break;
        }
    }
    end - at
}

/// What the superblock says, checked.
struct Layout {
    /// Bytes of a block.
    block: u64,
    /// Number of blocks.
    blocks: u64,
    /// The first block of the first group.
    first_block: u64,
    per_group: u64,
    inodes_per_group: u32,
    /// Bytes of an inode.
    inode_len: u64,
    /// Blocks of a group's table of inodes.
    table_blocks: u64,
    descriptor_len: u64,
    /// Blocks that a copy of the superblock and its descriptors takes at the start of a group.
    reserved: u64,
    ro_compat: u32,
    /// Where checksums start.
    seed: u32,
}

/// What a group's descriptor says.
struct Group {
    bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    flags: u16,
    bitmap_checksum: u32,
}

impl Layout {
    /// Reads the superblock of a filesystem that was unmounted, and has no errors.
    fn read(volume: &Volume<'_>) -> Result<Layout, Refusal> {
        let superblock = volume.read(1024, 1024)?;
        let words = Words(&superblock);
        if words.le32(0x60) & INCOMPAT_RECOVER != 0 {
            return refuse("its journal must be replayed first: mount and unmount it");
        }
        if words.le16(0x3a) & 3 != 1 {
            return refuse("it was not unmounted cleanly, or has errors: check it first");
        }
        Layout::read_any(volume)
    }

    /// Reads the superblock of a filesystem, whatever its journal has besides.
    fn read_any(volume: &Volume<'_>) -> Result<Layout, Refusal> {
        let superblock = volume.read(1024, 1024)?;
        let words = Words(&superblock);
        let (incompat, ro_compat) = (words.le32(0x60), words.le32(0x64));
        if incompat & !(KNOWN_INCOMPAT | INCOMPAT_RECOVER) != 0 || ro_compat & !KNOWN_RO_COMPAT != 0
        {
            return refuse("it has features that are not known here");
        }
        if ro_compat & RO_COMPAT_CHECKSUM != 0
            && crc32c(!0, &superblock[..0x3fc]) != words.le32(0x3fc)
        {
            return refuse("the superblock does not match its checksum");
        }
        let seed = match incompat & INCOMPAT_SEED != 0 {
            true => words.le32(0x270),
            false => crc32c(!0, &superblock[0x68..0x78]),
        };
        let log = words.le32(0x18);
        if log > 6 {
            return refuse("its blocks are of an impossible size");
        }
        let block = 1024u64 << log;
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high = if is_64bit { words.le32(0x150) } else { 0 };
        let inode_len = match words.le32(0x4c) {
            0 => 128,
            _ => u64::from(words.le16(0x58)),
        };
        let mut layout = Layout {
            block,
            blocks: u64::from(words.le32(0x4)) | u64::from(high) << 32,
            first_block: words.le32(0x14).into(),
            per_group: words.le32(0x20).into(),
            inodes_per_group: words.le32(0x28),
            inode_len,
            table_blocks: (u64::from(words.le32(0x28)) * inode_len).div_ceil(block),
            descriptor_len: if is_64bit {
                words.le16(0xfe).into()
            } else {
                32
            },
            reserved: 0,
            ro_compat,
            seed,
        };
        layout.check(volume)?;
        let descriptors = (layout.group_count() * layout.descriptor_len).div_ceil(block);
        layout.reserved = 1 + descriptors + u64::from(words.le16(0xce));
        Ok(layout)
    }

    fn check(&self, volume: &Volume<'_>) -> Result<(), Refusal> {
        let fits = self
            .blocks
            .checked_mul(self.block)
            .is_some_and(|bytes| bytes <= volume.size);
        let sane = fits
            && self.first_block < self.blocks
            && self.first_block <= 1
            && (8..=8 * self.block).contains(&self.per_group)
            && self.per_group % 8 == 0
            && self.descriptor_len.is_power_of_two()
            && (32..=1024).contains(&self.descriptor_len)
            && (self.per_group >= LEAST_PER_GROUP || self.group_count() == 1)
            && self.table_blocks <= self.per_group
            && self.group_count() <= MAX_GROUPS;
        match sane {
            true => Ok(()),
            false => refuse("the superblock contradicts itself or the partition"),
        }
    }

    /// Refuses inodes that cannot be.
    fn check_inodes(&self) -> Result<(), Refusal> {
        let sane = self.inode_len.is_power_of_two()
            && (INODE_LEN as u64..=self.block).contains(&self.inode_len)
            && self.inodes_per_group > 0;
        match sane {
            true => Ok(()),
            false => refuse("its inodes are of an impossible size or number"),
        }
    }

    /// Returns whether blocks of a content are some, and of the filesystem.
    fn holds(&self, run: &Run) -> bool {
        run.count > 0 && run.block >= self.first_block && run.block + run.count <= self.blocks
    }

    fn group_count(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.per_group)
    }

    fn has_group_checksums(&self) -> bool {
        self.ro_compat & (RO_COMPAT_CHECKSUM | RO_COMPAT_GROUP_CHECKSUM) != 0
    }

    fn groups(&self, volume: &Volume<'_>) -> Result<Vec<Group>, Refusal> {
        let mut groups = Vec::new();
        self.each_group(volume, |_, group| groups.push(group))?;
        Ok(groups)
    }

    /// Hands over each group's number and descriptor, in order. A piece of the descriptors is in memory at a time.
    fn each_group(
        &self,
        volume: &Volume<'_>,
        mut take: impl FnMut(u32, Group),
    ) -> Result<(), Refusal> {
        let len = self.group_count() * self.descriptor_len;
        let start = (self.first_block + 1) * self.block;
        let mut numbers = 0u32..;
        for at in (0..len).step_by(DESCRIPTORS_PIECE as usize) {
            let piece = DESCRIPTORS_PIECE.min(len - at) as usize;
            let bytes = volume.read(start + at, piece)?;
            for (descriptor, number) in bytes.chunks(self.descriptor_len as usize).zip(&mut numbers)
            {
                take(number, self.group(descriptor, number)?);
            }
        }
        Ok(())
    }

    fn group(&self, descriptor: &[u8], number: u32) -> Result<Group, Refusal> {
        let words = Words(descriptor);
        if self.ro_compat & RO_COMPAT_CHECKSUM != 0 {
            let mut sum = crc32c(self.seed, &number.to_le_bytes());
            sum = crc32c(sum, &descriptor[..0x1e]);
            sum = crc32c(sum, &[0; 2]);
            sum = crc32c(sum, &descriptor[0x20..]);
            if sum as u16 != words.le16(0x1e) {
                return refuse("a group's descriptor does not match its checksum");
            }
        }
        let wide = descriptor.len() >= 64;
        let place = |low: usize, high: usize| {
            let high = if wide { words.le32(high) } else { 0 };
            u64::from(words.le32(low)) | u64::from(high) << 32
        };
        let high = if wide { words.le16(0x38) } else { 0 };
        let group = Group {
            bitmap: place(0x0, 0x20),
            inode_bitmap: place(0x4, 0x24),
            inode_table: place(0x8, 0x28),
            flags: words.le16(0x12),
            bitmap_checksum: u32::from(words.le16(0x18)) | u32::from(high) << 16,
        };
        let inside = |block: u64| (self.first_block..self.blocks).contains(&block);
        match inside(group.bitmap) && inside(group.inode_bitmap) && inside(group.inode_table) {
            true => Ok(group),
            false => refuse("a group's descriptor points outside of the filesystem"),
        }
    }

    fn check_bitmap(&self, group: &Group, bitmap: &[u8]) -> Result<(), Refusal> {
        if self.ro_compat & RO_COMPAT_CHECKSUM == 0 {
            return Ok(());
        }
        let sum = crc32c(self.seed, &bitmap[..(self.per_group / 8) as usize]);
        let mask = if self.descriptor_len >= 64 {
            !0
        } else {
            0xffff
        };
        match sum & mask == group.bitmap_checksum & mask {
            true => Ok(()),
            false => refuse("a block bitmap does not match its checksum"),
        }
    }

    /// Blocks of bitmaps and tables of inodes, in order. They are never free, whatever a group's flags say.
    fn tables(&self, groups: &[Group]) -> Vec<Range> {
        let mut tables: Vec<Range> = groups
            .iter()
            .flat_map(|group| {
                [
                    (group.bitmap, group.bitmap + 1),
                    (group.inode_bitmap, group.inode_bitmap + 1),
                    (group.inode_table, group.inode_table + self.table_blocks),
                ]
            })
            .collect();
        tables.sort_unstable();
        tables
    }

    /// Adds free blocks, without those of tables.
    fn add(
        &self,
        collector: &mut Collector,
        tables: &[Range],
        from: u64,
        to: u64,
    ) -> Result<(), Refusal> {
        // A table of inodes is no longer than a group, so that none that starts earlier reaches here.
        let reach = from.saturating_sub(self.per_group);
        let mut at = from;
        for (start, end) in &tables[tables.partition_point(|(start, _)| *start < reach)..] {
            if *start >= to {
                break;
            }
            if *end > at {
                collector.add(at * self.block, (*start).max(at).min(to) * self.block)?;
                at = at.max(*end);
            }
        }
        collector.add(at.min(to) * self.block, to * self.block)
    }
}
