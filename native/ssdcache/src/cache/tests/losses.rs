//! Origins that lose what was written to them, and report that once.

use std::sync::Mutex;

use diffcache_faulty::{Effect, Fault, Operation, EIO};
use tempfile::TempDir;

use super::*;
use crate::cache::losses::{Losses, Writer};
use crate::cache::ranges::Ranges;
use crate::device::losses::LossNotes;

const KIB_4: u64 = BLOCK as u64;

impl Setup {
    fn flush_it(&self) -> io::Result<()> {
        self.cache.flush(&self.volume())
    }

    fn losses(&self) -> Vec<(u64, u64)> {
        self.status().losses
    }

    /// What the next process finds, after the end of this one at any moment.
    fn kill(self, notes: LossNotes) -> Self {
        let Self { ssd, origin, cache } = self;
        drop(cache);
        let device = Device::open(Box::new(ssd.clone()), 64, PLACE).unwrap();
        let attachments = vec![attachment("v", &origin, 64)];
        let cache = Cache::open(device, OPTIONS, attachments).unwrap();
        let cache = cache.noting_losses(notes);
        Self { ssd, origin, cache }
    }

    fn noting(self, notes: LossNotes) -> Self {
        let cache = self.cache.noting_losses(notes);
        Self { cache, ..self }
    }
}

fn notes(folder: &TempDir) -> LossNotes {
    LossNotes::new(folder.path(), &PLACE.boot)
}

/// A setup whose origin has lost block 1, which had 1 before and was written with 2, unnoticed.
fn after_loss(mode: Mode) -> Setup {
    let setup = Setup::new(64);
    setup.cache.set_mode(&setup.volume(), mode).unwrap();
    setup.origin.write_durably(&[1; BLOCK], KIB_4).unwrap();
    setup.flush_it().unwrap();
    match mode {
        Mode::WriteBack => setup.cache.zero(&setup.volume(), KIB_4, KIB_4).unwrap(),
        _ => setup.write(KIB_4, BLOCK, 2),
    }
    setup.origin.lose(1);
    setup
}

#[test]
fn a_loss_that_the_background_meets_fails_flushes_until_it_was_written_again() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough] {
        let setup = after_loss(mode);
        assert!(setup.cache.settle().is_ok(), "its region was just written");
        assert!(setup.cache.settle().is_err());
        assert_eq!(vec![(KIB_4, KIB_4)], setup.losses());
        for _ in 0..3 {
            assert!(setup.flush_it().is_err());
            assert!(setup.cache.flush_back(&setup.volume()).is_err());
        }
        setup.write(KIB_4 + 100, 50, 3);
        assert!(setup.flush_it().is_err());
        assert_eq!(
            vec![(KIB_4, 100), (KIB_4 + 150, KIB_4 - 150)],
            setup.losses()
        );
        setup.write(0, 3 * BLOCK, 4);
        assert!(!setup.losses().is_empty(), "before the flush");
        setup.flush_it().unwrap();
        assert!(setup.losses().is_empty());
    }
}

#[test]
fn what_passes_write_back_by_is_not_forgotten_when_other_blocks_are_written_back() {
    let setup = after_loss(Mode::WriteBack);
    setup.write(5 * KIB_4, BLOCK, 7);
    assert!(setup.cache.write_back_now(&setup.volume()).is_err());
    setup.cache.write_back_now(&setup.volume()).unwrap();
    assert_eq!(0, setup.status().dirty);
    assert_eq!(vec![(KIB_4, KIB_4)], setup.losses());
    assert!(setup.flush_it().is_err());
    setup.cache.zero(&setup.volume(), KIB_4, KIB_4).unwrap();
    setup.flush_it().unwrap();
    let mut block = [9; BLOCK];
    setup.origin.read_at(&mut block, 5 * KIB_4).unwrap();
    assert_eq!([7; BLOCK], block);
}

