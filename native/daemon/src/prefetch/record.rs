//! What guests read, written as a scenario of `diffcache lazy replay`.
//!
//! Workers note reads in `STATE/reads`, one row each at the place that a shared counter gives it, so that rows survive a worker and none is cut in
//! two. At the end the keeper makes the scenario of them. A row is, little-endian: u32 handle, u32 length (0: the handle was opened), u64 offset,
//! u64 start, u64 end, in nanoseconds of the monotonic clock; a row that was lost is zero.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diffcache_base::output::{replace_durably, Output};
use diffcache_prefetch::Threshold;
use serde_json::json;

use crate::config::Config;
use crate::error::DaemonError;
use crate::processes::shared::{Counter, Shared};
use crate::sizes::CHUNK;

/// Reads that are noted at most: their scenario is smaller than the 64 MiB that a replay takes.
const MAX_ROWS: u64 = 1 << 20;
const ROW_LEN: usize = 32;
/// Instances, and chunks times instances, that a replay takes at most.
const MAX_INSTANCES: usize = 4096;
const MAX_KNOWN: usize = 1 << 24;
/// The links, for a replay to begin with.
const WAN_MBPS: f64 = 100.0;
const WAN_RTT_MS: f64 = 20.0;
const LAN_MBPS: f64 = 200.0;
const LAN_RTT_MS: f64 = 0.2;

/// Return the path of the rows in a state folder.
fn rows_path(state: &Path) -> PathBuf {
    state.join("reads")
}

/// Return the monotonic clock, which all processes share, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Return the time in seconds since 1970.
pub fn unix_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    handle: u32,
    start_ns: u64,
    len: u32,
    offset: u64,
    end_ns: u64,
}

impl Row {
    fn encode(&self) -> [u8; ROW_LEN] {
        let mut bytes = [0; ROW_LEN];
        bytes[..4].copy_from_slice(&self.handle.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.start_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.end_ns.to_le_bytes());
        bytes
    }

    /// Return the row, none if it was lost.
    fn decode(bytes: &[u8; ROW_LEN]) -> Option<Row> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let row = Row {
            handle: u32_at(0)?,
            len: u32_at(4)?,
            offset: u64_at(8)?,
            start_ns: u64_at(16)?,
            end_ns: u64_at(24)?,
        };
        (row.start_ns > 0).then_some(row)
    }
}

/// Notes reads in the state folder.
pub struct Recorder {
    rows: File,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Open the rows that the keeper began.
    ///
    /// # Errors
    /// `Path`.
    pub fn open(state: &Path, shared: Arc<Shared>) -> Result<Recorder, DaemonError> {
        let path = rows_path(state);
        let rows = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        Ok(Recorder {
            rows: rows.map_err(DaemonError::at("open", &path))?,
            shared,
        })
    }

    /// Note that a handle was opened.
    pub fn note_open(&self, handle: u64) {
        let now = now_ns();
        self.note(handle, 0, 0, now, now);
    }

    /// Note a read that was answered, with when it began.
    pub fn note_read(&self, handle: u64, offset: u64, len: usize, start_ns: u64) {
        if len > 0 {
            self.note(handle, offset, len, start_ns, now_ns());
        }
    }

    fn note(&self, handle: u64, offset: u64, len: usize, start_ns: u64, end_ns: u64) {
        let (Ok(handle), Ok(len)) = (u32::try_from(handle), u32::try_from(len)) else {
            return self.shared.add(Counter::NotRecorded, 1);
        };
        let row = Row {
            handle,
            start_ns,
            len,
            offset,
            end_ns,
        };
        let next = |count| (count < MAX_ROWS).then_some(count + 1);
        let written = match self.shared.update(Counter::Rows, next) {
            Some(index) => self
                .rows
                .write_all_at(&row.encode(), index * ROW_LEN as u64),
            None => Err(io::ErrorKind::FileTooLarge.into()),
        };
        let counter = match written {
            // Reads alone are counted.
            Ok(()) if len == 0 => return,
            Ok(()) => Counter::Recorded,
            Err(_) => Counter::NotRecorded,
        };
        self.shared.add(counter, 1);
    }
}

/// Begin the rows of a run, and check that the scenario can be written at its end.
///
/// # Errors
/// `Path`.
pub fn begin(state: &Path, target: &Path) -> Result<(), DaemonError> {
    let path = rows_path(state);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DaemonError::at("remove", &path)(error));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
        .open(&path)
        .map_err(DaemonError::at("open", &path))?;
    Output::create(target).map_err(DaemonError::at("record in", target))?;
    Ok(())
}

