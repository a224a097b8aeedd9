//! Python bindings of `diffcache-dataplane`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use diffcache_dataplane::auth::SiteKey;
use diffcache_dataplane::build::Place;
use diffcache_dataplane::client::{Peer, Remote};
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::gate;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::part::{part_path, Durability};
use diffcache_dataplane::plane::{self, Config, Job};
use diffcache_dataplane::server::Limits;
use diffcache_dataplane::tls::{Options, PlainPeers};
use pyo3::create_exception;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::blocks::{BaseMismatch, Cancelled, FormatError, IntegrityError, NativeError, NoSpace};

create_exception!(
    _native,
    PeerUnavailable,
    NativeError,
    "A peer did not answer, or stopped answering; another source may do."
);
create_exception!(
    _native,
    PeerRefused,
    NativeError,
    "A peer refused our credentials; compare the key files."
);
create_exception!(
    _native,
    PeerUntrusted,
    NativeError,
    "A peer and this host do not take each other's certificates, or only one of them speaks TLS."
);
create_exception!(
    _native,
    ObjectMissing,
    NativeError,
    "A peer does not hold the object it was asked for."
);
create_exception!(
    _native,
    AlreadyInFlight,
    NativeError,
    "The object is being fetched or built here already; wait for that to end."
);
create_exception!(
    _native,
    InvalidInput,
    NativeError,
    "The caller's arguments cannot be used; the message says which."
);

fn translate(error: TransferError) -> PyErr {
    let message = error.to_string();
    match error {
        TransferError::PeerUnavailable { .. } => PeerUnavailable::new_err(message),
        TransferError::PeerRefused { .. } => PeerRefused::new_err(message),
        TransferError::PeerUntrusted { .. } => PeerUntrusted::new_err(message),
        TransferError::ObjectMissing { .. } => ObjectMissing::new_err(message),
        TransferError::Integrity { .. } => IntegrityError::new_err(message),
        TransferError::BaseMismatch { .. } => BaseMismatch::new_err(message),
        TransferError::NoSpace { .. } => NoSpace::new_err(message),
        TransferError::Cancelled { .. } => Cancelled::new_err(message),
        TransferError::AlreadyInFlight { .. } => AlreadyInFlight::new_err(message),
        TransferError::Format { .. } => FormatError::new_err(message),
        TransferError::Invalid(_) => InvalidInput::new_err(message),
        TransferError::File { source, .. } => PyOSError::new_err((source.raw_os_error(), message)),
    }
}

fn parse_key(kind: &str, id: &str) -> PyResult<ObjectKey> {
    ObjectKey::parse(kind, id).ok_or_else(|| {
        InvalidInput::new_err(format!(
            "'{kind}/{id}' is no object; the kinds are templates, patches, manifests and forms, an id is 64 lower-case hex digits"
        ))
    })
}

/// Longest time that is taken for one: some thirty years.
const LONGEST_SECONDS: f64 = 1e9;

fn durability(durable: bool) -> Durability {
    match durable {
        true => Durability::Power,
        false => Durability::Process,
    }
}

fn parse_seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
        return Err(InvalidInput::new_err(format!(
            "{name} is a number of seconds, not {seconds}"
        )));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A handle that ends the operations it was given to.
#[pyclass(frozen, module = "diffcache_openstack._native")]
#[derive(Default)]
struct Cancel(gate::Cancel);

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel::default()
    }

    /// Ask the operations that were given this handle to stop.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether cancel() was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Calls a Python function with progress, and keeps what it raises.
struct Reporter {
    callback: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
}

impl Reporter {
    fn new(callback: Option<Py<PyAny>>) -> Reporter {
        Reporter {
            callback,
            raised: Mutex::new(None),
        }
    }

    /// Tells the callback, and Python that its signals may be handled; false if either raised.
    fn report(&self, done: u64, total: u64) -> bool {
        Python::attach(|py| {
            let told = match &self.callback {
                Some(callback) => callback.call1(py, (done, total)).map(drop),
                None => Ok(()),
            };
            match told.and_then(|()| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    false
                }
            }
        })
    }

    /// The error to raise: the callback's own, if it is what ended the operation.
    fn error(self, error: TransferError) -> PyErr {
        let raised = self
            .raised
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        raised.unwrap_or_else(|| translate(error))
    }
}

/// A host's data plane: serves what it holds, and gets what it lacks from peers.
///
/// Every call that waits releases the GIL. May be closed from any thread.
#[pyclass(frozen, module = "diffcache_openstack._native")]
struct DataPlane(plane::DataPlane);

