//! The process that answers requests: one thread per slot.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use caps::CapSet;
use diffcache_core::manifest::Manifest;
use diffcache_dataplane::serving::referrals::HostName;
use diffcache_prefetch::Chunk;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{FuseBuf, FuseDevWriter, Reader};
use rustix::io::Errno;

use crate::config::{self, BuildPlace, Config, HomeHost, Hydrate, Identity, Place};
use crate::error::DaemonError;
use crate::image::aside::FETCHERS;
use crate::image::filesystem::Directory;
use crate::image::lazy_file::LazyFile;
use crate::image::leaves::Leaves;
use crate::peers::hints::{Exchange, Hints};
use crate::peers::homes::{self, Home, Homes, Ways};
use crate::peers::peer::{self, Extras, Peers, Role};
use crate::peers::peer_requests;
use crate::peers::referrals::Referrals;
use crate::prefetch::hydration::Plan;
use crate::prefetch::learned::Learned;
use crate::prefetch::prefetcher::Prefetcher;
use crate::prefetch::profile;
use crate::prefetch::record::Recorder;
use crate::processes::memory::Budget;
use crate::processes::panics::AbortAtPanic;
use crate::processes::program;
use crate::processes::resend;
use crate::processes::shared::{free, request_len, Counter, Shared, SLOT_LEN};
use crate::processes::signals::{self, Signal};
use crate::sizes::SLOTS;
use crate::sources::build::BuildSource;
use crate::sources::local::LocalSource;
use crate::sources::local_patch;
use crate::sources::selection::Sources;
use crate::sources::source::{self, Source};
use crate::sources::version::VersionSource;

/// A request needs this much at least to be one.
const HEADER_LEN: usize = 40;

/// How often the files of the identity are looked at.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Until this host is announced to the others: by then its data plane serves the image, too.
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(1);

/// What differs from a file to one that replaces it: the time of its change, its inode and its size. A time alone may stay the same: many
/// tools preserve it, or give all files one.
type Stamp = ((i64, i64), u64, u64);

/// The files of this host's identity, looked at before they are read, so that no change is missed.
struct IdentityFiles<'a> {
    identity: &'a Identity,
    stamps: Vec<Option<Stamp>>,
    /// Why they could not be used when they were read last.
    problem: Option<String>,
}

impl IdentityFiles<'_> {
    fn new(identity: &Identity) -> IdentityFiles<'_> {
        IdentityFiles {
            identity,
            stamps: stamps(identity),
            problem: None,
        }
    }

    /// Read them, and log what keeps them from being used, once.
    fn open(&mut self) -> Result<Peers, DaemonError> {
        let opened = Peers::new(self.identity);
        let problem = opened.as_ref().err().map(ToString::to_string);
        if let Some(problem) = problem.as_ref().filter(|_| problem != self.problem) {
            log::error!(
                "Could not use the key and certificates of this host, will retry: {problem}"
            );
        }
        self.problem = problem;
        opened
    }

    /// Return whether another worker has an identity that this one lacks. This one keeps what it has, or has not, as long as the files cannot be used.
    fn are_renewed(&mut self) -> bool {
        (self.problem.is_some() || self.have_changed()) && self.open().is_ok()
    }

    /// Return whether a file was replaced. One that is gone for a moment is not.
    fn have_changed(&self) -> bool {
        let stamps = stamps(self.identity);
        stamps.iter().all(Option::is_some) && stamps != self.stamps
    }
}

fn stamps(identity: &Identity) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        let changed = (found.mtime(), found.mtime_nsec());
        Some((changed, found.ino(), found.len()))
    };
    identity.files().map(stamp).collect()
}

struct Service {
    server: Server<Directory>,
    /// What the rest of files is prefetched of, if it is.
    followed: Option<Arc<LazyFile>>,
    fuse: BorrowedFd<'static>,
    shared: Arc<Shared>,
    ended: AtomicBool,
}

