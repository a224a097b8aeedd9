//! A host's data plane: the server of what it has and the means to get what it lacks.

mod config;
mod housekeeper;
mod stats;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::Manifest;

use crate::complaints::Complaint;
use crate::counters::Event;
use crate::error::TransferError;
use crate::fetching::claimant::{Claimant, SiteHost};
use crate::fetching::client::{Client, Stop};
use crate::fetching::fetch::{load_manifest, Transfer};
use crate::fetching::leaves::Leaves;
use crate::fetching::measured_rate::MeasuredRate;
use crate::fetching::minimum_rate::Floors;
use crate::fetching::origins::Origins;
use crate::fetching::part::{Durability, Part};
use crate::fetching::peer::Remote;
use crate::fetching::repositories::Repositories;
use crate::fetching::shared::SharedLeaves;
use crate::fetching::standing::{LeftAlone, Offence, Standing};
use crate::fetching::wan::WanGate;
use crate::gate::Cancel;
use crate::ids::{Kind, ObjectKey};
pub use crate::plane::config::Config;
use crate::plane::config::{
    build_client, build_service, check_advertised, check_numbers, listen, listen_error, own_url,
};
use crate::plane::housekeeper::{start_housekeeper, Prober};
pub use crate::plane::stats::Stats;
use crate::progress::{Meter, Report};
use crate::serving::borrowed::Borrowed;
use crate::serving::object_file::ObjectsError;
use crate::serving::objects::Landing;
use crate::serving::partial::Partial;
use crate::serving::server::Server;
use crate::serving::service::Service;
use crate::shaper::Shaper;
use crate::traces::Served;
use crate::transport::auth::Keys;
use crate::transport::tls::Tls;

/// How long an object that peers were reading behind stays readable once it is whole, wherever it went: they may ask for ranges of it yet.
const FOLLOWERS_TIME: Duration = Duration::from_secs(10);

/// Options that every getting of an object has.
pub struct Job<'a> {
    /// The destination.
    pub dest: &'a Path,
    /// How long the finished object is lent from `dest`.
    pub lend: Duration,
    /// Whether it must survive a power cut from then on.
    pub durability: Durability,
    /// Whom to tell.
    pub report: Option<Report<'a>>,
    /// The caller's handle.
    pub cancel: Cancel,
    /// What ends this attempt only.
    pub interrupt: Cancel,
    /// The most bytes that the object can have; `None` if that is not known. An image's manifest tells.
    pub max_size: Option<u64>,
    /// Whether it crosses the WAN.
    pub over_wan: bool,
    /// Whether the peer may send an image in frames.
    pub frames: bool,
    /// Counts the bytes that come, also if the transfer fails.
    pub received: Option<&'a AtomicU64>,
}

