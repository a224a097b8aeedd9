//! Signatures of all that may be stored on a volume, as libblkid (util-linux 2.41) knows them.
//!
//! A volume that was made another one may keep the superblock of what it was before: a ZFS pool leaves the first 8 KiB alone, a RAID of version 1.0 all but
//! the end. What such a superblock calls free is in use. So its word is not taken where there is any other signature. Where libblkid verifies checksums, it
//! does so to be sure that the signature is one; here a mark alone is enough to leave a volume alone.

use super::Volume;
use crate::source::SourceError;

/// Where a mark is.
#[derive(Clone, Copy)]
enum At {
    /// Bytes from the start.
    Start(u64),
    /// Bytes from the end, rounded down to a multiple of `unit`.
    End { unit: u64, before: u64 },
}
use diffcache_base::words::Words;
use At::{End, Start};

const SECTOR: u64 = 512;
/// What is read at once, and holds most marks.
const HEAD: u64 = 0x11000;
const ZFS_LABEL: u64 = 256 << 10;
/// Bytes where an XFS log may begin that is on a volume of its own.
const LOG_AREA: u64 = 256 << 10;

const fn sector_from_end(count: u64, at: u64) -> At {
    End {
        unit: SECTOR,
        before: count * SECTOR - at,
    }
}

const fn zfs_from_end(labels: u64) -> At {
    End {
        unit: ZFS_LABEL,
        before: labels * ZFS_LABEL - (16 << 10),
    }
}

/// The list of a label's values: encoded for any machine, of version 0, with unique names.
const ZFS_LITTLE: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01";
const ZFS_BIG: &[u8] = b"\x01\0\0\0\0\0\0\0\0\0\0\x01";
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG: &[u8] = b"\xa9\x2b\x4e\xfc";
const XFS: &str = "xfs";
const EXT: &str = "ext4";

