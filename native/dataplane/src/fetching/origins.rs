//! Which bytes of an unfinished file came from whom.
//!
//! A patch, a manifest or a form is verified as a whole. If its first bytes came from one peer and its last from another, a wrong hash says nothing
//! about who sent the wrong ones; these records do, once the doubtful bytes were asked of the last peer too and compared.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;

/// Files that are remembered; what is forgotten counts as of unknown origin.
const MOST_FILES: usize = 1024;

/// Bytes up to `end` that came from one peer, after those of the segment before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where they end.
    pub end: u64,
    /// The base URL of the peer; `None` if it was forgotten.
    pub peer: Option<String>,
}

/// The segments of one file, from its first byte on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// The file's bytes up to `end` are there, from `peer` as far as they were not before.
    pub fn extend(&mut self, end: u64, peer: &str) {
        self.reach(end, Some(peer.to_owned()));
    }

    /// Bytes up to `end` are there; those without a record are of unknown origin, and records beyond are dropped.
    fn fit(&mut self, end: u64) {
        self.0.retain(|segment| segment.end <= end);
        self.reach(end, None);
    }

    fn reach(&mut self, end: u64, peer: Option<String>) {
        let known = self.0.last().map_or(0, |segment| segment.end);
        if end <= known {
            return;
        }
        match self.0.last_mut().filter(|last| last.peer == peer) {
            Some(last) => last.end = end,
            None => self.0.push(Segment { end, peer }),
        }
    }

    /// Where the last run of bytes from `peer` begins.
    pub fn inherited(&self, peer: &str) -> u64 {
        match self.0.split_last() {
            Some((last, before)) if last.peer.as_deref() == Some(peer) => {
                before.last().map_or(0, |segment| segment.end)
            }
            Some((last, _)) => last.end,
            None => 0,
        }
    }

    /// The peers that bytes of `start..end` came from.
    pub fn peers(&self, start: u64, end: u64) -> Vec<String> {
        let mut begin = 0;
        let mut found = Vec::new();
        for segment in &self.0 {
            if begin < end && start < segment.end {
                found.extend(segment.peer.clone());
            }
            begin = segment.end;
        }
        found
    }
}

/// The records of a plane.
#[derive(Default)]
pub struct Origins(Mutex<HashMap<PathBuf, Segments>>);

impl Origins {
    /// Takes out what is known of a part that has `length` bytes.
    pub fn take(&self, path: &Path, length: u64) -> Segments {
        let mut segments = self.0.lock().unpoisoned().remove(path).unwrap_or_default();
        segments.fit(length);
        segments
    }

    /// Keeps the record of a part that another attempt may continue.
    pub fn keep(&self, path: &Path, segments: Segments) {
        let mut kept = self.0.lock().unpoisoned();
        if kept.len() >= MOST_FILES {
            kept.clear();
        }
        kept.insert(path.to_owned(), segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_peer_that_sent_them() {
        let origins = Origins::default();
        let path = Path::new("/a/.b.part");
        let mut segments = origins.take(path, 10);
        assert_eq!(segments.inherited("x"), 10);
        segments.extend(20, "x");
        segments.extend(30, "x");
        segments.extend(25, "y");
        assert_eq!(segments.inherited("x"), 10);
        assert_eq!(segments.inherited("y"), 30);
        segments.extend(40, "y");
        assert_eq!(segments.peers(0, 10), Vec::<String>::new());
        assert_eq!(segments.peers(5, 31), ["x", "y"]);
        assert_eq!(segments.peers(30, 31), ["y"]);
        origins.keep(path, segments.clone());
        assert_eq!(origins.take(path, 40), segments);
        // What was cut, or written by another process, is of unknown origin.
        origins.keep(path, segments);
        assert_eq!(origins.take(path, 35).peers(31, 35), Vec::<String>::new());
    }

    #[test]
    fn the_memory_is_bounded() {
        let origins = Origins::default();
        for number in 0..2 * MOST_FILES {
            origins.keep(Path::new(&number.to_string()), Segments::default());
        }
        assert!(origins.0.lock().unpoisoned().len() <= MOST_FILES);
    }
}
