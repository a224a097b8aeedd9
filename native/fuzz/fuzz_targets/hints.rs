//! Counts that hosts of a site send each other with requests for chunks and the replies to them: whatever is sent, what is known stays bounded.
//!
//! The input is several messages, each behind its length.

#![no_main]

use diffcache_fuzz::Parts;
use diffcache_prefetch::counts::{Message, HOST_SHARE, LONGEST};
use diffcache_prefetch::SiteCounts;
use libfuzzer_sys::fuzz_target;

const CHUNKS: u32 = 4096;
const HOSTS: u64 = 4;

fuzz_target!(|data: &[u8]| {
    let mut host = SiteCounts::new(0, 0..HOSTS, 1);
    let mut parts = Parts(data);
    while !parts.0.is_empty() {
        let Ok(message) = Message::decode(parts.part(), CHUNKS) else {
            continue;
        };
        assert_eq!(
            Message::decode(&message.encode(), CHUNKS),
            Ok(message.clone())
        );
        let news = host.learn(message.sender, &message);
        for chunk in news.chunks {
            assert!(chunk < CHUNKS && host.sum(chunk).0 <= HOSTS * HOST_SHARE);
        }
        let answer = host.answer(&message).encode();
        assert!(answer.len() <= LONGEST && Message::decode(&answer, CHUNKS).is_ok());
    }
});
