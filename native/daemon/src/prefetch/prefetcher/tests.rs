//! Tests of what is fetched before it is read.

use diffcache_base::locks::Unpoisoned;

use super::*;

/// Take and end fetches until nothing is queued, and return what was fetched.
fn fetch_all(prefetcher: &Prefetcher, there: &mut HashSet<Chunk>) -> Vec<Chunk> {
    let mut fetched = Vec::new();
    while !prefetcher.is_idle() {
        let chunk = prefetcher.next(|chunk| there.contains(&chunk));
        there.insert(chunk);
        prefetcher.done(chunk, true);
        fetched.push(chunk);
    }
    fetched
}

/// Regression: chunks that one host had invented were fetched before all others, 2 GiB of which nothing was read.
#[test]
fn hints_of_which_nothing_is_read_are_left_alone() {
    let invented = (0..8192).map(|chunk| (chunk, 16, 0.0));
    let policy = Policy {
        in_flight: 1,
        read_ahead: 0,
        ..Policy::default()
    };
    let profile = Profile::from_rows(invented).unwrap();
    let prefetcher = Prefetcher::new(20_000, profile, policy);
    let mut there = HashSet::from([10_000]);
    prefetcher.note_read(1, 10_000..10_001);
    let fetched = fetch_all(&prefetcher, &mut there);
    assert_eq!(fetched.len() as u64, UNPROVEN + 1);
    // What other hosts count is no proof either.
    prefetcher.learn((8192..9000).map(|chunk| (chunk, 99, 0.0)).collect());
    assert!(prefetcher.is_idle());
    // What is read is: the others follow.
    prefetcher.note_read(1, 0..3);
    assert!(fetch_all(&prefetcher, &mut there).len() as u64 >= FOR_EACH_READ);
}

#[test]
fn all_hints_are_followed_of_which_enough_is_read() {
    let rows = (0..2000).map(|chunk| (chunk, 2, f64::from(chunk)));
    let profile = Profile::from_rows(rows).unwrap();
    let policy = Policy {
        in_flight: 1,
        read_ahead: 0,
        ..Policy::default()
    };
    let prefetcher = Prefetcher::new(2000, profile, policy);
    let mut there = HashSet::new();
    for chunk in (0..2000).step_by(4) {
        there.insert(chunk);
        prefetcher.note_read(1, u64::from(chunk)..u64::from(chunk) + 1);
        fetch_all(&prefetcher, &mut there);
    }
    assert_eq!(there.len(), 2000);
}

fn prefetcher(in_flight: usize) -> Prefetcher {
    let profile = Profile::from_rows([(5, 2, 9.0), (7, 3, 50.0), (8, 3, 20.0)]).unwrap();
    let policy = Policy {
        in_flight,
        read_ahead: 2,
        ..Policy::default()
    };
    Prefetcher::new(100, profile, policy)
}

/// Return the chunks to fetch now, without waiting.
fn take(prefetcher: &Prefetcher) -> Option<Chunk> {
    prefetcher.state.lock().unpoisoned().queue.next(|_| false)
}

#[test]
fn begins_with_the_first_read_most_frequent_then_earliest_first() {
    let prefetcher = prefetcher(3);
    assert_eq!(None, take(&prefetcher));
    prefetcher.begin();
    prefetcher.begin();
    let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
    assert_eq!(vec![8, 7, 5], found);
}

#[test]
fn another_profile_takes_the_place_of_what_waits() {
    let prefetcher = prefetcher(9);
    let rows = [(1, 1, 9.0), (2, 100, 9.0), (3, 10, 9.0), (4, 9, 0.0)];
    prefetcher.begin();
    assert_eq!(Some(8), take(&prefetcher));
    prefetcher.replace(Profile::from_rows(rows).unwrap());
    // A tenth of the instances at least.
    let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
    assert_eq!(vec![2, 3], found);
    // What failed and is no longer known is not queued again.
    prefetcher.done(8, false);
    prefetcher.done(2, false);
    assert_eq!(Some(2), take(&prefetcher));
    assert_eq!(None, take(&prefetcher));
}

