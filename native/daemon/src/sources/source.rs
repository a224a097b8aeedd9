//! Where chunks come from.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use diffcache_dataplane::serving::referrals::HostName;

use crate::sizes::CHUNK;

/// Longest time for one request, so that a silent server is left.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);
/// A server that asks to be left alone for longer is asked again after this.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Why a source did not serve a range. All are tried again until the read's time is over.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    /// The file or the server cannot be reached, or stops in the middle.
    #[error("{0}")]
    Unreachable(String),
    /// The server sent the whole image instead of a range.
    #[error("the server ignores Range requests: serve the image from one that answers them")]
    NoRange,
    /// The server refused.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The server refused, and asks for a delay.
    #[error("HTTP status {0}, to be asked again after {1:?}")]
    Busy(u16, Duration),
    /// The host does not have the image.
    #[error("{0}")]
    Absent(String),
    /// The host is busy, and names another one, which has the bytes or is getting them.
    #[error("it is busy, and names host {}", .0.as_str())]
    Referred(HostName),
    /// The host can be connected to, and sends nothing.
    #[error("{0}")]
    Silent(String),
    /// The bytes are not what their own checksum or header says, or contradict the image.
    #[error("{0}")]
    Wrong(String),
    /// The server sent less than it promised.
    #[error("fewer bytes than asked for ({0})")]
    Short(String),
    /// The server answered with another range.
    #[error("asked for {asked}, received Content-Range {received:?}")]
    OtherRange {
        /// The range asked for.
        asked: String,
        /// What the server says that it sent.
        received: String,
    },
}

impl SourceError {
    /// Return whether the source is not the one to ask for this image.
    pub fn is_absent(&self) -> bool {
        matches!(self, SourceError::Absent(_))
    }

    /// Return whether the source sent bytes that cannot be the image's.
    pub fn is_wrong(&self) -> bool {
        matches!(self, SourceError::Wrong(_))
    }

    /// Return how long the source asks to be left alone.
    pub fn delay(&self) -> Duration {
        match self {
            SourceError::Busy(_, delay) => *delay,
            _ => Duration::ZERO,
        }
    }
}

impl From<io::Error> for SourceError {
    fn from(error: io::Error) -> SourceError {
        SourceError::Unreachable(error.to_string())
    }
}

/// What a source sent. None of it is verified.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The bytes that were asked for.
    pub bytes: Vec<u8>,
    /// Chunks that came with them, by number.
    pub others: Vec<(u64, Vec<u8>)>,
    /// Bytes that crossed the network, or were read.
    pub moved: u64,
    /// Those of them that are of a patch.
    pub of_patch: u64,
}

impl Fetched {
    /// Take bytes that crossed as they are, with nothing besides.
    pub fn plain(bytes: Vec<u8>) -> Fetched {
        Fetched {
            moved: bytes.len() as u64,
            bytes,
            ..Fetched::default()
        }
    }
}

/// Called with all that has arrived of what is fetched, from its beginning, each time that more has.
pub type Arrived<'a> = &'a mut dyn FnMut(&[u8]);

/// What serves ranges of an image. Its bytes are not trusted.
pub trait Source: Send + Sync {
    /// Path or URL.
    fn name(&self) -> &str;

    /// Return whether it is a host of the site.
    fn is_near(&self) -> bool {
        false
    }

    /// Return whether it answers at all.
    fn is_alive(&self) -> bool {
        true
    }

    /// Note that something it sent was wrong: what is kept of that is not used again.
    fn distrust(&self) {}

    /// Read what is needed before the first chunk, such as an index, within `limit`, so that the first read does not wait for it.
    ///
    /// # Errors
    /// As `SourceError`; a fetch reads it again.
    fn prepare(&self, limit: Duration) -> Result<(), SourceError> {
        let _ = limit;
        Ok(())
    }

    /// Fetch adjacent chunks of `len` bytes, and what is no dearer with them, within `limit`. One whose bytes come one after the other over a network
    /// tells what has `arrived`.
    ///
    /// # Errors
    /// As `SourceError`.
    fn fetch(
        &self,
        run: &Range<u64>,
        len: usize,
        limit: Duration,
        arrived: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        let _ = arrived;
        let mut bytes = vec![0; len];
        self.read_at(run.start * CHUNK, &mut bytes, limit)?;
        Ok(Fetched::plain(bytes))
    }

