//! Log lines of daemons on standard error, with their level as journald reads it (sd-daemon(3)).

use std::fmt::Write as _;
use std::io::Write as _;

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Environment variable with the least level that is written: error, warn, info, debug, trace or off.
pub const LEVEL: &str = "DIFFCACHE_LOG_LEVEL";
/// Set by systemd where standard error goes to the journal: device and inode of that.
const JOURNAL: &str = "JOURNAL_STREAM";

struct StandardError {
    program: &'static str,
    is_journal: bool,
}

impl StandardError {
    fn format(&self, record: &Record<'_>) -> String {
        let priority = match record.level() {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug | Level::Trace => 7,
        };
        let text = record.args().to_string();
        let mut lines = String::new();
        for line in text.lines() {
            let program = self.program;
            // Writing to a string does not fail.
            let _ = match self.is_journal {
                true => writeln!(lines, "<{priority}>{line}"),
                false => writeln!(lines, "{program}: {}: {line}", record.level()),
            };
        }
        lines
    }
}

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log each request; their warnings are enough.
        metadata.level() <= Level::Warn || metadata.target().starts_with("diffcache")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // At once, as other processes write there, too. Without a reader nothing can be reported.
            let _ = std::io::stderr().write_all(self.format(record).as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Write the log of this process to standard error: for the journal with priorities, else with the program's name.
///
/// The level is that of [`LEVEL`], else info.
pub fn start(program: &'static str) {
    let wanted = std::env::var(LEVEL).unwrap_or_default();
    let level = wanted.parse();
    let is_journal = std::env::var(JOURNAL).is_ok_and(|stream| is_standard_error(&stream));
    let logger = StandardError {
        program,
        is_journal,
    };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(*level.as_ref().unwrap_or(&LevelFilter::Info));
        if level.is_err() && !wanted.is_empty() {
            log::warn!("Ignoring {LEVEL}={wanted}, which is no level: logging from INFO on");
        }
    }
}

fn is_standard_error(stream: &str) -> bool {
    let found = rustix::fs::fstat(std::io::stderr());
    found.is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_journal: bool, level: Level, text: &str) -> String {
        let logger = StandardError {
            program: "program",
            is_journal,
        };
        logger.format(
            &Record::builder()
                .level(level)
                .args(format_args!("{text}"))
                .build(),
        )
    }

    #[test]
    fn the_journal_gets_a_priority_for_each_line() {
        let found = written(true, Level::Warn, "one\ntwo");
        assert_eq!(found, "<4>one\n<4>two\n");
    }

    #[test]
    fn others_get_the_program_and_the_level() {
        assert_eq!(written(false, Level::Info, "one"), "program: INFO: one\n");
    }

    #[test]
    fn libraries_are_heard_from_warnings_on() {
        let logger = StandardError {
            program: "program",
            is_journal: false,
        };
        let enabled = |target, level| {
            logger.enabled(&Metadata::builder().target(target).level(level).build())
        };
        assert!(enabled("ureq::agent", Level::Warn) && !enabled("ureq::agent", Level::Info));
        assert!(enabled("diffcache_daemon::image", Level::Debug));
    }

    #[test]
    fn only_the_stream_that_systemd_names_is_the_journal() {
        let found = rustix::fs::fstat(std::io::stderr()).unwrap();
        assert!(is_standard_error(&format!(
            "{}:{}",
            found.st_dev, found.st_ino
        )));
        assert!(!is_standard_error("1:1"));
    }
}