/// Write the scenario of a run of an image of this many bytes in place of its file, if it has one, and remove the rows.
///
/// # Errors
/// `Path`; the rows are kept then.
pub fn finish(config: &Config, size: u64, shared: &Shared) -> Result<(), DaemonError> {
    let Some(target) = &config.record else {
        return Ok(());
    };
    let path = rows_path(&config.state);
    let rows = read_rows(&path).map_err(DaemonError::at("read", &path))?;
    let instances = instances(rows);
    let kept = count_replayable(&instances);
    let (lost, left_out) = (shared.get(Counter::NotRecorded), instances.len() - kept);
    if lost > 0 || left_out > 0 {
        log::warn!(
            "The record {} lacks {lost} reads and {left_out} instances: the disk was full, or a replay takes no more",
            target.display()
        );
    }
    let scenario = Scenario {
        size,
        threshold: config.tuning.threshold,
        instances: &instances[..kept],
    };
    let written = replace_durably(target, |file| {
        let mut out = BufWriter::new(file);
        write_scenario(&mut out, &scenario)?;
        out.flush()
    });
    written.map_err(DaemonError::at("record in", target))?;
    fs::remove_file(&path).map_err(DaemonError::at("remove", &path))
}

fn read_rows(path: &Path) -> io::Result<Vec<Row>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MAX_ROWS * ROW_LEN as u64)
        .read_to_end(&mut bytes)?;
    let rows = bytes.chunks_exact(ROW_LEN);
    let rows = rows.filter_map(|row| Row::decode(row.first_chunk()?));
    Ok(rows.collect())
}

/// What one handle read, in microseconds.
#[derive(Debug, PartialEq, Eq)]
struct Instance {
    start_us: u64,
    /// (time since the read before was answered, offset, length).
    reads: Vec<(u64, u64, u32)>,
}

/// What a replay takes.
struct Scenario<'a> {
    /// Bytes of the image.
    size: u64,
    threshold: Threshold,
    instances: &'a [Instance],
}

/// Return the handles that read anything, those that were opened earlier first.
fn instances(mut rows: Vec<Row>) -> Vec<Instance> {
    rows.sort_unstable();
    let by_handle = rows.chunk_by(|one, next| one.handle == next.handle);
    let mut found: Vec<(u64, Instance)> = by_handle
        .filter(|rows| rows.iter().any(|row| row.len > 0))
        .filter_map(|rows| {
            let opened = rows.first()?.start_ns;
            Some((opened, instance(opened, rows)))
        })
        .collect();
    found.sort_by_key(|(opened, _)| *opened);
    let first = found.first().map_or(0, |(opened, _)| *opened);
    let instances = found.into_iter().map(|(opened, mut instance)| {
        instance.start_us = (opened - first) / 1000;
        instance
    });
    let mut instances: Vec<Instance> = instances.collect();
    if instances.is_empty() {
        // A replay has at least one.
        instances.push(Instance {
            start_us: 0,
            reads: Vec::new(),
        });
    }
    instances
}

fn instance(opened: u64, rows: &[Row]) -> Instance {
    let mut idle_since = opened;
    let reads = rows.iter().filter(|row| row.len > 0).map(|row| {
        let think_us = row.start_ns.saturating_sub(idle_since) / 1000;
        idle_since = idle_since.max(row.end_ns);
        (think_us, row.offset, row.len)
    });
    Instance {
        start_us: 0,
        reads: reads.collect(),
    }
}

/// Return how many instances a replay takes.
fn count_replayable(instances: &[Instance]) -> usize {
    let mut chunks = BTreeSet::new();
    let fits = |(before, instance): &(usize, &Instance)| {
        for (_, offset, len) in &instance.reads {
            chunks.extend(offset / CHUNK..=(offset + u64::from(*len) - 1) / CHUNK);
        }
        *before < MAX_INSTANCES && chunks.len() * (before + 1) <= MAX_KNOWN
    };
    // The first fits always: a row covers few chunks.
    let counted = instances.iter().enumerate().take_while(fits).count();
    counted.max(1)
}

