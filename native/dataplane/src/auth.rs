//! Who may speak to a plane: a keyed code over every request.
//!
//! `Authorization: DiffCache <key-name>:<unix seconds>:<nonce>:<hex HMAC-SHA256>`. The code covers the method, the path, the `Range` header,
//! the SHA-256 of the body, the time and the nonce, so that none of them can be changed and nothing can be sent twice.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::gate::lock;
use crate::ids::{hex, unhex};

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
    pub fn authorization(&self, request: &Signed<'_>, time: u64, nonce: &[u8; 16]) -> String {
        let nonce = hex(nonce);
        let code = self.code(request, time, &nonce).finalize().into_bytes();
        format!("{SCHEME}{}:{time}:{nonce}:{}", self.name, hex(&code))
    }

    fn code(&self, request: &Signed<'_>, time: u64, nonce: &str) -> Hmac<Sha256> {
        let digest = hex(&Sha256::digest(request.body));
        let mut mac = self.mac.clone();
        mac.update(
            format!(
                "diffcache-1\n{}\n{}\n{}\n{digest}\n{time}\n{nonce}",
                request.method, request.path, request.range
            )
            .as_bytes(),
        );
        mac
    }
}

/// Checks requests against a key and remembers their nonces.
pub struct Verifier {
    key: SiteKey,
    seen: Mutex<Seen>,
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
    /// A verifier that accepts exactly `key`.
    pub fn new(key: SiteKey) -> Verifier {
        Verifier {
            key,
            seen: Mutex::new(Seen {
                recent: HashSet::new(),
                older: HashSet::new(),
                rotated: Instant::now(),
            }),
        }
    }

    /// Accepts the request or says why not; `now` is this clock in Unix seconds.
    ///
    /// The comparison takes the same time wherever the codes differ, and only a request with the right code learns about clocks and nonces.
    pub fn verify(
        &self,
        header: Option<&str>,
        request: &Signed<'_>,
        now: u64,
    ) -> Result<(), AuthError> {
        let fields = header.ok_or(AuthError::Missing)?;
        let fields = fields.strip_prefix(SCHEME).ok_or(AuthError::Malformed)?;
        let fields: Vec<&str> = fields.split(':').collect();
        let [name, time, nonce, code] = fields[..] else {
            return Err(AuthError::Malformed);
        };
        let seconds = parse_time(time).ok_or(AuthError::Malformed)?;
        let nonce_bytes = unhex::<16>(nonce).ok_or(AuthError::Malformed)?;
        let code = unhex::<32>(code).ok_or(AuthError::Malformed)?;
        if name != self.key.name {
            return Err(AuthError::UnknownKey);
        }
        let expected = self.key.code(request, seconds, nonce);
        expected
            .verify_slice(&code)
            .map_err(|_| AuthError::WrongKey)?;
        let away = now.abs_diff(seconds);
        if away > CLOCK_WINDOW {
            return Err(AuthError::StaleClock(away));
        }
        if !lock(&self.seen).insert(nonce_bytes, Instant::now()) {
            return Err(AuthError::Replayed);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Signed<'static> = Signed {
        method: "GET",
        path: "/v1/objects/patches/aa",
        range: "bytes=0-9",
        body: b"",
    };

    fn key() -> SiteKey {
        SiteKey::new("site-1", b"sixteen bytes or more").unwrap()
    }

    #[test]
    fn what_the_key_signed_is_accepted_once() {
        let header = key().authorization(&REQUEST, 1000, &[7; 16]);
        let verifier = Verifier::new(key());
        assert_eq!(verifier.verify(Some(&header), &REQUEST, 1300), Ok(()));
        assert_eq!(
            verifier.verify(Some(&header), &REQUEST, 1300),
            Err(AuthError::Replayed)
        );
    }

    #[test]
    fn each_covered_part_counts() {
        let header = key().authorization(&REQUEST, 1000, &[7; 16]);
        let verifier = Verifier::new(key());
        for changed in [
            Signed {
                method: "HEAD",
                ..REQUEST
            },
            Signed {
                path: "/v1/objects/patches/ab",
                ..REQUEST
            },
            Signed {
                range: "bytes=0-8",
                ..REQUEST
            },
            Signed {
                body: b"x",
                ..REQUEST
            },
        ] {
            assert_eq!(
                verifier.verify(Some(&header), &changed, 1000),
                Err(AuthError::WrongKey)
            );
        }
        for (old, new) in [(":1000:", ":1001:"), ("0707", "0708")] {
            let forged = header.replacen(old, new, 1);
            assert_eq!(
                verifier.verify(Some(&forged), &REQUEST, 1000),
                Err(AuthError::WrongKey)
            );
        }
        assert_eq!(verifier.verify(Some(&header), &REQUEST, 1000), Ok(()));
    }

    #[test]
    fn refusals_name_their_reason() {
        let verifier = Verifier::new(key());
        let at = |time| key().authorization(&REQUEST, time, &[1; 16]);
        assert_eq!(verifier.verify(None, &REQUEST, 0), Err(AuthError::Missing));
        for text in [
            "",
            "Basic abc",
            "DiffCache ",
            "DiffCache a:b:c:d",
            "DiffCache a:1:2",
            "DiffCache a:+1:2:3",
        ] {
            assert_eq!(
                verifier.verify(Some(text), &REQUEST, 0),
                Err(AuthError::Malformed),
                "{text}"
            );
        }
        assert_eq!(
            verifier.verify(Some(&at(1000)), &REQUEST, 1301),
            Err(AuthError::StaleClock(301))
        );
        assert_eq!(
            verifier.verify(Some(&at(1301)), &REQUEST, 1000),
            Err(AuthError::StaleClock(301))
        );
        let other = SiteKey::new("site-1", b"another secret, long enough").unwrap();
        assert_eq!(
            verifier.verify(
                Some(&other.authorization(&REQUEST, 0, &[1; 16])),
                &REQUEST,
                0
            ),
            Err(AuthError::WrongKey)
        );
        let renamed = SiteKey::new("site-2", b"sixteen bytes or more").unwrap();
        assert_eq!(
            verifier.verify(
                Some(&renamed.authorization(&REQUEST, 0, &[1; 16])),
                &REQUEST,
                0
            ),
            Err(AuthError::UnknownKey)
        );
    }

    #[test]
    fn keys_are_long_enough_and_never_shown() {
        assert_eq!(
            SiteKey::new("a", b"short").unwrap_err(),
            KeyError::TooShort(5)
        );
        assert_eq!(
            SiteKey::new("a:b", &[0; 32]).unwrap_err(),
            KeyError::BadName
        );
        assert_eq!(format!("{:?}", key()), "SiteKey(site-1)");
    }

    #[test]
    fn the_memory_of_nonces_spans_two_generations() {
        let start = Instant::now();
        let mut seen = Seen {
            recent: HashSet::new(),
            older: HashSet::new(),
            rotated: start,
        };
        assert!(seen.insert([1; 16], start));
        let later = start + Duration::from_secs(2 * CLOCK_WINDOW + 1);
        assert!(!seen.insert([1; 16], later));
        let much_later = later + Duration::from_secs(2 * CLOCK_WINDOW + 1);
        assert!(seen.insert([2; 16], much_later));
        assert!(seen.insert([1; 16], much_later));
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(fresh_nonce().unwrap(), fresh_nonce().unwrap());
    }
}
