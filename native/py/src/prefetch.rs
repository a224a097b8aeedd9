//! Python bindings of the replay of boots in `diffcache-simulation`.

use diffcache_prefetch::{Chunk, FileExtent, Files, Policy, Profile, Threshold};
use diffcache_simulation::boots::{replay, Event, Layout, Links, Mode, Read, Scenario, Trace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const NS_PER_US: f64 = 1000.0;
const NS_PER_S: f64 = 1e9;

/// (chunk, instances, mean microseconds since their start).
type ProfileRow = (Chunk, u64, f64);
/// (microseconds of thinking, offset, length).
type ReadRow = (f64, u64, u64);
/// (microseconds, instance, chunk, miss, hints, remote, cached, skipped).
type EventRow = (f64, u32, Chunk, bool, Vec<Chunk>, u64, u64, u64);
/// (chunk, instances, first, mean and last microseconds).
type RequestRow = (Chunk, u64, f64, f64, f64);

/// Boots to replay: all attributes of a Python object.
#[derive(FromPyObject)]
struct Boots {
    image_bytes: u64,
    chunk: u64,
    threshold: f64,
    striped: bool,
    wan_mbps: f64,
    wan_rtt_ms: f64,
    lan_mbps: f64,
    lan_rtt_ms: f64,
    starts_us: Vec<f64>,
    reads: Vec<Vec<ReadRow>>,
    profile: Option<Vec<ProfileRow>>,
    in_flight: Option<usize>,
    read_ahead: Option<Chunk>,
    rest: usize,
    files: Vec<(u64, u64, u64, u64)>,
    homes: Option<u32>,
    group: Chunk,
    fan_out: usize,
}

/// One instance's boot, in seconds.
#[derive(IntoPyObject)]
struct BootRow {
    boot_s: f64,
    stall_s: f64,
    misses: u64,
    prefetched: u64,
    used: u64,
}

/// What a replay found.
#[derive(IntoPyObject)]
struct Replayed {
    boots: Vec<BootRow>,
    wasted_bytes: u64,
    wan_bytes: u64,
    lan_bytes: u64,
    unique_bytes: u64,
    bound_s: f64,
    accesses: u64,
    remote: u64,
    cached: u64,
    skipped: u64,
    profile: Vec<ProfileRow>,
    events: Vec<EventRow>,
    requests: Vec<RequestRow>,
}

fn extent((start, end, file, position): (u64, u64, u64, u64)) -> FileExtent {
    FileExtent {
        start,
        end,
        file,
        position,
    }
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn ns(us: f64) -> u64 {
    (us * NS_PER_US).round() as u64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_US
}

fn mode_of(name: &str) -> PyResult<Mode> {
    Ok(match name {
        "local" => Mode::Local,
        "on-demand" => Mode::OnDemand,
        "first" => Mode::First,
        "later" => Mode::Later,
        "broadcast" => Mode::Broadcast,
        "oracle" => Mode::Oracle,
        "refer" => Mode::Refer,
        _ => return Err(refused(format!("mode: there is no {name}"))),
    })
}

impl Boots {
    fn traces(&self) -> Vec<Trace> {
        let read = |&(think_us, offset, length): &ReadRow| Read {
            think_ns: ns(think_us),
            offset,
            length,
        };
        self.starts_us
            .iter()
            .zip(&self.reads)
            .map(|(&start_us, reads)| Trace {
                start_ns: ns(start_us),
                reads: reads.iter().map(read).collect(),
            })
            .collect()
    }

    fn scenario(self) -> PyResult<Scenario> {
        let instances = self.traces();
        let profile = self.profile.map(Profile::from_rows).transpose();
        let policy = Policy::default();
        Ok(Scenario {
            image_bytes: self.image_bytes,
            chunk_bytes: self.chunk,
            striped: self.striped,
            links: Links {
                wan_mbps: self.wan_mbps,
                wan_rtt_ms: self.wan_rtt_ms,
                lan_mbps: self.lan_mbps,
                lan_rtt_ms: self.lan_rtt_ms,
            },
            instances,
            profile: profile.map_err(refused)?,
            policy: Policy {
                in_flight: self.in_flight.unwrap_or(policy.in_flight),
                read_ahead: self.read_ahead.unwrap_or(policy.read_ahead),
                rest: self.rest,
                threshold: Threshold::new(self.threshold).map_err(refused)?,
            },
            files: Files::new(self.files.into_iter().map(extent)),
            layout: Layout {
                homes: self.homes,
                group: self.group,
            },
            fan_out: self.fan_out,
        })
    }
}

fn event_row(event: Event) -> EventRow {
    let visit = event.visit;
    (
        microseconds(event.time_ns),
        event.instance,
        event.chunk,
        event.miss,
        event.hints,
        visit.remote,
        visit.cached,
        visit.skipped,
    )
}

/// Replays boots in virtual time.
///
/// `events`: whether to return every access and when chunks were requested. Raises ValueError,
/// which opens with the field, if the boots cannot be replayed.
#[pyfunction]
fn prefetch_replay(py: Python<'_>, boots: Boots, mode: &str, events: bool) -> PyResult<Replayed> {
    let mode = mode_of(mode)?;
    let scenario = boots.scenario()?;
    let mut rows = Vec::new();
    let mut keep = |event: Event| {
        if events {
            rows.push(event_row(event));
        }
    };
    let report = py
        .detach(|| replay(&scenario, mode, &mut keep))
        .map_err(refused)?;
    let request_row = |r: &diffcache_simulation::boots::Requests| {
        let mean = r.total_ns as f64 / r.count as f64 / NS_PER_US;
        (
            r.chunk,
            r.count,
            microseconds(r.first_ns),
            mean,
            microseconds(r.last_ns),
        )
    };
    Ok(Replayed {
        boots: report
            .boots
            .iter()
            .map(|boot| BootRow {
                boot_s: seconds(boot.boot_ns),
                stall_s: seconds(boot.stall_ns),
                misses: boot.misses,
                prefetched: boot.prefetched,
                used: boot.used,
            })
            .collect(),
        wasted_bytes: report.wasted_bytes,
        wan_bytes: report.wan_bytes,
        lan_bytes: report.lan_bytes,
        unique_bytes: report.unique_bytes,
        bound_s: seconds(report.bound_ns),
        accesses: report.accesses,
        remote: report.visit.remote,
        cached: report.visit.cached,
        skipped: report.visit.skipped,
        profile: report.profile.rows().collect(),
        events: rows,
        requests: report.requests.iter().map(request_row).collect(),
    })
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(prefetch_replay, m)?)
}
