//! Binary traces: little-endian, all requests of the same length.
//!
//! | bytes | |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | number of volumes |
//! | 4 | bytes of their names |
//! | ... | the names in UTF-8, each followed by a newline |
//! | 24 each | requests: `time_us` (8), `offset` (8), `length` (4), volume (4) |
//!
//! The highest bit of the volume's number is set if the request writes.

use std::io::{self, BufRead, BufWriter, Read, Write};

use diffcache_base::words::Words;
use diffcache_core::task::{Cancelled, Task};

use super::{request, Op, Reader, Request, TraceError, Volumes, BATCH, MAX_NAME, MAX_VOLUMES};

/// First bytes of a binary trace.
pub const MAGIC: &[u8] = b"DCTRACE1";
const HEADER: u64 = 16;
const RECORD: usize = 24;
const WRITES: u32 = 1 << 31;

/// Position in a binary trace.
pub struct Records {
    offset: u64,
}

impl Records {
    /// Reads what is before the requests.
    pub fn read_header(
        input: &mut impl BufRead,
        volumes: &mut Volumes,
    ) -> Result<Self, TraceError> {
        let mut header = [0; HEADER as usize];
        read_whole(input, &mut header, 0)?;
        let (count, bytes) = (Words(&header).le32(8), Words(&header).le32(12));
        if count as usize > MAX_VOLUMES || bytes as usize > MAX_VOLUMES * (MAX_NAME + 1) {
            return Err(invalid(
                8,
                format!("there are more than {MAX_VOLUMES} volumes"),
            ));
        }
        let mut names = vec![0; bytes as usize];
        read_whole(input, &mut names, HEADER)?;
        for name in names.split_inclusive(|&byte| byte == b'\n') {
            let name = name.strip_suffix(b"\n").unwrap_or(name);
            volumes
                .number(name)
                .map_err(|reason| invalid(HEADER, reason))?;
        }
        if volumes.names().len() != count as usize {
            let reason = format!("{count} different names of volumes are expected");
            return Err(invalid(HEADER, reason));
        }
        Ok(Records {
            offset: HEADER + u64::from(bytes),
        })
    }

    /// See [`super::Reader::each`].
    pub fn each(
        &mut self,
        input: &mut impl BufRead,
        volumes: &Volumes,
        mut take: impl FnMut(&Request),
    ) -> Result<usize, TraceError> {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Ok(0);
        }
        let count = (available.len() / RECORD).min(BATCH);
        if count == 0 {
            let mut record = [0; RECORD];
            read_whole(input, &mut record, self.offset)?;
            return self.each_of(&record, volumes, &mut take);
        }
        self.each_of(&available[..count * RECORD], volumes, &mut take)?;
        input.consume(count * RECORD);
        Ok(count)
    }

    fn each_of(
        &mut self,
        records: &[u8],
        volumes: &Volumes,
        take: &mut impl FnMut(&Request),
    ) -> Result<usize, TraceError> {
        let known = volumes.names().len();
        for (number, record) in records.chunks_exact(RECORD).enumerate() {
            // Without an error to hand on, which is larger than a request.
            match decode(record, known) {
                Some(found) => take(&found),
                None => {
                    self.offset += (number * RECORD) as u64;
                    return Err(self.invalid(record, volumes));
                }
            }
        }
        self.offset += records.len() as u64;
        Ok(records.len() / RECORD)
    }

    /// Returns why a request cannot be used.
    fn invalid(&self, record: &[u8], volumes: &Volumes) -> TraceError {
        let volume = Words(record).le32(20) & !WRITES;
        if volume as usize >= volumes.names().len() {
            return invalid(self.offset, format!("there is no volume {volume}"));
        }
        let (offset, length) = (Words(record).le64(8), u64::from(Words(record).le32(16)));
        match request(0, volume, Op::Read, offset, length) {
            Err(reason) => invalid(self.offset, reason),
            Ok(_) => invalid(self.offset, "the request cannot be used".into()),
        }
    }
}

#[inline(always)]
fn decode(record: &[u8], known: usize) -> Option<Request> {
    let record: &[u8; RECORD] = record.try_into().ok()?;
    let number = Words(record).le32(20);
    let found = Request {
        time_us: Words(record).le64(0),
        offset: Words(record).le64(8),
        length: Words(record).le32(16),
        volume: number & !WRITES,
        op: match number & WRITES {
            0 => Op::Read,
            _ => Op::Write,
        },
    };
    let is_known = (found.volume as usize) < known;
    let ends = found.offset.checked_add(u64::from(found.length));
    (is_known && ends.is_some()).then_some(found)
}

/// Why a trace was not packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The source cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(io::Error),
    /// The caller stopped it.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// Writes a trace in the binary form; returns the number of requests.
///
/// It is read twice, from `first` and from `second`, as the names of all volumes come before the
/// requests. `total` is its length in bytes, for the progress of `task`.
///
/// # Errors
/// The trace cannot be read, the output cannot be written, or the caller stopped the task.
pub fn pack<R: BufRead>(
    first: R,
    second: R,
    output: impl Write,
    total: u64,
    task: &Task<'_>,
) -> Result<u64, PackError> {
    let step = |reader: &mut Reader<R>, batch: &mut Vec<Request>, before: u64| {
        task.check()?;
        reader.fill(batch)?;
        if let Some(progress) = task.progress {
            progress(before + reader.bytes(), 2 * total);
        }
        Ok::<bool, PackError>(!batch.is_empty())
    };
    let mut batch = Vec::new();
    let mut reader = Reader::new(first)?;
    while step(&mut reader, &mut batch, 0)? {}
    let mut output = BufWriter::with_capacity(1 << 20, output);
    write_header(&mut output, reader.volumes().names()).map_err(PackError::Output)?;
    let mut count = 0;
    let mut reader = Reader::new(second)?;
    while step(&mut reader, &mut batch, total)? {
        count += batch.len() as u64;
        for each in &batch {
            write_request(&mut output, each).map_err(PackError::Output)?;
        }
    }
    output.flush().map_err(PackError::Output)?;
    Ok(count)
}

/// Writes what is before the requests.
pub fn write_header(output: &mut impl Write, volumes: &[String]) -> io::Result<()> {
    let bytes: usize = volumes.iter().map(|name| name.len() + 1).sum();
    output.write_all(MAGIC)?;
    output.write_all(&(volumes.len() as u32).to_le_bytes())?;
    output.write_all(&(bytes as u32).to_le_bytes())?;
    for name in volumes {
        output.write_all(name.as_bytes())?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a request.
pub fn write_request(output: &mut impl Write, request: &Request) -> io::Result<()> {
    let writes = if request.op == Op::Write { WRITES } else { 0 };
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&request.time_us.to_le_bytes());
    record[8..16].copy_from_slice(&request.offset.to_le_bytes());
    record[16..20].copy_from_slice(&request.length.to_le_bytes());
    record[20..].copy_from_slice(&(request.volume | writes).to_le_bytes());
    output.write_all(&record)
}

fn read_whole(input: &mut impl Read, into: &mut [u8], offset: u64) -> Result<(), TraceError> {
    input.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid(offset, "the file ends too early".into()),
        _ => TraceError::Io(error),
    })
}

fn invalid(offset: u64, reason: String) -> TraceError {
    TraceError::Binary { offset, reason }
}
