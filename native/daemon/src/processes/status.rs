//! What one mount has done so far, answered by the keeper on a socket in the state folder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::Manifest;
use serde_json::{json, Value};

use crate::config::{Config, HomeHost, Hydrate, Place, SharedConfig};
use crate::error::DaemonError;
use crate::image::leaves::{self, Presence};
use crate::peers::homes;
use crate::prefetch::hydration::{Plan, Progress};
use crate::prefetch::learned::Learned;
use crate::prefetch::prefetcher;
use crate::prefetch::profile;
use crate::prefetch::record::now_ns;
use crate::processes::resend;
use crate::processes::shared::{Counter, Shared, SourceCounter};
use crate::sizes::{CHUNK, MAX_SOURCES};

/// How long a keeper may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long to wait after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Sockets in a state folder; each connection to one is answered with a document.
const STATUS: &str = "socket";
const PROFILE: &str = "profile-socket";

/// Remove the sockets of a keeper that ends.
pub fn remove_sockets(state: &Path) {
    for name in [STATUS, PROFILE] {
        match std::fs::remove_file(state.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("Could not remove the keeper's {name}: {error}");
            }
            _ => {}
        }
    }
}

/// Return whether a daemon answers for a state folder.
pub fn is_answered(state: &Path) -> bool {
    within(state, STATUS, |short| UnixStream::connect(short)).is_ok()
}

/// Ask the keeper of a state folder for its state.
///
/// # Errors
/// If none answers.
pub fn ask(state: &Path) -> io::Result<Value> {
    ask_at(state, STATUS, 1 << 20)
}

/// Ask the keeper of a state folder for what instances have read.
///
/// # Errors
/// If none answers.
pub fn ask_profile(state: &Path) -> io::Result<Value> {
    ask_at(state, PROFILE, profile::MAX_FILE_BYTES)
}

fn ask_at(state: &Path, name: &str, longest: u64) -> io::Result<Value> {
    let connection = within(state, name, |short| UnixStream::connect(short))?;
    connection.set_read_timeout(Some(ANSWER_TIME))?;
    let mut text = Vec::new();
    connection.take(longest).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}

/// Give a path of a socket that is short enough for one: a folder's may be longer.
pub fn within<T>(
    state: &Path,
    name: &str,
    run: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let folder = File::open(state)?;
    let short = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    run(Path::new(&short))
}

/// Return the state as the JSON of `diffcache lazy status`.
///
/// # Errors
/// Of the local disk.
pub fn describe(
    config: &Config,
    manifest: &Manifest,
    shared: &Shared,
    learned: &Learned,
) -> io::Result<Value> {
    // Before the chunks are counted: a complete image lacks none.
    let complete = shared.counter(Counter::Complete).load(Ordering::Acquire) == 1;
    let presence = leaves::count_chunks(&config.state, manifest)?;
    let (prefetched, prefetched_used) = shared.count_prefetched();
    let wanted = match config.hydrate {
        Hydrate::Profile => count_profile(config, manifest)?,
        _ => None,
    };
    let plain = complete.then(|| leaves::data_path(&config.state, manifest));
    Ok(json!({
        "content_id": manifest.content_id_hex(),
        "settings": config.digest(),
        "size": manifest.size(),
        "chunk": CHUNK,
        "chunks": manifest.size().div_ceil(CHUNK),
        "data_chunks": presence.data_chunks,
        "present": presence.present,
        "complete": complete,
        "plain_path": plain,
        "instances": learned.instances(),
        "reads": shared.get(Counter::Reads),
        "bytes_read": shared.get(Counter::BytesRead),
        "bytes_fetched": shared.get(Counter::BytesFetched),
        "misses": shared.get(Counter::Misses),
        "profile": wanted,
        "prefetched": prefetched,
        "prefetched_used": prefetched_used,
        "stall_ms": shared.get(Counter::StallUs) / 1000,
        "errors": shared.get(Counter::Errors),
        "corrupt": shared.get(Counter::Corrupt),
        "hydration": describe_hydration(config, shared, presence),
        "recorded": shared.get(Counter::Recorded),
        "not_recorded": shared.get(Counter::NotRecorded),
        "not_kept": shared.get(Counter::NotKept),
        "resend": match config.resend {
            true => resend::is_used(shared),
            false => Some(false),
        },
        "worker_restarts": shared.get(Counter::WorkerRestarts),
        "worker_pid": shared.get(Counter::WorkerPid),
        "pid": std::process::id(),
        "sources": describe_sources(config, shared),
        "homes": describe_homes(config, manifest, shared),
        "peers": {
            "requests": shared.get(Counter::PeerRequests),
            "bytes": shared.get(Counter::PeerBytes),
        },
        "hints": describe_hints(shared),
        "referrals": describe_referrals(shared),
    }))
}

/// Describe what other hosts of the site told of their reads.
fn describe_hints(shared: &Shared) -> Value {
    json!({
        "received": shared.get(Counter::HintsReceived),
        "used": shared.get(Counter::HintsUsed),
        "malformed": shared.get(Counter::HintsMalformed),
        "unknown_hosts": shared.get(Counter::HintsUnknown),
    })
}