/// Answer requests of `fuse` for a keeper until SIGTERM or the end of the mount, with the memory of `memory` and `learned` and the profile of `profile`.
///
/// # Errors
/// As `DaemonError`, before the first answer.
pub fn run(
    config: &Config,
    fuse: BorrowedFd<'static>,
    memory: BorrowedFd<'_>,
    profile: BorrowedFd<'_>,
    learned: BorrowedFd<'_>,
    keeper: i32,
) -> Result<(), DaemonError> {
    signals::block();
    // It is started again.
    program::set_oom_score(0);
    drop_privileges(keeper)?;
    let mut identity = IdentityFiles::new(&config.identity);
    let shared = Arc::new(Shared::map(memory)?);
    let leaves = Leaves::open(&config.state, config.load_manifest()?)?;
    take_doubts(config, &leaves, &shared);
    let wait = Duration::from_secs_f64(config.wait);
    let prefetcher = open_prefetcher(config, &leaves, &shared, profile)?.map(Arc::new);
    let learned = Learned::map(learned)?;
    learned.take_over();
    let hints = open_hints(config, &leaves, &learned, &prefetcher, &shared);
    let peers = match identity.open() {
        // Guests read what has arrived. Of what is new nothing has, and it is refused.
        Err(error) if leaves.is_new() => return Err(error),
        opened => opened.ok(),
    };
    let sources = open_sources(config, leaves.manifest(), &shared, hints.as_ref(), peers)?;
    let file = LazyFile::new(leaves, sources, shared.clone(), wait, prefetcher);
    let file = Arc::new(file);
    let recorder = open_recorder(config, &shared)?;
    let group = config
        .group
        .unwrap_or_else(|| rustix::process::getegid().as_raw());
    let directory = Directory::new(file.clone(), learned, hints.clone(), recorder, group);
    let service = Arc::new(Service {
        server: Server::new(directory),
        followed: config.files.then(|| file.clone()),
        fuse,
        shared: shared.clone(),
        ended: AtomicBool::new(false),
    });
    serve_hosts(config, &file, &hints, &shared)?;
    if config.resend {
        service.have_resent();
    }
    start_fetching(config, &file)?;
    // Before the first answer: who has had one may ask which process gave it.
    shared
        .counter(Counter::WorkerPid)
        .store(u64::from(std::process::id()), Ordering::SeqCst);
    for index in 0..config.tuning.workers {
        let service = service.clone();
        spawn("fuse", move || service.serve_slot(index))?;
    }
    let mut budget = Budget::begin(config.tuning.workers);
    let tend = || {
        if budget.is_exceeded() {
            log::warn!("Serving without hints: this process takes too much memory");
            file.drop_hints();
            hints.iter().for_each(|hints| hints.forget());
        }
    };
    wait_for_end(
        &mut identity,
        &service,
        || take_profile(&file, profile),
        tend,
    );
    let closed = file.leaves().close();
    closed.map_err(DaemonError::at("close the state of", &config.state))
}

/// Verify what is kept if that is in doubt since the worker before this one began.
fn take_doubts(config: &Config, leaves: &Leaves, shared: &Shared) {
    let known = shared
        .counter(Counter::Doubts)
        .swap(config.doubts, Ordering::SeqCst);
    if known != config.doubts {
        leaves.doubt();
    }
}

/// Take what the data plane of this host asks for other hosts of the site.
fn serve_hosts(
    config: &Config,
    file: &Arc<LazyFile>,
    hints: &Option<Arc<Hints>>,
    shared: &Arc<Shared>,
) -> Result<(), DaemonError> {
    peer_requests::serve(&config.state, file)?;
    peer_requests::serve_hints(&config.state, hints.clone())?;
    let referrals = open_referrals(config, file, shared);
    peer_requests::serve_referrals(&config.state, file, referrals)
}

/// Open the record of this worker's reads, if reads are recorded.
fn open_recorder(config: &Config, shared: &Arc<Shared>) -> Result<Option<Recorder>, DaemonError> {
    match config.record {
        Some(_) => Recorder::open(&config.state, shared.clone()).map(Some),
        None => Ok(None),
    }
}

/// Return what is exchanged with other hosts of the site; none if this host takes no part.
fn open_hints(
    config: &Config,
    leaves: &Leaves,
    learned: &Learned,
    prefetcher: &Option<Arc<Prefetcher>>,
    shared: &Arc<Shared>,
) -> Option<Arc<Hints>> {
    let homes = config.homes.as_ref().filter(|_| config.hints)?;
    let ranked = homes::rank(homes, leaves.manifest().content_id());
    let names: Vec<_> = ranked.iter().map(|host| host.name.as_str()).collect();
    Some(Arc::new(Hints::new(
        &homes.own,
        &names,
        learned,
        prefetcher.clone(),
        shared.clone(),
    )))
}

/// Return the requests of other hosts of the site; none if this host takes no part.
fn open_referrals(config: &Config, file: &LazyFile, shared: &Arc<Shared>) -> Option<Referrals> {
    let homes = config.homes.as_ref()?;
    let ranked = homes::rank(homes, file.leaves().manifest().content_id());
    let names = ranked.into_iter().map(|host| host.name.as_str());
    let fan_out = config.tuning.fan_out;
    Some(Referrals::new(&homes.own, names, fan_out, shared.clone()))
}

