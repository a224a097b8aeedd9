//! What one mount has done so far, answered by the keeper on a socket in the state folder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_control::Limits;
use diffcache_core::manifest::Manifest;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
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
/// For what has been answered already.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The control socket of a keeper, in its state folder.
const SOCKET: &str = "socket";
/// Questions at the same time, and their sizes.
const LIMITS: Limits = Limits {
    command: 4096,
    clients: 64,
};

/// What a keeper is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Command {
    /// What its mount has done.
    Status {},
    /// What instances have read.
    Profile {},
}

/// Remove the socket of a keeper that ends.
pub fn remove(state: &Path) {
    if let Err(error) = diffcache_control::remove_socket(&state.join(SOCKET)) {
        log::warn!("Could not remove the keeper's socket: {error}");
    }
}

/// Return whether a daemon answers for a state folder.
pub fn is_answered(state: &Path) -> bool {
    match within(state, SOCKET, connect_now) {
        // It has many others to answer.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => true,
    }
}

/// Ask the keeper of a state folder for its state.
///
/// # Errors
/// If none answers.
pub fn ask(state: &Path) -> io::Result<Value> {
    Question::begin(state)?.answer(Instant::now() + ANSWER_TIME)
}

/// Ask the keeper of a state folder for what instances have read.
///
/// # Errors
/// If none answers.
pub fn ask_profile(state: &Path) -> io::Result<Value> {
    let question = Question::send(state, &Command::Profile {}, profile::MAX_FILE_BYTES)?;
    question.answer(Instant::now() + ANSWER_TIME)
}

/// What a keeper was asked, and answers while others are asked.
pub struct Question {
    connection: UnixStream,
    longest: u64,
}

impl Question {
    /// Ask the keeper of a state folder for its state, without waiting.
    ///
    /// # Errors
    /// If there is none, or it has not answered many others.
    pub fn begin(state: &Path) -> io::Result<Question> {
        Question::send(state, &Command::Status {}, 1 << 20)
    }

    fn send(state: &Path, command: &Command, longest: u64) -> io::Result<Question> {
        let mut connection = within(state, SOCKET, connect_now)?;
        connection.write_all(format!("{}\n", json!(command)).as_bytes())?;
        Ok(Question {
            connection,
            longest,
        })
    }

    /// Wait for the answer, until a point in time.
    ///
    /// # Errors
    /// If there is none by then, or it says that there is none.
    pub fn answer(self, deadline: Instant) -> io::Result<Value> {
        let mut text = Vec::new();
        let mut connection = &self.connection;
        let mut part = [0; 1 << 16];
        while !text.ends_with(b"\n") && (text.len() as u64) < self.longest {
            let left = deadline.saturating_duration_since(Instant::now());
            connection.set_read_timeout(Some(left.max(AT_ONCE)))?;
            match connection.read(&mut part)? {
                0 => break,
                count => text.extend(&part[..count]),
            }
        }
        let answer: Value = serde_json::from_slice(&text)?;
        match answer["error"]["message"].as_str() {
            Some(message) => Err(io::Error::other(message)),
            None => Ok(answer),
        }
    }
}

/// Connect to a socket; fails rather than wait where its owner leaves connections alone.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let kind = SocketType::STREAM;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let connection = UnixStream::from(socket);
    connection.set_nonblocking(false)?;
    Ok(connection)
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
        "worker_pid": describe_worker(shared),
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

/// The worker's process; null until the first one serves, never a number that `kill` takes for a whole group.
fn describe_worker(shared: &Shared) -> Option<u64> {
    Some(shared.get(Counter::WorkerPid)).filter(|pid| *pid > 0)
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

/// Answer questions from threads.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve(
    config: SharedConfig,
    manifest: Arc<Manifest>,
    shared: Arc<Shared>,
    learned: Arc<Learned>,
) -> Result<(), DaemonError> {
    let state = config.read().unpoisoned().state.clone();
    let listener = within(&state, SOCKET, diffcache_control::listen)
        .map_err(DaemonError::at("listen at", &state.join(SOCKET)))?;
    let answer = move |command| match command {
        Command::Profile {} => Ok(learned.describe()),
        Command::Status {} => describe(&config.read().unpoisoned(), &manifest, &shared, &learned),
    };
    let execute = move |line: &[u8]| {
        let failed =
            |error: io::Error| diffcache_control::error("ServiceUnavailable", &error.to_string());
        diffcache_control::parse(line).map_or_else(
            |refused| refused,
            |command| answer(command).unwrap_or_else(failed),
        )
    };
    std::thread::Builder::new()
        .name("status".to_owned())
        .spawn(move || diffcache_control::serve(&listener, LIMITS, execute))
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}