fn write_scenario(out: &mut impl Write, scenario: &Scenario<'_>) -> io::Result<()> {
    let links = json!({"wan_mbps": WAN_MBPS, "wan_rtt_ms": WAN_RTT_MS, "lan_mbps": LAN_MBPS, "lan_rtt_ms": LAN_RTT_MS});
    write!(
        out,
        "{{\"image_bytes\":{},\"chunk\":{CHUNK},\"threshold\":{},\"striped\":false,\"links\":{links},\"profile\":null,\"instances\":[",
        scenario.size,
        scenario.threshold.value()
    )?;
    for (number, instance) in scenario.instances.iter().enumerate() {
        let separator = if number > 0 { "," } else { "" };
        write!(
            out,
            "{separator}\n{{\"start_us\":{},\"reads\":[",
            instance.start_us
        )?;
        for (number, (think_us, offset, len)) in instance.reads.iter().enumerate() {
            let separator = if number > 0 { "," } else { "" };
            write!(out, "{separator}[{think_us},{offset},{len}]")?;
        }
        write!(out, "]}}")?;
    }
    writeln!(out, "\n]}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(handle: u32, start_us: u64, end_us: u64, offset: u64, len: u32) -> Row {
        Row {
            handle,
            start_ns: start_us * 1000,
            len,
            offset,
            end_ns: end_us * 1000,
        }
    }

    #[test]
    fn rows_survive_their_encoding_and_lost_ones_are_none() {
        let one = row(7, 5, 9, 1 << 40, 4096);
        assert_eq!(Some(one), Row::decode(&one.encode()));
        assert_eq!(None, Row::decode(&[0; ROW_LEN]));
    }

    #[test]
    fn think_time_is_from_the_last_answer_to_the_next_read() {
        let rows = vec![
            row(2, 900, 950, 0, 10),
            row(1, 100, 100, 0, 0),
            row(1, 250, 300, 0, 4096),
            // Begun before the one before ended.
            row(1, 280, 600, 4096, 1),
            row(1, 700, 701, 8192, 1),
            row(2, 800, 800, 0, 0),
            // Never read.
            row(3, 50, 50, 0, 0),
        ];
        let expected = [
            Instance {
                start_us: 0,
                reads: vec![(150, 0, 4096), (0, 4096, 1), (100, 8192, 1)],
            },
            Instance {
                start_us: 700,
                reads: vec![(100, 0, 10)],
            },
        ];
        assert_eq!(expected.as_slice(), instances(rows));
    }

    #[test]
    fn a_record_without_reads_has_one_instance() {
        assert_eq!(1, instances(vec![row(1, 5, 5, 0, 0)]).len());
    }

    #[test]
    fn no_more_instances_than_a_replay_takes() {
        let mut rows: Vec<Row> = (0..5000).map(|n| row(n, 5, 6, 0, 1)).collect();
        assert_eq!(MAX_INSTANCES, count_replayable(&instances(rows.clone())));
        rows.extend((0..10_000u64).map(|n| row(2, 5, 6, n * CHUNK, 1)));
        let kept = count_replayable(&instances(rows));
        assert_eq!(MAX_KNOWN / 10_000, kept);
    }

    /// Return the configuration of a run that is recorded.
    fn config(state: &Path, target: &Path) -> Config {
        let value = json!({
            "sources": ["/a"], "manifest": "/m", "mount": "/t", "wait": 0.0,
            "state": state, "record": target, "tuning": {"threshold": 2.5},
        });
        Config::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn a_full_record_counts_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("record.json");
        let shared = Arc::new(Shared::map(Shared::create(0).unwrap()).unwrap());
        begin(folder.path(), &target).unwrap();
        let recorder = Recorder::open(folder.path(), shared.clone()).unwrap();
        recorder.note_open(1);
        recorder.note_read(1, 5, 10, now_ns());
        shared
            .counter(Counter::Rows)
            .store(MAX_ROWS, std::sync::atomic::Ordering::SeqCst);
        recorder.note_read(1, 5, 10, now_ns());
        assert_eq!(1, shared.get(Counter::Recorded));
        assert_eq!(1, shared.get(Counter::NotRecorded));
        let config = config(folder.path(), &target);
        finish(&config, 100, &shared).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&fs::read(&target).unwrap()).unwrap();
        assert_eq!(json!(100), found["image_bytes"]);
        assert_eq!(json!(2.5), found["threshold"]);
        assert_eq!(json!(10), found["instances"][0]["reads"][0][2]);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(1, left.len());
    }

    #[test]
    fn a_folder_that_is_not_there_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("absent").join("record.json");
        let refused = begin(folder.path(), &target).unwrap_err().to_string();
        assert!(refused.contains("absent/record.json"), "{refused}");
        assert!(begin(folder.path(), folder.path()).is_err());
    }
}