/// Start the threads that fetch, but for those that answer requests.
fn start_fetching(config: &Config, file: &Arc<LazyFile>) -> Result<(), DaemonError> {
    if !file.sources().homes().is_alone() {
        let (probing, announced) = (file.clone(), file.clone());
        spawn("probe", move || probing.probe_homes())?;
        let chunks = file.leaves().chunk_count();
        spawn("announce", move || {
            std::thread::sleep(ANNOUNCE_PAUSE);
            announced.sources().announce(chunks);
        })?;
    }
    // Of an image that has begun to arrive, nothing more may be needed.
    if file.leaves().is_new() {
        let file = file.clone();
        spawn("prepare", move || file.sources().prepare())?;
    }
    for _ in 0..FETCHERS {
        let file = file.clone();
        spawn("fetch", move || file.fetch_aside())?;
    }
    for _ in 0..file.prefetches() {
        let file = file.clone();
        spawn("prefetch", move || file.prefetch())?;
    }
    let (left, kept) = (file.clone(), file.clone());
    spawn("verify", move || left.verify_left())?;
    spawn("flush", move || kept.keep_durable())?;
    if config.hydrate == Hydrate::Profile {
        let file = file.clone();
        spawn("profile", move || file.complete_profile())?;
    }
    if !matches!(config.hydrate, Hydrate::None | Hydrate::Profile) {
        let (file, plan) = (file.clone(), Plan::new(config));
        spawn("hydrate", move || file.keep_hydrated(&plan))?;
    }
    Ok(())
}

/// Wait for SIGTERM, the end of the mount, or another identity of this host; `tend` to this process meanwhile.
fn wait_for_end(
    identity: &mut IdentityFiles<'_>,
    service: &Service,
    take_profile: impl Fn(),
    mut tend: impl FnMut(),
) {
    let mut looked = Instant::now();
    while !service.ended.load(Ordering::SeqCst) {
        match signals::wait(Some(Duration::from_millis(200))) {
            Some(Signal::Stop) => break,
            Some(Signal::Reload) => take_profile(),
            _ => {}
        }
        tend();
        if looked.elapsed() > LOOK_TIME {
            looked = Instant::now();
            if identity.are_renewed() {
                log::info!(
                    "Ending this worker, so that the next one uses the new key and certificates"
                );
                break;
            }
        }
    }
}

/// Prefetch by the profile that the keeper has put in place of the last one.
fn take_profile(file: &LazyFile, profile: BorrowedFd<'_>) {
    match profile::from_shared(profile) {
        Ok(profile) => file.replace_profile(profile),
        Err(error) => log::warn!("Keeping the profile in use: {error}"),
    }
}

fn open_sources(
    config: &Config,
    manifest: &Manifest,
    shared: &Arc<Shared>,
    hints: Option<&Arc<Hints>>,
    peers: Option<Peers>,
) -> Result<Sources, DaemonError> {
    let builds = config.sources.iter().filter_map(Place::build);
    let patches: Vec<_> = builds
        .flat_map(BuildPlace::patches)
        .map(|patch| patch.id)
        .collect();
    local_patch::remove_others(&config.state, &patches)
        .map_err(DaemonError::at("remove old patches from", &config.state))?;
    let manifest = Arc::new(manifest.clone());
    let places = config.sources.iter();
    let sources: Result<Vec<_>, _> = places
        .map(|place| open_place(place, peers.as_ref(), &manifest, &config.state))
        .collect();
    let homes = match (&config.homes, &peers) {
        (Some(homes), Some(peers)) => open_homes(homes, peers, &manifest, hints)?,
        _ => Homes::default(),
    };
    Ok(Sources::new(sources?, shared.clone()).with_homes(homes))
}

/// Open a source; what needs this host's identity fails as long as there is none.
fn open_place(
    place: &Place,
    peers: Option<&Peers>,
    manifest: &Arc<Manifest>,
    state: &Path,
) -> Result<Box<dyn Source>, DaemonError> {
    Ok(match (place, peers) {
        (Place::Plain(image), _) => source::open_plain(image),
        (Place::Local(place), _) => Box::new(LocalSource::new(place)),
        (Place::Version(place), _) => Box::new(VersionSource::new(place)),
        (Place::Build(_) | Place::Peer(_), None) => peer::unasked(place.name()),
        (Place::Build(place), Some(peers)) => {
            Box::new(BuildSource::open(place, peers, manifest, state)?)
        }
        (Place::Peer(place), Some(peers)) => {
            let role = match place.wan {
                true => Role::Repository,
                false => Role::Holder,
            };
            peers.open(&place.peer, role, manifest)?
        }
    })
}

