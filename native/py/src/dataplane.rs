//! Python bindings of `diffcache-dataplane`.
//!
//! Orders, hosts and what came of an order cross as JSON: a data plane in a process of its own takes and gives the same.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diffcache_dataplane::counters::Event;
use diffcache_dataplane::fetching::announcements::{self, Stage};
use diffcache_dataplane::fetching::delivery::{parse_hosts, parse_order};
use diffcache_dataplane::fetching::minimum_rate::Floors;
use diffcache_dataplane::fetching::part::part_path;
use diffcache_dataplane::fetching::standing::Offence;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{self, Config};
use diffcache_dataplane::serving::service::Limits;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dataplane_handles::{translate, Announcement, Expectation, Handle, Reporter};
use crate::dataplane_options::{parse_keys, take, take_room, take_tls};
use crate::errors::InvalidInput;

fn parse_key(kind: &str, id: &str) -> PyResult<ObjectKey> {
    ObjectKey::parse(kind, id).ok_or_else(|| {
        InvalidInput::new_err(format!(
            "'{kind}/{id}' is no object; the kinds are images, patches, manifests, recipes and compressed, an id is 64 lower-case hex digits"
        ))
    })
}

fn parse_stage(name: &str) -> PyResult<Stage> {
    Stage::parse(name).ok_or_else(|| {
        InvalidInput::new_err(format!(
            "'{name}' is no stage of an arrival; use considered or coming"
        ))
    })
}

/// Longest time that is taken for one: some thirty years.
const LONGEST_SECONDS: f64 = 1e9;

/// Mbit/s, of bytes per second.
fn to_mbps(rate: f64) -> f64 {
    rate * 8.0 / 1e6
}

fn parse_seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
        return Err(InvalidInput::new_err(format!(
            "{name} is a number of seconds, not {seconds}"
        )));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Seconds since 1970; 0 for times before.
fn unix_seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A host's data plane: serves what it holds, and gets what it lacks from peers.
///
/// Every call that waits releases the GIL. May be closed from any thread.
#[pyclass(frozen, module = "diffcache_openstack._native")]
struct DataPlane(plane::DataPlane);

#[pymethods]
impl DataPlane {
    #[new]
    #[pyo3(signature = (root, name, listen, key=None, **options))]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        name: String,
        listen: String,
        key: Option<&[u8]>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<DataPlane> {
        let given = match options {
            Some(options) => options.copy()?,
            None => PyDict::new(py),
        };
        let key_name: String = take(&given, "key_name")?.unwrap_or_else(|| "site".to_owned());
        let accepted = take(&given, "accepted_keys")?.unwrap_or_default();
        let keys = key
            .map(|secret| parse_keys(&key_name, secret, accepted))
            .transpose()?;
        let seconds = |name: &str, default: f64| -> PyResult<Duration> {
            parse_seconds(name, take(&given, name)?.unwrap_or(default))
        };
        let config = Config {
            root,
            tls: take_tls(&given)?,
            name,
            listen,
            advertise_url: take(&given, "advertise_url")?,
            keys,
            rate: take(&given, "rate")?,
            latency: seconds("latency", 0.0)?,
            claim_ttl: seconds("claim_ttl", 30.0)?,
            lend_time: seconds("lend_seconds", 0.0)?,
            timeout: seconds("timeout", 30.0)?,
            floors: Floors {
                site: take(&given, "min_rate")?.unwrap_or(Floors::default().site),
                wan: take(&given, "wan_min_rate")?.unwrap_or(Floors::default().wan),
                span: seconds("slow_time", 10.0)?,
            },
            compress_below: take(&given, "compress_below")?.unwrap_or(0.0),
            distrust_time: seconds("distrust_time", 300.0)?,
            limits: Limits {
                room: take_room(&given)?,
                stall: seconds("stall_timeout", 20.0)?,
                ..Limits::default()
            },
            traces: take(&given, "traces")?.unwrap_or(false),
        };
        if let Some(unknown) = given.keys().iter().next() {
            let message = format!("DataPlane() got an unexpected option {unknown}");
            return Err(PyTypeError::new_err(message));
        }
        let opened = py.detach(|| plane::DataPlane::open(config));
        opened.map(DataPlane).map_err(translate)
    }

    /// The base URL that peers connect to.
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

    /// Replace the key that requests are signed with, and those that are accepted beside it: (name, secret) each.
    #[pyo3(signature = (key_name, key, accepted))]
    fn set_keys(
        &self,
        key_name: &str,
        key: &[u8],
        accepted: Vec<(String, Vec<u8>)>,
    ) -> PyResult<()> {
        self.0.set_keys(parse_keys(key_name, key, accepted)?);
        Ok(())
    }

