//! Partition tables: MBR with logical partitions, and GPT (UEFI specification, section 5).

use diffcache_base::words::Words;

use super::Range;
use diffcache_core::source::{ReadAt, SourceError};

const SECTOR: u64 = 512;
/// Most entries of a GPT that are read.
const MAX_ENTRIES: u64 = 1024;
/// Most logical partitions.
const MAX_LOGICAL: usize = 128;

/// Returns the partitions of an image in order, or all of it where there is no table. Those that overlap another one, or reach beyond the image, are left out.
///
/// # Errors
/// Those of reading.
pub fn find(image: &dyn ReadAt) -> Result<Vec<Range>, SourceError> {
    let size = image.len();
    if size < 2 * SECTOR {
        return Ok(Vec::new());
    }
    let first = sector(image, 0)?;
    let entries = match is_table(&first) {
        true => entries(&first),
        false => Vec::new(),
    };
    let found = match entries.iter().any(|entry| entry.kind == 0xee) {
        true => guid_table(image)?,
        false => boot_record(image, &entries)?,
    };
    match found.is_empty() && !entries.iter().any(|entry| entry.kind == 0xee) {
        true => Ok(vec![(0, size)]),
        false => Ok(apart(found, size)),
    }
}

/// Returns the leaves out what overlaps or is not inside.
fn apart(mut found: Vec<Range>, size: u64) -> Vec<Range> {
    found.retain(|(from, to)| from < to && *to <= size && *from >= SECTOR);
    found.sort_unstable();
    let overlaps = |i: usize| {
        let (from, to) = found[i];
        let meets = |(j, other): (usize, &Range)| j != i && other.0 < to && from < other.1;
        // Sorted by start, and those before may be long: all are looked at; there are a thousand at most.
        found.iter().enumerate().any(meets)
    };
    let alone: Vec<usize> = (0..found.len()).filter(|i| !overlaps(*i)).collect();
    alone.into_iter().map(|i| found[i]).collect()
}

struct Entry {
    kind: u8,
    start: u64,
    count: u64,
}

fn sector(image: &dyn ReadAt, number: u64) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0; SECTOR as usize];
    image.read_exact_at(&mut bytes, number * SECTOR)?;
    Ok(bytes)
}

fn is_table(sector: &[u8]) -> bool {
    let flags = [446, 462, 478, 494].map(|at| sector[at]);
    sector[510..] == [0x55, 0xaa] && flags.iter().all(|flag| flag & 0x7f == 0)
}

/// Returns the entries of a boot record that are in use.
fn entries(sector: &[u8]) -> Vec<Entry> {
    let words = Words(sector);
    let entry = |i: usize| Entry {
        kind: sector[446 + 16 * i + 4],
        start: words.le32(446 + 16 * i + 8).into(),
        count: words.le32(446 + 16 * i + 12).into(),
    };
    (0..4)
        .map(entry)
        .filter(|entry| entry.kind != 0 && entry.count > 0)
        .collect()
}

fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0f | 0x85)
}

fn boot_record(image: &dyn ReadAt, entries: &[Entry]) -> Result<Vec<Range>, SourceError> {
    let mut found = Vec::new();
    for entry in entries {
        if is_extended(entry.kind) {
            logical(image, entry.start, &mut found)?;
        } else {
            found.push(range(entry.start, entry.count));
        }
    }
    Ok(found)
}

fn range(start: u64, count: u64) -> Range {
    let start = start.saturating_mul(SECTOR);
    (start, start.saturating_add(count.saturating_mul(SECTOR)))
}

