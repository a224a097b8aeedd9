//! Who may speak to a plane: a keyed code over every request.
//!
//! `Authorization: DiffCache <key-name>:<unix seconds>:<nonce>:<hex HMAC-SHA256>:<boot>`. The code covers the method, the path, the `Range` header,
//! the SHA-256 of the body, the time, the nonce, the `Host` header and the boot of the plane that is asked, so that none of them can be changed, and
//! nothing can be sent twice, to another host or to the same one after a restart.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

const SCHEME: &str = "DiffCache ";
/// Clocks may differ by this much, in seconds.
pub const CLOCK_WINDOW: u64 = 300;
const SHORTEST_KEY: usize = 16;
const LONGEST_NAME: usize = 64;
/// Nonces remembered in each of two generations; more requests than that in ten minutes shorten the memory.
const NONCES: usize = 1 << 20;

/// Why a request is refused; the peer gets the text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AuthError {
    /// The request carries no credentials, and this plane asks for them.
    #[error("no credentials; configure the site key")]
    Missing,
    /// The header is not of the form this plane understands.
    #[error("the Authorization header is malformed")]
    Malformed,
    /// The key's name is not the one this plane uses.
    #[error("the key's name is not known here; compare the key files")]
    UnknownKey,
    /// The code was made with another key, or over another request.
    #[error("the signature does not match; the keys differ")]
    WrongKey,
    /// The clocks differ by more than the window.
    #[error("the request's time is {0} s away from this clock; set the clocks")]
    StaleClock(u64),
    /// The same signed request was seen before.
    #[error("the request was sent before")]
    Replayed,
    /// The request was signed for another host.
    #[error("the request was signed for '{0}', which is not this host; compare advertise_url here with the site map")]
    WrongDestination(String),
    /// The request was signed before this plane started, or without knowing when.
    #[error("the request was signed for another start of this host; sign it for the one in X-DiffCache-Boot")]
    StaleBoot,
}

impl AuthError {
    /// The reason as one word, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            AuthError::Missing => "no-credentials",
            AuthError::Malformed => "malformed-credentials",
            AuthError::UnknownKey => "unknown-key",
            AuthError::WrongKey => "wrong-key",
            AuthError::StaleClock(_) => "stale-clock",
            AuthError::Replayed => "replayed",
            AuthError::WrongDestination(_) => "wrong-destination",
            AuthError::StaleBoot => "stale-boot",
        }
    }
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// Too little secret to be one.
    #[error("the site key has {0} bytes; it needs at least 16")]
    TooShort(usize),
    /// The name would not survive a header.
    #[error("the key's name must be 1 to 64 of the characters A-Z a-z 0-9 . _ -")]
    BadName,
}

/// What a signature covers.
pub struct Signed<'a> {
    /// GET, HEAD, POST or DELETE.
    pub method: &'a str,
    /// The request's target as sent.
    pub path: &'a str,
    /// The `Range` header's value, or nothing.
    pub range: &'a str,
    /// The body, or nothing.
    pub body: &'a [u8],
}

/// What a boot is called while it is not known.
pub const NO_BOOT: &str = "-";
/// Digits of a boot.
const BOOT_DIGITS: usize = 32;

/// Where a request goes; a signature that covers it is accepted nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The authority of the URL that is asked, as in the `Host` header.
    pub authority: &'a str,
    /// The boot of the plane there, or [`NO_BOOT`].
    pub boot: &'a str,
}

/// Whether a text has the form of a boot.
pub fn is_boot(text: &str) -> bool {
    text.len() == BOOT_DIGITS && hex::decode::<16>(text).is_some()
}

/// A site's shared secret and the name it goes by.
#[derive(Clone)]
pub struct SiteKey {
    name: String,
    mac: Hmac<Sha256>,
}

impl fmt::Debug for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteKey({})", self.name)
    }
}

