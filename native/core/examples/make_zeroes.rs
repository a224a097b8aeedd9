//! Writes `src/zeroes.bin`, the chaining values of subtrees of zeroes, to the standard output.
//!
//! What no finer level has is hashed: some 20 minutes of a processor for each 4 TiB.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use diffcache_core::hash_tree::{merge_inner, Hash};
use diffcache_core::task::{for_each_piece, Cancelled, Task};
use diffcache_core::zeroes::{computed, LEVELS};

fn main() {
    let mut finer: (u64, Vec<Hash>) = (1, Vec::new());
    for level in &LEVELS {
        let ratio = level.leaves / finer.0;
        let hash = |at: u64| {
            let parts = finer
                .1
                .get((at * ratio) as usize..((at + 1) * ratio) as usize);
            let hashed = || computed(at * level.leaves, level.leaves);
            Ok::<_, Cancelled>(parts.map_or_else(hashed, merge_inner))
        };
        let hashes = for_each_piece(&Task::default(), level.count, hash).unwrap();
        std::io::stdout().write_all(hashes.as_flattened()).unwrap();
        finer = (level.leaves, hashes);
    }
}
