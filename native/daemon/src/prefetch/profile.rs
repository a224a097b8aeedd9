//! Profiles in files that users give, and as workers get them from the keeper.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use diffcache_prefetch::{Chunk, ChunkSet, Profile, ProfileError};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;

use crate::sizes::CHUNK;

/// The format of profiles.
pub const FORMAT: u64 = 1;
/// Bytes of a profile's file at most.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// Instances of a chunk at most.
const MAX_COUNT: u64 = u32::MAX as u64;
/// Microseconds since an instance's start at most.
const MAX_MEAN_US: f64 = 1e14;
/// Bytes of a row in memory: chunk, count and mean, little-endian, 8 bytes each.
const ROW_LEN: usize = 24;
const HEADER_LEN: u64 = 16;
/// How long a profile may take to be replaced.
const REPLACE_TIME: Duration = Duration::from_secs(5);

/// Why a file has no usable profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFileError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is too long.
    #[error("longer than {MAX_FILE_BYTES} bytes")]
    TooLong,
    /// The file is not JSON, or an entry of it cannot be used.
    #[error(
        "{0}; expected an object with {FORMAT} as \"format\", the bytes of its chunks as \"chunk\", and a list of [chunk, count, mean_us] as \"profile\""
    )]
    Content(#[from] serde_json::Error),
    /// Rows that make no profile.
    #[error("{0}")]
    Rows(#[from] ProfileError),
    /// The object has no profile, or does not say of which format and chunks.
    #[error("the object has no \"{0}\": name the output of diffcache lazy replay")]
    Absent(&'static str),
}

type Row = (Chunk, u64, f64);

/// Read the profile of an image of this many chunks from a file.
///
/// # Errors
/// As `ProfileFileError`; the entry is named.
pub fn load(path: &Path, chunks: u64) -> Result<Profile, ProfileFileError> {
    parse(&read(path)?, chunks)
}

/// Read a file that may be a profile.
///
/// # Errors
/// `Read`, `TooLong`.
pub fn read(path: &Path) -> Result<Vec<u8>, ProfileFileError> {
    let mut text = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(ProfileFileError::TooLong),
        false => Ok(text),
    }
}

/// Parse the profile of an image of this many chunks.
///
/// # Errors
/// As `ProfileFileError`; the entry is named.
pub fn parse(text: &[u8], chunks: u64) -> Result<Profile, ProfileFileError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let found = json.deserialize_map(Document { chunks })?;
    json.end()?;
    if !found.has_format {
        return Err(ProfileFileError::Absent("format"));
    }
    let rows = found.rows.ok_or(ProfileFileError::Absent("profile"))?;
    match found.has_chunk {
        true => Ok(Profile::from_rows(rows)?),
        false => Err(ProfileFileError::Absent("chunk")),
    }
}

/// What an object has.
#[derive(Default)]
struct Found {
    has_format: bool,
    rows: Option<Vec<Row>>,
    has_chunk: bool,
}

/// An object with rows, and the bytes of a chunk.
struct Document {
    chunks: u64,
}

