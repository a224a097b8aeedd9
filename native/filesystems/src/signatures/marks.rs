//! The marks of filesystems and volumes.

use At::{End, Start};

/// Where a mark is.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// Bytes from the start.
    Start(u64),
    /// Bytes from the end, rounded down to a multiple of `unit`.
    End { unit: u64, before: u64 },
}

pub(super) const SECTOR: u64 = 512;

pub(super) const ZFS_LABEL: u64 = 256 << 10;

pub(super) const fn sector_from_end(count: u64, at: u64) -> At {
    End {
        unit: SECTOR,
        before: count * SECTOR - at,
    }
}

pub(super) const fn zfs_from_end(labels: u64) -> At {
    End {
        unit: ZFS_LABEL,
        before: labels * ZFS_LABEL - (16 << 10),
    }
}

/// The list of a label's values: encoded for any machine, of version 0, with unique names.
pub(super) const ZFS_LITTLE: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01";

pub(super) const ZFS_BIG: &[u8] = b"\x01\0\0\0\0\0\0\0\0\0\0\x01";

pub(super) const BCACHE: &[u8] =
    b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";

pub(super) const BCACHEFS: &[u8] =
    b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

pub(super) const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

pub(super) const MD: &[u8] = b"\xfc\x4e\x2b\xa9";

pub(super) const MD_BIG: &[u8] = b"\xa9\x2b\x4e\xfc";

pub(super) const XFS: &str = "xfs";

pub(super) const EXT: &str = "ext4";

/// What each mark is of.
pub(super) const MARKS: &[(&str, At, &[u8])] = &[
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
pub(super) const TABLES: [&str; 9] = [
    "gpt", "aix", "bsd", "mac", "sgi", "solaris", "unixware", "ultrix", "dos",
];

pub(super) const PAGES: [u64; 5] = [0x1000, 0x2000, 0x4000, 0x8000, 0x10000];

pub(super) const SWAPS: [&[u8]; 6] = [
    b"SWAP-SPACE",
    b"SWAPSPACE2",
    b"S1SUSPEND",
    b"S2SUSPEND",
    b"ULSUSPEND",
    b"LINHIB0001",
];

/// Sectors from the end where controllers of Promise keep theirs.
pub(super) const PROMISE: [u64; 14] = [
    63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087, 3125,
];

/// Where superblocks of UFS may be, their marks, and where these are inside.
pub(super) const UFS: [u64; 4] = [0, 8 << 10, 64 << 10, 256 << 10];

pub(super) const UFS_MARKS: [u32; 6] = [
    0x0001_1954,
    0x1954_0119,
    0x0019_5612,
    0x0009_5014,
    0x0061_2195,
    0x0523_1994,
];

pub(super) const UFS_MARK_AT: u64 = 1372;