impl SiteKey {
    /// A key of at least 16 bytes under a name that may appear in messages.
    pub fn new(name: &str, secret: &[u8]) -> Result<SiteKey, KeyError> {
        let named = !name.is_empty() && name.len() <= LONGEST_NAME;
        if !named
            || !name
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
        {
            return Err(KeyError::BadName);
        }
        if secret.len() < SHORTEST_KEY {
            return Err(KeyError::TooShort(secret.len()));
        }
        let mac =
            Hmac::<Sha256>::new_from_slice(secret).map_err(|_| KeyError::TooShort(secret.len()))?;
        Ok(SiteKey {
            name: name.to_owned(),
            mac,
        })
    }

    /// The key's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of the `Authorization` header for a request made at `time` (Unix seconds).
    pub fn authorization(
        &self,
        request: &Signed<'_>,
        to: Destination<'_>,
        time: u64,
        nonce: &[u8; 16],
    ) -> String {
        let nonce = hex::encode(nonce);
        let code = self.code(request, to, time, &nonce).finalize().into_bytes();
        let (name, code, boot) = (&self.name, hex::encode(&code), to.boot);
        format!("{SCHEME}{name}:{time}:{nonce}:{code}:{boot}")
    }

    fn code(
        &self,
        request: &Signed<'_>,
        to: Destination<'_>,
        time: u64,
        nonce: &str,
    ) -> Hmac<Sha256> {
        let digest = hex::encode(&Sha256::digest(request.body));
        let text = format!(
            "diffcache-1\n{}\n{}\n{}\n{digest}\n{time}\n{nonce}\n{}\n{}",
            request.method, request.path, request.range, to.authority, to.boot
        );
        let mut mac = self.mac.clone();
        mac.update(text.as_bytes());
        mac
    }
}

/// The keys of a host: what it signs with, and what else it accepts while a key is exchanged.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key that requests are signed with; it is accepted too.
    pub signing: SiteKey,
    /// Further keys that are accepted.
    pub accepted: Vec<SiteKey>,
}

impl Keys {
    /// One key for everything.
    pub fn single(key: SiteKey) -> Keys {
        Keys {
            signing: key,
            accepted: Vec::new(),
        }
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SiteKey> {
        std::iter::once(&self.signing)
            .chain(&self.accepted)
            .filter(move |key| key.name == name)
    }
}

/// Checks requests against a host's keys and remembers their nonces.
pub struct Verifier {
    keys: RwLock<Keys>,
    authority: String,
    boot: String,
    seen: Mutex<Seen>,
}

/// How an accepted request was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// For this host and its present boot.
    Bound,
    /// For this host, to learn its boot; that is all it may do.
    Introduction,
}

struct Seen {
    recent: HashSet<[u8; 16]>,
    older: HashSet<[u8; 16]>,
    rotated: Instant,
}

impl Seen {
    /// Remembers a nonce for as long as its time is inside the window; false if it was here before.
    fn insert(&mut self, nonce: [u8; 16], now: Instant) -> bool {
        let lifetime = Duration::from_secs(2 * CLOCK_WINDOW);
        if now.duration_since(self.rotated) > lifetime || self.recent.len() >= NONCES {
            self.older = std::mem::take(&mut self.recent);
            self.rotated = now;
        }
        !self.older.contains(&nonce) && self.recent.insert(nonce)
    }
}

impl Verifier {
    /// A verifier for the host that peers reach at `authority`, since its boot `boot`.
    pub fn new(keys: Keys, authority: &str, boot: &str) -> Verifier {
        Verifier {
            keys: RwLock::new(keys),
            authority: authority.to_ascii_lowercase(),
            boot: boot.to_owned(),
            seen: Mutex::new(Seen {
                recent: HashSet::new(),
                older: HashSet::new(),
                rotated: Instant::now(),
            }),
        }
    }