#[test]
fn the_threshold_says_which_chunks_are_hints() {
    let rows = [(1, 1, 9.0), (2, 10, 8.0), (3, 5, 9.0), (4, 4, 9.0)];
    let given = |threshold: f64| {
        let policy = Policy {
            threshold: Threshold::new(threshold).unwrap(),
            ..Policy::default()
        };
        let profile = Profile::from_rows(rows).unwrap();
        let prefetcher = Prefetcher::new(100, profile, policy);
        prefetcher.begin();
        let chunks = || {
            std::iter::from_fn(|| {
                let chunk = take(&prefetcher)?;
                prefetcher.done(chunk, true);
                Some(chunk)
            })
        };
        let of_profile: Vec<_> = chunks().collect();
        prefetcher.learn(vec![(50, 3, 1.0), (51, 9, 2.0)]);
        (of_profile, chunks().collect::<Vec<_>>())
    };
    // A share of the instances that read the most frequent chunk, or a number.
    assert_eq!((vec![2, 3, 4, 1], vec![51, 50]), given(0.1));
    assert_eq!((vec![2, 3], vec![51]), given(0.5));
    assert_eq!((vec![2, 3, 4], vec![51]), given(4.0));
    assert_eq!((vec![], vec![]), given(11.0));
}

#[test]
fn a_profile_that_comes_before_the_first_read_waits_for_it() {
    let prefetcher = prefetcher(9);
    prefetcher.replace(Profile::from_rows([(2, 1, 9.0)]).unwrap());
    assert_eq!(None, take(&prefetcher));
    prefetcher.note_read(1, 50..51);
    assert_eq!(Some(2), take(&prefetcher));
    assert_eq!(None, take(&prefetcher));
}

#[test]
fn what_hosts_have_read_is_prefetched_once() {
    let prefetcher = Prefetcher::new(100, Profile::default(), Policy::default());
    let take = || std::iter::from_fn(|| take(&prefetcher));
    prefetcher.learn(vec![(4, 1, 20.0), (5, 1, 9.0)]);
    assert_eq!(None, take().next());
    prefetcher.begin();
    assert_eq!(vec![5, 4], Vec::from_iter(take()));
    (0..2).for_each(|_| prefetcher.done(4, true));
    prefetcher.learn(vec![(4, 2, 20.0), (6, 1, 9.0)]);
    assert_eq!(vec![6], Vec::from_iter(take()));
    assert!(prefetcher.was_taught(6));
    prefetcher.done(6, false);
    assert_eq!(Some(6), take().next());
}

#[test]
fn few_readers_are_no_hint_where_others_have_many() {
    let prefetcher = Prefetcher::new(100, Profile::default(), Policy::default());
    prefetcher.begin();
    // One waits while the count of another rises: it is no longer a hint.
    prefetcher.learn(vec![(4, 1, 20.0)]);
    prefetcher.learn(vec![(5, 11, 20.0), (6, 2, 20.0), (7, 1, 20.0)]);
    assert_eq!(
        vec![5, 6],
        Vec::from_iter(std::iter::from_fn(|| take(&prefetcher)))
    );
    assert!(!prefetcher.was_taught(4));
}

#[test]
fn instances_in_the_profile_and_among_hosts_count_once() {
    let prefetcher = prefetcher(9);
    prefetcher.begin();
    // The profile has chunk 7 three times.
    prefetcher.learn(vec![(7, 2, 1.0), (8, 4, 20.0), (9, 1, 1.0)]);
    assert_eq!(3, prefetcher.state.lock().unpoisoned().known.get(7).count);
    assert!(!prefetcher.was_taught(8) && prefetcher.was_taught(9));
    // Another profile: what hosts know remains.
    prefetcher.replace(Profile::from_rows([(8, 1, 9.0), (2, 3, 9.0)]).unwrap());
    let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
    assert_eq!(vec![8, 2, 7, 9], found);
}

