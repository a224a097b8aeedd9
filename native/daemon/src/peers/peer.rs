//! Data planes of other hosts as sources: their wire, with this host's key and certificate.
//!
//! Behind a WAN an image is read in the compressed form, if the host has it: a frame of 1 MiB of the image takes fewer bytes than its four chunks,
//! which all are kept.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use diffcache_core::compressed::{Frame, Index, GROUP_LEAVES};
use diffcache_core::manifest::Manifest;
use diffcache_dataplane::counters::Counters;
use diffcache_dataplane::fetching::client::Client;
use diffcache_dataplane::fetching::peer::{Peer, Remote};
use diffcache_dataplane::gate::Gate;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::serving::ranges::Want;
use diffcache_dataplane::serving::referrals::HostName;
use diffcache_dataplane::transport::auth::{Keys, SiteKey};
use diffcache_dataplane::transport::tls::{Options, PlainPeers, Tls};

use crate::config::Identity;
use crate::error::DaemonError;
use crate::peers::group::Group;
use crate::peers::hints::Exchange;
use crate::peers::object::{Object, SITE_SILENCE};
use crate::sizes::{CHUNK, GROUP_CHUNKS};
use crate::sources::source::{Arrived, Fetched, Source, SourceError};

/// How long a repository may send nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a host without a usable compressed form is not asked for it again.
const NO_FORM_TIME: Duration = Duration::from_secs(300);
/// Groups that are remembered for readers who waited while one was fetched.
const RECENT: usize = 4;
const KEY_LEN: usize = 32;

/// What a data plane is to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is behind a WAN, where bytes are dear.
    Repository,
    /// It has the image, or part of it: what it lacks it does not fetch for this host.
    Holder,
    /// It fetches what it lacks.
    Home,
    /// A home named it: what is arriving there is waited for.
    Referred,
}

/// What goes with requests to a host of the site, besides what they ask for.
#[derive(Clone, Default)]
pub struct Extras {
    /// Hints are exchanged, if there are any.
    pub exchange: Option<Exchange>,
    /// This host's name, if it follows a referral.
    pub requester: Option<HostName>,
}

/// Opens data planes as sources, over shared connections.
pub struct Peers {
    site: Arc<Client>,
    repositories: Arc<Client>,
    gate: Arc<Gate>,
}

impl Peers {
    /// Read this host's identity.
    ///
    /// # Errors
    /// `Config` if a file of it cannot be used.
    pub fn new(identity: &Identity) -> Result<Peers, DaemonError> {
        let keys = match (&identity.key_name, &identity.key_file) {
            (Some(name), Some(path)) => Some(read_key(name, path)?),
            _ => None,
        };
        let plain = match identity.tls_plain_peers {
            true => PlainPeers::Tolerated,
            false => PlainPeers::Refused,
        };
        let tls = Options::from_files(
            identity.tls_ca_file.clone(),
            identity.tls_cert_file.clone(),
            identity.tls_key_file.clone(),
            identity.tls_crl_file.clone(),
            plain,
        );
        let tls = tls.and_then(|options| options.map(Tls::open).transpose());
        let tls = tls.map_err(|error| DaemonError::Config(error.to_string()))?;
        let (keys, tls) = (keys.map(Keys::single), tls.map(Arc::new));
        let client = |silence| {
            let client = Client::new(keys.clone(), silence, Arc::new(Counters::default()));
            Arc::new(client.with_tls(tls.clone()))
        };
        Ok(Peers {
            site: client(SITE_SILENCE),
            repositories: client(SILENCE),
            gate: Arc::default(),
        })
    }

    /// Return a data plane as a source of an image.
    ///
    /// # Errors
    /// `Config` if its URL cannot be used.
    pub fn open(
        &self,
        url: &str,
        role: Role,
        manifest: &Arc<Manifest>,
    ) -> Result<Box<dyn Source>, DaemonError> {
        self.open_with(url, role, manifest, Extras::default())
    }

    /// Return the data plane of a host of the site as a source of an image.
    ///
    /// # Errors
    /// `Config` if its URL cannot be used.
    pub fn open_with(
        &self,
        url: &str,
        role: Role,
        manifest: &Arc<Manifest>,
        extras: Extras,
    ) -> Result<Box<dyn Source>, DaemonError> {
        let object = |kind| {
            let key = ObjectKey {
                kind,
                id: manifest.content_id(),
            };
            self.object(url, role, key)
        };
        let form = match role {
            Role::Repository => Some(Form {
                object: object(Kind::Compressed)?,
                manifest: manifest.clone(),
                index: Mutex::default(),
                busy: Mutex::default(),
                freed: Condvar::new(),
                recent: Mutex::default(),
            }),
            Role::Holder | Role::Home | Role::Referred => None,
        };
        Ok(Box::new(PeerSource {
            name: url.to_owned(),
            role,
            image: Object {
                exchange: extras.exchange,
                requester: extras.requester,
                ..object(Kind::Images)?
            },
            form,
        }))
    }

