//! Claims: at most one host of a site fetches an object over the WAN at a time.
//!
//! A coordinator keeps claims in memory. A claim ends with its time to live unless its holder renews it, and passes on at once to
//! a host that found the holder dead. If the coordinator itself dies its claims are lost; the price is a second transfer, never a wrong byte.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::ids::ObjectKey;

const MOST_CLAIMS: usize = 65_536;

/// The host that fetches an object, and where others can read it meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host's name.
    pub name: String,
    /// The base URL of its data plane.
    pub url: String,
}

struct Claim {
    holder: Holder,
    expires: Instant,
}

/// All claims of one coordinator.
pub struct Claims {
    ttl: Duration,
    claims: HashMap<ObjectKey, Claim>,
}

/// The table is full; the applicant fetches without a claim.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("this coordinator holds as many claims as it can; transfer without one")]
pub struct TooManyClaims;

impl Claims {
    /// A table whose claims live for `ttl` after their last renewal.
    pub fn new(ttl: Duration) -> Claims {
        Claims {
            ttl,
            claims: HashMap::new(),
        }
    }

    /// Lifetime of a claim without renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Claims `key` for `applicant` and returns who holds it now.
    ///
    /// The applicant gets the claim if it is free or expired, if it already holds it (renewal), or if the present holder is the one it
    /// suspects. Of several who suspect the same holder the first gets it; the others learn its name.
    pub fn claim(
        &mut self,
        key: ObjectKey,
        applicant: Holder,
        suspect: Option<&str>,
        now: Instant,
    ) -> Result<Holder, TooManyClaims> {
        if let Some(claim) = self.claims.get(&key) {
            let held = claim.expires > now && claim.holder.name != applicant.name;
            if held && suspect != Some(claim.holder.name.as_str()) {
                return Ok(claim.holder.clone());
            }
        } else if self.claims.len() >= MOST_CLAIMS {
            self.expire(now);
            if self.claims.len() >= MOST_CLAIMS {
                return Err(TooManyClaims);
            }
        }
        let claim = Claim {
            holder: applicant.clone(),
            expires: now + self.ttl,
        };
        self.claims.insert(key, claim);
        Ok(applicant)
    }

    /// Gives up a claim; false if another host, or none, holds it.
    pub fn release(&mut self, key: ObjectKey, name: &str, now: Instant) -> bool {
        let held = self
            .claims
            .get(&key)
            .is_some_and(|claim| claim.holder.name == name && claim.expires > now);
        if held {
            self.claims.remove(&key);
        }
        held
    }

    /// Returns who holds a claim; `None` if it is free or expired.
    pub fn holder(&self, key: ObjectKey, now: Instant) -> Option<Holder> {
        let claim = self.claims.get(&key)?;
        (claim.expires > now).then(|| claim.holder.clone())
    }

    /// Claims that have not expired.
    pub fn len(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.claims.len()
    }

    fn expire(&mut self, now: Instant) {
        self.claims.retain(|_, claim| claim.expires > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn holder(name: &str) -> Holder {
        Holder {
            name: name.to_owned(),
            url: format!("http://{name}:1"),
        }
    }

    fn key() -> ObjectKey {
        ObjectKey::parse("images", &"a".repeat(64)).unwrap()
    }

    #[test]
    fn the_first_applicant_holds_until_it_releases() {
        let mut claims = Claims::new(TTL);
        let now = Instant::now();
        let a = holder("a");
        assert_eq!(claims.claim(key(), a.clone(), None, now).unwrap(), a);
        assert_eq!(claims.claim(key(), holder("b"), None, now).unwrap(), a);
        assert_eq!(claims.holder(key(), now), Some(a));
        assert!(!claims.release(key(), "b", now));
        assert!(claims.release(key(), "a", now));
        assert_eq!(claims.holder(key(), now), None);
        assert!(!claims.release(key(), "a", now));
        assert_eq!(
            claims.claim(key(), holder("b"), None, now).unwrap(),
            holder("b")
        );
    }

    #[test]
    fn renewal_extends_and_silence_ends() {
        let mut claims = Claims::new(TTL);
        let start = Instant::now();
        claims.claim(key(), holder("a"), None, start).unwrap();
        let later = start + TTL / 2;
        claims.claim(key(), holder("a"), None, later).unwrap();
        let second = start + TTL + TTL / 4;
        assert_eq!(
            claims.claim(key(), holder("b"), None, second).unwrap(),
            holder("a")
        );
        assert_eq!(claims.len(second), 1);
        let end = later + TTL;
        assert_eq!(claims.holder(key(), second), Some(holder("a")));
        assert_eq!(claims.holder(key(), end), None);
        assert_eq!(claims.len(end), 0);
        assert_eq!(
            claims.claim(key(), holder("b"), None, end).unwrap(),
            holder("b")
        );
    }

    #[test]
    fn a_suspected_holder_is_replaced_exactly_once() {
        let mut claims = Claims::new(TTL);
        let now = Instant::now();
        claims.claim(key(), holder("dead"), None, now).unwrap();
        let winners: Vec<_> = ["b", "c", "d"]
            .into_iter()
            .map(|name| {
                claims
                    .claim(key(), holder(name), Some("dead"), now)
                    .unwrap()
                    .name
            })
            .collect();
        assert_eq!(winners, ["b", "b", "b"]);
        assert_eq!(
            claims.claim(key(), holder("dead"), None, now).unwrap(),
            holder("b")
        );
    }

    #[test]
    fn a_full_table_says_so_and_recovers() {
        let mut claims = Claims::new(TTL);
        let now = Instant::now();
        for n in 0..MOST_CLAIMS {
            let mut key = key();
            key.id[..8].copy_from_slice(&(n as u64).to_le_bytes());
            claims.claim(key, holder("a"), None, now).unwrap();
        }
        let mut another = key();
        another.id = [9; 32];
        assert_eq!(
            claims.claim(another, holder("b"), None, now),
            Err(TooManyClaims)
        );
        assert_eq!(
            claims.claim(another, holder("b"), None, now + TTL).unwrap(),
            holder("b")
        );
    }
}
