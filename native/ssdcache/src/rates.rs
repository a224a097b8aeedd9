//! What a volume may do per second, as QEMU limits disks.
//!
//! Each rate has a bucket that leaks as fast as the rate says. A request begins when none of its buckets
//! has more than it holds, and then fills them: with its bytes, and with itself. A bucket holds what its
//! rate allows in a tenth of a second or, with a burst, what the burst allows in one second. So in any
//! time *t*, no more begins than *rate × t*, what the bucket holds, and one request.
//!
//! Nothing here waits: the time is an argument.
//!
//! Source: QEMU, `util/throttle.c` and `docs/throttle.txt`, with bursts of one second.

mod limiter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use limiter::{Cost, Direction, Limiter};

/// Buckets: of bytes and of requests, each of all requests, of reads and of writes.
const BUCKETS: usize = 6;
const SIZE: usize = 2 * BUCKETS;
/// How many values there are.
pub const COUNT: usize = SIZE + 1;
/// Their names as volume types have them: the rates, their bursts, and the bytes of which a request counts
/// as several.
const NAMES: [&str; COUNT] = [
    "total_bytes_sec",
    "read_bytes_sec",
    "write_bytes_sec",
    "total_iops_sec",
    "read_iops_sec",
    "write_iops_sec",
    "total_bytes_sec_max",
    "read_bytes_sec_max",
    "write_bytes_sec_max",
    "total_iops_sec_max",
    "read_iops_sec_max",
    "write_iops_sec_max",
    "size_iops_sec",
];
/// The most of a value, as QEMU has it.
const MOST: u64 = 1_000_000_000_000_000;
/// Leading bits of a value that are kept.
const BITS: u32 = 18;
/// Bytes of a value that is packed.
const PACKED_VALUE: usize = 3;
/// Bytes of all of them.
pub const PACKED: usize = COUNT * PACKED_VALUE;

/// Limits of a volume; those that are 0 are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Rates([u64; COUNT]);

impl Rates {
    /// Those with these values, of which the leading 18 bits count, in the order of their names.
    #[must_use]
    pub fn new(values: [u64; COUNT]) -> Self {
        Self(values.map(rounded))
    }

    /// Their values.
    #[must_use]
    pub fn values(&self) -> [u64; COUNT] {
        self.0
    }

    /// Whether something is limited.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.0[..BUCKETS].iter().any(|rate| *rate > 0)
    }

    /// What a bucket leaks in a second, and what it holds.
    fn bucket(&self, number: usize) -> (f64, f64) {
        let (rate, burst) = (self.0[number] as f64, self.0[BUCKETS + number] as f64);
        (rate, if burst > 0.0 { burst } else { rate / 10.0 })
    }

    /// The bytes of which a request counts as several, if that is limited.
    fn size(&self) -> u64 {
        self.0[SIZE]
    }

    /// The values in few bytes.
    #[must_use]
    pub fn pack(&self) -> [u8; PACKED] {
        let mut bytes = [0; PACKED];
        for (value, into) in self.0.iter().zip(bytes.chunks_exact_mut(PACKED_VALUE)) {
            let shift = shift(*value);
            let word = (value >> shift) as u32 | shift << BITS;
            into.copy_from_slice(&word.to_le_bytes()[..PACKED_VALUE]);
        }
        bytes
    }

    /// What was [packed](Self::pack).
    #[must_use]
    pub fn unpack(bytes: &[u8; PACKED]) -> Self {
        let mut values = [0; COUNT];
        for (value, from) in values.iter_mut().zip(bytes.chunks_exact(PACKED_VALUE)) {
            let word = from
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            *value = (word & ((1 << BITS) - 1)) << (word >> BITS);
        }
        Self::new(values)
    }
}

/// How many bits of a value are left out.
fn shift(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(BITS)
}

fn rounded(value: u64) -> u64 {
    value >> shift(value) << shift(value)
}

impl TryFrom<BTreeMap<String, u64>> for Rates {
    type Error = String;

    fn try_from(named: BTreeMap<String, u64>) -> Result<Self, String> {
        let mut values = [0; COUNT];
        for (name, value) in named {
            let place = NAMES.iter().position(|known| *known == name);
            let place = place.ok_or_else(|| format!("there is no limit {name}"))?;
            if value > MOST {
                return Err(format!("{name} is more than {MOST}"));
            }
            values[place] = value;
        }
        for (rate, burst) in (0..BUCKETS).map(|place| (place, BUCKETS + place)) {
            if values[burst] > 0 && values[burst] < values[rate].max(1) {
                return Err(format!("{} is below {}", NAMES[burst], NAMES[rate]));
            }
            if values[burst] > 0 && values[rate] == 0 {
                return Err(format!("{} needs {}", NAMES[burst], NAMES[rate]));
            }
        }
        Ok(Self::new(values))
    }
}

impl From<Rates> for BTreeMap<String, u64> {
    fn from(rates: Rates) -> Self {
        let named = NAMES.iter().map(ToString::to_string).zip(rates.0);
        named.filter(|(_, value)| *value > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Rates, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_read_and_shown_by_their_names() {
        let text = r#"{"read_iops_sec":500,"read_iops_sec_max":2000,"size_iops_sec":65536}"#;
        let rates = parse(text).unwrap();
        assert_eq!(text, serde_json::to_string(&rates).unwrap());
        assert!(rates.is_limited());
        assert!(!parse("{}").unwrap().is_limited());
        assert!(!parse(r#"{"size_iops_sec": 4096}"#).unwrap().is_limited());
    }

    #[test]
    fn what_no_bucket_can_have_is_refused_and_named() {
        for (text, reason) in [
            (
                r#"{"total_iops_secs": 1}"#,
                "there is no limit total_iops_secs",
            ),
            (
                r#"{"read_bytes_sec": 1000000000000001}"#,
                "read_bytes_sec is more than",
            ),
            (
                r#"{"read_iops_sec": 9, "read_iops_sec_max": 8}"#,
                "read_iops_sec_max is below read_iops_sec",
            ),
            (
                r#"{"write_iops_sec_max": 8}"#,
                "write_iops_sec_max needs write_iops_sec",
            ),
            (r#"{"read_iops_sec": -1}"#, "invalid value"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn values_are_packed_with_their_leading_bits(values in any::<[u64; COUNT]>()) {
            let rates = Rates::new(values.map(|value| value % MOST));
            prop_assert_eq!(rates, Rates::unpack(&rates.pack()));
            for (value, kept) in values.iter().zip(rates.values()) {
                let value = value % MOST;
                prop_assert!(kept <= value && value - kept <= value >> (BITS - 1));
            }
        }
    }
}
