//! Manifests as peers send them. The ID after the tree is not checked here: it is that of the object.

#![no_main]

use diffcache_core::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(manifest) = Manifest::read_from(&mut &*data) else {
        return;
    };
    let mut again = Vec::new();
    manifest.write_to(&mut again).expect("memory suffices");
    let read = Manifest::read_from(&mut &*again).expect("what was written is valid");
    assert!(read == manifest);
    let mut at = 0;
    for _ in 0..64 {
        let Some(leaf) = manifest.next_data_leaf(at) else {
            break;
        };
        assert!(leaf >= at && leaf < manifest.leaf_count() && !manifest.is_zero_leaf(leaf));
        let _ = manifest.verify_leaf(leaf, data);
        at = leaf + 1;
    }
});
