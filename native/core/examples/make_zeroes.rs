//! Computes `src/zeroes.bin`: see `diffcache_core::zeroes`. Hashes 4 TiB of zeroes, which takes a quarter of an hour on one core.
//!
//! usage: make_zeroes OUTPUT

// An example has no caller to return errors to.
#![allow(clippy::expect_used)]

use std::io::Write;

use diffcache_core::hash_tree::{merge_inner, Hash};
use diffcache_core::task::{for_each_piece, Cancelled, Task};
use diffcache_core::zeroes::{computed, LEVELS};

fn main() {
    let output = std::env::args_os()
        .nth(1)
        .expect("usage: make_zeroes OUTPUT");
    let mut file = std::fs::File::create(output).expect("cannot create the output");
    let [fine, middle, coarse] = LEVELS;
    let write = |file: &mut std::fs::File, cvs: &[Hash]| {
        file.write_all(&cvs.concat()).expect("cannot write");
    };
    let hash = |leaves: u64, from: u64, to: u64| -> Vec<Hash> {
        for_each_piece(&Task::default(), to - from, |i| {
            Ok::<_, Cancelled>(computed((from + i) * leaves, leaves))
        })
        .expect("it is never cancelled")
    };
    // Where a level is known, the next one follows from it.
    let above = |below: &[Hash]| -> Vec<Hash> { below.chunks(16).map(merge_inner).collect() };
    let mut below = hash(fine.leaves, 0, fine.count);
    write(&mut file, &below);
    for next in [middle, coarse] {
        let mut level = above(&below);
        level.extend(hash(next.leaves, level.len() as u64, next.count));
        write(&mut file, &level);
        below = level;
    }
}
