//! Forged devices: whatever they say, nothing panics. `native/fuzz` tries the same with coverage.
//!
//! `SSDCACHE_DEVICE_SEED` and `SSDCACHE_DEVICE_RUNS` give another first seed and more runs.

#![allow(clippy::unwrap_used)]

#[path = "fuzzing/device.rs"]
mod device;

use diffcache_faulty::campaign;

#[test]
fn no_device_makes_a_start_panic() {
    campaign("SSDCACHE_DEVICE", 20_261_129, 40, |mut random| {
        let length = random.below(200);
        let input: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        device::open(&input);
    });
}