    /// Replace the slowest rates at which peers may send: bytes per second within the site and over the WAN.
    fn set_min_rates(&self, site: f64, wan: f64) {
        let floors = self.0.floors();
        self.0.set_floors(Floors {
            site,
            wan,
            ..floors
        });
    }

    /// Note that the host with a URL sent damaged data, which the caller found out.
    fn accuse(&self, url: &str, reason: &str) {
        self.0.claimant.accuse(url, Offence::Lie, reason);
    }

    /// Hosts that are left alone because of what they sent: (name, seconds left).
    fn left_alone(&self) -> Vec<(String, f64)> {
        let found = self.0.left_alone().into_iter();
        found
            .map(|one| (one.host, one.left.as_secs_f64()))
            .collect()
    }

    /// Read the certificates and the key again; if they cannot be used the old ones stay in use.
    fn reload_tls(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.reload_tls()).map_err(translate)
    }

    /// What was wrong with connections to this host and with what peers sent, since the last call: (about whom, reason, how often).
    fn take_complaints(&self) -> Vec<(String, String, u64)> {
        let taken = self.0.take_complaints().into_iter();
        taken
            .map(|one| (one.about, one.reason, one.count))
            .collect()
    }

    /// What was sent for traces since the last call, and nothing was added to for this many seconds: dicts with the trace's text, kind and id
    /// of the object, began and ended in seconds since 1970, requests and bytes.
    fn take_served<'py>(&self, py: Python<'py>, quiet: f64) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let quiet = parse_seconds("quiet", quiet)?;
        let served = self.0.take_served(quiet).into_iter();
        let dicts = served.map(|one| {
            let dict = PyDict::new(py);
            dict.set_item("trace", one.trace.as_str())?;
            dict.set_item("kind", one.object.kind.as_str())?;
            dict.set_item("id", one.object.id_hex())?;
            dict.set_item("began", unix_seconds(one.began))?;
            dict.set_item("ended", unix_seconds(one.ended))?;
            dict.set_item("requests", one.requests)?;
            dict.set_item("bytes", one.bytes)?;
            Ok(dict)
        });
        dicts.collect()
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
            ("lies", Event::Lie),
            ("slow_peers", Event::Slow),
            ("left_alone", Event::LeftAlone),
            ("unhinted", Event::Unhinted),
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

    /// Serve the file at `path` as an object for this many seconds, or until it changes; 0 ends that.
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

    /// Let peers no longer read a file that was lent.
    fn end_lending(&self, kind: &str, id: &str) -> PyResult<()> {
        let key = parse_key(kind, id)?;
        self.0
            .lend(key, "".as_ref(), Duration::ZERO)
            .map_err(translate)
    }

    /// Serve an image from a file of another program, each leaf verified against the manifest at `manifest`.
    fn borrow(
        &self,
        py: Python<'_>,
        kind: &str,
        id: &str,
        path: PathBuf,
        manifest: PathBuf,
    ) -> PyResult<()> {
        let key = parse_key(kind, id)?;
        py.detach(|| self.0.borrow(key, &path, &manifest))
            .map_err(translate)
    }

    /// Stop serving a borrowed file.
    fn give_back(&self, kind: &str, id: &str) -> PyResult<()> {
        self.0.give_back(parse_key(kind, id)?);
        Ok(())
    }

    /// Serve an image while it arrives at diffcached, from the folder of its state there.
    fn attach(&self, py: Python<'_>, kind: &str, id: &str, folder: PathBuf) -> PyResult<()> {
        let key = parse_key(kind, id)?;
        py.detach(|| self.0.attach(key, &folder)).map_err(translate)
    }

    /// Stop serving an image of diffcached.
    fn detach(&self, kind: &str, id: &str) -> PyResult<()> {
        self.0.detach(parse_key(kind, id)?);
        Ok(())
    }

    /// Kind and id of the borrowed objects that had changed when they were read, since the last call.
    fn take_changed(&self) -> Vec<(String, String)> {
        let changed = self.0.take_changed().into_iter();
        changed
            .map(|key| (key.kind.as_str().to_owned(), key.id_hex()))
            .collect()
    }

    /// End the lending of all that was delivered, because the space is needed; returns whether anything was lent.
    fn stop_lending(&self) -> bool {
        self.0.stop_lending()
    }

    /// Replace the hosts that may coordinate claims: a JSON list of objects with name and url.
    fn set_site(&self, hosts: &str) -> PyResult<()> {
        self.0
            .claimant
            .set_site(parse_hosts(hosts).map_err(translate)?);
        Ok(())
    }

    /// Replace the repositories that may be read from: a JSON list like that of set_site().
    fn set_repositories(&self, hosts: &str) -> PyResult<()> {
        self.0
            .set_repositories(&parse_hosts(hosts).map_err(translate)?);
        Ok(())
    }

    /// Mbit/s at which peers send to this host; None if that was not measured yet.
    fn peer_mbps(&self) -> Option<f64> {
        self.0.peer_rate().map(to_mbps)
    }

    /// What is known of each repository: a dict with name, transfers, failures, bytes, mbps, down_s and reason.
    fn repositories<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let reports = self.0.repositories.reports(Instant::now()).into_iter();
        reports
            .map(|report| {
                let dict = PyDict::new(py);
                let (down, reason) = report.outage.unzip();
                dict.set_item("name", report.name)?;
                dict.set_item("transfers", report.transfers)?;
                dict.set_item("failures", report.failures)?;
                dict.set_item("bytes", report.bytes)?;
                dict.set_item("mbps", report.rate.map(to_mbps))?;
                dict.set_item("down_s", down.map(|time| time.as_secs_f64()))?;
                dict.set_item("reason", reason)?;
                Ok(dict)
            })
            .collect()
    }

    /// Names of hosts that did not answer lately, and of repositories that have not answered since.
    fn unreachable(&self) -> Vec<String> {
        let mut names = self.0.claimant.unreachable.names();
        names.extend(self.0.repositories.passed_over());
        names
    }

    /// Forget which hosts of the site did not answer. Repositories are probed until they answer again.
    fn clear_unreachable(&self) {
        self.0.claimant.unreachable.clear();
    }

    /// Make the site read an object here until its claim expires; returns what an operator may want to know.
    fn offer(&self, py: Python<'_>, kind: &str, id: &str) -> PyResult<Vec<String>> {
        let key = parse_key(kind, id)?;
        let mut warnings = Vec::new();
        let mut warn = |text| warnings.push(text);
        py.detach(|| self.0.claimant.offer(key, &mut warn))
            .map_err(translate)?;
        Ok(warnings)
    }

    /// Let the fills of the site leave an object alone until close() of what is returned: it arrives here by other means.
    fn expect(&self, py: Python<'_>, kind: &str, id: &str) -> PyResult<Expectation> {
        let key = parse_key(kind, id)?;
        let mut warnings = Vec::new();
        let mut warn = |text| warnings.push(text);
        let expected = py.detach(|| self.0.claimant.expect(key, &mut warn));
        Ok(Expectation {
            expectation: Mutex::new(Some(expected.map_err(translate)?)),
            warnings,
        })
    }

    /// Announce to the site how far this host is with bringing an object over the WAN: "considered" or "coming".
    fn announce(
        &self,
        py: Python<'_>,
        kind: &str,
        id: &str,
        stage: &str,
    ) -> PyResult<Announcement> {
        let (key, stage) = (parse_key(kind, id)?, parse_stage(stage)?);
        let mut warnings = Vec::new();
        let mut warn = |text| warnings.push(text);
        let made =
            py.detach(|| announcements::Announcement::new(&self.0.claimant, key, stage, &mut warn));
        Ok(Announcement {
            announcement: Mutex::new(Some(made.map_err(translate)?)),
            warnings,
        })
    }

    /// Whether a host of the site has announced an object, and what an operator may want to know beside.
    fn announced(
        &self,
        py: Python<'_>,
        kind: &str,
        id: &str,
        stage: &str,
    ) -> PyResult<(bool, Vec<String>)> {
        let (key, stage) = (parse_key(kind, id)?, parse_stage(stage)?);
        let mut warnings = Vec::new();
        let mut warn = |text| warnings.push(text);
        let found = py
            .detach(|| announcements::is_announced(&self.0.claimant, key, stage, &mut warn))
            .map_err(translate)?;
        Ok((found, warnings))
    }

    /// Get an object from the first of an order's sources that delivers it; the order and what came of it are JSON.
    #[pyo3(signature = (order, handle, progress=None))]
    fn deliver(
        &self,
        py: Python<'_>,
        order: &str,
        handle: &Bound<'_, Handle>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let order = parse_order(order).map_err(translate)?;
        let handle = handle.get().0.clone();
        let reporter = Reporter::new(progress);
        let delivered = py.detach(|| {
            let watch = |progress| reporter.report(progress);
            self.0.deliver(&order, &handle, Some(&watch))
        });
        match delivered {
            Ok(delivery) => Ok(delivery.to_json()),
            Err(error) => Err(reporter.error(error)),
        }
    }

    /// The path of an unfinished `dest`.
    #[staticmethod]
    fn part_path(dest: PathBuf) -> PyResult<PathBuf> {
        part_path(&dest).ok_or_else(|| {
            InvalidInput::new_err(format!("'{}' is not the name of a file", dest.display()))
        })
    }
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Handle>()?;
    m.add_class::<Expectation>()?;
    m.add_class::<Announcement>()?;
    m.add_class::<DataPlane>()
}
