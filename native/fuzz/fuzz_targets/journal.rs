//! The journal of a save whose records have any content, behind checksums that are right.

#![no_main]

use std::io::{Read, Seek, Write};

use diffcache_fuzz::Parts;
use diffcache_versions::save::journal::Journal;
use diffcache_versions::store::crypt::Cipher;
use diffcache_versions::store::frames::frame_check;
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];
const BLOCK_SIZE: u32 = 512;

fuzz_target!(|data: &[u8]| {
    let mut bytes = [&b"DCVSAVE1"[..], &KEY].concat();
    let mut parts = Parts(data);
    while !parts.0.is_empty() {
        let body = parts.part();
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes.extend(frame_check(body));
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file in /tmp");
    file.write_all(&bytes).expect("space in /tmp");
    let open = || {
        let opened = Journal::open(file.path(), &KEY, BLOCK_SIZE, &Cipher::new(None));
        opened.expect("whatever it says, it is begun anew").1
    };
    let first = open();
    if let Some(left) = &first {
        let blocks = left.rest.names.len() * BLOCK_SIZE as usize;
        assert_eq!(left.rest.blocks.len(), blocks);
    }
    let again = open();
    assert_eq!(first.map(|left| left.state), again.map(|left| left.state));
    let mut left = Vec::new();
    file.rewind().expect("a file");
    file.read_to_end(&mut left).expect("a file");
    assert!(bytes.starts_with(&left), "what was whole is kept");
});
