//! The memory that a worker takes of its own, and how much of it is for hints.
//!
//! Filesystems, counts of other hosts and profiles are input of others. Each has its limits; this one holds for all of them together, whatever was
//! forgotten: a worker that takes more serves without hints.

use std::fs;

use crate::processes::shared::SLOT_LEN;

/// Bytes that hints may take.
const MOST: u64 = 100_000_000;

/// How much a worker took when it began, and may take on top.
pub struct Budget {
    limit: u64,
    is_exceeded: bool,
}

impl Budget {
    /// Begin with what a worker of this many threads takes now. Each of them takes a buffer for answers on top.
    pub fn begin(threads: usize) -> Budget {
        let buffers = (threads * SLOT_LEN) as u64;
        Budget {
            limit: own_bytes().saturating_add(buffers).saturating_add(MOST),
            is_exceeded: false,
        }
    }

    /// Return, once, that this process takes more.
    pub fn is_exceeded(&mut self) -> bool {
        if self.is_exceeded || own_bytes() <= self.limit {
            return false;
        }
        self.is_exceeded = true;
        true
    }
}

/// Return the bytes of this process that it shares with no other and no file; 0 where that cannot be seen.
fn own_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse(&text).unwrap_or(0)
}

/// Return the bytes of proc_pid_status(5).
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes: u64 = line?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_are_not_counted() {
        let text = "VmRSS:\t    9000 kB\nRssAnon:\t    1234 kB\nRssFile:\t    5000 kB\n";
        assert_eq!(parse(text), Some(1234 << 10));
        assert_eq!(parse("RssAnon: many"), None);
        assert_eq!(parse(""), None);
        assert!(own_bytes() > 0);
    }

    #[test]
    fn a_process_that_takes_more_says_so_once() {
        let mut budget = Budget {
            limit: u64::MAX,
            is_exceeded: false,
        };
        assert!(!budget.is_exceeded());
        budget.limit = 1;
        assert!(budget.is_exceeded());
        assert!(!budget.is_exceeded());
    }
}