#[test]
fn what_write_back_takes_again_is_no_loss_but_the_rest_of_its_block_is() {
    let setup = after_loss(Mode::WriteBack);
    assert!(setup.flush_it().is_err());
    setup.write(KIB_4 + 512, 1024, 7);
    assert!(setup.flush_it().is_err());
    let rest = vec![(KIB_4, 512), (KIB_4 + 1536, KIB_4 - 1536)];
    assert_eq!(rest, setup.losses());
    setup.cache.write_back_now(&setup.volume()).unwrap();
    assert!(setup.flush_it().is_err());
    assert_eq!(rest, setup.losses());
    setup.write(KIB_4, BLOCK, 8);
    setup.flush_it().unwrap();
    assert!(setup.losses().is_empty());
}

#[test]
fn dirty_blocks_are_no_loss_and_stay_dirty_whoever_meets_the_error() {
    let setup = Setup::new(64);
    let volume = setup.volume();
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
    setup.write(0, 3 * BLOCK, 7);
    setup.origin.lose(1);
    assert!(setup.cache.write_back_now(&volume).is_err());
    assert_eq!((3, Vec::new()), (setup.status().dirty, setup.losses()));
    setup.flush_it().unwrap();
    setup.cache.flush_back(&volume).unwrap();
    assert_eq!(0, setup.status().dirty);
    let mut blocks = [0; 3 * BLOCK];
    setup.origin.read_at(&mut blocks, 0).unwrap();
    assert_eq!([7; 3 * BLOCK], blocks);
}

#[test]
fn what_a_server_still_had_in_memory_after_a_loss_is_not_cached_once_the_loss_has_ended() {
    let accept: fn(&Cache, &Volume) = Cache::accept_loss;
    for end in [accept, Cache::end_guest] {
        let setup = after_loss(Mode::WriteThrough);
        setup.origin.serve_from_elsewhere();
        assert!(setup.flush_it().is_err());
        assert_eq!(vec![2; BLOCK], setup.read(KIB_4, BLOCK));
        setup.origin.evict();
        end(&setup.cache, &setup.volume());
        assert_eq!(vec![1; BLOCK], setup.read(KIB_4, BLOCK));
    }
}

#[test]
fn what_is_read_after_a_loss_is_what_the_origin_has() {
    let setup = after_loss(Mode::WriteThrough);
    assert_eq!(vec![2; BLOCK], setup.read(KIB_4, BLOCK));
    assert!(setup.flush_it().is_err());
    for _ in 0..2 {
        assert_eq!(vec![1; BLOCK], setup.read(KIB_4, BLOCK));
        setup.cache.invalidate(&setup.volume(), false).unwrap();
    }
}

#[test]
fn a_loss_outlasts_the_process_but_not_the_guest() {
    let folder = tempfile::tempdir().unwrap();
    let setup = after_loss(Mode::WriteThrough).noting(notes(&folder));
    assert!(setup.flush_it().is_err());
    let setup = setup.kill(notes(&folder)).kill(notes(&folder));
    assert_eq!(vec![(KIB_4, KIB_4)], setup.losses());
    assert!(setup.flush_it().is_err());
    // Another start of the host.
    let later = LossNotes::new(folder.path(), &[9; 16]);
    assert!(later
        .read(setup.volume().attachment.origin)
        .unwrap()
        .is_empty());
    setup.cache.end_guest(&setup.volume());
    setup.flush_it().unwrap();
    let setup = setup.kill(notes(&folder));
    setup.flush_it().unwrap();
}

#[test]
fn a_loss_ends_when_it_is_accepted_or_the_volume_detached() {
    let folder = tempfile::tempdir().unwrap();
    let setup = after_loss(Mode::WriteThrough).noting(notes(&folder));
    assert!(setup.flush_it().is_err());
    setup.cache.accept_loss(&setup.volume());
    setup.flush_it().unwrap();
    setup.write(0, BLOCK, 5);
    setup.origin.lose(1);
    assert!(setup.flush_it().is_err());
    setup.cache.detach(&setup.volume(), false).unwrap();
    assert_eq!(0, std::fs::read_dir(folder.path()).unwrap().count());
}