    /// Fill `buffer` with the bytes from `offset` on, within `limit`.
    ///
    /// # Errors
    /// As `SourceError`.
    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError>;
}

/// Return the source for a path or URL of a plain HTTP server.
pub fn open_plain(image: &str) -> Box<dyn Source> {
    if image.starts_with("http://") || image.starts_with("https://") {
        return Box::new(HttpSource::new(image));
    }
    Box::new(FileSource {
        name: image.to_owned(),
        path: image.into(),
    })
}

/// A local file, opened for each range: it may be replaced or come back.
struct FileSource {
    name: String,
    path: PathBuf,
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], _: Duration) -> Result<(), SourceError> {
        Ok(File::open(&self.path)?.read_exact_at(buffer, offset)?)
    }
}

/// A file of an HTTP server that answers Range.
struct HttpSource {
    url: String,
    agent: ureq::Agent,
}

impl HttpSource {
    fn new(url: &str) -> HttpSource {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_global(Some(REQUEST_TIME))
            .build();
        HttpSource {
            url: url.to_owned(),
            agent: config.into(),
        }
    }
}

impl Source for HttpSource {
    fn name(&self) -> &str {
        &self.url
    }

    fn fetch(
        &self,
        run: &Range<u64>,
        len: usize,
        limit: Duration,
        arrived: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        let mut bytes = vec![0; len];
        self.receive(run.start * CHUNK, &mut bytes, limit, arrived)?;
        Ok(Fetched::plain(bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError> {
        self.receive(offset, buffer, limit, &mut |_| {})
    }
}

impl HttpSource {
    fn receive(
        &self,
        offset: u64,
        buffer: &mut [u8],
        limit: Duration,
        arrived: Arrived<'_>,
    ) -> Result<(), SourceError> {
        let range = format!("{offset}-{}", offset + (buffer.len() as u64).max(1) - 1);
        let request = self.agent.get(&self.url);
        let request = request.header("Range", format!("bytes={range}"));
        let request = request.header("Accept-Encoding", "identity");
        let request = request.config().timeout_global(Some(limit)).build();
        let response = request.call();
        let mut response = response.map_err(|error| SourceError::Unreachable(error.to_string()))?;
        match response.status().as_u16() {
            206 => {}
            200 => return Err(SourceError::NoRange),
            status => {
                let later = response.headers().get("retry-after");
                let later = later.and_then(|value| value.to_str().ok()?.parse().ok());
                return Err(match later.map(Duration::from_secs) {
                    Some(later) => SourceError::Busy(status, later.min(LONGEST_DELAY)),
                    None => SourceError::Status(status),
                });
            }
        }
        let received = response.headers().get("content-range");
        let received = received.and_then(|value| value.to_str().ok()).unwrap_or("");
        if !is_of(received, &range) {
            return Err(SourceError::OtherRange {
                asked: range,
                received: received.to_owned(),
            });
        }
        let mut body = response.body_mut().as_reader();
        let mut filled = 0;
        while filled < buffer.len() {
            match body.read(&mut buffer[filled..])? {
                0 => return Err(SourceError::Short(range)),
                count => filled += count,
            }
            arrived(&buffer[..filled]);
        }
        // The connection is used again only if its end was read.
        let _ = body.read(&mut [0])?;
        Ok(())
    }
}

/// A `Content-Range` is of a range; names of units are in any case.
fn is_of(received: &str, range: &str) -> bool {
    received.split_once(' ').is_some_and(|(unit, span)| {
        unit.eq_ignore_ascii_case("bytes")
            && span
                .split_once('/')
                .is_some_and(|(found, _)| found == range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_ranges_are_in_any_case() {
        for received in ["bytes 0-9/10", "Bytes 0-9/*", "BYTES 0-9/10"] {
            assert!(is_of(received, "0-9"), "{received}");
        }
        for received in ["", "bytes", "bytes 0-99/100", "bytes 0-9", "items 0-9/10"] {
            assert!(!is_of(received, "0-9"), "{received}");
        }
    }
}
