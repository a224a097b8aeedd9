//! Volumes that get larger while they are used.

use super::*;

const SIZE: usize = 1 << 20;

/// Regression: the cache did not flush an origin whose blocks it had newer, and the client of the
/// origin refused to look for its size because of that.
#[test]
fn a_volume_grows_whose_last_writes_the_cache_has_newer() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origin = origin::Origin::new(folder.path(), "a", SIZE);
    process.attach("v", &origin, "write-around");
    let mut client = process.connect("v");
    client.flush().unwrap();
    client.write(0, &[1; 4096]).unwrap();
    process.done(&json!({ "command": "set", "volume": "v", "mode": "write-back" }));
    client.write(0, &[2; 4096]).unwrap();
    origin.disk.resize(2 * SIZE, 0);
    process.done(&json!({ "command": "resize", "volume": "v" }));
    assert_eq!(vec![2; 4096], client.read(0, 4096).unwrap());
}
