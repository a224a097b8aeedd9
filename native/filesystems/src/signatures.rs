//! Signatures of all that may be stored on a volume, as libblkid (util-linux 2.41) knows them.
//!
//! A volume that was made another one may keep the superblock of what it was before: a ZFS pool leaves the first 8 KiB alone, a RAID of version 1.0 all but
//! the end. What such a superblock calls free is in use. So its word is not taken where there is any other signature. Where libblkid verifies checksums, it
//! does so to be sure that the signature is one; here a mark alone is enough to leave a volume alone.

mod marks;

use super::Volume;
use diffcache_base::words::Words;
use diffcache_core::source::SourceError;
use marks::At::{End, Start};
use marks::*;

/// What is read at once, and holds most marks.
const HEAD: u64 = 0x11000;

/// Bytes where an XFS log may begin that is on a volume of its own.
const LOG_AREA: u64 = 256 << 10;

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
