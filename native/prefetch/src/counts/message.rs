//! Counts as bytes.
//!
//! A message is a byte 1, its sender, the number of versions (a byte) and for each a host, its epoch and number; then the number of blocks (a byte)
//! and for each a host, the epoch, the number after which and up to which it has all changes, the number of facts, and for each the chunk, the number
//! less that of the fact before it, the count and the mean time in milliseconds. A host is a u64, little-endian; all else but the bytes named are
//! variable-length integers: 7 bits in each byte, the lowest first, with the top bit set in all but the last.

use std::collections::BTreeSet;

use thiserror::Error;

use super::{HostId, Version, MOST_HOSTS};
use crate::chunks::Chunk;

/// Bytes of a message at most.
pub const LONGEST: usize = 4096;
const FORMAT: u8 = 1;
const HOST_LEN: usize = 8;
/// Instances of a chunk at most.
const MAX_COUNT: u32 = 65_535;
/// Reads that come later say nothing of a boot, and are counted as that late: an hour.
const LATEST_MS: u32 = 3_600_000;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// it is longer than {LONGEST} bytes
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    /// it is of another format
    #[error("it is of another format")]
    Format,
    /// it ends too early, or has bytes after its end
    #[error("it ends too early, or has bytes after its end")]
    Length,
    /// a number is out of its range
    #[error("a number is out of its range")]
    Range,
    /// a host is named twice, or too many are
    #[error("a host is named twice, or too many are")]
    Hosts,
}

/// What instances of one host have read of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// The chunk.
    pub chunk: Chunk,
    /// The change of the host's counts.
    pub number: u32,
    /// Number of instances, from 1 on.
    pub count: u32,
    /// Mean time since their start, in milliseconds.
    pub mean_ms: u32,
}

impl Fact {
    /// A fact whose numbers are cut to what a message carries.
    #[must_use]
    pub fn new(chunk: Chunk, number: u32, count: u64, mean_ms: u64) -> Self {
        let cut = |value: u64, most: u32| u32::try_from(value).unwrap_or(most).min(most);
        Self {
            chunk,
            number,
            count: cut(count.max(1), MAX_COUNT),
            mean_ms: cut(mean_ms, LATEST_MS),
        }
    }

    /// Bytes that it takes after a fact of another number.
    pub(super) fn len_after(&self, number: u32) -> usize {
        let numbers = [
            self.chunk,
            self.number.saturating_sub(number),
            self.count,
            self.mean_ms,
        ];
        numbers.iter().map(|&number| len_of(number.into())).sum()
    }
}

/// Changes of one host's counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The host.
    pub host: HostId,
    /// The start in which they were counted.
    pub epoch: u64,
    /// All later changes are here ...
    pub since: u32,
    /// ... up to this one.
    pub upto: u32,
    /// The chunks that they are of, by the number of the last change of each.
    pub facts: Vec<Fact>,
}

impl Block {
    /// A block without changes.
    pub(super) fn new(host: HostId, epoch: u64, since: u32) -> Self {
        Self {
            host,
            epoch,
            since,
            upto: since,
            facts: Vec::new(),
        }
    }

    /// Bytes before its facts at most.
    pub(super) fn head_len(&self) -> usize {
        let most = len_of(u32::MAX.into());
        HOST_LEN + len_of(self.epoch) + len_of(self.since.into()) + 2 * most
    }

    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.host.to_le_bytes());
        for number in [self.epoch, self.since.into(), self.upto.into()] {
            put(bytes, number);
        }
        put(bytes, self.facts.len() as u64);
        let mut before = self.since;
        for fact in &self.facts {
            put(bytes, fact.chunk.into());
            put(bytes, fact.number.saturating_sub(before).into());
            put(bytes, fact.count.into());
            put(bytes, fact.mean_ms.into());
            before = fact.number;
        }
    }
}

/// What one host sends another with a request, or with the reply to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The host that sends it.
    pub sender: HostId,
    /// Versions of hosts' counts that the sender has.
    pub versions: Vec<(HostId, Version)>,
    /// Counts.
    pub blocks: Vec<Block>,
}

impl Message {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.encode().len()
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.sender.to_le_bytes());
        bytes.push(self.versions.len() as u8);
        for (host, version) in &self.versions {
            bytes.extend(host.to_le_bytes());
            put(&mut bytes, version.epoch);
            put(&mut bytes, version.number.into());
        }
        bytes.push(self.blocks.len() as u8);
        for block in &self.blocks {
            block.encode(&mut bytes);
        }
        bytes
    }

    /// Reads a message about an image of this many chunks.
    ///
    /// # Errors
    /// As `Malformed`. Nothing of a message is used then.
    pub fn decode(bytes: &[u8], chunks: Chunk) -> Result<Self, Malformed> {
        if bytes.len() > LONGEST {
            return Err(Malformed::TooLong);
        }
        let mut reader = Reader(bytes);
        if reader.byte()? != FORMAT {
            return Err(Malformed::Format);
        }
        let sender = reader.host()?;
        let mut versions = Vec::new();
        for _ in 0..reader.hosts()? {
            let host = reader.host()?;
            let epoch = reader.number()?;
            let number = reader.small(u32::MAX)?;
            versions.push((host, Version { epoch, number }));
        }
        let mut blocks = Vec::new();
        for _ in 0..reader.hosts()? {
            blocks.push(reader.block(chunks)?);
        }
        if !reader.0.is_empty() {
            return Err(Malformed::Length);
        }
        let named = |hosts: Vec<HostId>| BTreeSet::from_iter(hosts).len();
        let versioned = named(versions.iter().map(|(host, _)| *host).collect());
        let counted = named(blocks.iter().map(|block| block.host).collect());
        if (versioned, counted) != (versions.len(), blocks.len()) {
            return Err(Malformed::Hosts);
        }
        Ok(Self {
            sender,
            versions,
            blocks,
        })
    }
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(*first)
    }

    fn host(&mut self) -> Result<HostId, Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(HostId::from_le_bytes(*first))
    }

    fn hosts(&mut self) -> Result<u8, Malformed> {
        let count = self.byte()?;
        match usize::from(count) <= MOST_HOSTS {
            true => Ok(count),
            false => Err(Malformed::Hosts),
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed::Range);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Range)
    }

    fn small(&mut self, most: u32) -> Result<u32, Malformed> {
        let number = u32::try_from(self.number()?).ok();
        number
            .filter(|number| *number <= most)
            .ok_or(Malformed::Range)
    }

    fn block(&mut self, chunks: Chunk) -> Result<Block, Malformed> {
        let mut block = Block::new(self.host()?, self.number()?, self.small(u32::MAX)?);
        let upto = self.small(u32::MAX)?;
        for _ in 0..self.number()? {
            let fact = Fact {
                chunk: self.small(u32::MAX)?,
                number: block
                    .upto
                    .checked_add(self.small(u32::MAX)?)
                    .ok_or(Malformed::Range)?,
                count: self.small(MAX_COUNT)?,
                mean_ms: self.small(LATEST_MS)?,
            };
            if fact.chunk >= chunks || fact.number <= block.upto || fact.count == 0 {
                return Err(Malformed::Range);
            }
            block.upto = fact.number;
            block.facts.push(fact);
        }
        if upto < block.upto {
            return Err(Malformed::Range);
        }
        block.upto = upto;
        Ok(block)
    }
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn len_of(value: u64) -> usize {
    let bits = (u64::BITS - value.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}
