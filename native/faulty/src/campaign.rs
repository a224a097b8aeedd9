//! Tests that are repeated with seeds.

use crate::random::Random;

/// Calls `run` with the random numbers of this many seeds, and prints the seed of each run that
/// panics. `NAME_SEED` and `NAME_RUNS` in the environment give another first seed and another
/// number of runs.
///
/// # Panics
/// A run panics, or a number of the environment is none.
pub fn campaign(name: &str, seed: u64, runs: u64, run: impl Fn(Random)) {
    let (first, runs) = (number(name, "SEED", seed), number(name, "RUNS", runs));
    for seed in (0..runs).map(|n| first.wrapping_add(n)) {
        let told = Told(name, seed);
        run(Random::new(seed));
        std::mem::forget(told);
    }
}

#[allow(clippy::panic)]
fn number(name: &str, what: &str, default: u64) -> u64 {
    let name = format!("{name}_{what}");
    match std::env::var(&name).map(|text| text.parse()) {
        Err(_) => default,
        Ok(Ok(number)) => number,
        Ok(Err(_)) => panic!("{name} is not a number"),
    }
}

/// Prints the seed when a panic drops it.
struct Told<'a>(&'a str, u64);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        eprintln!(
            "repeat this run with {0}_SEED={1} {0}_RUNS=1",
            self.0, self.1
        );
    }
}
