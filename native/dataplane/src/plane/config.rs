//! How a plane is set up, and what of it makes no sense.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diffcache_base::hex;

use crate::counters::Counters;
use crate::error::TransferError;
use crate::fetching::client::Client;
use crate::fetching::minimum_rate::Floors;
use crate::fetching::peer::Peer;
use crate::gate::Gate;
use crate::plane::check_rate;
use crate::serving::claims::Claims;
use crate::serving::objects::Objects;
use crate::serving::service::{Limits, Service};
use crate::shaper::Shaper;
use crate::traces::Traces;
use crate::transport::auth::{fresh_nonce, Keys, Verifier};
use crate::transport::frames::Slots;
use crate::transport::tls::{self, Tls};

/// How a plane is set up.
pub struct Config {
    /// Directory with `images/`, `patches/`, `manifests/`, `recipes/` and `staging/`; made where they are missing.
    pub root: PathBuf,
    /// This host's name: the holder of its claims.
    pub name: String,
    /// `address:port` to listen on; port 0 takes a free one.
    pub listen: String,
    /// Base URL that peers connect to; `None` derives it from the address.
    pub advertise_url: Option<String>,
    /// The site's keys; `None` only on loopback.
    pub keys: Option<Keys>,
    /// How to speak TLS; `None` is everything in the clear.
    pub tls: Option<tls::Options>,
    /// Bytes per second that the server sends, to all together.
    pub rate: Option<f64>,
    /// Delay of every answer.
    pub latency: Duration,
    /// Lifetime of the claims that this host coordinates.
    pub claim_ttl: Duration,
    /// How long peers may read what crossed the WAN to here, although it is not held.
    pub lend_time: Duration,
    /// How long a peer may send nothing.
    pub timeout: Duration,
    /// How slowly a peer may send.
    pub floors: Floors,
    /// Bytes per second of peers below which what they send is compressed; 0 compresses nothing.
    pub compress_below: f64,
    /// How long a host that lied is left alone.
    pub distrust_time: Duration,
    /// The server's bounds.
    pub limits: Limits,
    /// Whether what is sent for traces is kept for the caller.
    pub traces: bool,
}

/// The base URL that peers connect to: the configured one, or else made from the address.
pub(super) fn own_url(
    config: &Config,
    listener: &TcpListener,
    secure: bool,
) -> Result<String, TransferError> {
    if let Some(url) = &config.advertise_url {
        return Ok(url.clone());
    }
    let address = listener.local_addr();
    let address = address.map_err(|source| listen_error(&config.listen, source))?;
    let scheme = if secure { "https" } else { "http" };
    Ok(format!("{scheme}://{address}"))
}

pub(super) fn check_numbers(config: &Config) -> Result<(), TransferError> {
    let reason = if config.timeout.is_zero() {
        "a timeout is more than 0 seconds"
    } else if config.compress_below.is_nan() || config.compress_below < 0.0 {
        "compress_below is a rate, or 0"
    } else {
        return Ok(());
    };
    Err(TransferError::Invalid(reason.to_owned()))
}

/// Opens what the server serves.
pub(super) fn build_service(
    config: &Config,
    url: &str,
    tls: Option<Arc<Tls>>,
) -> Result<Service, TransferError> {
    let objects = Objects::open(&config.root).map_err(|source| TransferError::File {
        path: config.root.clone(),
        source,
    })?;
    let boot = hex::encode(&fresh_nonce().map_err(|source| listen_error(&config.listen, source))?);
    let authority = Peer::parse(url)?.authority().to_owned();
    let keys = config.keys.clone();
    let verifier = keys.map(|keys| Verifier::new(keys, &authority, &boot));
    Ok(Service {
        name: config.name.clone(),
        objects: Arc::new(objects),
        shaper: Shaper::new(check_rate(config.rate)?),
        latency: config.latency,
        verifier,
        tls,
        boot,
        complaints: Arc::default(),
        claims: Mutex::new(Claims::new(config.claim_ttl)),
        counters: Arc::default(),
        gate: Arc::new(Gate::default()),
        limits: config.limits,
        coders: Slots::new(std::thread::available_parallelism().map_or(1, |n| n.get())),
        traces: config.traces.then(Traces::default),
    })
}

pub(super) fn build_client(
    config: &Config,
    tls: Option<Arc<Tls>>,
    counters: Arc<Counters>,
) -> Client {
    let client = Client::new(config.keys.clone(), config.timeout, counters).with_tls(tls);
    client.set_floors(config.floors);
    client
}

pub(super) fn listen_error(listen: &str, source: std::io::Error) -> TransferError {
    TransferError::Invalid(format!("cannot serve at '{listen}': {source}"))
}

/// Checks that the advertised URL has the scheme that peers will find.
pub(super) fn check_advertised(config: &Config, secure: bool) -> Result<(), TransferError> {
    let Some(url) = &config.advertise_url else {
        return Ok(());
    };
    let peer = Peer::parse(url)?;
    let reason = if secure && !peer.is_secure() {
        format!("advertise_url '{url}' has to begin with https://, since tls_cert_file is set and tls_plain_peers is not")
    } else if peer.is_secure() && config.tls.is_none() {
        format!(
            "advertise_url '{url}' announces TLS; set tls_ca_file, tls_cert_file and tls_key_file"
        )
    } else {
        return Ok(());
    };
    Err(TransferError::Invalid(reason))
}

pub(super) fn listen(config: &Config) -> Result<TcpListener, TransferError> {
    let fail = |source| listen_error(&config.listen, source);
    let addresses: Vec<SocketAddr> = config.listen.to_socket_addrs().map_err(fail)?.collect();
    let loopback = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if config.keys.is_none() && !addresses.iter().all(loopback) {
        let reason = format!(
            "'{}' is reachable from other hosts; configure a site key",
            config.listen
        );
        return Err(TransferError::Invalid(reason));
    }
    TcpListener::bind(&addresses[..]).map_err(fail)
}