#[pymethods]
impl DataPlane {
    #[new]
    #[pyo3(signature = (root, name, listen, key=None, rate=None, latency=0.0, *, key_name="site", advertise_url=None, claim_ttl=30.0, timeout=30.0,
                        stall_timeout=20.0, max_connections=256, tls_ca_file=None, tls_cert_file=None, tls_key_file=None, tls_plain_peers=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        name: String,
        listen: String,
        key: Option<&[u8]>,
        rate: Option<f64>,
        latency: f64,
        key_name: &str,
        advertise_url: Option<String>,
        claim_ttl: f64,
        timeout: f64,
        stall_timeout: f64,
        max_connections: usize,
        tls_ca_file: Option<PathBuf>,
        tls_cert_file: Option<PathBuf>,
        tls_key_file: Option<PathBuf>,
        tls_plain_peers: bool,
    ) -> PyResult<DataPlane> {
        let key = key.map(|secret| SiteKey::new(key_name, secret)).transpose();
        let plain = match tls_plain_peers {
            true => PlainPeers::Tolerated,
            false => PlainPeers::Refused,
        };
        let tls = Options::from_files(tls_ca_file, tls_cert_file, tls_key_file, plain)
            .map_err(|error| translate(error.into()))?;
        let config = Config {
            root,
            tls,
            name,
            listen,
            advertise_url,
            key: key.map_err(|error| InvalidInput::new_err(error.to_string()))?,
            rate,
            latency: parse_seconds("latency", latency)?,
            claim_ttl: parse_seconds("claim_ttl", claim_ttl)?,
            timeout: parse_seconds("timeout", timeout)?,
            limits: Limits {
                connections: max_connections.max(1),
                stall: parse_seconds("stall_timeout", stall_timeout)?,
                ..Limits::default()
            },
        };
        let opened = py.detach(|| plane::DataPlane::open(config));
        opened.map(DataPlane).map_err(translate)
    }

    /// The base URL that peers are told.
    #[getter]
    fn url(&self) -> &str {
        self.0.url()
    }

    /// Seconds after which a claim that is not renewed ends.
    #[getter]
    fn claim_ttl(&self) -> f64 {
        self.0.claim_ttl().as_secs_f64()
    }

    /// Stop serving and wait for the threads; what is under way ends with Cancelled.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    /// Change the speed of the server's link, in bytes per second; None is no limit.
    fn set_rate(&self, rate: Option<f64>) -> PyResult<()> {
        self.0.set_rate(rate).map_err(translate)
    }

    /// Read the certificates and the key again; if they cannot be used the old ones stay in use.
    fn reload_tls(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.reload_tls()).map_err(translate)
    }

    /// What was wrong with connections to this host since the last call: (address, reason, how often).
    fn take_complaints(&self) -> Vec<(String, String, u64)> {
        let taken = self.0.take_complaints().into_iter();
        taken
            .map(|one| (one.address.to_string(), one.reason, one.count))
            .collect()
    }

    /// Counters and present state, as a dict; bytes per kind are body bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.stats();
        let (sent, received) = (PyDict::new(py), PyDict::new(py));
        for kind in Kind::ALL {
            sent.set_item(kind.as_str(), stats.counters.sent(kind))?;
            received.set_item(kind.as_str(), stats.counters.received(kind))?;
        }
        let dict = PyDict::new(py);
        dict.set_item("sent", sent)?;
        dict.set_item("received", received)?;
        for (name, event) in [
            ("requests", Event::Request),
            ("refused", Event::Refused),
            ("failed", Event::Failed),
            ("dropped", Event::Dropped),
            ("connections", Event::Connection),
            ("handshakes", Event::Handshake),
            ("handshakes_failed", Event::HandshakeFailed),
            ("plain_refused", Event::PlainRefused),
        ] {
            dict.set_item(name, stats.events(event))?;
        }
        dict.set_item("open_connections", stats.connections)?;
        dict.set_item("in_flight", stats.in_flight)?;
        dict.set_item("lent", stats.lent)?;
        dict.set_item("claims", stats.claims)?;
        Ok(dict)
    }

    /// Transfers of an object to peers that are under way.
    fn readers(&self, kind: &str, id: &str) -> PyResult<usize> {
        Ok(self.0.readers(parse_key(kind, id)?))
    }

    /// Serve the file at `path` as an object for so many seconds, or until it changes; 0 ends that.
    fn lend(
        &self,
        py: Python<'_>,
        kind: &str,
        id: &str,
        path: PathBuf,
        seconds: f64,
    ) -> PyResult<()> {
        let (key, time) = (parse_key(kind, id)?, parse_seconds("seconds", seconds)?);
        let lent = py.detach(|| self.0.lend(key, &path, time));
        lent.map_err(translate)
    }

    /// Get an object from a peer into `dest`, verified; returns a dict with bytes and seconds.
    #[pyo3(signature = (url, kind, id, dest, manifest=None, rate=None, progress=None, cancel=None, *, durable=true, lend=0.0))]
    #[allow(clippy::too_many_arguments)]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        url: &str,
        kind: &str,
        id: &str,
        dest: PathBuf,
        manifest: Option<PathBuf>,
        rate: Option<f64>,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, Cancel>>,
        durable: bool,
        lend: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let remote = parse_remote(url, kind, id)?;
        let lend = parse_seconds("lend", lend)?;
        let cancel = cancel.map_or_else(gate::Cancel::default, |handle| handle.get().0.clone());
        let reporter = Reporter::new(progress);
        let begun = Instant::now();
        let fetched = py.detach(|| {
            let report = |done, total| reporter.report(done, total);
            let job = Job {
                dest: &dest,
                lend,
                durability: durability(durable),
                report: Some(&report),
                cancel,
            };
            self.0.fetch(&remote, manifest.as_deref(), rate, &job)
        });
        let received = fetched.map_err(|error| reporter.error(error))?;
        let dict = PyDict::new(py);
        dict.set_item("bytes", received)?;
        dict.set_item("seconds", begun.elapsed().as_secs_f64())?;
        Ok(dict)
    }

    /// Build a template from a base and a patch, each a path or (url, kind, id), into `dest`, verified against its manifest.
    ///
    /// Returns a dict with bytes, base_bytes and patch_bytes (what came over the wire) and seconds.
    #[pyo3(signature = (base, patch, manifest, dest, progress=None, cancel=None, *, rate=None, durable=true, lend=0.0))]
    #[allow(clippy::too_many_arguments)]
    fn build<'py>(
        &self,
        py: Python<'py>,
        base: &Bound<'_, PyAny>,
        patch: &Bound<'_, PyAny>,
        manifest: PathBuf,
        dest: PathBuf,
        progress: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, Cancel>>,
        rate: Option<f64>,
        durable: bool,
        lend: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (base, patch) = (parse_place(base)?, parse_place(patch)?);
        let lend = parse_seconds("lend", lend)?;
        let cancel = cancel.map_or_else(gate::Cancel::default, |handle| handle.get().0.clone());
        let reporter = Reporter::new(progress);
        let begun = Instant::now();
        let built = py.detach(|| {
            let report = |done, total| reporter.report(done, total);
            let job = Job {
                dest: &dest,
                lend,
                durability: durability(durable),
                report: Some(&report),
                cancel,
            };
            self.0.build(&base, &patch, &manifest, rate, &job)
        });
        let built = built.map_err(|error| reporter.error(error))?;
        let dict = PyDict::new(py);
        dict.set_item("bytes", built.base_bytes + built.patch_bytes)?;
        dict.set_item("base_bytes", built.base_bytes)?;
        dict.set_item("patch_bytes", built.patch_bytes)?;
        dict.set_item("seconds", begun.elapsed().as_secs_f64())?;
        Ok(dict)
    }

    /// Claim an object at a coordinator; returns the holder's name and URL.
    #[pyo3(signature = (url, kind, id, suspect=None))]
    fn claim(
        &self,
        py: Python<'_>,
        url: &str,
        kind: &str,
        id: &str,
        suspect: Option<&str>,
    ) -> PyResult<(String, String)> {
        let remote = parse_remote(url, kind, id)?;
        let claimed = py.detach(|| self.0.claim(&remote.peer, remote.key, suspect));
        let holder = claimed.map_err(translate)?;
        Ok((holder.name, holder.url))
    }

    /// Give up a claim; that it was lost before is not an error.
    fn release(&self, py: Python<'_>, url: &str, kind: &str, id: &str) -> PyResult<()> {
        let remote = parse_remote(url, kind, id)?;
        let released = py.detach(|| self.0.release(&remote.peer, remote.key));
        released.map_err(translate)
    }

    /// Where an unfinished `dest` lies.
    #[staticmethod]
    fn part_path(dest: PathBuf) -> PyResult<PathBuf> {
        part_path(&dest).ok_or_else(|| {
            InvalidInput::new_err(format!("'{}' is not the name of a file", dest.display()))
        })
    }
}

fn parse_remote(url: &str, kind: &str, id: &str) -> PyResult<Remote> {
    let key = parse_key(kind, id)?;
    let peer = Peer::parse(url).map_err(translate)?;
    Ok(Remote { peer, key })
}

fn parse_place(place: &Bound<'_, PyAny>) -> PyResult<Place> {
    match place.extract::<(String, String, String)>() {
        Ok((url, kind, id)) => parse_remote(&url, &kind, &id).map(Place::Remote),
        Err(_) => place.extract::<PathBuf>().map(Place::Local),
    }
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("PeerUnavailable", py.get_type::<PeerUnavailable>())?;
    m.add("PeerRefused", py.get_type::<PeerRefused>())?;
    m.add("PeerUntrusted", py.get_type::<PeerUntrusted>())?;
    m.add("ObjectMissing", py.get_type::<ObjectMissing>())?;
    m.add("AlreadyInFlight", py.get_type::<AlreadyInFlight>())?;
    m.add("InvalidInput", py.get_type::<InvalidInput>())?;
    m.add_class::<Cancel>()?;
    m.add_class::<DataPlane>()
}