fn open_homes(
    homes: &config::Homes,
    peers: &Peers,
    manifest: &Arc<Manifest>,
    hints: Option<&Arc<Hints>>,
) -> Result<Homes, DaemonError> {
    let open = |(place, host): (usize, &HomeHost)| -> Result<Option<Home>, DaemonError> {
        if host.name == homes.own {
            return Ok(None);
        }
        let exchange = hints.cloned().map(|hints| Exchange { hints, place });
        let open = |role, requester| {
            let exchange = exchange.clone();
            let extras = Extras {
                exchange,
                requester,
            };
            peers.open_with(&host.url, role, manifest, extras)
        };
        let ways = Ways {
            asked: open(Role::Home, HostName::parse(&homes.own))?,
            asked_again: open(Role::Home, None)?,
            looked_at: open(Role::Holder, None)?,
            referred: open(Role::Referred, None)?,
        };
        Ok(Some(Home::new(&host.name, ways)))
    };
    let ranked = homes::rank(homes, manifest.content_id());
    let members: Result<_, _> = ranked.into_iter().enumerate().map(open).collect();
    Ok(Homes::new(members?))
}

fn open_prefetcher(
    config: &Config,
    leaves: &Leaves,
    shared: &Shared,
    profile: BorrowedFd<'_>,
) -> Result<Option<Prefetcher>, DaemonError> {
    if !config.prefetch {
        return Ok(None);
    }
    let profile =
        profile::from_shared(profile).map_err(DaemonError::system("take the profile over"))?;
    // Chunks beyond the last number are read on demand.
    let chunks = Chunk::try_from(leaves.chunk_count()).unwrap_or(Chunk::MAX);
    let prefetcher = Prefetcher::new(chunks, profile, config.tuning.policy());
    if shared.get(Counter::Reads) > 0 {
        // The worker before this one had begun.
        prefetcher.begin();
    } else if config.hydrate == Hydrate::Profile {
        prefetcher.begin_profile();
    }
    Ok(Some(prefetcher))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}

/// Give up all capabilities, and end with the keeper, whose process ID is given.
fn drop_privileges(keeper: i32) -> Result<(), DaemonError> {
    let signal = Some(rustix::process::Signal::TERM);
    rustix::process::set_parent_process_death_signal(signal)
        .map_err(DaemonError::system("tie the worker to its keeper"))?;
    // No signal comes for one that ended before the call.
    if rustix::process::getppid() != rustix::process::Pid::from_raw(keeper) {
        return Err(DaemonError::Config("the keeper has ended".to_owned()));
    }
    rustix::thread::set_no_new_privs(true).map_err(DaemonError::system("forbid new privileges"))?;
    for set in [CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        caps::clear(None, set).map_err(|error| {
            DaemonError::System("drop capabilities", std::io::Error::other(error))
        })?;
    }
    Ok(())
}

impl Service {
    /// Have the kernel send again what the worker before this one did not answer, in place of its copies in the slots. These are kept for kernels that cannot. Called before the threads of the slots start.
    fn have_resent(&self) {
        if !resend::request(self.fuse, &self.shared) {
            return;
        }
        for index in 0..SLOTS {
            // SAFETY: no thread has a slot yet.
            free(unsafe { self.shared.slot(index) });
        }
    }