    /// Return an object of a data plane.
    ///
    /// # Errors
    /// `Config` if the URL cannot be used.
    pub fn object(&self, url: &str, role: Role, key: ObjectKey) -> Result<Object, DaemonError> {
        let peer = Peer::parse(url).map_err(|error| DaemonError::Config(error.to_string()))?;
        Ok(Object {
            remote: Remote {
                peer,
                key,
                trace: None,
            },
            client: match role {
                Role::Repository => self.repositories.clone(),
                Role::Holder | Role::Home | Role::Referred => self.site.clone(),
            },
            gate: self.gate.clone(),
            want: match role {
                Role::Holder => Want::Present,
                Role::Referred => Want::Arriving,
                Role::Repository | Role::Home => Want::Fetched,
            },
            requester: None,
            exchange: None,
        })
    }
}

fn read_key(name: &str, path: &Path) -> Result<SiteKey, DaemonError> {
    let mut file = File::open(path).map_err(DaemonError::at("open key", path))?;
    let found = file.metadata().map_err(DaemonError::at("open key", path))?;
    let unusable = |reason: &str| {
        let path = path.display();
        DaemonError::Config(format!("cannot use key {path}: {reason}"))
    };
    if found.mode() & 0o077 != 0 {
        return Err(unusable("users besides its owner may access it"));
    }
    let mut text = String::new();
    file.by_ref()
        .take(1024)
        .read_to_string(&mut text)
        .map_err(DaemonError::at("read key", path))?;
    let secret: [u8; KEY_LEN] = hex::decode(text.trim())
        .ok_or_else(|| unusable("it does not hold 64 hexadecimal digits"))?;
    SiteKey::new(name, &secret).map_err(|error| unusable(&error.to_string()))
}

/// A data plane that cannot be asked, as this host's key or certificates cannot be used.
struct Unasked(String);

/// Return what is in the place of a data plane as long as this host has no identity.
pub fn unasked(name: String) -> Box<dyn Source> {
    Box::new(Unasked(name))
}

impl Source for Unasked {
    fn name(&self) -> &str {
        &self.0
    }

    fn is_alive(&self) -> bool {
        false
    }

    fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
        let reason = "the key or a certificate of this host cannot be used";
        Err(SourceError::Unreachable(reason.to_owned()))
    }
}

/// An image at a data plane.
struct PeerSource {
    name: String,
    role: Role,
    image: Object,
    form: Option<Form>,
}

impl Source for PeerSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_near(&self) -> bool {
        self.role != Role::Repository
    }

    fn is_alive(&self) -> bool {
        self.image.is_alive()
    }

    fn fetch(
        &self,
        run: &Range<u64>,
        len: usize,
        limit: Duration,
        arrived: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        let end = Instant::now() + limit;
        if let Some(form) = &self.form {
            if let Some(fetched) = form.fetch(run, end, arrived)? {
                return Ok(fetched);
            }
        }
        let start = run.start * CHUNK;
        let bytes = self.read_patiently((start, start + len as u64), end, arrived)?;
        Ok(Fetched::plain(bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError> {
        let range = (offset, offset + buffer.len() as u64);
        let end = Instant::now() + limit;
        buffer.copy_from_slice(&self.read_patiently(range, end, &mut |_| {})?);
        Ok(())
    }

    fn prepare(&self, limit: Duration) -> Result<(), SourceError> {
        let Some(form) = &self.form else {
            return Ok(());
        };
        form.index(Instant::now() + limit).map(drop)
    }
}

impl PeerSource {
    /// Read a range of the image before `end`.
    ///
    /// A home that is silent while it fetches the range is asked again as long as it can be connected to: it joins the fetch that is on its way.
    fn read_patiently(
        &self,
        range: (u64, u64),
        end: Instant,
        arrived: Arrived<'_>,
    ) -> Result<Vec<u8>, SourceError> {
        loop {
            match self.image.receive(range, end, arrived) {
                Err(SourceError::Silent(_)) if self.role == Role::Home && Instant::now() < end => {}
                found => return found.map(|(bytes, _)| bytes),
            }
        }
    }
}

/// What is known of a compressed form at a host.
#[derive(Default)]
enum Known {
    /// Nothing.
    #[default]
    Unknown,
    /// It had none, or a damaged one.
    Absent(Instant),
    /// Where its frames are.
    Frames(Arc<Index>),
}

type Chunks = Arc<Vec<(u64, Vec<u8>)>>;

/// The compressed form of an image at a data plane.
struct Form {
    object: Object,
    manifest: Arc<Manifest>,
    index: Mutex<Known>,
    /// Groups that are on their way: the chunks of one are had by one request.
    busy: Mutex<HashSet<u64>>,
    freed: Condvar,
    recent: Mutex<VecDeque<(u64, Chunks)>>,
}

/// A group that one thread fetches.
struct Turn<'a>(&'a Form, u64);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unpoisoned().remove(&self.1);
        self.0.freed.notify_all();
    }
}