/// A running data plane; dropping it closes it.
pub struct DataPlane {
    url: String,
    service: Arc<Service>,
    server: Server,
    pub(crate) client: Arc<Client>,
    /// Applies for claims.
    pub claimant: Arc<Claimant>,
    /// Who uses the WAN.
    pub(crate) wan: WanGate,
    /// How long what crossed the WAN is lent.
    pub(crate) lend_time: Duration,
    /// What was lent for that reason, and until when.
    pub(crate) lent: Mutex<HashMap<ObjectKey, Instant>>,
    /// What images on their way share with those that are here.
    pub(crate) shared: SharedLeaves,
    /// Which bytes of parts came from whom.
    origins: Origins,
    /// Which hosts are left alone.
    pub(crate) standing: Arc<Standing>,
    compress_below: f64,
    /// The rate at which peers send to this host.
    pub(crate) peer_rate: Mutex<MeasuredRate>,
    /// Which repositories answer.
    pub repositories: Arc<Repositories>,
    housekeeper: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl DataPlane {
    /// Opens the directory, listens and starts to serve.
    pub fn open(config: Config) -> Result<DataPlane, TransferError> {
        check_numbers(&config)?;
        let tls = config.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
        let secure = tls.as_ref().is_some_and(|tls| !tls.tolerates_plain());
        check_advertised(&config, secure)?;
        let listener = listen(&config)?;
        let url = own_url(&config, &listener, secure)?;
        let service = Arc::new(build_service(&config, &url, tls.clone())?);
        let started = Server::start(service.clone(), listener);
        let server = started.map_err(|source| listen_error(&config.listen, source))?;
        let client = Arc::new(build_client(&config, tls, service.counters.clone()));
        let repositories = Arc::new(Repositories::default());
        let prober = Prober {
            repositories: repositories.clone(),
            client: client.clone(),
            gate: service.gate.clone(),
        };
        let housekeeper = start_housekeeper(service.clone(), prober)
            .map_err(|source| listen_error(&config.listen, source))?;
        let standing = Arc::new(Standing::new(config.distrust_time));
        let claimant = Claimant::new(config.name, url.clone(), client.clone(), service.clone())
            .with_standing(standing.clone());
        let shared = SharedLeaves::new(service.objects.clone(), service.counters.clone());
        Ok(DataPlane {
            url,
            service,
            server,
            client,
            claimant: Arc::new(claimant),
            wan: WanGate::default(),
            lend_time: config.lend_time,
            lent: Mutex::default(),
            shared,
            origins: Origins::default(),
            standing,
            compress_below: config.compress_below,
            peer_rate: Mutex::default(),
            repositories,
            housekeeper: Mutex::new(Some(housekeeper)),
        })
    }

    /// Returns the base URL that peers connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Lifetime of the claims that this host coordinates, without renewal.
    pub fn claim_ttl(&self) -> Duration {
        self.service.claims.lock().unpoisoned().ttl()
    }

    /// Stops serving, ends what is under way with `Cancelled`, and waits for the server's threads.
    pub fn close(&self) {
        self.service.gate.close();
        self.server.stop();
        self.client.close();
        if let Some(housekeeper) = self.housekeeper.lock().unpoisoned().take() {
            let _ = housekeeper.join();
        }
    }

    /// Changes the speed of the server's link.
    pub fn set_rate(&self, rate: Option<f64>) -> Result<(), TransferError> {
        self.service.shaper.set_rate(check_rate(rate)?);
        Ok(())
    }

    /// Replaces the keys, for the requests to come; a plane without a key stays without.
    pub fn set_keys(&self, keys: Keys) {
        if let Some(verifier) = &self.service.verifier {
            verifier.set_keys(keys.clone());
            self.client.set_keys(keys);
        }
    }

    /// Replaces the slowest rates at which peers may send, for the transfers to come.
    pub fn set_floors(&self, floors: Floors) {
        self.client.set_floors(floors);
    }

    /// The slowest rates at which peers may send.
    pub fn floors(&self) -> Floors {
        self.client.floors()
    }

    /// Replaces the repositories that may be read from.
    pub fn set_repositories(&self, hosts: &[SiteHost]) {
        for host in hosts {
            self.standing.name(&host.url, &host.name);
        }
        let spelled: Vec<_> = hosts.iter().map(SiteHost::normalized).collect();
        self.repositories.set(&spelled);
    }

    /// The measured bytes per second at which peers send to this host; `None` if too few came.
    pub fn peer_rate(&self) -> Option<f64> {
        self.peer_rate.lock().unpoisoned().bytes_per_second()
    }

    /// Whether peers send so slowly, as measured, that compressing is faster.
    pub(crate) fn is_lan_slow(&self) -> bool {
        self.peer_rate()
            .is_some_and(|rate| rate < self.compress_below)
    }

    /// The hosts that are left alone now.
    pub fn left_alone(&self) -> Vec<LeftAlone> {
        self.standing.left_alone(Instant::now())
    }

    /// Reads the files of this host's identity again, for the connections to come; after an error the old ones stay in use.
    pub fn reload_tls(&self) -> Result<(), TransferError> {
        if let Some(tls) = &self.service.tls {
            tls.reload()?;
            self.client.close();
            self.server.end_idle();
        }
        Ok(())
    }

    /// What was wrong with connections to this host, and with what peers sent, since this was last asked.
    pub fn take_complaints(&self) -> Vec<Complaint> {
        self.service.complaints.take()
    }

    /// What was sent for traces, and nothing was added to for this long, since this was last asked.
    pub fn take_served(&self, quiet: Duration) -> Vec<Served> {
        let traces = self.service.traces.as_ref();
        traces.map_or_else(Vec::new, |traces| traces.take(quiet))
    }

    /// Counters and present state.
    pub fn stats(&self) -> Stats {
        Stats {
            counters: self.service.counters.clone(),
            connections: self.server.connections(),
            in_flight: self.service.objects.flights(),
            lent: self.service.objects.expire(),
            claims: self.service.claims.lock().unpoisoned().len(Instant::now()),
        }
    }

    /// Transfers of an object to peers that are under way.
    pub fn readers(&self, key: ObjectKey) -> usize {
        self.service.objects.readers(key)
    }

    /// Serves the file at `path` under `key` for a time, or until its size or modification time changes; no time ends it.
    pub fn lend(&self, key: ObjectKey, path: &Path, time: Duration) -> Result<(), TransferError> {
        if time.is_zero() {
            self.service.objects.recall(key);
            return Ok(());
        }
        let lent = self.service.objects.lend(key, path, time);
        lent.map_err(|error| local_error(key, path, error))
    }

    /// Serves the image `key` from a file of another program, each leaf verified against a manifest, until it has changed.
    pub fn borrow(
        &self,
        key: ObjectKey,
        path: &Path,
        manifest: &Path,
    ) -> Result<(), TransferError> {
        if key.kind != Kind::Images {
            let reason = format!("{key}: only an image can be verified as it is read");
            return Err(TransferError::Invalid(reason));
        }
        let opened = Borrowed::open(path, load_manifest(key, manifest)?);
        let borrowed = opened.map_err(|error| local_error(key, path, error))?;
        self.service.objects.borrow(key, borrowed);
        Ok(())
    }

    /// Stops serving a borrowed file; transfers of it that are under way end as they would have.
    pub fn give_back(&self, key: ObjectKey) {
        self.service.objects.give_back(key);
    }

    /// Serves the image `key` while it arrives at diffcached, from the folder of its state there.
    pub fn attach(&self, key: ObjectKey, folder: &Path) -> Result<(), TransferError> {
        if key.kind != Kind::Images {
            let reason = format!("{key}: diffcached serves images");
            return Err(TransferError::Invalid(reason));
        }
        let opened = Partial::open(key, folder);
        let partial = opened.map_err(|error| local_error(key, folder, error))?;
        self.service.objects.attach(key, partial);
        Ok(())
    }

    /// Stops serving an image of diffcached; transfers of it that are under way end as they would have.
    pub fn detach(&self, key: ObjectKey) {
        self.service.objects.detach(key);
    }

    /// Borrowed objects whose files had changed when they were read, since the last call; they are not served any more.
    pub fn take_changed(&self) -> Vec<ObjectKey> {
        self.service.objects.take_changed()
    }

    /// Gets an object from a peer into `job.dest`; returns the bytes that came over the wire.
    pub fn fetch(
        &self,
        remote: &Remote,
        manifest: Option<&Path>,
        rate: Option<f64>,
        job: &Job<'_>,
    ) -> Result<u64, TransferError> {
        let key = remote.key;
        let rate = check_rate(rate)?;
        let stop = self.stop(job);
        stop.check(key)?;
        let manifest = needed_manifest(key, manifest)?;
        let landing = self.begin(key)?;
        let part = Part::open(key, job.dest)?;
        let refused = Cancel::default();
        let stop = stop.or(refused.clone());
        let liars = Mutex::default();
        let transfer = Transfer {
            client: &self.client,
            remote,
            part: &part,
            flight: landing.flight(),
            stop: &stop,
            shaper: &Shaper::new(rate),
            over_wan: job.over_wan,
            frames: job.frames,
            max_size: job.max_size,
            origins: &self.origins,
            liars: &liars,
            complaints: &self.service.complaints,
            received: job.received,
        };
        let meter = Meter::new(job.report, 0, refused);
        let outcome = match manifest {
            Some(manifest) => Leaves::open(key, manifest, &part, landing.flight().clone(), meter)
                .and_then(|leaves| transfer.leaves(&leaves)),
            None => transfer.blob(&meter),
        };
        for liar in liars.lock().unpoisoned().drain(..) {
            let reason = format!("it sent wrong bytes of {key}");
            self.accuse(&liar, Offence::Lie, &reason);
        }
        let outcome =
            outcome.and_then(|received| self.land(landing, &part, job).map(|()| received));
        outcome.inspect_err(|error| {
            if is_useless_after(key, error) {
                part.discard();
            }
            self.judge(error);
        })
    }

    /// Notes the offence of a peer that an error is about, if it is one.
    pub(crate) fn judge(&self, error: &TransferError) {
        if let Some((peer, offence)) = error.offence() {
            if matches!(error, TransferError::PeerSlow { .. }) {
                self.service.counters.count(Event::Slow);
            }
            self.accuse(peer, offence, &error.to_string());
        }
    }

    /// Report what an operator may want to know of a host.
    pub(crate) fn complain(&self, host: &str, reason: String) {
        self.service.complaints.note(host, reason);
    }

    fn accuse(&self, peer: &str, offence: Offence, reason: &str) {
        self.claimant.accuse(peer, offence, reason);
    }

    /// Makes the part the destination, lends it if asked to, and lets readers behind it continue.
    pub(crate) fn land(
        &self,
        landing: Landing,
        part: &Part,
        job: &Job<'_>,
    ) -> Result<(), TransferError> {
        part.commit(job.durability)?;
        let lend = match landing.flight().is_followed() {
            true => job.lend.max(FOLLOWERS_TIME),
            false => job.lend,
        };
        if !lend.is_zero() {
            let lent = self
                .service
                .objects
                .lend_file(part.key(), part.file().clone(), lend);
            lent.map_err(|error| local_error(part.key(), job.dest, error))?;
        }
        landing.land();
        Ok(())
    }

    /// Registers an object as arriving here.
    pub(crate) fn begin(&self, key: ObjectKey) -> Result<Landing, TransferError> {
        self.service
            .objects
            .begin(key)
            .map_err(|_| TransferError::AlreadyInFlight {
                object: key.to_string(),
            })
    }

    pub(crate) fn stop(&self, job: &Job<'_>) -> Stop {
        let stop = Stop::new(job.cancel.clone(), self.service.gate.clone());
        stop.or(job.interrupt.clone())
    }

    /// Let peers no longer read a lent file.
    pub(crate) fn recall(&self, key: ObjectKey) {
        self.service.objects.recall(key);
    }

    /// Whether [`DataPlane::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.gate.is_closed()
    }

