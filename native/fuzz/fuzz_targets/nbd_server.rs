//! Clients of NBD that say anything.

#![no_main]

use diffcache_fuzz::nbd;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| nbd::serve(data));