    fn serve_slot(&self, index: usize) {
        // The keeper starts another worker, which answers the requests that this one leaves.
        let _guard = AbortAtPanic;
        // SAFETY: each index is given to one thread.
        let slot = unsafe { self.shared.slot(index) };
        let mut reply = vec![0; SLOT_LEN];
        // What the worker before this one did not answer.
        let left = request_len(slot);
        if left != 0 {
            self.answer(slot, left, &mut reply);
            self.end_request(slot);
        }
        // The pages of any request are there before the kernel fills them: a kill cannot interrupt that.
        slot[..8192].fill(0);
        loop {
            match rustix::io::read(self.fuse, &mut *slot) {
                Ok(len) => self.answer(slot, len, &mut reply),
                // A request was interrupted before it was read, or a signal came.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV) => break,
                Err(error) => {
                    log::error!("Could not read a FUSE request: {error}");
                    break;
                }
            }
            self.end_request(slot);
        }
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Free a slot; prefetch the rest of the files that were read, for which no guest waits.
    fn end_request(&self, slot: &mut [u8]) {
        free(slot);
        if let Some(file) = &self.followed {
            file.follow_files();
        }
    }

    fn answer(&self, slot: &mut [u8], len: usize, reply: &mut [u8]) {
        let Some(request) = slot.get_mut(..len).filter(|_| len >= HEADER_LEN) else {
            log::warn!("Ignoring a FUSE request of {len} bytes");
            return;
        };
        let reader = Reader::<()>::from_fuse_buffer(FuseBuf::new(request));
        let writer = FuseDevWriter::<()>::new(self.fuse.as_raw_fd(), reply);
        let (Ok(reader), Ok(writer)) = (reader, writer) else {
            log::error!("Could not prepare the answer of a FUSE request");
            return;
        };
        // ENOENT: the kernel has forgotten the request, or has the answer of the worker before this one.
        if let Err(error) = self
            .server
            .handle_message(reader, writer.into(), None, None)
        {
            let text = error.to_string();
            if !text.contains("os error 2)") {
                log::warn!("Could not answer a FUSE request: {text}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    fn write_key(path: &Path, mode: u32) {
        let new = path.with_extension("new");
        std::fs::write(&new, "ab".repeat(32)).unwrap();
        std::fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Regression: a leaf that went bad on the disk was read on by guests, as nothing had it verified.
    #[test]
    fn what_another_process_doubts_is_verified_once() {
        let folder = tempfile::tempdir().unwrap();
        let (state, image) = (folder.path(), b"image");
        let text = format!(
            r#"{{"sources": ["/a"], "manifest": "/m", "mount": "/t", "state": "{}", "wait": 0.0}}"#,
            state.display()
        );
        let mut config = Config::parse(&text).unwrap();
        let memory = Shared::create(1).unwrap();
        let shared = Shared::map(&memory).unwrap();
        let leaves = Leaves::open(state, Manifest::of_single_leaf(image)).unwrap();
        leaves.keep(0, image).unwrap();
        take_doubts(&config, &leaves, &shared);
        assert!(leaves.is_complete());
        leaves.file().write_at(b"wrong", 0).unwrap();
        config.doubts = 1;
        take_doubts(&config, &leaves, &shared);
        assert!(!leaves.is_complete());
        assert!(!leaves.check(0));
        leaves.keep(0, image).unwrap();
        take_doubts(&config, &leaves, &shared);
        assert!(leaves.is_complete());
    }

    fn with_key(path: &Path) -> Identity {
        Identity {
            key_name: Some("h1".to_owned()),
            key_file: Some(path.to_owned()),
            ..Identity::default()
        }
    }

    /// Regression: a worker ended for a key that no worker can use, and none served any more what had arrived.
    #[test]
    fn a_worker_keeps_its_identity_until_the_next_one_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_key(&path, 0o600);
        let identity = with_key(&path);
        let mut files = IdentityFiles::new(&identity);
        assert!(files.open().is_ok());
        assert!(!files.are_renewed());
        write_key(&path, 0o640);
        assert!(files.have_changed());
        assert!(!files.are_renewed());
        write_key(&path, 0o600);
        assert!(files.are_renewed());
    }

    /// Regression: without a usable key a worker ended before its first answer, again and again.
    #[test]
    fn without_an_identity_hosts_are_not_asked_and_all_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let identity = with_key(&path);
        let mut files = IdentityFiles::new(&identity);
        let peers = files.open().ok();
        assert!(peers.is_none());
        let place = Place::Peer(config::PeerPlace {
            peer: "http://h2".to_owned(),
            wan: false,
        });
        let manifest = Arc::new(Manifest::of_single_leaf(b"image"));
        let found = open_place(&place, peers.as_ref(), &manifest, folder.path()).unwrap();
        assert_eq!(found.name(), "http://h2");
        let asked = found.read_at(0, &mut [0; 5], Duration::from_secs(1));
        assert!(asked.unwrap_err().to_string().contains("certificate"));
        // The next worker has one as soon as there is a key.
        write_key(&path, 0o600);
        assert!(files.are_renewed());
    }

    /// Regression: a worker whose keeper ended before it was tied to it lived on, and kept the state locked.
    #[test]
    fn a_worker_whose_keeper_has_ended_does_not_begin() {
        let own = i32::try_from(std::process::id()).unwrap();
        // No process is its own parent.
        let error = drop_privileges(own).unwrap_err().to_string();
        assert!(error.contains("the keeper has ended"), "{error}");
    }
}
