//! Raw images whose partition table and filesystems guests wrote: what is free, and which file each byte belongs to.

#![no_main]

use diffcache_filesystems::{map_files, survey, ArrivingFiles};
use diffcache_fuzz::Strict;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let image = Strict(data);
    let found = survey(&image).expect("an image in memory can be read");
    let mut end = 0;
    for (from, to) in &found.free {
        assert!(end <= *from && from < to && *to <= data.len() as u64);
        end = *to;
    }
    let map = map_files(&image).expect("an image in memory can be read");
    let mut at = 0;
    for extent in &map.extents {
        assert!(extent.start == at && at < extent.end);
        assert!((extent.entry as usize) < map.entries.len());
        at = extent.end;
    }
    assert_eq!(at, data.len() as u64);
    let noted = ArrivingFiles::default().note(&image, (0, data.len() as u64));
    for piece in noted.pieces {
        assert!(piece.start < piece.end && piece.end <= data.len() as u64);
    }
});
