//! Heads of responses as hostile peers send them.

#![no_main]

use diffcache_dataplane::fetching::connection::parse_head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut reusable = true;
    if let Ok(Some((head, length))) = parse_head(data, &mut reusable) {
        assert!(length <= data.len());
        if let Some((start, end, size)) = head.range {
            assert!(start < end && end <= size);
        }
    }
});