/// Describe requests that another host answered in place of a home.
fn describe_referrals(shared: &Shared) -> Value {
    json!({
        "given": shared.get(Counter::ReferralsGiven),
        "followed": shared.get(Counter::ReferralsFollowed),
        "failed": shared.get(Counter::ReferralsFailed),
    })
}

/// Count the chunks that are fetched before any read, and those of them that are there; none while their file cannot be read, as when it is
/// replaced: the rest of the state holds all the same.
fn count_profile(config: &Config, manifest: &Manifest) -> io::Result<Option<Value>> {
    let profile = match config.load_profile(manifest.size().div_ceil(CHUNK)) {
        Ok(profile) => prefetcher::choose(&profile, config.tuning.threshold),
        Err(error) => {
            log::warn!("Could not count the chunks of the profile: {error}");
            return Ok(None);
        }
    };
    let chunks = profile.rows().map(|(chunk, ..)| u64::from(chunk));
    let presence = leaves::count_some(&config.state, manifest, chunks)?;
    let counts = json!({"chunks": presence.data_chunks, "present": presence.present});
    Ok(Some(counts))
}

fn describe_sources(config: &Config, shared: &Shared) -> Vec<Value> {
    let describe = |(index, place): (usize, &Place)| {
        let mut value = describe_source(&place.name(), index, shared);
        // Agents see by it that the process takes several patches.
        value["through"] = json!([]);
        if let Place::Build(place) = place {
            value["base"] = json!(place.base);
            value["through"] = json!(place.through);
            value["patch"] = json!(place.patch);
        }
        value
    };
    config.sources.iter().enumerate().map(describe).collect()
}

fn describe_source(url: &str, index: usize, shared: &Shared) -> Value {
    let count = |counter| {
        shared
            .source_counter(index, counter)
            .load(Ordering::Relaxed)
    };
    json!({
        "url": url,
        "requests": count(SourceCounter::Requests),
        "bytes": count(SourceCounter::Bytes),
        "failures": count(SourceCounter::Failures),
        "patch_bytes": count(SourceCounter::PatchBytes),
    })
}

/// Describe the homes of chunks by their rank.
fn describe_homes(config: &Config, manifest: &Manifest, shared: &Shared) -> Vec<Value> {
    let Some(homes) = &config.homes else {
        return Vec::new();
    };
    let describe = |(place, host): (usize, &HomeHost)| {
        let mut value = describe_source(&host.url, place + MAX_SOURCES, shared);
        value["name"] = json!(host.name);
        value["own"] = json!(host.name == homes.own);
        value
    };
    let ranked = homes::rank(homes, manifest.content_id());
    ranked.into_iter().enumerate().map(describe).collect()
}

/// Return plan and progress of the hydration as JSON.
pub fn describe_hydration(config: &Config, shared: &Shared, presence: Presence) -> Value {
    const NS: f64 = 1e9;
    let start = shared.get(Counter::StartNs);
    let (bytes, busy) = (
        shared.get(Counter::HydratedBytes),
        shared.get(Counter::HydratingNs),
    );
    let completed = shared.get(Counter::CompletedNs);
    let progress = Progress {
        elapsed: now_ns().saturating_sub(start) as f64 / NS,
        absent: presence.absent_bytes,
        measured: (bytes > 0).then(|| bytes as f64 / (busy.max(1) as f64 / NS)),
        completed: (completed > 0).then(|| completed.saturating_sub(start) as f64 / NS),
    };
    Plan::new(config).describe(&progress)
}

/// Answer connections with the state, and with what was learned, from threads.
///
/// # Errors
/// `Path` if a socket cannot be made.
pub fn serve(
    config: SharedConfig,
    manifest: Arc<Manifest>,
    shared: Arc<Shared>,
    learned: Arc<Learned>,
) -> Result<(), DaemonError> {
    let state = config.read().unpoisoned().state.clone();
    let known = learned.clone();
    answer_at(&state, PROFILE, move || Ok(known.describe()))?;
    answer_at(&state, STATUS, move || {
        describe(&config.read().unpoisoned(), &manifest, &shared, &learned)
    })
}

fn answer_at(
    state: &Path,
    name: &'static str,
    describe: impl Fn() -> io::Result<Value> + Send + 'static,
) -> Result<(), DaemonError> {
    let path = state.join(name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DaemonError::at("remove", &path)(error));
        }
        _ => {}
    }
    let listener = within(state, name, |short| UnixListener::bind(short))
        .map_err(DaemonError::at("listen at", &path))?;
    let run = move || {
        for connection in listener.incoming() {
            let is_refused = connection.is_err();
            let answer = |mut connection: UnixStream| {
                connection.set_write_timeout(Some(ANSWER_TIME))?;
                connection.write_all(describe()?.to_string().as_bytes())
            };
            match connection.and_then(answer) {
                // It only wanted to know whether this process answers.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => log::warn!("Could not answer at the {name}: {error}"),
                Ok(()) => {}
            }
            if is_refused {
                // Out of descriptors: the next one would fail at once, too.
                std::thread::sleep(PAUSE);
            }
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}
