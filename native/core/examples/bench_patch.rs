//! Creates, applies and reads a patch, and prints what that took.
//!
//! usage: bench_patch BASE TARGET PATCH [LEVEL] [plain]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Instant;

use diffcache_core::patch::{create, verify, CreateOptions};
use diffcache_core::source::FileSource;
use diffcache_core::task::Task;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let open = |i: usize| FileSource::open(Path::new(&args[i])).unwrap();
    let (base, target) = (open(1), open(2));
    let task = Task {
        threads: 1,
        ..Task::default()
    };
    let options = CreateOptions {
        level: args.get(4).map_or(3, |level| level.parse().unwrap()),
        near: args.get(5).is_none_or(|word| word != "plain"),
        task,
        ..CreateOptions::default()
    };
    let made = create(&base, &target, Path::new(&args[3]), &options).unwrap();
    let header = made.header;
    println!(
        "{} bytes, {:.2} CPU-s, {:.2} s; {} MB inserted, {} MB copied",
        header.patch_size,
        header.create_cpu_us as f64 / 1e6,
        header.create_wall_us as f64 / 1e6,
        header.blocks_inserted * 4096 / 1_000_000,
        header.blocks_copied * 4096 / 1_000_000,
    );
    let started = Instant::now();
    verify(&base, &open(3), &task).unwrap();
    println!("verified in {:.2} s", started.elapsed().as_secs_f64());
}
