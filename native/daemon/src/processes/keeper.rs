//! The process that mounts, holds the descriptor and keeps a worker running.

mod place;

use std::fs;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::Manifest;
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::io::FdFlags;
use serde_json::json;

use crate::config::{Config, SharedConfig};
use crate::error::DaemonError;
use crate::image::leaves;
use crate::prefetch::learned::Learned;
use crate::prefetch::profile;
use crate::prefetch::record;
pub use crate::processes::keeper::place::is_locked;
use crate::processes::keeper::place::{lock_state, prepare_mount, Mount, DRAIN};
use crate::processes::mounts::Mounts;
use crate::processes::program;
use crate::processes::restarts::Pauses;
use crate::processes::shared::{Counter, Shared};
use crate::processes::signals::{self, Signal};
use crate::processes::status;
use crate::sizes::CHUNK;

/// A worker that lived this long did not fail at its start.
const SOUND_LIFE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Of keepers to the kernel that is out of memory: a worker is started again, and a guest notices nothing; with a keeper its mount ends.
const KEEPER_OOM_SCORE: i32 = -900;

/// From linux/prctl.h.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Number of the memory that is shared with workers, of the inode numbers and file handles that the kernel keeps, and of the arguments of [`take_over`]. A
/// keeper takes over from another program of the same number only: raise it with each change of these.
pub const LAYOUT: u32 = 1;

/// What a mount is served with, and outlives a worker: descriptors that are handed over.
struct Handed {
    lock: OwnedFd,
    fuse: OwnedFd,
    memory: OwnedFd,
    profile: OwnedFd,
    learned: OwnedFd,
}

impl Handed {
    /// Take descriptors that this process was started with.
    ///
    /// # Safety
    /// The descriptors are open, and used by nothing else in this process.
    unsafe fn from_raw(numbers: [RawFd; 5]) -> Handed {
        let [lock, fuse, memory, profile, learned] = numbers.map(|number| {
            // SAFETY: as above.
            unsafe { OwnedFd::from_raw_fd(number) }
        });
        Handed {
            lock,
            fuse,
            memory,
            profile,
            learned,
        }
    }

    fn all(&self) -> [&OwnedFd; 5] {
        [
            &self.lock,
            &self.fuse,
            &self.memory,
            &self.profile,
            &self.learned,
        ]
    }

    /// Leave the descriptors open in the programs that this process runs. The worker has the lock, too: the state is in use while one of the two lives.
    fn leave_open(&self) -> Result<(), DaemonError> {
        for fd in self.all() {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())
                .map_err(DaemonError::system("hand a descriptor over"))?;
        }
        Ok(())
    }
}

struct Keeper<'a> {
    config: SharedConfig,
    /// The file that the configuration is in, if it may change.
    file: Option<&'a Path>,
    manifest: Arc<Manifest>,
    shared: Arc<Shared>,
    handed: Handed,
    /// Of workers.
    program: &'a str,
}

/// Mount the image of a configuration and serve it until SIGTERM.
///
/// # Errors
/// As `DaemonError`; nothing is left mounted.
pub fn run(config: &Config) -> Result<(), DaemonError> {
    serve(config, None)
}

/// Mount the image of a configuration's file and serve it until SIGTERM; after SIGHUP, as the file says then.
///
/// # Errors
/// As `DaemonError`; nothing is left mounted.
pub fn run_from(file: &Path) -> Result<(), DaemonError> {
    serve(&Config::load(file)?, Some(file))
}

fn serve(config: &Config, file: Option<&Path>) -> Result<(), DaemonError> {
    signals::block();
    let manifest = Arc::new(config.load_manifest()?);
    let lock = lock_state(&config.state)?;
    let chunks = manifest.size().div_ceil(CHUNK);
    let profile = profile::share(&config.load_profile(chunks)?)
        .map_err(DaemonError::system("hand the profile over"))?;
    let learned = Learned::create(chunks)?;
    let memory = Shared::create(chunks)?;
    let shared = Shared::map(&memory)?;
    shared
        .counter(Counter::StartNs)
        .store(record::now_ns(), Ordering::SeqCst);
    shared
        .counter(Counter::ModifiedS)
        .store(record::unix_now(), Ordering::SeqCst);
    let mounts = Mounts::of_process();
    prepare_mount(&config.mount, &mounts)?;
    if let Some(target) = &config.record {
        record::begin(&config.state, target)?;
    }
    let handed = Handed {
        lock: lock.into(),
        fuse: mounts.mount(&config.mount)?,
        memory,
        profile,
        learned,
    };
    keep(config, file, manifest, handed)
}

