//! The rest of a file is prefetched when a part of it is read.

use diffcache_filesystems::{map_files, FileMap, Kind};

use super::*;

/// The files that `core` has for its own tests.
fn image() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../filesystems/tests/data/ext4-files.raw.zst"
    );
    zstd::decode_all(std::fs::read(path).unwrap().as_slice()).unwrap()
}

/// Return the chunks of the largest file in one piece, in order, and where it begins.
fn largest(map: &FileMap) -> (Vec<u64>, u64) {
    let is_file = |entry: u32| map.entries[entry as usize].kind == Kind::File;
    let files = map.extents.iter().filter(|extent| is_file(extent.entry));
    let largest = files.max_by_key(|extent| extent.end - extent.start);
    let largest = largest.unwrap();
    let chunks = largest.start / CHUNK..=(largest.end - 1) / CHUNK;
    (chunks.collect(), largest.start)
}

/// Read what a guest reads before files: superblock, descriptors, and all inodes.
fn mount(file: &LazyFile, map: &FileMap) {
    read(file, 0, 128 << 10).unwrap();
    let kind = |entry: u32| map.entries[entry as usize].kind;
    for extent in map.extents.iter().filter(|e| kind(e.entry) == Kind::Inodes) {
        let len = (extent.end - extent.start) as usize;
        read(file, extent.start, len).unwrap();
    }
}

fn start(fixture: &Fixture, policy: Policy) -> &'static LazyFile {
    let chunks = u32::try_from(fixture.content.len() as u64 / CHUNK).unwrap() + 1;
    let prefetcher = Prefetcher::new(chunks, Profile::default(), policy);
    let (file, _) = fixture.open_with(false, Some(prefetcher));
    let file: &'static LazyFile = Box::leak(Box::new(file));
    std::thread::spawn(|| file.prefetch());
    file
}

fn policy(rest: usize) -> Policy {
    Policy {
        in_flight: 1,
        read_ahead: 0,
        rest,
        ..Policy::default()
    }
}

fn wait_for(file: &LazyFile, chunks: &[u64]) {
    until("the rest of the file has come", || {
        chunks.iter().all(|chunk| file.leaves().is_marked(*chunk))
    });
}

#[test]
fn the_rest_of_a_file_comes_before_it_is_read() {
    let fixture = Fixture::of(image());
    let map = map_files(&*fixture.content).unwrap();
    let (chunks, start_at) = largest(&map);
    assert!(chunks.len() >= 3, "{chunks:?}");
    let file = start(&fixture, policy(8));
    mount(file, &map);
    read(file, start_at, 4096).unwrap();
    file.follow_files();
    wait_for(file, &chunks);
}

#[test]
fn the_worker_after_a_kill_knows_the_files_of_the_part_that_is_here() {
    let fixture = Fixture::of(image());
    let map = map_files(&*fixture.content).unwrap();
    let (chunks, start_at) = largest(&map);
    mount(start(&fixture, policy(0)), &map);
    // The guest has the inodes in its cache, and does not read them again.
    let file = start(&fixture, policy(8));
    read(file, start_at, 4096).unwrap();
    file.follow_files();
    wait_for(file, &chunks);
}

#[test]
fn without_memory_for_hints_reads_are_answered_and_nothing_is_prefetched() {
    let fixture = Fixture::of(image());
    let map = map_files(&*fixture.content).unwrap();
    let (chunks, start_at) = largest(&map);
    let file = start(&fixture, policy(8));
    mount(file, &map);
    file.drop_hints();
    let found = read(file, start_at, 4096).unwrap();
    assert_eq!(found, fixture.content[start_at as usize..][..4096]);
    file.follow_files();
    let last = *chunks.last().unwrap();
    assert!(!file.leaves().is_marked(last));
    file.replace_profile(Profile::from_rows([(last as u32, 9, 0.0)]).unwrap());
    assert!(!file.has_queued());
}

#[test]
fn where_hints_say_what_follows_the_rest_of_a_file_is_not_taken() {
    let profile = Profile::from_rows([(3, 2, 5.0)]).unwrap();
    let prefetcher = Prefetcher::new(9, profile, policy(8));
    assert_eq!(prefetcher.wanted_rest(3), 0);
    assert_eq!(prefetcher.wanted_rest(4), 8);
    assert_eq!(prefetcher.wanted_rest(u64::MAX), 8);
}