/// Follows the chain of logical partitions. It is cut where it runs in circles or leaves the image.
fn logical(image: &dyn ReadAt, extended: u64, found: &mut Vec<Range>) -> Result<(), SourceError> {
    let mut at = extended;
    for _ in 0..MAX_LOGICAL {
        if (at + 1).saturating_mul(SECTOR) > image.len() {
            return Ok(());
        }
        let record = sector(image, at)?;
        if !is_table(&record) {
            return Ok(());
        }
        let mut next = None;
        for entry in entries(&record) {
            if is_extended(entry.kind) {
                next = Some(extended + entry.start);
            } else {
                found.push(range(at + entry.start, entry.count));
            }
        }
        match next {
            Some(next) if next > at => at = next,
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Returns the partitions of a GPT with sectors of 512 or of 4096 bytes.
fn guid_table(image: &dyn ReadAt) -> Result<Vec<Range>, SourceError> {
    for sector_len in [512u64, 4096] {
        if 2 * sector_len > image.len() {
            break;
        }
        let mut header = vec![0; 92];
        image.read_exact_at(&mut header, sector_len)?;
        if header.starts_with(b"EFI PART") {
            return guid_entries(image, &header, sector_len);
        }
    }
    Ok(Vec::new())
}

fn guid_entries(
    image: &dyn ReadAt,
    header: &[u8],
    sector_len: u64,
) -> Result<Vec<Range>, SourceError> {
    let words = Words(header);
    let (start, count, len) = (words.le64(72), words.le32(80), words.le32(84));
    let mut found = Vec::new();
    if !(128..=4096).contains(&len) {
        return Ok(found);
    }
    let start = start.saturating_mul(sector_len);
    for i in 0..u64::from(count).min(MAX_ENTRIES) {
        let at = start.saturating_add(i * u64::from(len));
        if at.saturating_add(128) > image.len() {
            break;
        }
        let mut entry = vec![0; 128];
        image.read_exact_at(&mut entry, at)?;
        let words = Words(&entry);
        let (first, last) = (words.le64(32), words.le64(40));
        if entry[..16].iter().any(|byte| *byte != 0) && first <= last {
            let end = last.saturating_add(1).saturating_mul(sector_len);
            found.push((first.saturating_mul(sector_len), end));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_entry(image: &mut [u8], at: usize, kind: u8, start: u32, count: u32) {
        image[at + 4] = kind;
        image[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        image[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    }

    fn sign(image: &mut [u8], sector: usize) {
        image[sector * 512 + 510..sector * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn sectors(from: u64, to: u64) -> Range {
        (from * 512, to * 512)
    }

    #[test]
    fn an_image_without_table_is_one_volume() {
        assert_eq!(find(&vec![0; 4096]).unwrap(), [(0, 4096)]);
    }

    #[test]
    fn primary_and_logical_partitions_are_found() {
        let mut image = vec![0; 100 * 512];
        sign(&mut image, 0);
        put_entry(&mut image, 446, 0x83, 2, 8);
        put_entry(&mut image, 462, 0x05, 20, 60);
        for (record, next) in [(20usize, Some(20)), (40, None)] {
            sign(&mut image, record);
            put_entry(&mut image, record * 512 + 446, 0x83, 2, 10);
            if let Some(next) = next {
                put_entry(&mut image, record * 512 + 462, 0x05, next, 12);
            }
        }
        let expected = [sectors(2, 10), sectors(22, 32), sectors(42, 52)];
        assert_eq!(find(&image).unwrap(), expected);
    }

    #[test]
    fn a_chain_that_runs_in_circles_ends() {
        let mut image = vec![0; 100 * 512];
        sign(&mut image, 0);
        put_entry(&mut image, 446, 0x05, 20, 60);
        sign(&mut image, 20);
        put_entry(&mut image, 20 * 512 + 446, 0x05, 0, 10);
        put_entry(&mut image, 20 * 512 + 462, 0x83, 2, 10);
        assert_eq!(find(&image).unwrap(), [sectors(22, 32)]);
    }

    #[test]
    fn partitions_that_overlap_or_leave_the_image_are_left_out() {
        let mut image = vec![0; 100 * 512];
        sign(&mut image, 0);
        put_entry(&mut image, 446, 0x83, 2, 30);
        put_entry(&mut image, 462, 0x83, 20, 30);
        put_entry(&mut image, 478, 0x83, 60, 30);
        put_entry(&mut image, 494, 0x83, 95, 30);
        assert_eq!(find(&image).unwrap(), [sectors(60, 90)]);
    }

    #[test]
    fn a_guid_table_is_read() {
        let mut image = vec![0; 200 * 512];
        sign(&mut image, 0);
        put_entry(&mut image, 446, 0xee, 1, 199);
        image[512..520].copy_from_slice(b"EFI PART");
        image[512 + 72..512 + 80].copy_from_slice(&2u64.to_le_bytes());
        image[512 + 80..512 + 84].copy_from_slice(&u32::MAX.to_le_bytes());
        image[512 + 84..512 + 88].copy_from_slice(&128u32.to_le_bytes());
        for (i, (first, last)) in [(50u64, 99u64), (120, 129), (3, u64::MAX)]
            .iter()
            .enumerate()
        {
            let at = 1024 + 128 * i;
            image[at] = 1;
            image[at + 32..at + 40].copy_from_slice(&first.to_le_bytes());
            image[at + 40..at + 48].copy_from_slice(&last.to_le_bytes());
        }
        assert_eq!(find(&image).unwrap(), [sectors(50, 100), sectors(120, 130)]);
    }
}
