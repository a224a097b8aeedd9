//! What is sampled of requests, epoch by epoch.

use super::*;

fn epoch(setup: &Setup) -> Epoch {
    setup.cache.end_epoch();
    let found = setup.volume().epoch();
    Epoch::clone(&found.unwrap())
}

#[test]
fn curves_of_epochs() {
    let setup = Setup::new(64);
    assert_eq!(None, setup.volume().epoch());
    setup.read(0, 3 * 4096);
    setup.write(4096, 4096, 1);
    let first = epoch(&setup);
    assert_eq!(
        (4, 3, vec![(2, 1)]),
        (first.references, first.distinct, first.hits)
    );
    assert_eq!((0, 1), (first.hit.count, first.miss.count));
    assert!(first.miss.mean_us > 0.0);
    setup.read(0, 4096);
    let second = epoch(&setup);
    // Two other blocks since the reference in the epoch before.
    assert_eq!(
        (1, 1, vec![(3, 1)]),
        (second.references, second.distinct, second.hits)
    );
    assert_eq!((1, 0), (second.hit.count, second.miss.count));
    let idle = epoch(&setup);
    assert_eq!((0, 0, vec![]), (idle.references, idle.distinct, idle.hits));
}

#[test]
fn what_is_not_cached_is_no_reference() {
    let setup = Setup::new(64);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::WriteAround)
        .unwrap();
    setup.write(0, 4096, 1);
    assert_eq!(0, epoch(&setup).references);
    setup.read(0, 4096);
    assert_eq!(1, epoch(&setup).references);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::PassThrough)
        .unwrap();
    setup.read(0, 4096);
    assert_eq!(0, epoch(&setup).references);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::WriteBack)
        .unwrap();
    setup.write(0, 8192, 1);
    assert_eq!(2, epoch(&setup).references);
}

#[test]
fn requests_in_sequence_are_no_references() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
    let attachments = vec![Attachment {
        sequential: 8192,
        ..attachment("v", &origin, 64)
    }];
    let cache = Cache::open(device(&ssd, 64), OPTIONS, attachments).unwrap();
    let setup = Setup { ssd, origin, cache };
    for block in 0..10 {
        setup.read(block * 4096, 4096);
    }
    assert_eq!(2, epoch(&setup).references);
}

#[test]
fn samples_are_as_few_as_they_may_be() {
    let setup = Setup::new(64);
    // More blocks than the 100 that are followed.
    for _ in 0..3 {
        for block in 0..256 {
            setup.read(block * 4096, 4096);
        }
    }
    let found = epoch(&setup);
    assert_eq!(768, found.references);
    assert!(found.sampled < 0.5, "{}", found.sampled);
    assert!((200..=320).contains(&found.distinct), "{}", found.distinct);
}

#[test]
fn nothing_is_followed_without_samples() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
    let attachments = vec![attachment("v", &origin, 64)];
    let options = Options {
        samples: 0,
        ..OPTIONS
    };
    let cache = Cache::open(device(&ssd, 64), options, attachments).unwrap();
    let setup = Setup { ssd, origin, cache };
    setup.read(0, 8192);
    let found = epoch(&setup);
    assert_eq!((0, 0), (found.references, found.distinct));
    assert_eq!(1, found.miss.count);
}
