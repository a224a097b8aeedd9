//! What a guest asks of its disk. Names and numbers are those of Virtio 1.2, section 5.2.

use std::io;

use diffcache_base::words::Words;
use diffcache_nbd::protocol::MAX_DATA;

use crate::memory::{Memory, Segment};
use crate::message::invalid;
use crate::ring::Chain;

pub const SECTOR: u64 = 512;
/// Bytes in front of the data of a request.
const HEADER: usize = 16;
/// Bytes of the range of a discard.
const RANGE: u64 = 16;
/// Bytes of a disk's serial number.
pub const ID_BYTES: usize = 20;
/// Sectors that are discarded at once, at most.
pub const MOST_SECTORS: u32 = 1 << 21;

mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Ok = 0,
    Failed = 1,
    Unsupported = 2,
}

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Read { offset: u64, length: u32 },
    Write { offset: u64, length: u32 },
    Discard { offset: u64, length: u32 },
    Zero { offset: u64, length: u32 },
    Flush,
    Id,
    Refuse(Status),
}

/// A request whose answer can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub work: Work,
    /// The byte that has its status.
    pub status: Segment,
}

/// Removes the first bytes of segments.
fn skip(segments: &mut Vec<Segment>, mut bytes: u32) {
    let whole = segments.iter().take_while(|segment| {
        let is_whole = segment.length <= bytes;
        bytes -= if is_whole { segment.length } else { 0 };
        is_whole
    });
    let whole = whole.count();
    segments.drain(..whole);
    if let Some(first) = segments.first_mut().filter(|_| bytes > 0) {
        first.address.0 = first.address.0.wrapping_add(u64::from(bytes));
        first.length -= bytes;
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.length))
        .sum()
}

/// Takes the last byte of segments.
fn take_status(segments: &mut Vec<Segment>) -> io::Result<Segment> {
    while let Some(last) = segments.last_mut() {
        if let Some(rest) = last.length.checked_sub(1) {
            let mut address = last.address;
            address.0 = address.0.wrapping_add(u64::from(rest));
            last.length = rest;
            if rest == 0 {
                segments.pop();
            }
            return Ok(Segment { address, length: 1 });
        }
        segments.pop();
    }
    Err(invalid("a request has no room for its status"))
}

/// Reads what a request is, of a disk of a size; its data are left in the chain.
///
/// # Errors
/// It cannot be answered.
pub fn parse(memory: &Memory, chain: &mut Chain, size: u64) -> io::Result<Request> {
    let status = take_status(&mut chain.writable)?;
    let refuse = |how| {
        Ok(Request {
            work: Work::Refuse(how),
            status,
        })
    };
    let mut header = [0; HEADER];
    let mut filled = 0;
    for segment in &chain.readable {
        let count = (segment.length as usize).min(HEADER - filled);
        memory.read(&mut header[filled..filled + count], segment.address)?;
        filled += count;
    }
    if filled < HEADER {
        return refuse(Status::Failed);
    }
    skip(&mut chain.readable, HEADER as u32);
    let words = Words(&header);
    let sector = words.le64(8);
    let (readable, writable) = (total(&chain.readable), total(&chain.writable));
    let work = match words.le32(0) {
        kind::IN => {
            place(sector, writable, size).map(|(offset, length)| Work::Read { offset, length })
        }
        kind::OUT => {
            place(sector, readable, size).map(|(offset, length)| Work::Write { offset, length })
        }
        kind::FLUSH => Some(Work::Flush),
        kind::GET_ID if writable >= ID_BYTES as u64 => Some(Work::Id),
        kind::GET_ID => None,
        kind @ (kind::DISCARD | kind::WRITE_ZEROES) if readable == RANGE => {
            let mut range = Vec::with_capacity(RANGE as usize);
            memory.gather(&chain.readable, &mut range)?;
            let words = Words(&range);
            let sectors = words.le32(8);
            let known = if kind == kind::DISCARD { 0 } else { 1 };
            if words.le32(12) & !known != 0 {
                return refuse(Status::Unsupported);
            }
            let bytes = u64::from(sectors) * SECTOR;
            let place = place(words.le64(0), bytes, size).filter(|_| sectors <= MOST_SECTORS);
            place.map(|(offset, length)| match kind {
                kind::DISCARD => Work::Discard { offset, length },
                _ => Work::Zero { offset, length },
            })
        }
        kind::DISCARD | kind::WRITE_ZEROES => None,
        _ => return refuse(Status::Unsupported),
    };
    let is_short = |work: &Work| match work {
        Work::Read { length, .. } | Work::Write { length, .. } => *length <= MAX_DATA,
        _ => true,
    };
    match work.filter(is_short) {
        Some(work) => Ok(Request { work, status }),
        None => refuse(Status::Failed),
    }
}

/// The place of whole sectors on a disk, if it has them.
fn place(sector: u64, bytes: u64, size: u64) -> Option<(u64, u32)> {
    let offset = sector.checked_mul(SECTOR)?;
    let inside = offset.checked_add(bytes)? <= size;
    let length = u32::try_from(bytes).ok()?;
    (inside && bytes > 0 && bytes % SECTOR == 0).then_some((offset, length))
}
