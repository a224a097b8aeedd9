//! qcow2 images as tenants and guests write them.

#![no_main]

use std::sync::Arc;

use diffcache_core::source::{ReadAt, SourceError};
use diffcache_fuzz::Strict;
use diffcache_qcow2::snapshots::Disk;
use diffcache_qcow2::Qcow2Source;
use libfuzzer_sys::fuzz_target;

/// Disks that are claimed to be larger are opened, and not walked through.
const WALKED: u64 = 64 << 20;

struct Owned(Vec<u8>);

impl ReadAt for Owned {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        Strict(&self.0).read_exact_at(buf, offset)
    }
}

fuzz_target!(|data: &[u8]| {
    let image = Owned(data.to_vec());
    if let Ok(disk) = Disk::open(&image) {
        let present = disk.state(None).ok();
        for snapshot in &disk.snapshots {
            if let (Some(new), Ok(old)) = (&present, disk.state(Some(snapshot))) {
                let _ = disk.changed(new, Some(&old), &mut |_, _| {});
            }
        }
        if let Some(new) = present.filter(|state| state.size < WALKED) {
            let _ = disk.changed(&new, None, &mut |_, _| {});
        }
    }
    if let Ok(source) = Qcow2Source::open(Arc::new(image)) {
        let len = source.len();
        for from in [0, len / 2, len.saturating_sub(5000)] {
            let mut buf = vec![0; (len - from).min(1 << 18) as usize];
            let _ = source.read_exact_at(&mut buf, from);
        }
        let mut at = 0;
        for _ in 0..100 {
            let Ok(Some((from, to))) = source.next_data(at) else {
                break;
            };
            assert!(at <= from && from < to && to <= len);
            at = to;
        }
    }
});
