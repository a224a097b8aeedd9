//! Requests as strangers send them: the head, its route, range and signature.

#![no_main]

use std::sync::OnceLock;

use diffcache_dataplane::serving::request::{parse, resolve_range, route, LONGEST_HEAD};
use diffcache_dataplane::transport::auth::{Keys, Signed, SiteKey, Verifier};
use libfuzzer_sys::fuzz_target;

static VERIFIER: OnceLock<Verifier> = OnceLock::new();

fn verifier() -> &'static Verifier {
    VERIFIER.get_or_init(|| {
        let key = SiteKey::new("site", &[7; 32]).expect("a key of 32 bytes");
        let boot = "0123456789abcdef0123456789abcdef";
        Verifier::new(Keys::single(key), "h:1", boot)
    })
}

fuzz_target!(|data: &[u8]| {
    let Ok(Some((request, length))) = parse(data) else {
        return;
    };
    assert!(length <= data.len() && length <= LONGEST_HEAD);
    let _ = route(&request.path);
    for size in [0, 1, 65_536, u64::MAX] {
        if let Ok(Some((start, end))) = resolve_range(&request.range, size) {
            assert!(start < end && end <= size);
        }
    }
    let signed = Signed {
        method: &request.method,
        path: &request.path,
        range: &request.range,
        body: &data[length..],
    };
    let accepted = verifier().verify(
        request.authorization.as_deref(),
        &signed,
        (&request.host, "h:1"),
        1_700_000_000,
    );
    assert!(accepted.is_err(), "no input has the key");
});
