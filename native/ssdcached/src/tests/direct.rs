//! Cached blocks that are not in the memory of the system, and are read past it where that is possible.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diffcache_faulty::Random;
use diffcache_nbd::protocol::Command;
use diffcache_nbd::server::check_ring;

use super::origin::Origin;
use super::*;
use rustix::fs::statfs;

/// The number of file systems that are in memory alone.
const IN_MEMORY: i64 = 0x0102_1994;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 48;
/// Threads of a volume; each writes blocks of its own, and reads all.
const THREADS: u64 = 3;
/// Requests of a thread at the same time, each to another block.
const TOGETHER: u64 = 12;
const ROUNDS: u64 = 60;

fn device(process: &Process) -> Value {
    process.done(&json!({ "command": "status" }))["status"]["device"].clone()
}

/// What a block has after a write of it.
fn content(block: u64, version: u64) -> Vec<u8> {
    let word = block << 32 | version;
    word.to_le_bytes().repeat(BLOCK / 8)
}

#[test]
fn blocks_past_memory_are_read_and_what_is_not_as_expected_is_of_the_origin() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origin = Origin::new(folder.path(), "v", 8 * BLOCK);
    process.attach("v", &origin, "write-through");
    let mut client = process.connect("v");
    for block in 0..8 {
        let data = content(block, 1);
        client.write(block * BLOCK as u64, &data).unwrap();
    }
    File::open(folder.path().join("ssd"))
        .unwrap()
        .sync_data()
        .unwrap();
    let expected: Vec<u8> = (0..8).flat_map(|block| content(block, 1)).collect();
    for damaged in [false, true] {
        if damaged {
            // The first slots are those of the blocks.
            let path = folder.path().join("ssd");
            let file = File::options().write(true).open(path).unwrap();
            let at = file.metadata().unwrap().len() - u64::from(CAPACITY) * BLOCK as u64;
            file.write_all_at(&[7; 3], at + BLOCK as u64).unwrap();
            file.sync_data().unwrap();
        }
        for (from, length) in [(0, 8 * BLOCK), (4097, 3), (20_000, 5000)] {
            forget_memory(&folder);
            let found = client.read(from as u64, length).unwrap();
            assert!(found == expected[from..from + length], "{from}");
        }
    }
    assert_eq!(1, process.state("v")["corrupted"]);
    let found = device(&process);
    if check_ring().is_err() {
        assert_eq!("threads", found["reads"]);
        assert_eq!(0, found["ring_reads"]);
    } else if statfs(folder.path()).unwrap().f_type != IN_MEMORY {
        assert_eq!("io_uring", found["reads"]);
        // What was read again of the origin is written, and may still be in memory.
        assert!(found["ring_reads"].as_u64() >= Some(4), "{found}");
        assert_eq!(1, found["ring_refused"]);
    }
}

/// The versions of blocks whose writes have begun, and have ended.
struct Versions {
    begun: Vec<AtomicU64>,
    ended: Vec<AtomicU64>,
}

/// A read that is under way, of a block that had this version before.
struct Reading {
    block: u64,
    least: u64,
}

fn work(mut client: Client, versions: &Versions, thread: u64) {
    let mut random = Random::new(thread);
    let mut sent = 0;
    for version in 1..=ROUNDS {
        let first = random.below(BLOCKS);
        let mut reads = HashMap::new();
        let mut writes = HashMap::new();
        for block in (first..first + TOGETHER).map(|block| block % BLOCKS) {
            let place = (block * BLOCK as u64, BLOCK);
            sent += 1;
            if block % THREADS == thread && random.once_in(2) {
                versions.begun[block as usize].store(version, Ordering::SeqCst);
                let data = content(block, version);
                client.send(Command::Write, place, &data).unwrap();
                writes.insert(sent, block);
            } else {
                let least = versions.ended[block as usize].load(Ordering::SeqCst);
                client.send(Command::Read, place, &[]).unwrap();
                reads.insert(sent, Reading { block, least });
            }
        }
        for _ in 0..TOGETHER {
            let length = |number| match reads.contains_key(&number) {
                true => BLOCK,
                false => 0,
            };
            let (number, data) = client.receive_any(length).unwrap();
            match (writes.get(&number), reads.get(&number)) {
                (Some(block), _) => {
                    versions.ended[*block as usize].store(version, Ordering::SeqCst);
                }
                (_, Some(read)) => check(&data, read, versions),
                _ => panic!("an answer to nothing"),
            }
        }
    }
}

fn check(data: &[u8], read: &Reading, versions: &Versions) {
    let version = u64::from(u32::from_le_bytes(data[..4].try_into().unwrap()));
    let most = versions.begun[read.block as usize].load(Ordering::SeqCst);
    assert!(
        (read.least..=most).contains(&version),
        "block {}",
        read.block
    );
    let expected = match version {
        0 => vec![0; BLOCK],
        _ => content(read.block, version),
    };
    assert!(data == expected, "block {}", read.block);
}

/// Says at its end that all is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reads_past_memory_beside_writes_and_evictions_are_never_old_nor_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    // The cache has room for two thirds of them.
    let modes = [("a", "write-through"), ("b", "write-back")];
    let origins = modes.map(|(name, mode)| {
        let origin = Origin::new(folder.path(), name, BLOCKS as usize * BLOCK);
        process.attach(name, &origin, mode);
        origin
    });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if a thread panics.
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                forget_memory(&folder);
                std::thread::yield_now();
            }
        });
        std::thread::scope(|scope| {
            for (name, _) in modes {
                let zeroes = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
                let versions = Arc::new(Versions {
                    begun: zeroes(),
                    ended: zeroes(),
                });
                for thread in 0..THREADS {
                    let client = process.connect(name);
                    let versions = versions.clone();
                    scope.spawn(move || work(client, &versions, thread));
                }
            }
        });
    });
    drop(origins);
}