#[test]
fn what_a_guest_left_unflushed_is_no_loss_of_the_next_one() {
    let setup = after_loss(Mode::WriteThrough);
    setup.cache.end_guest(&setup.volume());
    setup.flush_it().unwrap();
    assert_eq!(vec![1; BLOCK], setup.read(KIB_4, BLOCK));
}

#[test]
fn a_note_that_cannot_be_read_is_taken_for_the_loss_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let setup = after_loss(Mode::WriteThrough).noting(notes(&folder));
    assert!(setup.flush_it().is_err());
    let [note] = [std::fs::read_dir(folder.path()).unwrap().next()];
    std::fs::write(note.unwrap().unwrap().path(), "torn").unwrap();
    let setup = setup.kill(notes(&folder));
    assert_eq!(vec![(0, 1 << 20)], setup.losses());
}

#[test]
fn what_a_killed_cache_had_not_flushed_is_lost_with_an_origin_that_may_have_ended_too() {
    for (remote, flushed) in [(true, false), (true, true), (false, false)] {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(64).noting(notes(&folder));
        if remote {
            setup.origin.serve_from_elsewhere();
        }
        setup.write(0, BLOCK, 1);
        setup.flush_it().unwrap();
        setup.write(KIB_4, BLOCK, 2);
        if flushed {
            setup.flush_it().unwrap();
        }
        let setup = setup.kill(notes(&folder));
        let is_lost = remote && !flushed;
        assert_eq!(is_lost, !setup.losses().is_empty(), "{remote} {flushed}");
        assert_eq!(is_lost, setup.flush_it().is_err());
        // The intents are cleared, and the loss stays.
        setup.cache.settle().unwrap();
        let setup = setup.kill(notes(&folder));
        assert_eq!(is_lost, setup.flush_it().is_err());
        setup.cache.accept_loss(&setup.volume());
        setup.flush_it().unwrap();
    }
}

#[test]
fn a_local_origin_that_loses_what_a_killed_cache_wrote_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(64).noting(notes(&folder));
    setup.write(0, BLOCK, 1);
    let setup = setup.kill(notes(&folder));
    setup.origin.lose(1);
    assert!(setup.flush_it().is_err());
    assert!(setup.flush_it().is_err());
    assert_eq!(vec![(0, 1 << 20)], setup.losses());
}

#[test]
fn one_failing_origin_does_not_keep_the_intents_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (MemoryDisk::new(1 << 20), MemoryDisk::new(1 << 20));
    let ssd = MemoryDisk::new(4 << 20);
    let attachments = vec![attachment("a", &one, 32), attachment("b", &other, 32)];
    let cache = Cache::open(device(&ssd, 64), OPTIONS, attachments).unwrap();
    let cache = cache.noting_losses(notes(&folder));
    let volumes = cache.volumes();
    for volume in &volumes {
        cache.write(volume, &[1; BLOCK], 0).unwrap();
    }
    one.fail(true);
    let has = |volume: &Volume| cache.device.intents().has(volume.record, 0);
    cache.settle().unwrap();
    let error = cache.settle().unwrap_err();
    assert!(error.starts_with("volume a: "), "{error}");
    assert_eq!([true, false], [has(&volumes[0]), has(&volumes[1])]);
    one.fail(false);
    cache.settle().unwrap();
    assert!(!has(&volumes[0]));
}

#[test]
fn an_origin_that_is_away_loses_nothing_while_nothing_is_written() {
    let setup = Setup::new(64);
    setup.origin.fail(true);
    assert!(
        setup.flush_it().is_err(),
        "an earlier process may have written"
    );
    setup.origin.fail(false);
    setup.flush_it().unwrap();
    setup.origin.fail(true);
    setup.flush_it().unwrap();
    assert!(setup.losses().is_empty());
}

