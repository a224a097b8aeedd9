//! Clients and servers that say anything: nothing panics, waits for ever, or answers twice.
//! `native/fuzz` tries the same with coverage.
//!
//! `NBD_SEED` and `NBD_RUNS` give another first seed and more runs.

#![allow(clippy::unwrap_used)]

#[path = "fuzzing/nbd.rs"]
mod nbd;

use diffcache_faulty::{campaign, Random};

fn input(random: &mut Random) -> Vec<u8> {
    let length = random.below(300);
    // Often small numbers, which lengths are.
    let most = random.choose(&[4, 256, 256]);
    (0..=length).map(|_| random.below(most) as u8).collect()
}

#[test]
fn a_server_survives_any_client() {
    campaign("NBD", 20_261_129, 300, |mut random| {
        nbd::serve(&input(&mut random))
    });
}

#[test]
fn a_client_survives_any_server() {
    campaign("NBD", 20_261_130, 300, |mut random| {
        nbd::connect(&input(&mut random))
    });
}
