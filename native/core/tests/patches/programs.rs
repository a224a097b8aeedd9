//! Patches between builds of a program, which move bytes and change numbers: near copies.

use super::*;

/// Machine code and tables, as far as it matters here: noise with numbers in it that count up, each of four bytes.
fn program(seed: u64, len: usize, shift: u32) -> Vec<u8> {
    let mut bytes = noise(seed, len);
    for (n, place) in (0u32..).zip((0..len - 4).step_by(29)) {
        let number = 0x40_0000 + n * 24 + if n > 100 { shift } else { 0 };
        bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// A program, and its next build: some bytes more here and fewer there, and other addresses behind.
fn next_build(seed: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let old = program(seed, len, 0);
    let new = program(seed, len, 0x1234);
    let target = [
        &new[..len / 3],
        &noise(seed + 1, 777),
        &new[len / 3..len / 2],
        &new[len / 2 + 1001..],
    ]
    .concat();
    (old, target)
}

/// Returns the most that reading any 256 KiB costs.
fn worst_window(base: &[u8], patch: &[u8]) -> u64 {
    let view = PatchView::open(&base, &patch, None).unwrap();
    let blocks = block_count(view.len());
    let cost = |first: u32| {
        let (from_base, from_patch) = view.patch().read_cost(first, (first + 64).min(blocks));
        from_base + from_patch
    };
    (0..blocks).map(cost).max().unwrap()
}

#[test]
fn the_next_build_of_a_program_costs_what_changed() {
    let (base, target) = next_build(1, 3_000_000);
    for level in [1, 3, 19] {
        let patch = make(&base, &target, level);
        // As literals, the noise takes all of its three million bytes.
        assert!(patch.len() < 150_000, "{} bytes", patch.len());
        assert!(worst_window(&base, &patch) <= 512 << 10);
        assert!(rebuild_by_sink(&base, &patch, &manifest(&target)).unwrap() == target);
    }
}

#[test]
fn windows_stay_cheap_where_near_copies_alternate_with_all_else() {
    // Pieces of one block to forty, from anywhere in the base, moved by some bytes; noise, equal blocks and zeroes between.
    let base = program(3, 4 << 20, 0);
    let (mut target, mut seed) = (Vec::new(), 1u64);
    while target.len() < 6 << 20 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        let number = (seed >> 33) as usize;
        let len = (1 + number % 40) * BLOCK;
        let from = (number / 40 * 61) % (base.len() - len);
        match number % 7 {
            0 => target.extend(noise(seed, len)),
            1 => target.extend(&base[from / BLOCK * BLOCK..][..len]),
            2 => target.resize(target.len() + BLOCK, 0),
            _ => target.extend(&base[from..from + len]),
        }
    }
    let patch = make(&base, &target, 3);
    assert!(patch.len() < target.len() / 3, "{} bytes", patch.len());
    let worst = worst_window(&base, &patch);
    assert!(worst <= 512 << 10, "{worst} bytes");
    assert!(rebuild_by_sink(&base, &patch, &manifest(&target)).unwrap() == target);
}

#[test]
fn near_copies_can_be_left_out() {
    let (base, target) = next_build(5, 300_000);
    let files = Files::new();
    let options = CreateOptions {
        near: false,
        ..CreateOptions::default()
    };
    create(&base, &target, &files.path("patch"), &options).unwrap();
    let patch = std::fs::read(files.path("patch")).unwrap();
    assert!(patch.len() > 2 * make(&base, &target, 3).len());
    assert!(rebuild_by_sink(&base, &patch, &manifest(&target)).unwrap() == target);
}

#[test]
fn few_new_blocks_take_no_more_than_without_near_copies() {
    let base = noise(1, 32 << 20);
    let mut target = base.clone();
    let text: Vec<u8> = (0..256 * 1024u32)
        .flat_map(|line| (line / 7 * 7919 % 1000).to_string().into_bytes())
        .collect();
    // A twentieth is new, in stretches that compress well together.
    for (at, part) in (0..).step_by(1 << 20).zip(text.chunks_exact(14 * BLOCK)) {
        target[at..at + part.len()].copy_from_slice(part);
    }
    let files = Files::new();
    let options = CreateOptions {
        near: false,
        ..CreateOptions::default()
    };
    let plain = create(&base, &target, &files.path("plain"), &options).unwrap();
    let patch = make(&base, &target, 3);
    assert!(patch.len() as u64 <= plain.header.patch_size);
}

#[test]
fn a_patch_does_not_depend_on_the_number_of_threads() {
    let (base, target) = next_build(7, 6_000_000);
    let [one, four] = [1, 4].map(|threads| {
        let files = Files::new();
        let options = CreateOptions {
            task: Task {
                threads,
                ..Task::default()
            },
            ..CreateOptions::default()
        };
        create(&base, &target, &files.path("patch"), &options).unwrap();
        std::fs::read(files.path("patch")).unwrap()
    });
    // The header has the times.
    assert!(one[288..] == four[288..]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edited_programs_are_rebuilt(edits in prop::collection::vec((0..400_000usize, 0..3000usize, 0..3000usize, any::<u64>()), 0..12), level in prop_oneof![Just(1), Just(3)]) {
        let base = program(11, 400_000, 0);
        let mut target = program(11, 400_000, 0x77);
        for (at, removed, added, seed) in edits {
            let at = at.min(target.len());
            let end = (at + removed).min(target.len());
            target.splice(at..end, noise(seed, added));
        }
        let patch = make(&base, &target, level);
        prop_assert!(rebuild_by_sink(&base, &patch, &manifest(&target)).unwrap() == target);
        prop_assert!(worst_window(&base, &patch) <= 512 << 10);
        let files = Files::new();
        let image = files.write("image", &base);
        let patch = files.write("patch", &patch);
        apply_in_place(&image, &patch, &files.path("journal"), &Task::default()).unwrap();
        prop_assert!(std::fs::read(&image).unwrap() == target);
    }
}

/// What a journal of a file system has: the same again and again, at any offset, of which the base has a little.
#[test]
fn what_repeats_in_the_target_is_not_torn_apart_for_a_little_of_the_base() {
    let period = noise(5, 20_011);
    let target: Vec<u8> = period.iter().copied().cycle().take(4 << 20).collect();
    let base = [noise(6, 100_001), period[9_000..12_000].to_vec()].concat();
    let patch = make(&base, &target, 3);
    assert!(patch.len() < 40_000, "{}", patch.len());
    assert!(worst_window(&base, &patch) <= 512 << 10);
    let target_manifest = manifest(&target);
    assert!(rebuild_by_sink(&base, &patch, &target_manifest).unwrap() == target);
}
