//! Traces of volumes' requests: text, or a binary form that is read without parsing.
//!
//! A text trace has a line `time_us,volume,op,offset,length` for each request: microseconds, the
//! name of the volume, `r` or `w`, and bytes. The first line may have the names of the columns.
//! The binary form ([`binary`]) has the same requests.

pub mod ahead;
pub mod binary;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::ops::Range;
use std::path::Path;

use diffcache_partitions::Block;

use ahead::Ahead;

/// Most bytes of one request, as of NBD.
pub const MAX_LENGTH: u64 = u32::MAX as u64;
/// Most volumes of one trace.
pub const MAX_VOLUMES: usize = 1 << 20;
/// Most bytes of a volume's name.
pub const MAX_NAME: usize = 255;

/// Requests that [`Reader::fill`] returns at once, at most.
pub const BATCH: usize = 1 << 14;

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The request reads.
    Read,
    /// The request writes.
    Write,
}

/// One request to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Microseconds since any moment.
    pub time_us: u64,
    /// Bytes.
    pub offset: u64,
    /// Bytes; `offset + length` does not overflow.
    pub length: u32,
    /// Index in [`Reader::volumes`].
    pub volume: u32,
    /// What it does.
    pub op: Op,
}

impl Request {
    /// Returns the blocks that the request touches, each of them one reference.
    ///
    /// `block` is the block size in bytes.
    pub fn blocks(&self, block: u64) -> Range<Block> {
        if self.length == 0 {
            return 0..0;
        }
        let last = self.offset + u64::from(self.length) - 1;
        // A division takes longer than all else that is done for a request of a sample.
        let block_of = |byte: u64| match block.is_power_of_two() {
            true => byte >> block.trailing_zeros(),
            false => byte / block,
        };
        block_of(self.offset)..block_of(last) + 1
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line of a text trace.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A binary trace.
    #[error("byte {offset}: {reason}")]
    Binary {
        /// Of the file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The file.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The names of a trace's volumes, in the order of their first request.
#[derive(Debug, Default)]
pub struct Volumes {
    names: Vec<String>,
    numbers: HashMap<Box<[u8]>, u32>,
    // Adjacent requests are often of the same volume.
    last: Option<(Box<[u8]>, u32)>,
}

impl Volumes {
    /// Returns the names; a volume's number is the index of its name.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of a volume, a new one for a new name.
    fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some((last, number)) = &self.last {
            if **last == *name {
                return Ok(*number);
            }
        }
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => self.add(name)?,
        };
        self.last = Some((name.into(), number));
        Ok(number)
    }

    fn add(&mut self, name: &[u8]) -> Result<u32, String> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(format!("a volume's name has 1 to {MAX_NAME} bytes"));
        }
        let text = std::str::from_utf8(name).map_err(|_| "the volume's name is not UTF-8")?;
        if text.chars().any(char::is_control) {
            return Err("the volume's name has control characters".into());
        }
        if self.names.len() == MAX_VOLUMES {
            return Err(format!("there are more than {MAX_VOLUMES} volumes"));
        }
        let number = self.names.len() as u32;
        self.names.push(text.to_owned());
        self.numbers.insert(name.into(), number);
        Ok(number)
    }
}

enum Form {
    Text(text::Lines),
    Binary(binary::Records),
}

/// What follows the first bytes, which say what form a trace has.
type Input<R> = io::Chain<Cursor<Vec<u8>>, Counted<R>>;

/// Counts the bytes that are used.
struct Counted<R> {
    source: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(into)?;
        self.bytes += length as u64;
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.source.consume(amount);
        self.bytes += amount as u64;
    }
}

/// Reads a trace from its beginning to its end.
pub struct Reader<R> {
    input: Input<R>,
    form: Form,
    volumes: Volumes,
    /// Requests of a text trace.
    batch: Vec<Request>,
}

impl Reader<Ahead> {
    /// Opens a trace, text or binary, which another thread reads ahead.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Reader::new(Ahead::new(File::open(path)?)?)
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads a trace, text or binary, from the current position of a source.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let mut source = Counted { source, bytes: 0 };
        let mut first = Vec::new();
        source
            .by_ref()
            .take(binary::MAGIC.len() as u64)
            .read_to_end(&mut first)?;
        let is_binary = first == binary::MAGIC;
        let mut input = Cursor::new(first).chain(source);
        let mut volumes = Volumes::default();
        let form = if is_binary {
            Form::Binary(binary::Records::read_header(&mut input, &mut volumes)?)
        } else {
            Form::Text(text::Lines::default())
        };
        Ok(Reader {
            input,
            form,
            volumes,
            batch: Vec::new(),
        })
    }

    /// Returns how many bytes of the source were used.
    pub fn bytes(&self) -> u64 {
        let (_first, source) = self.input.get_ref();
        source.bytes
    }

    /// Returns the volumes of the requests that were read so far.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Replaces the content of `batch` by the next requests, up to [`BATCH`].
    ///
    /// None are left if it is empty afterwards.
    pub fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        batch.clear();
        match &mut self.form {
            Form::Text(lines) => lines.fill(&mut self.input, &mut self.volumes, batch),
            Form::Binary(_) => self.each(|request| batch.push(*request)).map(|_| ()),
        }
    }

    /// Calls `take` with the next requests, up to [`BATCH`]; returns how many there were.
    ///
    /// None are left if it is 0. Requests of a binary trace are not stored in between.
    pub fn each(&mut self, mut take: impl FnMut(&Request)) -> Result<usize, TraceError> {
        match &mut self.form {
            Form::Binary(records) => records.each(&mut self.input, &self.volumes, take),
            Form::Text(lines) => {
                let mut batch = std::mem::take(&mut self.batch);
                batch.clear();
                lines.fill(&mut self.input, &mut self.volumes, &mut batch)?;
                batch.iter().for_each(&mut take);
                let count = batch.len();
                self.batch = batch;
                Ok(count)
            }
        }
    }
}

/// Returns a request, or why there is none like this.
fn request(time_us: u64, volume: u32, op: Op, offset: u64, length: u64) -> Result<Request, String> {
    if length > MAX_LENGTH {
        return Err(format!(
            "the length {length} is more than {MAX_LENGTH} bytes"
        ));
    }
    if offset.checked_add(length).is_none() {
        return Err(format!("the request ends beyond {} bytes", u64::MAX));
    }
    Ok(Request {
        time_us,
        offset,
        length: length as u32,
        volume,
        op,
    })
}

#[cfg(test)]
mod tests;
