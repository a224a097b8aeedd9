//! Messages to the mounter, which has a privilege, and from it.

#![no_main]

use diffcache_mounter::protocol::{Answer, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(request) = Request::parse(data) {
        let id = request.id.as_str();
        assert!(id.len() == 64 && id.bytes().all(|c| c.is_ascii_hexdigit()));
        assert_eq!(request.to_string().as_bytes(), data);
    }
    if let Some(answer) = Answer::parse(data) {
        assert_eq!(answer.encode(), data);
    }
});
