//! Base images: the names of their blocks, so that a disk is compared with its base without reading the base again.
//!
//! File format, version 1, little-endian: `DCVBASE1`, u32 version, u32 block size, u64 bytes of the base, 24 bytes of name for each block
//! (zero bytes for a block of zeroes), and the BLAKE3 of everything before.

use diffcache_core::manifest::is_zero;
use diffcache_core::source::{data_after, ReadAt};
use diffcache_core::task::{for_each_piece, Task};

use crate::error::Result;
use crate::store::codec::{Cursor, VERSION};
use crate::store::crypt::{Cipher, Name, NAME_LEN};
use crate::store::pack_index::checked;

const MAGIC: &[u8; 8] = b"DCVBASE1";
const ZERO: Name = [0; NAME_LEN];
const PIECE: u64 = 4 << 20;

/// The names of a base image's blocks.
pub struct BaseIndex {
    block_size: u32,
    size: u64,
    names: Vec<Name>,
}

/// What a base image has at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseBlock<'a> {
    /// Zeroes, or nothing: it is shorter.
    Zero,
    /// A block of this name.
    Data(&'a Name),
}

impl BaseIndex {
    /// Reads a base image once, holes not at all.
    ///
    /// # Errors
    /// `Source`, `Cancelled`.
    pub fn create(
        base: &dyn ReadAt,
        block_size: u32,
        cipher: &Cipher,
        task: &Task<'_>,
    ) -> Result<Self> {
        let size = base.len();
        let meter = task.meter(size);
        let pieces = for_each_piece(task, size.div_ceil(PIECE), |piece| {
            let start = piece * PIECE;
            let len = PIECE.min(size - start);
            let names = name_piece(base, start, len, block_size, cipher)?;
            meter.add(len);
            Ok::<_, crate::error::VersionsError>(names)
        })?;
        Ok(Self {
            block_size,
            size,
            names: pieces.concat(),
        })
    }

    /// What the base has at a block's place.
    pub fn block(&self, block: u64) -> BaseBlock<'_> {
        match usize::try_from(block)
            .ok()
            .and_then(|at| self.names.get(at))
        {
            Some(name) if *name != ZERO => BaseBlock::Data(name),
            _ => BaseBlock::Zero,
        }
    }

    /// Bytes of the base.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The index as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.block_size.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(self.names.as_flattened());
        let check = blake3::hash(&out);
        out.extend_from_slice(check.as_bytes());
        out
    }

    /// Reads an index.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8], block_size: u32, object: &str) -> Result<Self> {
        let mut cursor = Cursor::new(checked(bytes, object)?, object);
        cursor.head(MAGIC, "index of a base image")?;
        if cursor.u32()? != block_size {
            return Err(cursor.error("its blocks have another size"));
        }
        let size = cursor.u64()?;
        let count = usize::try_from(size.div_ceil(u64::from(block_size)));
        let names = cursor.take(count.unwrap_or(usize::MAX).saturating_mul(NAME_LEN))?;
        let names = names
            .chunks_exact(NAME_LEN)
            .filter_map(|name| name.try_into().ok())
            .collect();
        match cursor.is_empty() {
            true => Ok(Self {
                block_size,
                size,
                names,
            }),
            false => Err(cursor.error("it is longer than it says")),
        }
    }
}

fn name_piece(
    base: &dyn ReadAt,
    start: u64,
    len: u64,
    block_size: u32,
    cipher: &Cipher,
) -> Result<Vec<Name>> {
    let block = u64::from(block_size);
    let mut names = vec![ZERO; len.div_ceil(block) as usize];
    let mut at = start;
    let mut data = Vec::new();
    while let Some((from, to)) = data_after(base, at)? {
        let (from, to) = (
            from.max(at) / block * block,
            to.next_multiple_of(block).min(start + len),
        );
        if from >= start + len {
            break;
        }
        data.clear();
        data.resize((to - from) as usize, 0);
        base.read_exact_at(&mut data, from)?;
        // The last block of a base may be short: a guest reads zeroes after it.
        data.resize(data.len().next_multiple_of(block as usize), 0);
        for (bytes, i) in data.chunks_exact(block as usize).zip(0..) {
            if !is_zero(bytes) {
                names[((from - start) / block) as usize + i] = cipher.name(bytes);
            }
        }
        at = to;
        if at >= start + len {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_what_the_base_has() {
        let cipher = Cipher::new(None);
        let mut base = vec![0; 4096 * 3 + 10];
        base[5000] = 1;
        base[4096 * 3] = 2;
        let index = BaseIndex::create(&base, 4096, &cipher, &Task::default()).unwrap();
        let index = BaseIndex::decode(&index.encode(), 4096, "base").unwrap();
        assert_eq!(index.size(), base.len() as u64);
        assert_eq!(index.block(0), BaseBlock::Zero);
        assert_eq!(
            index.block(1),
            BaseBlock::Data(&cipher.name(&base[4096..8192]))
        );
        assert_eq!(index.block(9), BaseBlock::Zero);
        let mut last = vec![0; 4096];
        last[0] = 2;
        assert_eq!(index.block(3), BaseBlock::Data(&cipher.name(&last)));
        assert!(BaseIndex::decode(&index.encode()[1..], 4096, "base").is_err());
    }
}