    /// Sleep; returns false, early, if the plane closes.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        self.service.gate.sleep(time)
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) fn check_rate(rate: Option<f64>) -> Result<Option<f64>, TransferError> {
    match rate {
        Some(rate) if !(rate.is_finite() && rate >= 1.0) => Err(TransferError::Invalid(format!(
            "a rate is at least 1 byte per second, not {rate}; None is no limit"
        ))),
        rate => Ok(rate),
    }
}

/// Loads the manifest that an object is verified against, if it needs one.
fn needed_manifest(
    key: ObjectKey,
    manifest: Option<&Path>,
) -> Result<Option<Arc<Manifest>>, TransferError> {
    let reason = match (key.kind, manifest) {
        (Kind::Images, Some(path)) => return load_manifest(key, path).map(Some),
        (Kind::Patches | Kind::Manifests | Kind::Recipes, _) => return Ok(None),
        (Kind::Images, None) => {
            format!("{key}: an image is verified against its manifest; give the manifest's file")
        }
        (Kind::Compressed, _) => {
            format!("{key}: a compressed form is read as part of its image")
        }
    };
    Err(TransferError::Invalid(reason))
}

/// Whether what came of an object cannot be resumed after an error, or must make room.
fn is_useless_after(key: ObjectKey, error: &TransferError) -> bool {
    match error {
        TransferError::Integrity { .. } => key.kind != Kind::Images,
        TransferError::NoSpace { .. } => true,
        _ => false,
    }
}

fn local_error(key: ObjectKey, path: &Path, error: ObjectsError) -> TransferError {
    let source = match error {
        ObjectsError::Io(source) => source,
        other => std::io::Error::other(other.to_string()),
    };
    TransferError::file(key, path, source)
}