/// Check that this program can take over from a keeper of this layout with the configuration of a file.
///
/// # Errors
/// `Config`, and those of what the configuration names.
pub fn check(layout: &str, file: &Path) -> Result<(), DaemonError> {
    if layout != LAYOUT.to_string() {
        return Err(DaemonError::Config(format!(
            "what that keeper left is of layout {layout}, not {LAYOUT}"
        )));
    }
    let config = Config::load(file)?;
    let manifest = config.load_manifest()?;
    config.load_profile(manifest.size().div_ceil(CHUNK))?;
    Ok(())
}

/// Continue as the keeper that this process was before it ran this program; `numbers` are the descriptors of its lock, of FUSE, of the shared memory, of the profile, and of what was learned.
///
/// # Errors
/// As `DaemonError`; nothing is left mounted.
///
/// # Safety
/// The descriptors are open, and used by nothing else in this process.
pub unsafe fn take_over(file: &Path, numbers: [RawFd; 5]) -> Result<(), DaemonError> {
    signals::block();
    // SAFETY: as above.
    let handed = unsafe { Handed::from_raw(numbers) };
    let config = Config::load(file)?;
    let manifest = Arc::new(config.load_manifest()?);
    let profile = config.load_profile(manifest.size().div_ceil(CHUNK))?;
    // The file may have changed since the program before this one had read it.
    profile::replace(&handed.profile, &profile)
        .map_err(DaemonError::system("hand the profile over"))?;
    keep(&config, Some(file), manifest, handed)
}

/// Serve what is mounted until SIGTERM, and unmount it.
fn keep(
    config: &Config,
    file: Option<&Path>,
    manifest: Arc<Manifest>,
    handed: Handed,
) -> Result<(), DaemonError> {
    let mounted = Mount(&config.mount, Mounts::of_process());
    handed.leave_open()?;
    flush_io();
    program::set_oom_score(KEEPER_OOM_SCORE);
    let keeper = Keeper {
        config: Arc::new(RwLock::new(config.clone())),
        file,
        manifest,
        shared: Arc::new(Shared::map(&handed.memory)?),
        handed,
        program: program::OWN,
    };
    let ended = keeper.keep_serving(mounted);
    status::remove(&config.state);
    let recorded = record::finish(config, keeper.manifest.size(), &keeper.shared);
    ended.and(recorded)
}

/// Return a file in memory that a worker reads the configuration from. As an argument it would be too long with the homes of a large site: the kernel takes
/// 128 KiB.
fn hand_over(config: &Config) -> io::Result<fs::File> {
    let mut file = fs::File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&file, config)?;
    file.rewind()?;
    Ok(file)
}

/// Keep writes of this process and its workers from waiting for memory that only they could free.
fn flush_io() {
    // SAFETY: a call with plain numbers.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        let error = io::Error::last_os_error();
        log::warn!("Running without the kernel's I/O flusher mark: {error}");
    }
}

fn signal_worker(worker: &Child, signal: rustix::process::Signal) -> Result<(), DaemonError> {
    match rustix::process::Pid::from_raw(worker.id() as i32) {
        Some(pid) => rustix::process::kill_process(pid, signal)
            .map_err(DaemonError::system("signal the worker")),
        None => Ok(()),
    }
}