impl<'de> Visitor<'de> for Document {
    type Value = Found;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Found::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => {
                    let format: Number = map.next_value()?;
                    if format.as_u64() != Some(FORMAT) {
                        return Err(A::Error::custom(format!(
                            "it has format {format}, and this program reads format {FORMAT} alone"
                        )));
                    }
                    found.has_format = true;
                }
                "profile" => {
                    let rows = Rows {
                        chunks: self.chunks,
                    };
                    found.rows = Some(map.next_value_seed(rows)?);
                }
                "chunk" => {
                    let chunk: u64 = map.next_value()?;
                    if chunk != CHUNK {
                        return Err(A::Error::custom(format!(
                            "its chunks have {chunk} bytes, not {CHUNK}"
                        )));
                    }
                    found.has_chunk = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// The rows; each is checked before the next is read, so that a file cannot take more memory than the image's chunks do.
struct Rows {
    chunks: u64,
}

impl<'de> DeserializeSeed<'de> for Rows {
    type Value = Vec<Row>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows {
    type Value = Vec<Row>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut rows, mut seen) = (Vec::new(), ChunkSet::default());
        loop {
            let refuse =
                |reason: String| A::Error::custom(format!("entry {}: {reason}", rows.len()));
            let row = seq.next_element::<(Number, Number, Number)>();
            let Some(row) = row.map_err(|error| refuse(error.to_string()))? else {
                return Ok(rows);
            };
            let row = self.check(&row).map_err(refuse)?;
            if !seen.insert(row.0) {
                return Err(refuse(format!("chunk {} is listed twice", row.0)));
            }
            rows.push(row);
        }
    }
}

impl Rows {
    fn check(&self, (chunk, count, mean_us): &(Number, Number, Number)) -> Result<Row, String> {
        let number = chunk.as_u64().filter(|chunk| *chunk < self.chunks);
        let Some(number) = number.and_then(|chunk| Chunk::try_from(chunk).ok()) else {
            return Err(format!(
                "chunk {chunk} is not a whole number 0..{}",
                self.chunks.saturating_sub(1)
            ));
        };
        let readers = count
            .as_u64()
            .filter(|count| (1..=MAX_COUNT).contains(count));
        let Some(readers) = readers else {
            return Err(format!(
                "count {count} is not a whole number 1..{MAX_COUNT}"
            ));
        };
        let mean = mean_us
            .as_f64()
            .filter(|mean| (0.0..=MAX_MEAN_US).contains(mean));
        let Some(mean) = mean else {
            return Err(format!("mean {mean_us} is not a number 0..{MAX_MEAN_US}"));
        };
        Ok((number, readers, mean))
    }
}

/// Write a profile to memory that a process started later can read.
///
/// # Errors
/// Of the system.
pub fn share(profile: &Profile) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("profile", rustix::fs::MemfdFlags::empty())?;
    replace(&fd, profile)?;
    Ok(fd)
}

