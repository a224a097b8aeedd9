//! What data plane and diffcached read from each other: requests for ranges, with the name of a requester or without, answers, and hints.

#![no_main]

use diffcache_dataplane::serving::hints;
use diffcache_dataplane::serving::ranges::{RangeRequest, LONGEST_RANGE};
use diffcache_dataplane::serving::referrals::{ReferableRequest, Turn};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(found)) = RangeRequest::read(&mut &*data) {
        assert!((1..=LONGEST_RANGE).contains(&found.len));
        assert!(found.offset.checked_add(found.len).is_some());
    }
    if let Ok(Some(found)) = ReferableRequest::read(&mut &*data) {
        let mut bytes = Vec::new();
        found.write(&mut bytes).expect("memory takes it");
        assert_eq!(bytes, data[..bytes.len()]);
    }
    for len in [1, 100, LONGEST_RANGE] {
        if let Ok(found) = Turn::read(&mut &*data, len) {
            let mut bytes = Vec::new();
            found.write(&mut bytes).expect("memory takes it");
            assert_eq!(bytes, data[..bytes.len()]);
        }
    }
    if let Ok(Some(text)) = hints::read(&mut &*data) {
        assert!(text.is_empty() || hints::is_text(&text));
    }
});
