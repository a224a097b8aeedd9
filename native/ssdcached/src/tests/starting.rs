//! Starts while origins let wait for them.

use super::*;

const SIZE: usize = 1 << 20;
const NAMES: [&str; 2] = ["a", "b"];

/// Regression: a start opened one origin after the other, and no guest was served before the last
/// one that did not answer had had its time.
#[test]
fn origins_are_opened_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    for name in NAMES {
        let origin = origin::Origin::new(folder.path(), name, SIZE);
        process.attach(name, &origin, "write-through");
    }
    // Those that are not open then have the size of before.
    origin::answer_together(folder.path(), &NAMES, 2 * SIZE);
    let cache = Process::start(&folder, 1).cache;
    let sizes = NAMES.map(|name| cache.volume(name).unwrap().size());
    assert_eq!([2 * SIZE as u64; 2], sizes);
}