#[test]
fn before_a_read_the_profile_alone_is_fetched() {
    let prefetcher = prefetcher(9);
    let take = || std::iter::from_fn(|| take(&prefetcher));
    prefetcher.begin_profile();
    assert_eq!(vec![8, 7, 5], Vec::from_iter(take()));
    prefetcher.learn(vec![(20, 9, 1.0)]);
    prefetcher.replace(Profile::from_rows([(6, 1, 9.0)]).unwrap());
    assert_eq!(vec![6], Vec::from_iter(take()));
    prefetcher.done(20, false);
    assert_eq!(None, take().next());
    prefetcher.note_read(1, 50..51);
    assert_eq!(vec![20, 6], Vec::from_iter(take()));
    prefetcher.note_read(1, 60..61);
    assert_eq!(None, take().next());
}

#[test]
fn counts_of_the_site_drop_no_chunk_of_the_profile() {
    let prefetcher = prefetcher(9);
    prefetcher.begin();
    prefetcher.learn(vec![(20, 1000, 1.0), (21, 3, 1.0)]);
    let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
    assert_eq!(vec![20, 8, 7, 5], found);
    prefetcher.done(5, false);
    assert_eq!(Some(5), take(&prefetcher));
}

#[test]
fn a_chunk_that_was_left_to_another_fetch_is_queued_again() {
    let prefetcher = prefetcher(3);
    prefetcher.begin_profile();
    let next = |there: Chunk| {
        prefetcher
            .state
            .lock()
            .unpoisoned()
            .queue
            .next(|chunk| chunk == there)
    };
    assert_eq!([Some(7), Some(5), None], [next(8), next(8), next(8)]);
    [7, 5]
        .iter()
        .for_each(|chunk| prefetcher.done(*chunk, true));
    prefetcher.queue_absent(|chunk| chunk != 8);
    assert_eq!([Some(8), None], [next(0), next(0)]);
}

#[test]
fn a_miss_stops_it_until_the_last_is_served() {
    let prefetcher = prefetcher(3);
    let one = prefetcher.enter_miss();
    let other = prefetcher.enter_miss();
    prefetcher.begin();
    assert_eq!(None, take(&prefetcher));
    drop(one);
    assert_eq!(None, take(&prefetcher));
    drop(other);
    assert_eq!(Some(8), take(&prefetcher));
}

#[test]
fn few_are_in_flight_and_a_failed_one_is_queued_again() {
    let prefetcher = prefetcher(1);
    prefetcher.begin();
    assert_eq!(Some(8), take(&prefetcher));
    assert_eq!(None, take(&prefetcher));
    prefetcher.done(8, false);
    assert_eq!(Some(8), take(&prefetcher));
    prefetcher.done(8, true);
    assert_eq!(7, prefetcher.next(|_| false));
}

#[test]
fn sequences_are_those_of_a_handle() {
    let prefetcher = prefetcher(3);
    prefetcher.begin();
    assert_eq!(3, std::iter::from_fn(|| take(&prefetcher)).count());
    [5, 7, 8]
        .iter()
        .for_each(|chunk| prefetcher.done(*chunk, true));
    for chunk in 20..23 {
        prefetcher.note_read(chunk, chunk..chunk + 1);
    }
    assert_eq!(None, take(&prefetcher));
    prefetcher.note_read(1, 30..33);
    assert_eq!(Some(33), take(&prefetcher));
    assert_eq!(Some(34), take(&prefetcher));
    prefetcher.forget(1);
    assert!(!prefetcher
        .state
        .lock()
        .unpoisoned()
        .sequences
        .contains_key(&1));
}

#[test]
fn is_idle_when_all_is_done() {
    let prefetcher = prefetcher(3);
    prefetcher.begin();
    while let Some(chunk) = take(&prefetcher) {
        prefetcher.done(chunk, true);
    }
    prefetcher.wait_until_idle();
}
