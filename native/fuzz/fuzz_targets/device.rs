//! Devices of the SSD cache whose checksums are right and whose content is anything.

#![no_main]

use diffcache_fuzz::device;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| device::open(data));