/// Regression: what a request past the cache had written was no loss where its block was dirty, though
/// only a part of it was written since, and the rest is what the origin had after the loss.
#[test]
fn a_block_that_became_dirty_since_is_lost_but_for_what_was_written() {
    let setup = after_loss(Mode::WriteBack);
    setup.write(KIB_4 + 512, 1024, 7);
    let rest = vec![(KIB_4, 512), (KIB_4 + 1536, KIB_4 - 1536)];
    for _ in 0..2 {
        assert!(setup.flush_it().is_err());
        assert_eq!(rest, setup.losses());
    }
}

/// Regression: a start took what was lost for written again where its block is dirty.
#[test]
fn a_loss_of_a_part_of_a_dirty_block_outlasts_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let setup = after_loss(Mode::WriteBack).noting(notes(&folder));
    assert!(setup.flush_it().is_err());
    setup.write(KIB_4 + 512, 1024, 7);
    let setup = setup.kill(notes(&folder));
    assert_eq!(
        (1, vec![(KIB_4, KIB_4)]),
        (setup.status().dirty, setup.losses())
    );
    setup.cache.write_back_now(&setup.volume()).unwrap();
    assert!(setup.flush_it().is_err());
}

/// Regression: what was lost while an earlier loss was accepted was forgotten with it.
#[test]
fn what_is_lost_again_while_a_loss_is_accepted_stays_lost() {
    let losses = Losses::default();
    losses.add(&set(0..30), 100);
    assert_eq!(set(0..30), losses.begin_forgetting());
    losses.add(&set(20..40), 100);
    losses.end_forgetting();
    assert_eq!(set(20..40), losses.lost());
    losses.begin_forgetting();
    losses.end_forgetting();
    assert!(losses.lost().is_empty());
}

/// Regression: a note that was begun before a loss could replace the one of that loss.
#[test]
fn the_last_note_has_all_that_is_lost() {
    let losses = &Losses::default();
    let noted = &Mutex::new(Vec::new());
    let lose = |start| {
        losses.add(&set(start..start + 5), 100_000);
        let write = |lost: &[Range<u64>]| {
            std::thread::yield_now();
            *noted.lock().unwrap() = lost.to_vec();
            Ok(())
        };
        losses.note(write).unwrap();
    };
    for n in 0..500 {
        std::thread::scope(|scope| {
            scope.spawn(|| lose(n * 20));
            scope.spawn(|| lose(n * 20 + 10));
        });
        assert_eq!(
            losses.lost().iter().collect::<Vec<_>>(),
            *noted.lock().unwrap()
        );
    }
}

/// Regression: a write that had to write others back, or a trim of dirty blocks, failed because that
/// met what the origin had lost before, though it can be written.
#[test]
fn a_request_that_needs_a_flush_does_not_fail_of_what_was_lost_before() {
    let lost = vec![(KIB_4, KIB_4)];
    let setup = after_loss(Mode::WriteBack);
    setup.cache.set_limit(&setup.volume(), 20).unwrap();
    (2..60).for_each(|block| setup.write(block * KIB_4, BLOCK, 7));
    assert_eq!(lost, setup.losses());
    assert!(setup.flush_it().is_err());

    let setup = after_loss(Mode::WriteBack);
    setup.write(2 * KIB_4, BLOCK, 7);
    setup.cache.zero(&setup.volume(), 2 * KIB_4, KIB_4).unwrap();
    assert_eq!((0, lost), (setup.status().dirty, setup.losses()));
    assert!(setup.flush_it().is_err());
}

/// Regression: after a flush that failed the origin was not flushed again while nothing was written,
/// and a client that read what a server still had in its memory lost it after a flush that succeeded.
#[test]
fn a_flush_after_a_loss_was_accepted_makes_durable_what_is_read() {
    let setup = Setup::new(64);
    setup.origin.write_durably(&[1; BLOCK], KIB_4).unwrap();
    setup.flush_it().unwrap();
    setup.write(KIB_4, BLOCK, 2);
    let fails = Fault::new(Operation::Sync, Effect::Error(EIO));
    setup.origin.inject(fails.times(1));
    assert!(setup.flush_it().is_err());
    setup.cache.accept_loss(&setup.volume());
    let found = setup.read(KIB_4, BLOCK);
    setup.flush_it().unwrap();
    setup.origin.cut(|_| 0);
    assert_eq!(found, setup.origin.content()[BLOCK..2 * BLOCK]);
}