    /// Replaces the keys, for the requests to come.
    pub fn set_keys(&self, keys: Keys) {
        *self.keys.write().unpoisoned() = keys;
    }

    /// Accepts the request or says why not; `now` is this clock in Unix seconds.
    ///
    /// `host` is the value of the `Host` header, and `local` the address that the connection came in on, which names this host as well as the
    /// announced authority does. The comparison takes the same time wherever the codes differ, and only a request with the right code learns about
    /// clocks, destinations and nonces.
    pub fn verify(
        &self,
        header: Option<&str>,
        request: &Signed<'_>,
        (host, local): (&str, &str),
        now: u64,
    ) -> Result<Accepted, AuthError> {
        let credentials = Credentials::parse(header.ok_or(AuthError::Missing)?)?;
        let to = Destination {
            authority: host,
            boot: credentials.boot,
        };
        self.check_code(&credentials, request, to)?;
        let away = now.abs_diff(credentials.time);
        if away > CLOCK_WINDOW {
            return Err(AuthError::StaleClock(away));
        }
        let accepted = self.check_destination(to, local)?;
        if !self
            .seen
            .lock()
            .unpoisoned()
            .insert(credentials.nonce_bytes, Instant::now())
        {
            return Err(AuthError::Replayed);
        }
        Ok(accepted)
    }

    fn check_code(
        &self,
        credentials: &Credentials<'_>,
        request: &Signed<'_>,
        to: Destination<'_>,
    ) -> Result<(), AuthError> {
        let keys = self.keys.read().unpoisoned();
        let mut error = AuthError::UnknownKey;
        for key in keys.named(credentials.name) {
            let expected = key.code(request, to, credentials.time, credentials.nonce);
            if expected.verify_slice(&credentials.code).is_ok() {
                return Ok(());
            }
            error = AuthError::WrongKey;
        }
        Err(error)
    }

    fn check_destination(&self, to: Destination<'_>, local: &str) -> Result<Accepted, AuthError> {
        let authority = to.authority.to_ascii_lowercase();
        if authority != self.authority && authority != local {
            return Err(AuthError::WrongDestination(authority));
        }
        match to.boot {
            boot if boot == self.boot => Ok(Accepted::Bound),
            NO_BOOT => Ok(Accepted::Introduction),
            _ => Err(AuthError::StaleBoot),
        }
    }
}

/// The fields of an `Authorization` header.
struct Credentials<'a> {
    name: &'a str,
    time: u64,
    nonce: &'a str,
    nonce_bytes: [u8; 16],
    code: [u8; 32],
    boot: &'a str,
}

impl Credentials<'_> {
    fn parse(header: &str) -> Result<Credentials<'_>, AuthError> {
        let fields = header.strip_prefix(SCHEME).ok_or(AuthError::Malformed)?;
        let fields: Vec<&str> = fields.split(':').collect();
        let [name, time, nonce, code, boot] = fields[..] else {
            return Err(AuthError::Malformed);
        };
        if boot != NO_BOOT && !is_boot(boot) {
            return Err(AuthError::Malformed);
        }
        Ok(Credentials {
            name,
            time: parse_time(time).ok_or(AuthError::Malformed)?,
            nonce,
            nonce_bytes: hex::decode(nonce).ok_or(AuthError::Malformed)?,
            code: hex::decode(code).ok_or(AuthError::Malformed)?,
            boot,
        })
    }
}

/// Digits only, and the shortest form, so that the text signed is the text sent.
fn parse_time(text: &str) -> Option<u64> {
    let time = text.parse::<u64>().ok()?;
    (time.to_string() == text).then_some(time)
}

/// This clock in Unix seconds.
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// Sixteen random bytes, unpredictable and never used before.
pub fn fresh_nonce() -> Result<[u8; 16], std::io::Error> {
    let mut nonce = [0; 16];
    let mut filled = 0;
    while filled < nonce.len() {
        filled +=
            rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(nonce)
}