impl Keeper<'_> {
    fn keep_serving(&self, mounted: Mount<'_>) -> Result<(), DaemonError> {
        let mut pauses = Pauses::new(FIRST_PAUSE);
        let mut worker = match self.shared.get(Counter::WorkerPid) {
            0 => self.start_worker()?,
            // Of the program before this one, whose guests are there.
            _ => match self.start_again(&mut pauses) {
                Some(worker) => worker,
                None => return Ok(()),
            },
        };
        status::serve(
            self.config.clone(),
            self.manifest.clone(),
            self.shared.clone(),
            Arc::new(Learned::map(&self.handed.learned)?),
        )?;
        self.announce(&worker)?;
        let mut born = Instant::now();
        let mut is_replaced = false;
        loop {
            match (signals::wait(None), self.file) {
                (Some(Signal::Stop), _) | (Some(Signal::Reload), None) => {
                    drop(mounted);
                    return self.stop(&mut worker);
                }
                (Some(Signal::Reload), Some(file)) => {
                    is_replaced |= self.renew(&mut worker, file)?;
                }
                _ => {}
            }
            let ended = worker
                .try_wait()
                .map_err(DaemonError::system("wait for the worker"))?;
            let Some(ended) = ended else { continue };
            if ended.code().is_some() && self.shared.get(Counter::WorkerPid) == 0 {
                let reason = "the worker could not start: its reason is above";
                return Err(DaemonError::Config(reason.to_owned()));
            }
            let was_replaced = std::mem::take(&mut is_replaced);
            if !was_replaced {
                log::warn!("Starting a new worker: the last one ended ({ended})");
                self.shared.add(Counter::WorkerRestarts, 1);
            }
            // A kill from outside says nothing of the worker.
            let is_killed = ended.signal() == Some(libc::SIGKILL);
            if born.elapsed() < SOUND_LIFE && !is_killed && !was_replaced {
                if self.rest(&mut pauses) {
                    return Ok(());
                }
            } else {
                pauses.reset();
            }
            worker = match self.start_again(&mut pauses) {
                Some(worker) => worker,
                None => return Ok(()),
            };
            born = Instant::now();
        }
    }

    /// Start a worker, however often that fails: with the mount guests lose what they read. None if this process is to stop.
    fn start_again(&self, pauses: &mut Pauses) -> Option<Child> {
        loop {
            match self.start_worker() {
                Ok(worker) => return Some(worker),
                Err(error) => log::error!("Could not start a worker, will retry: {error}"),
            }
            if self.rest(pauses) {
                return None;
            }
        }
    }

    /// Pause before the next start of a worker; return whether this process is to stop.
    fn rest(&self, pauses: &mut Pauses) -> bool {
        let pause = pauses.take(self.config.read().unpoisoned().tuning.longest_pause());
        log::info!("Starting it in {} s", pause.as_secs_f64());
        match (signals::wait(Some(pause)), self.file) {
            (Some(Signal::Stop), _) | (Some(Signal::Reload), None) => return true,
            (Some(Signal::Reload), Some(file)) => {
                // The next worker works by it, without a signal.
                let _ = self.reload(file);
                if let Some(program) = self.find_successor(file) {
                    self.exchange(&program, file);
                }
            }
            _ => {}
        }
        false
    }

    /// Have the worker, or the next one, work by the file and as the program that is installed; return whether this one ends for that.
    fn renew(&self, worker: &mut Child, file: &Path) -> Result<bool, DaemonError> {
        let mut ends = false;
        if let Some(signal) = self.reload(file) {
            ends = signal == rustix::process::Signal::TERM;
            signal_worker(worker, signal)?;
        }
        if let Some(program) = self.find_successor(file) {
            self.end(worker)?;
            self.exchange(&program, file);
            ends = true;
        }
        Ok(ends)
    }

    /// Take the configuration of the file, and return the signal for the worker if it is another one: the worker takes a profile from the shared memory, for all else the next one works by it.
    fn reload(&self, file: &Path) -> Option<rustix::process::Signal> {
        let fresh = match Config::load(file) {
            Ok(fresh) => fresh,
            Err(error) => {
                log::warn!("Keeping the configuration in use: {error}");
                return None;
            }
        };
        let mut config = self.config.write().unpoisoned();
        if *config == fresh {
            return None;
        }
        if config.profile != fresh.profile {
            if let Err(error) = self.replace_profile(&fresh) {
                log::warn!("Keeping the profile in use: {error}");
            }
        }
        let is_other = Config {
            profile: fresh.profile.clone(),
            ..config.clone()
        } != fresh;
        if config.sources != fresh.sources || config.homes != fresh.homes {
            self.shared.clear_sources();
        }
        if config.hydrate != fresh.hydrate {
            // A deadline counts from when it was set.
            self.shared
                .counter(Counter::StartNs)
                .store(record::now_ns(), Ordering::SeqCst);
        }
        *config = fresh;
        Some(match is_other {
            true => rustix::process::Signal::TERM,
            false => rustix::process::Signal::HUP,
        })
    }

    fn replace_profile(&self, config: &Config) -> Result<(), DaemonError> {
        let chunks = self.manifest.size().div_ceil(CHUNK);
        profile::replace(&self.handed.profile, &config.load_profile(chunks)?)
            .map_err(DaemonError::system("hand the profile over"))
    }

    fn start_worker(&self) -> Result<Child, DaemonError> {
        let config = hand_over(&self.config.read().unpoisoned())
            .map_err(DaemonError::system("hand the configuration over"))?;
        let handed = &self.handed;
        Command::new(self.program)
            .arg0(program::NAME)
            .arg("worker")
            .stdin(config)
            .args(
                [
                    &handed.fuse,
                    &handed.memory,
                    &handed.profile,
                    &handed.learned,
                ]
                .map(|fd| fd.as_raw_fd().to_string()),
            )
            .arg(std::process::id().to_string())
            .spawn()
            .map_err(DaemonError::system("start a worker"))
    }

    /// Return the program that is installed in place of this one, if it can take over.
    fn find_successor(&self, file: &Path) -> Option<PathBuf> {
        let program = program::successor()?;
        let checked = Command::new(&program)
            .args(["can-keep", &LAYOUT.to_string()])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        match checked {
            Ok(status) if status.success() => return Some(program),
            Ok(status) => log::warn!(
                "Serving {} with the program of before: {} cannot take over ({status})",
                self.config.read().unpoisoned().image(),
                program.display()
            ),
            Err(error) => log::warn!("Could not run {}: {error}", program.display()),
        }
        None
    }

    /// Replace this process's program by another; returns if that failed. A signal that comes meanwhile stays for the program that runs then.
    fn exchange(&self, program: &Path, file: &Path) {
        let error = Command::new(program)
            .arg("take-over")
            .arg(file)
            .args(self.handed.all().map(|fd| fd.as_raw_fd().to_string()))
            .exec();
        log::warn!("Could not run {}: {error}", program.display());
    }

    /// Print the line that says that the file can be read, from a thread: it waits for the worker's first answers.
    fn announce(&self, worker: &Child) -> Result<(), DaemonError> {
        let (config, shared) = (self.config.read().unpoisoned().clone(), self.shared.clone());
        let path = config.mount.join(self.manifest.content_id_hex());
        let manifest = self.manifest.clone();
        let mut line = json!({
            "ready": true,
            "path": path,
            "size": self.manifest.size(),
            "chunk": CHUNK,
            "pid": std::process::id(),
            "worker_pid": worker.id(),
        });
        let run = move || {
            let mut announced = || -> io::Result<()> {
                fs::metadata(&path)?;
                let presence = leaves::count_chunks(&config.state, &manifest)?;
                line["hydration"] = status::describe_hydration(&config, &shared, presence);
                if let (Some(deadline), Some(earliest), Some(false)) = (
                    line["hydration"]["deadline_s"].as_f64(),
                    line["hydration"]["earliest_s"].as_f64(),
                    line["hydration"]["kept"].as_bool(),
                ) {
                    let image = config.image();
                    log::warn!("Cannot complete {image} within {deadline} s, at the earliest in {earliest:.0} s: raise --rate or the deadline");
                }
                let mut out = io::stdout().lock();
                writeln!(out, "{line}")?;
                out.flush()
            };
            if let Err(error) = announced() {
                log::warn!("Could not announce {}: {error}", path.display());
            }
        };
        let thread = std::thread::Builder::new()
            .name("ready".to_owned())
            .spawn(run);
        thread
            .map(drop)
            .map_err(DaemonError::system("start a thread"))
    }

    /// End the last worker.
    fn stop(&self, worker: &mut Child) -> Result<(), DaemonError> {
        self.shared
            .counter(Counter::WorkerPid)
            .store(0, Ordering::SeqCst);
        self.end(worker)
    }

    /// End the worker after its answers; kill it when it takes too long, which costs no more than a new verification.
    fn end(&self, worker: &mut Child) -> Result<(), DaemonError> {
        signal_worker(worker, rustix::process::Signal::TERM)?;
        let start = Instant::now();
        while start.elapsed() < DRAIN {
            let ended = worker
                .try_wait()
                .map_err(DaemonError::system("wait for the worker"))?;
            if ended.is_some() {
                return Ok(());
            }
            // Other signals stay for the next wait.
            signals::wait_for_child(Duration::from_millis(20));
        }
        log::warn!(
            "Killing a worker that did not end within {} s",
            DRAIN.as_secs()
        );
        worker
            .kill()
            .and_then(|()| worker.wait())
            .map(drop)
            .map_err(DaemonError::system("kill the worker"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(config: Config) -> Keeper<'static> {
        let memory = Shared::create(1).unwrap();
        let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        Keeper {
            config: Arc::new(RwLock::new(config)),
            file: None,
            manifest: Arc::new(Manifest::of_single_leaf(b"image")),
            shared: Arc::new(Shared::map(&memory).unwrap()),
            handed: Handed {
                lock: null(),
                fuse: null(),
                memory,
                profile: null(),
                learned: null(),
            },
            program: "/nonexistent",
        }
    }

    /// Regression: a keeper that could not start a worker ended, and its guests lost their mount.
    #[test]
    fn a_worker_that_cannot_be_started_does_not_end_its_keeper() {
        let text =
            r#"{"sources": ["/s"], "manifest": "/m", "mount": "/t", "state": "/s", "wait": 0.0}"#;
        let config = Config::parse(text).unwrap();
        let thread = std::thread::spawn(move || {
            signals::block();
            let keeper = keeper(config);
            assert!(keeper.start_worker().is_err());
            // SAFETY: a valid signal, to this thread, which has it blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            let mut pauses = Pauses::new(FIRST_PAUSE);
            assert!(keeper.start_again(&mut pauses).is_none());
            // It paused before another attempt.
            assert_eq!(pauses.take(Duration::MAX), 2 * FIRST_PAUSE);
        });
        thread.join().unwrap();
    }
}