/// An origin that fails for ever does not keep its volume.
#[test]
fn a_volume_whose_loss_is_known_is_detached_though_its_origin_still_fails() {
    let setup = Setup::new(64);
    setup.write(KIB_4, BLOCK, 2);
    let fails = Fault::new(Operation::Sync, Effect::Error(EIO));
    setup.origin.inject(fails);
    assert!(setup.cache.detach(&setup.volume(), false).is_err());
    setup.cache.detach(&setup.volume(), false).unwrap();
}

fn set(range: Range<u64>) -> Ranges {
    std::iter::once(range).collect()
}

#[test]
fn a_write_under_way_is_not_flushed() {
    let losses = Losses::default();
    let done = losses.begin(0..10, Writer::Client);
    losses.end(done, true, 100);
    let late = losses.begin(20..30, Writer::Client);
    losses.begin_flush();
    losses.end(late, true, 100);
    assert!(!losses.end_flush());
    let flushes = losses.flushes();
    assert!(losses.is_needed(flushes));
    losses.begin_flush();
    assert_eq!(set(20..30), losses.fail_flush().by_clients);
}

#[test]
fn a_write_that_began_before_a_failure_brings_nothing_back() {
    let losses = Losses::default();
    let before = losses.begin(0..10, Writer::Client);
    losses.begin_flush();
    let lost = losses.fail_flush().by_clients;
    assert_eq!(set(0..10), lost);
    losses.add(&lost, 100);
    losses.end(before, true, 100);
    losses.begin_flush();
    assert!(!losses.end_flush());
    assert_eq!(Some(0), losses.first());
    let failed = losses.begin(0..10, Writer::Client);
    losses.end(failed, false, 100);
    losses.begin_flush();
    let late = losses.begin(0..7, Writer::Client);
    losses.end(late, true, 100);
    assert!(!losses.end_flush(), "it was complete after the flush began");
    losses.begin_flush();
    assert!(losses.end_flush());
    assert_eq!(set(7..10), losses.lost());
}

#[test]
fn a_flush_that_began_after_a_request_came_covers_it() {
    let losses = Losses::default();
    let came = losses.flushes();
    let write = losses.begin(0..10, Writer::Client);
    losses.begin_flush();
    losses.end_flush();
    losses.end(write, true, 100);
    assert!(!losses.is_needed(came));
    assert!(losses.is_needed(losses.flushes()));
}

#[test]
fn what_the_cache_has_since_is_flushed_and_no_loss() {
    let losses = Losses::default();
    losses.begin_flush();
    losses.end_flush();
    let write = losses.begin(0..10, Writer::Client);
    losses.end(write, true, 100);
    losses.note_cached(&(0..10));
    assert!(losses.is_needed(losses.flushes()));
    losses.begin_flush();
    assert_eq!(Ranges::default(), losses.fail_flush().by_clients);
}

#[test]
fn very_many_places_become_regions_that_end_with_the_volume() {
    let losses = Losses::default();
    let size = 5000 * 8192 + 10;
    for n in 0..5000 {
        let write = losses.begin(n * 8192..n * 8192 + 512, Writer::Client);
        losses.end(write, true, size);
    }
    losses.begin_flush();
    let lost = losses.fail_flush().by_clients;
    assert!(lost.len() <= 1025, "{}", lost.len());
    let end = lost.iter().last().map(|range| range.end);
    assert!(end.is_some_and(|end| end <= size), "{end:?}");
    assert!((0..5000).all(|n| !lost.common(&(n * 8192..n * 8192 + 512)).is_empty()));
}