/// Put a profile in place of the one that was shared. The first word is odd meanwhile, and another one afterwards; the second is the number of rows.
///
/// # Errors
/// Of the system.
pub fn replace(fd: impl AsFd, profile: &Profile) -> io::Result<()> {
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    let begun = read_words(&file)?.map_or(0, |[number, _]| number) | 1;
    file.write_all_at(&begun.to_le_bytes(), 0)?;
    let mut bytes = Vec::with_capacity(profile.len() * ROW_LEN);
    for (chunk, count, mean_us) in profile.rows() {
        bytes.extend(u64::from(chunk).to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(mean_us.to_le_bytes());
    }
    file.write_all_at(&bytes, HEADER_LEN)?;
    file.write_all_at(&(profile.len() as u64).to_le_bytes(), 8)?;
    file.write_all_at(&(begun + 1).to_le_bytes(), 0)
}

/// Read a profile that was shared.
///
/// # Errors
/// Of the system, or `InvalidData`.
pub fn from_shared(fd: impl AsFd) -> io::Result<Profile> {
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    let start = Instant::now();
    loop {
        let header = read_words(&file)?;
        let Some([number, rows]) = header else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let left = file.metadata()?.len().saturating_sub(HEADER_LEN);
        let mut bytes = vec![0; rows.min(left / ROW_LEN as u64) as usize * ROW_LEN];
        file.read_exact_at(&mut bytes, HEADER_LEN)?;
        // Unless it was replaced meanwhile.
        if number % 2 == 0 && read_words(&file)? == header {
            let rows = bytes.chunks_exact(ROW_LEN);
            let rows = rows.filter_map(|row| decode(row.first_chunk()?));
            return Profile::from_rows(rows)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if start.elapsed() > REPLACE_TIME {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Read the two words before the rows; none if there is nothing yet.
fn read_words(file: &File) -> io::Result<Option<[u64; 2]>> {
    let mut bytes = [0; HEADER_LEN as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let word = |at: usize| bytes.get(at..)?.first_chunk().copied();
    let words = word(0).zip(word(8));
    Ok(words.map(|(one, other)| [u64::from_le_bytes(one), u64::from_le_bytes(other)]))
}

fn decode(bytes: &[u8; ROW_LEN]) -> Option<Row> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().copied();
    let chunk = Chunk::try_from(u64::from_le_bytes(word(0)?)).ok()?;
    Some((
        chunk,
        u64::from_le_bytes(word(8)?),
        f64::from_le_bytes(word(16)?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Row>, String> {
        let profile = super::parse(text.as_bytes(), 10).map_err(|error| error.to_string())?;
        Ok(profile.rows().collect())
    }

    fn parse_rows(rows: &str) -> Result<Vec<Row>, String> {
        parse(&format!(
            r#"{{"format":1,"chunk":262144,"profile":{rows}}}"#
        ))
    }

    #[test]
    fn an_object_with_rows_and_the_bytes_of_a_chunk_is_a_profile() {
        let rows = vec![(3, 2, 1.5), (9, 1, 0.0)];
        let object = r#"{"mode":"later","events":[{"a":[1]}],"profile":[[9,1,0],[3,2,1.5]],"chunk":262144,"format":1}"#;
        assert_eq!(Ok(rows.clone()), parse(object));
        assert_eq!(Ok(rows), parse_rows("[[9,1,0],[3,2,1.5]]"));
        assert_eq!(Ok(vec![]), parse_rows("[]"));
    }

    /// Regression: rows of other chunks were used as if they were of these.
    #[test]
    fn a_profile_that_does_not_say_of_which_chunks_it_is_is_refused() {
        for text in ["[[3,2,1.5]]", r#"{"format":1,"profile":[[3,2,1.5]]}"#] {
            let found = parse(text).unwrap_err();
            assert!(found.contains("\"chunk\""), "{text}: {found}");
        }
    }

    #[test]
    fn a_profile_of_another_format_is_refused_by_its_number() {
        for format in ["2", "0", "1.5", "-1"] {
            let text = format!(r#"{{"format":{format},"profile":7}}"#);
            let found = parse(&text).unwrap_err();
            assert!(found.contains(&format!("has format {format},")), "{found}");
        }
        let found = parse(r#"{"chunk":262144,"profile":[]}"#).unwrap_err();
        assert!(found.contains("no \"format\""), "{found}");
    }

    #[test]
    fn hostile_ones_are_refused_and_the_entry_is_named() {
        for (text, reason) in [
            ("[[0,1,1],[10,1,1]]", "entry 1: chunk 10 is not"),
            ("[[-1,1,1]]", "entry 0: chunk -1 is not"),
            ("[[1.5,1,1]]", "entry 0: chunk 1.5 is not"),
            ("[[18446744073709551616,1,1]]", "entry 0: chunk 1.8"),
            ("[[0,0,1]]", "entry 0: count 0"),
            ("[[0,4294967296,1]]", "entry 0: count 4294967296"),
            ("[[0,1,-1]]", "entry 0: mean -1"),
            ("[[0,1,1e15]]", "entry 0: mean 1000000000000000"),
            ("[[0,1,1e999]]", "entry 0: number out of range"),
            ("[[0,1,1],[0,1,1]]", "entry 1: chunk 0 is listed twice"),
            ("[[0,1]]", "entry 0: invalid length"),
            ("[[0,1,1,1]]", "entry 0:"),
            ("[[0,1,null]]", "entry 0:"),
            ("null", "a list of rows"),
            ("[]} x", "trailing"),
        ] {
            let found = parse_rows(text).unwrap_err();
            assert!(found.contains(reason), "{text}: {found}");
        }
        for (text, reason) in [
            (r#"{"profile":[[0,1,1],[1,"#, "entry 1: EOF"),
            ("", "EOF"),
            ("7", "invalid type"),
            (r#"{"format":1}"#, "no \"profile\""),
            (
                r#"{"chunk":4096,"profile":[]}"#,
                "its chunks have 4096 bytes",
            ),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(reason), "{text}: {found}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
        assert!(parse(&format!("{{\"x\":{deep}")).is_err());
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(matches!(
            load(file.path(), 10),
            Err(ProfileFileError::TooLong)
        ));
    }

    #[test]
    fn every_worker_gets_the_profile() {
        let profile = Profile::from_rows([(3, 2, 1.5), (9, 1, 0.0)]).unwrap();
        let shared = share(&profile).unwrap();
        assert_eq!(profile, from_shared(&shared).unwrap());
        assert_eq!(profile, from_shared(&shared).unwrap());
        let shorter = Profile::from_rows([(7, 1, 1.0)]).unwrap();
        replace(&shared, &shorter).unwrap();
        assert_eq!(shorter, from_shared(&shared).unwrap());
    }
}