impl Form {
    /// Fetch the group of some chunks of one before `end`; none if the host has no usable form.
    fn fetch(
        &self,
        run: &Range<u64>,
        end: Instant,
        arrived: Arrived<'_>,
    ) -> Result<Option<Fetched>, SourceError> {
        let Some(index) = self.index(end)? else {
            return Ok(None);
        };
        let group = run.start / GROUP_CHUNKS;
        let Some(frame) = index.frame_of(group * GROUP_LEAVES) else {
            return Ok(None);
        };
        let turn = self.take_turn(group, end)?;
        if let Some(chunks) = self.find_recent(group) {
            return Ok(split(&chunks, run, 0));
        }
        let range = (frame.offset, frame.offset + frame.length as u64);
        let Some(mut found) = self.begin(frame) else {
            return Ok(None);
        };
        let span = found.span(run);
        let mut forward = |bytes: &[u8]| {
            let known = found.extend(bytes);
            let end = known.len().min(span.end);
            if end > span.start {
                arrived(&known[span.start..end]);
            }
        };
        self.object.receive(range, end, &mut forward)?;
        let Some(chunks) = found.chunks().map(Arc::new) else {
            self.give_up("its frame is damaged");
            return Ok(None);
        };
        let mut recent = self.recent.lock().unpoisoned();
        recent.truncate(RECENT - 1);
        recent.push_front((group, chunks.clone()));
        drop((recent, turn));
        Ok(split(&chunks, run, frame.length as u64))
    }

    fn index(&self, end: Instant) -> Result<Option<Arc<Index>>, SourceError> {
        let mut known = self.index.lock().unpoisoned();
        match &*known {
            Known::Frames(index) => return Ok(Some(index.clone())),
            Known::Absent(since) if since.elapsed() < NO_FORM_TIME => return Ok(None),
            _ => {}
        }
        let range = (0, Index::length(&self.manifest));
        let (bytes, total) = match self.object.read(range, end) {
            Ok(found) => found,
            Err(SourceError::Absent(_)) => {
                *known = Known::Absent(Instant::now());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match Index::parse(&bytes, total, &self.manifest) {
            Ok(index) => {
                let index = Arc::new(index);
                *known = Known::Frames(index.clone());
                Ok(Some(index))
            }
            Err(error) => {
                log::warn!("Reading {} uncompressed: {error}", self.object.peer());
                *known = Known::Absent(Instant::now());
                Ok(None)
            }
        }
    }

    fn begin(&self, frame: &Frame) -> Option<Group> {
        let begun = Group::new(frame, &self.manifest);
        begun.map_err(|error| self.give_up(error)).ok()
    }

    /// Read the image itself for a while.
    fn give_up(&self, reason: impl std::fmt::Display) {
        log::warn!("Reading {} uncompressed: {reason}", self.object.peer());
        *self.index.lock().unpoisoned() = Known::Absent(Instant::now());
    }

    fn take_turn(&self, group: u64, end: Instant) -> Result<Turn<'_>, SourceError> {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self
            .freed
            .wait_timeout_while(self.busy.lock().unpoisoned(), left, |busy| {
                busy.contains(&group)
            });
        let (mut busy, _) = waited.unpoisoned();
        match busy.insert(group) {
            true => Ok(Turn(self, group)),
            false => Err(SourceError::Unreachable(
                "it does not answer in time".to_owned(),
            )),
        }
    }

    fn find_recent(&self, group: u64) -> Option<Chunks> {
        let recent = self.recent.lock().unpoisoned();
        let found = recent.iter().find(|(known, _)| *known == group)?;
        Some(found.1.clone())
    }
}

/// Tell the chunks that were asked for from those that came with them.
fn split(chunks: &[(u64, Vec<u8>)], wanted: &Range<u64>, moved: u64) -> Option<Fetched> {
    let (asked, others): (Vec<_>, Vec<_>) = chunks
        .iter()
        .partition(|(number, _)| wanted.contains(number));
    if asked.len() as u64 != wanted.end - wanted.start {
        return None;
    }
    Some(Fetched {
        bytes: asked.iter().flat_map(|(_, bytes)| bytes).copied().collect(),
        others: others.into_iter().cloned().collect(),
        moved,
        of_patch: 0,
    })
}