/// What each mark is of.
const MARKS: &[(&str, At, &[u8])] = &[
    // Filesystems.
    ("apfs", Start(32), b"NXSB"),
    ("bcachefs", Start(0x1018), BCACHEFS),
    ("bcachefs", Start((2 << 20) + 24), BCACHEFS),
    ("befs", Start(32), b"BFS1"),
    ("befs", Start(32), b"1SFB"),
    ("befs", Start(0x220), b"BFS1"),
    ("befs", Start(0x220), b"1SFB"),
    ("bfs", Start(0), b"\xce\xfa\xad\x1b"),
    ("btrfs", Start(0x10040), b"_BHRfS_M"),
    ("cramfs", Start(0), b"\x45\x3d\xcd\x28"),
    ("cramfs", Start(0), b"\x28\xcd\x3d\x45"),
    ("erofs", Start(1024), b"\xe2\xe1\xf5\xe0"),
    ("exfat", Start(3), b"EXFAT   "),
    ("exfs", Start(0), b"EXFS"),
    (EXT, Start(0x438), b"\x53\xef"),
    ("f2fs", Start(0x400), b"\x10\x20\xf5\xf2"),
    ("f2fs", Start(0x1400), b"\x10\x20\xf5\xf2"),
    ("gfs", Start(0x10000), b"\x01\x16\x19\x70"),
    ("hpfs", Start(0x2000), b"\x49\xe8\x95\xf9"),
    ("iso9660", Start(0x8001), b"CD001"),
    ("iso9660", Start(0x8009), b"CDROM"),
    ("jfs", Start(0x8000), b"JFS1"),
    ("mpool", Start(0), b"mpoolDev"),
    ("netware", Start(0x1000), b"SPB5"),
    ("nilfs2", Start(0x400), b"\x02\0\0\0\0\0\x34\x34"),
    ("nilfs2", sector_from_end(8, 0), b"\x02\0\0\0\0\0\x34\x34"),
    ("ntfs", Start(3), b"NTFS    "),
    ("ocfs", Start(0x2000), b"OracleCFS"),
    ("ocfs2", Start(0x400), b"OCFSV2"),
    ("ocfs2", Start(0x800), b"OCFSV2"),
    ("ocfs2", Start(0x1000), b"OCFSV2"),
    ("ocfs2", Start(0x2000), b"OCFSV2"),
    ("oracleasm", Start(32), b"ORCLDISK"),
    ("refs", Start(0), b"\0\0\0ReFS\0"),
    ("reiserfs", Start(0x2034), b"ReIsErFs"),
    ("reiserfs", Start(0x2014), b"ReIsErFs"),
    ("reiserfs", Start(0x10034), b"ReIsErFs"),
    ("reiserfs", Start(0x10034), b"ReIsEr2Fs"),
    ("reiserfs", Start(0x10034), b"ReIsEr3Fs"),
    ("reiser4", Start(0x10000), b"ReIsEr4"),
    ("romfs", Start(0), b"-rom1fs-"),
    ("scoutfs", Start(0x10004), b"\x8b\x42\x3c\x10"),
    ("squashfs", Start(0), b"hsqs"),
    ("squashfs", Start(0), b"sqsh"),
    ("sysv", Start(0x7f8), b"\xfd\x18\x7e\x20"),
    ("sysv", Start(0x7f8), b"\x20\x7e\x18\xfd"),
    ("sysv", Start(0x3f8), b"\xfd\x18\x7e\x20"),
    ("sysv", Start(0x3f8), b"\x20\x7e\x18\xfd"),
    ("sysv", Start(0x25f8), b"\xfd\x18\x7e\x20"),
    ("sysv", Start(0x25f8), b"\x20\x7e\x18\xfd"),
    ("xenix", Start(0x7f8), b"\x2b\x55\x44\0"),
    ("xenix", Start(0x7f8), b"\0\x44\x55\x2b"),
    ("ubi", Start(0), b"UBI#"),
    ("ubifs", Start(0), b"\x31\x18\x10\x06"),
    ("udf", Start(0x8001), b"BEA01"),
    ("udf", Start(0x8001), b"BOOT2"),
    ("udf", Start(0x8001), b"CDW02"),
    ("udf", Start(0x8001), b"NSR02"),
    ("udf", Start(0x8001), b"NSR03"),
    ("udf", Start(0x8001), b"TEA01"),
    ("vfat", Start(0x52), b"MSWIN"),
    ("vfat", Start(0x52), b"FAT32   "),
    ("vfat", Start(0x36), b"MSDOS"),
    ("vfat", Start(0x36), b"FAT1"),
    ("vfat", Start(0x36), b"FAT     "),
    ("vmfs", Start(2 << 20), b"\x5e\xf1\xab\x2f"),
    ("vmfs", Start(1 << 20), b"\x0d\xd0\x01\xc0"),
    ("vxfs", Start(0x400), b"\xf5\xfc\x01\xa5"),
    ("vxfs", Start(0x2000), b"\xa5\x01\xfc\xf5"),
    (XFS, Start(0), b"XFSB"),
    ("zonefs", Start(0), b"SFOZ"),
    // Swap, and what was suspended to it, for each size of a page.
    ("swap", Start(0), b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"),
    // Volumes, pools, and what is encrypted.
    ("bcache", Start(0x1018), BCACHE),
    ("bitlocker", Start(3), b"-FVE-FS-"),
    ("bitlocker", Start(3), b"MSWIN4.1"),
    ("bluestore", Start(0), b"bluestore block device"),
    (
        "drbd",
        End {
            unit: 1024,
            before: 4096 - 0x3c,
        },
        b"\x83\x74\x02\x6b",
    ),
    (
        "drbd",
        End {
            unit: 1024,
            before: 4096 - 0x3c,
        },
        b"\x83\x74\x02\x6c",
    ),
    (
        "drbd",
        End {
            unit: 1024,
            before: 4096 - 0x3c,
        },
        b"\x83\x74\x02\x6d",
    ),
    ("drbdmanage", Start(0), b"$DRBDmgr=q"),
    ("drbdproxy", Start(0), b"DRBDdlh*"),
    ("luks", Start(0), b"LUKS\xba\xbe"),
    ("luks", Start(0), b"SKUL\xba\xbe"),
    ("luks", Start(0x4000), b"SKUL\xba\xbe"),
    ("luks", Start(0x8000), b"SKUL\xba\xbe"),
    ("luks", Start(0x1_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x2_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x4_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x8_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x10_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x20_0000), b"SKUL\xba\xbe"),
    ("luks", Start(0x40_0000), b"SKUL\xba\xbe"),
    ("lvm", Start(0), b"LABELONE"),
    ("lvm", Start(512), b"LABELONE"),
    ("lvm", Start(1024), b"LABELONE"),
    ("lvm", Start(1536), b"LABELONE"),
    ("dm-snapshot", Start(0), b"SnAp"),
    ("dm-verity", Start(0), b"verity\0\0"),
    ("dm-integrity", Start(0), b"integrt\0"),
    ("stratis", Start(0x204), STRATIS),
    ("stratis", Start(0x1204), STRATIS),
    ("vdo", Start(0), b"dmvdo001"),
    ("zfs", Start(16 << 10), ZFS_LITTLE),
    ("zfs", Start(16 << 10), ZFS_BIG),
    ("zfs", Start(ZFS_LABEL + (16 << 10)), ZFS_LITTLE),
    ("zfs", Start(ZFS_LABEL + (16 << 10)), ZFS_BIG),
    ("zfs", zfs_from_end(2), ZFS_LITTLE),
    ("zfs", zfs_from_end(2), ZFS_BIG),
    ("zfs", zfs_from_end(1), ZFS_LITTLE),
    ("zfs", zfs_from_end(1), ZFS_BIG),
    // RAIDs of Linux and of controllers.
    ("raid", Start(0), MD),
    ("raid", Start(0x1000), MD),
    (
        "raid",
        End {
            unit: 4096,
            before: 0x2000,
        },
        MD,
    ),
    (
        "raid",
        End {
            unit: 65536,
            before: 65536,
        },
        MD,
    ),
    (
        "raid",
        End {
            unit: 65536,
            before: 65536,
        },
        MD_BIG,
    ),
    ("adaptec", sector_from_end(1, 0), b"DPTM"),
    ("ddf", sector_from_end(1, 0), b"\xde\x11\xde\x11"),
    ("ddf", sector_from_end(1, 0), b"\x11\xde\x11\xde"),
    ("ddf", sector_from_end(257, 0), b"\xde\x11\xde\x11"),
    ("ddf", sector_from_end(257, 0), b"\x11\xde\x11\xde"),
    ("highpoint", Start(0x1220), b"\xf0\x16\x78\x5a"),
    ("highpoint", Start(0x1220), b"\xfd\x16\x78\x5a"),
    ("highpoint", sector_from_end(11, 0), b"\xf3\x16\x78\x5a"),
    ("highpoint", sector_from_end(11, 0), b"\xfd\x16\x78\x5a"),
    ("isw", sector_from_end(2, 0), b"Intel Raid ISM Cfg Sig. "),
    (
        "isw",
        End {
            unit: 4096,
            before: 8192,
        },
        b"Intel Raid ISM Cfg Sig. ",
    ),
    ("jmicron", sector_from_end(1, 0), b"JM\x01\0"),
    ("jmicron", sector_from_end(1, 0), b"JM\x02\0"),
    ("lsi", sector_from_end(1, 0), b"$XIDE$"),
    ("nvidia", sector_from_end(2, 0), b"NVIDIA  "),
    ("silicon", sector_from_end(1, 0x60), b"\0\0\0\x2f"),
    ("via", sector_from_end(1, 0), b"\x55\xaa\0"),
    ("via", sector_from_end(1, 0), b"\x55\xaa\x01"),
    // Tables of partitions but those of DOS.
    ("gpt", Start(512), b"EFI PART"),
    ("gpt", Start(4096), b"EFI PART"),
    ("gpt", sector_from_end(1, 0), b"EFI PART"),
    (
        "gpt",
        End {
            unit: 4096,
            before: 4096,
        },
        b"EFI PART",
    ),
    ("aix", Start(0), b"\xc9\xc2\xd4\xc1"),
    ("bsd", Start(0), b"\x57\x45\x56\x82"),
    ("bsd", Start(64), b"\x57\x45\x56\x82"),
    ("bsd", Start(512), b"\x57\x45\x56\x82"),
    ("mac", Start(512), b"PM\0\0"),
    ("sgi", Start(0), b"\x0b\xe5\xa9\x41"),
    ("solaris", Start(512 + 12), b"\xee\xde\x0d\x60"),
    ("unixware", Start(29 * 512 + 4), b"\x0d\x60\x5e\xca"),
    ("ultrix", Start((16 << 10) - 72), b"\x57\x29\x03\0"),
];

/// Kinds that are only tables of partitions: they are no news of an image that has partitions.
const TABLES: [&str; 9] = [
    "gpt", "aix", "bsd", "mac", "sgi", "solaris", "unixware", "ultrix", "dos",
];

const PAGES: [u64; 5] = [0x1000, 0x2000, 0x4000, 0x8000, 0x10000];
const SWAPS: [&[u8]; 6] = [
    b"SWAP-SPACE",
    b"SWAPSPACE2",
    b"S1SUSPEND",
    b"S2SUSPEND",
    b"ULSUSPEND",
    b"LINHIB0001",
];

/// Sectors from the end where controllers of Promise keep theirs.
const PROMISE: [u64; 14] = [
    63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087, 3125,
];

/// Where superblocks of UFS may be, their marks, and where these are inside.
const UFS: [u64; 4] = [0, 8 << 10, 64 << 10, 256 << 10];
const UFS_MARKS: [u32; 6] = [
    0x0001_1954,
    0x1954_0119,
    0x0019_5612,
    0x0009_5014,
    0x0061_2195,
    0x0523_1994,
];
const UFS_MARK_AT: u64 = 1372;

/// Returns what else than a filesystem of the kind `own` has a signature on a volume.
pub fn other(volume: &Volume<'_>, own: &str) -> Result<Option<&'static str>, SourceError> {
    let probe = Probe::new(volume)?;
    for (kind, at, mark) in MARKS {
        if *kind != own && probe.has(*at, mark)? {
            return Ok(Some(kind));
        }
    }
    Ok(match () {
        () if probe.has_swap()? => Some("swap"),
        () if probe.has_promise()? => Some("promise"),
        () if probe.has_ufs()? => Some("ufs"),
        () if probe.has_log()? => Some("xfs log"),
        () if probe.is_fat() => Some("vfat"),
        () if probe.is_hfs() => Some("hfs"),
        () if own != EXT && probe.is_minix() => Some("minix"),
        () if probe.has_table() => Some("dos"),
        () => None,
    })
}

/// Returns what has a signature on an image besides its partitions, and their table.
pub fn beside_partitions(image: &Volume<'_>) -> Result<Option<&'static str>, SourceError> {
    let probe = Probe::new(image)?;
    for (kind, at, mark) in MARKS {
        if !TABLES.contains(kind) && probe.has(*at, mark)? {
            return Ok(Some(kind));
        }
    }
    Ok(probe.has_promise()?.then_some("promise"))
}

/// Returns whether another signature is where an image that arrives is read first: in its first 8 KiB, and in 4 KiB from 64 KiB on. It is used to name files;
/// whatever says what is free looks for all.
pub fn in_head(volume: &Volume<'_>, own: &str) -> Result<bool, SourceError> {
    for (kind, at, mark) in MARKS {
        let Start(offset) = *at else { continue };
        let end = offset + mark.len() as u64;
        let is_first = end <= 0x2000 || (offset >= 0x10000 && end <= 0x11000);
        if *kind == own || !is_first || end > volume.size {
            continue;
        }
        let mut found = vec![0; mark.len()];
        volume
            .image
            .read_exact_at(&mut found, volume.start + offset)?;
        if found == *mark {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A volume and its first bytes.
struct Probe<'a> {
    volume: &'a Volume<'a>,
    head: Vec<u8>,
}

impl<'a> Probe<'a> {
    fn new(volume: &'a Volume<'a>) -> Result<Probe<'a>, SourceError> {
        let mut head = vec![0; HEAD.min(volume.size) as usize];
        volume.image.read_exact_at(&mut head, volume.start)?;
        Ok(Probe { volume, head })
    }

    /// Returns whether bytes of the volume are a mark; what is outside of it is none.
    fn has(&self, at: At, mark: &[u8]) -> Result<bool, SourceError> {
        let size = self.volume.size;
        let offset = match at {
            Start(offset) => Some(offset),
            End { unit, before } => (size / unit * unit).checked_sub(before),
        };
        let Some(offset) = offset.filter(|offset| offset + mark.len() as u64 <= size) else {
            return Ok(false);
        };
        let end = offset as usize + mark.len();
        if let Some(found) = self.head.get(offset as usize..end) {
            return Ok(found == mark);
        }
        let mut found = vec![0; mark.len()];
        self.volume
            .image
            .read_exact_at(&mut found, self.volume.start + offset)?;
        Ok(found == mark)
    }

    fn has_swap(&self) -> Result<bool, SourceError> {
        for page in PAGES {
            for mark in SWAPS {
                if self.has(Start(page - 10), mark)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn has_promise(&self) -> Result<bool, SourceError> {
        for sector in PROMISE {
            if self.has(sector_from_end(sector, 0), b"Promise Technology, Inc.")? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_ufs(&self) -> Result<bool, SourceError> {
        for start in UFS {
            for mark in UFS_MARKS {
                let at = Start(start + UFS_MARK_AT);
                if self.has(at, &mark.to_le_bytes())? || self.has(at, &mark.to_be_bytes())? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether a record of an XFS log of version 1 or 2 is at the start of a sector.
    fn has_log(&self) -> Result<bool, SourceError> {
        let mut area = vec![0; LOG_AREA.min(self.volume.size) as usize];
        self.volume
            .image
            .read_exact_at(&mut area, self.volume.start)?;
        Ok(area.chunks_exact(SECTOR as usize).any(|sector| {
            let words = Words(sector);
            words.be32(0) == 0xfeed_babe && matches!(words.be32(8), 1 | 2)
        }))
    }

    /// Returns whether there are parameters of a FAT without its name.
    fn is_fat(&self) -> bool {
        let words = Words(&self.head);
        let bytes = u32::from(words.le16(11));
        let [per_cluster] = words.array(13);
        let [count] = words.array(16);
        let [media] = words.array(21);
        words.le16(510) == 0xaa55
            && matches!(bytes, 512 | 1024 | 2048 | 4096)
            && per_cluster.is_power_of_two()
            && words.le16(14) != 0
            && matches!(count, 1..=4)
            && (media == 0xf0 || media >= 0xf8)
    }

    fn is_hfs(&self) -> bool {
        let words = Words(&self.head);
        match &words.array::<2>(1024) {
            b"BD" => words.be32(1044) != 0 && words.be32(1044) % 512 == 0,
            b"H+" | b"HX" => matches!(words.be16(1026), 4 | 5),
            _ => false,
        }
    }

    fn is_minix(&self) -> bool {
        let words = Words(&self.head);
        let known = |mark: u16| matches!(mark, 0x137f | 0x138f | 0x2468 | 0x2478);
        let early = words.le16(0x410);
        let late = words.le16(0x418);
        known(early) || known(early.swap_bytes()) || late == 0x4d5a || late == 0x5a4d
    }

    /// Returns whether there is a table of partitions as DOS has it, with an entry that may be one.
    fn has_table(&self) -> bool {
        let words = Words(&self.head);
        let entries: Vec<[u8; 16]> = (0..4).map(|i| words.array(446 + i * 16)).collect();
        words.le16(510) == 0xaa55
            && entries.iter().all(|entry| matches!(entry[0], 0 | 0x80))
            && entries.iter().any(|entry| {
                let words = Words(entry);
                entry[4] != 0 && words.le32(8) != 0 && words.le32(12) != 0
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 5 << 20;

    fn found(image: &Vec<u8>, own: &str) -> Option<&'static str> {
        other(
            &Volume {
                image,
                start: 0,
                size: image.len() as u64,
            },
            own,
        )
        .unwrap()
    }

    fn position(at: At) -> usize {
        match at {
            Start(offset) => offset as usize,
            End { unit, before } => SIZE / unit as usize * unit as usize - before as usize,
        }
    }

    #[test]
    fn each_mark_is_found_where_it_is_and_nowhere_else() {
        for (kind, at, mark) in MARKS {
            let mut image = vec![0; SIZE];
            let at = position(*at);
            image[at..at + mark.len()].copy_from_slice(mark);
            assert!(found(&image, "none").is_some(), "{kind} at {at}");
            assert!(
                found(&image, kind).is_none() || *kind == "vfat",
                "{kind} at {at}"
            );
            image.fill(0);
            image[at + 1..at + 1 + mark.len()].copy_from_slice(mark);
            assert_eq!(found(&image, "none"), None, "{kind} at {at} + 1");
        }
    }

    #[test]
    fn marks_at_the_end_follow_the_size() {
        for size in [SIZE, SIZE + 512, SIZE + 511, SIZE + 4096 + 1] {
            for labels in 1..3 {
                let mut image = vec![0; size];
                let at = size / ZFS_LABEL as usize * ZFS_LABEL as usize
                    - labels * ZFS_LABEL as usize
                    + (16 << 10);
                image[at..at + ZFS_LITTLE.len()].copy_from_slice(ZFS_LITTLE);
                assert_eq!(found(&image, XFS), Some("zfs"));
            }
        }
    }

    #[test]
    fn what_has_no_mark_of_its_own() {
        let mut fat = vec![0; SIZE];
        fat[510..512].copy_from_slice(b"\x55\xaa");
        // Code that begins a boot has this mark, too.
        assert_eq!(found(&fat, EXT), None);
        fat[11..13].copy_from_slice(&512u16.to_le_bytes());
        (fat[13], fat[14], fat[16], fat[21]) = (8, 1, 2, 0xf8);
        assert_eq!(found(&fat, EXT), Some("vfat"));
        let mut dos = vec![0; SIZE];
        dos[510..512].copy_from_slice(b"\x55\xaa");
        (dos[450], dos[455], dos[459]) = (0x83, 8, 8);
        assert_eq!(found(&dos, EXT), Some("dos"));
        let mut hfs = vec![0; SIZE];
        hfs[1024..1028].copy_from_slice(b"H+\0\x04");
        assert_eq!(found(&hfs, EXT), Some("hfs"));
        let mut log = vec![0; SIZE];
        log[0x3000..0x300c].copy_from_slice(b"\xfe\xed\xba\xbe\0\0\0\x01\0\0\0\x02");
        assert_eq!(found(&log, EXT), Some("xfs log"));
        let mut swap = vec![0; SIZE];
        swap[0x1ff6..0x2000].copy_from_slice(b"SWAPSPACE2");
        assert_eq!(found(&swap, EXT), Some("swap"));
        let mut ufs = vec![0; SIZE];
        ufs[0x1055c..0x10560].copy_from_slice(&0x1954_0119u32.to_be_bytes());
        assert_eq!(found(&ufs, EXT), Some("ufs"));
    }

    #[test]
    fn volumes_that_are_shorter_than_a_mark_is_far() {
        for size in [0, 1, 511, 512, 4096, 70_000] {
            assert_eq!(found(&vec![0; size], EXT), None);
        }
    }
}
