//! Parts of a source as sources: a range of its bytes, and everything but some clusters.

use diffcache_core::source::{ReadAt, SourceError};

/// The bytes from `start` on, `length` of them.
pub struct Section<S> {
    source: S,
    start: u64,
    length: u64,
}

impl<S: ReadAt> Section<S> {
    /// Returns a range of `source`; what is beyond its end is cut off.
    pub fn new(source: S, start: u64, length: u64) -> Self {
        let start = start.min(source.len());
        let length = length.min(source.len() - start);
        Self {
            source,
            start,
            length,
        }
    }
}

impl<S: ReadAt> ReadAt for Section<S> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        check_range("part of a patch", self.length, buf.len(), offset)?;
        self.source.read_exact_at(buf, self.start + offset)
    }
}

fn check_range(name: &str, len: u64, wanted: usize, offset: u64) -> Result<(), SourceError> {
    let end = offset.saturating_add(wanted as u64);
    if end > len {
        return Err(SourceError::PastEnd {
            name: name.to_owned(),
            len,
            end,
        });
    }
    Ok(())
}

/// A source of which some clusters read as zeroes.
pub struct Masked<S> {
    source: S,
    cluster_size: u64,
    masked: Vec<u64>,
}

impl<S: ReadAt> Masked<S> {
    /// Hides the clusters in `masked`, which is sorted.
    pub fn new(source: S, cluster_size: u64, masked: Vec<u64>) -> Self {
        Self {
            source,
            cluster_size,
            masked,
        }
    }

    fn first_masked(&self, offset: u64) -> usize {
        self.masked
            .partition_point(|&cluster| cluster < offset / self.cluster_size)
    }
}

impl<S: ReadAt> ReadAt for Masked<S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        check_range("image", self.len(), buf.len(), offset)?;
        let end = offset + buf.len() as u64;
        let mut at = offset;
        for &cluster in &self.masked[self.first_masked(offset)..] {
            let start = (cluster * self.cluster_size).clamp(at, end);
            let stop = ((cluster + 1) * self.cluster_size).clamp(start, end);
            self.source.read_exact_at(
                &mut buf[(at - offset) as usize..(start - offset) as usize],
                at,
            )?;
            buf[(start - offset) as usize..(stop - offset) as usize].fill(0);
            at = stop;
            if at == end {
                return Ok(());
            }
        }
        self.source
            .read_exact_at(&mut buf[(at - offset) as usize..], at)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let mut at = offset;
        // Step over masked clusters; data that is cut short by one is a shorter range.
        while let Some((start, end)) = self.source.next_data(at)? {
            let cluster = start / self.cluster_size;
            let next = self.first_masked(start);
            match self.masked.get(next) {
                Some(&hit) if hit == cluster => at = (cluster + 1) * self.cluster_size,
                Some(&hit) => return Ok(Some((start, end.min(hit * self.cluster_size)))),
                None => return Ok(Some((start, end))),
            }
            if at >= self.len() {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_it_says() {
        let bytes: Vec<u8> = (0..100).collect();
        let section = Section::new(&bytes, 10, 20);
        let mut buf = [0; 20];
        section.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(buf[..], bytes[10..30]);
        assert!(section.read_exact_at(&mut buf, 1).is_err());
        assert_eq!(Section::new(&bytes, 90, 50).len(), 10);
        assert_eq!(Section::new(&bytes, 900, 50).len(), 0);
    }

    #[test]
    fn masked_clusters_read_as_zeroes() {
        let bytes = vec![7_u8; 50];
        let masked = Masked::new(&bytes, 8, vec![0, 2, 3, 6]);
        let mut all = vec![1; 50];
        masked.read_exact_at(&mut all, 0).unwrap();
        for (at, &byte) in all.iter().enumerate() {
            let expected = if [0, 2, 3, 6].contains(&(at / 8)) {
                0
            } else {
                7
            };
            assert_eq!(byte, expected, "at {at}");
        }
        for start in 0..50_usize {
            for end in start..50 {
                let mut some = vec![1; end - start];
                masked.read_exact_at(&mut some, start as u64).unwrap();
                assert_eq!(some, all[start..end]);
            }
        }
    }

    #[test]
    fn data_lies_between_masked_clusters() {
        let bytes = vec![7_u8; 50];
        let masked = Masked::new(&bytes, 8, vec![0, 2, 3, 6]);
        assert_eq!(masked.next_data(0).unwrap(), Some((8, 16)));
        assert_eq!(masked.next_data(17).unwrap(), Some((32, 48)));
        assert_eq!(masked.next_data(48).unwrap(), None);
    }
}
