//! Small scenarios with times worked out by hand: a chunk of 1000 bytes takes 1 ms on the WAN and
//! 0.1 ms on the LAN, round trips are 10 ms and 2 ms.

use diffcache_prefetch::{FileExtent, Files, Policy, Threshold};

use super::*;

const US: u64 = 1000;

/// Think time in microseconds, offset, length.
type Row = (u64, u64, u64);

fn scenario(traces: &[(u64, &[Row])]) -> Scenario {
    let instances = traces.iter().map(|(start_us, reads)| Trace {
        start_ns: start_us * US,
        reads: reads
            .iter()
            .map(|&(think_us, offset, length)| Read {
                think_ns: think_us * US,
                offset,
                length,
            })
            .collect(),
    });
    Scenario {
        image_bytes: 3500,
        chunk_bytes: 1000,
        striped: false,
        links: Links {
            wan_mbps: 8.0,
            wan_rtt_ms: 10.0,
            lan_mbps: 80.0,
            lan_rtt_ms: 2.0,
        },
        instances: instances.collect(),
        profile: None,
        policy: Policy {
            threshold: Threshold::new(2.0).unwrap(),
            ..Policy::default()
        },
        files: Files::default(),
        layout: Layout::default(),
        fan_out: 2,
    }
}

fn run(scenario: &Scenario, mode: Mode) -> Report {
    replay(scenario, mode, &mut |_| {}).unwrap()
}

fn events(scenario: &Scenario, mode: Mode) -> Vec<Event> {
    let mut events = Vec::new();
    replay(scenario, mode, &mut |event| events.push(event)).unwrap();
    events
}

fn boots_us(report: &Report) -> Vec<u64> {
    report.boots.iter().map(|boot| boot.boot_ns / US).collect()
}

#[test]
fn a_home_fetches_its_own_chunk_over_the_wan() {
    let alone = scenario(&[(7, &[(100, 0, 1)])]);
    let report = run(&alone, Mode::OnDemand);
    assert_eq!(vec![100 + 5000 + 1000 + 5000], boots_us(&report));
    assert_eq!(11_000 * US, report.boots[0].stall_ns);
    assert_eq!((1000, 0), (report.wan_bytes, report.lan_bytes));
    assert_eq!(
        vec![(0, 1, 100.0)],
        report.profile.rows().collect::<Vec<_>>()
    );
}

#[test]
fn the_last_chunk_is_as_short_as_the_image_says() {
    let alone = scenario(&[(0, &[(0, 3400, 100)])]);
    assert_eq!(
        vec![5000 + 500 + 5000],
        boots_us(&run(&alone, Mode::OnDemand))
    );
}

#[test]
fn others_get_a_chunk_from_its_home() {
    // Chunk 1 has its home at instance 1, which reads nothing.
    let two = scenario(&[(0, &[(0, 1000, 1)]), (0, &[])]);
    let report = run(&two, Mode::OnDemand);
    let by_wan = 1000 + 5000 + 1000 + 5000;
    assert_eq!(vec![by_wan + 100 + 1000, 0], boots_us(&report));
    assert_eq!((1000, 1000), (report.wan_bytes, report.lan_bytes));
    let striped = Scenario {
        striped: true,
        ..two
    };
    let report = run(&striped, Mode::OnDemand);
    assert_eq!(vec![1000 + 100 + 1000, 0], boots_us(&report));
    assert_eq!((0, 1000), (report.wan_bytes, report.lan_bytes));
}

#[test]
fn a_chunk_crosses_the_wan_once_and_the_home_serves_by_instance() {
    let reads: &[_] = &[(0, 0, 1)];
    let three = scenario(&[(0, reads), (0, reads), (0, reads)]);
    let report = run(&three, Mode::OnDemand);
    // All wait for the home; it sends to 1, then to 2.
    let there = 11_000;
    assert_eq!(vec![there, there + 1100, there + 1200], boots_us(&report));
    assert_eq!((1000, 2000), (report.wan_bytes, report.lan_bytes));
    assert_eq!(
        vec![1, 1, 1],
        report.boots.iter().map(|b| b.misses).collect::<Vec<_>>()
    );
}

#[test]
fn transfers_of_a_read_share_the_wan_lowest_first() {
    let alone = scenario(&[(0, &[(0, 0, 3500), (50, 0, 3500)])]);
    let report = run(&alone, Mode::OnDemand);
    assert_eq!(vec![5000 + 3500 + 5000 + 50], boots_us(&report));
    assert_eq!((4, 3500), (report.boots[0].misses, report.unique_bytes));
    // The bytes on the WAN, or the thinking.
    assert_eq!(3500 * US, report.bound_ns);
}

#[test]
fn local_and_broadcast_and_oracle() {
    let reads: &[_] = &[(4000, 2000, 10), (6000, 0, 10)];
    let one = scenario(&[(0, reads)]);
    assert_eq!(vec![10_000], boots_us(&run(&one, Mode::Local)));
    let all = run(&one, Mode::Broadcast);
    assert_eq!(vec![13_500 + 10_000], boots_us(&all));
    assert_eq!(
        (4, 2, 1500),
        (all.boots[0].prefetched, all.boots[0].used, all.wasted_bytes)
    );
    // Chunk 2 is asked for first and comes at 11 ms, chunk 0 at 12 ms, before its read.
    let oracle = run(&one, Mode::Oracle);
    assert_eq!(vec![11_000 + 6000], boots_us(&oracle));
    assert_eq!((0, 2), (oracle.boots[0].misses, oracle.boots[0].used));
    assert_eq!((2000, 0), (oracle.wan_bytes, oracle.wasted_bytes));
}

#[test]
fn hints_are_prefetched_after_the_miss() {
    let mut one = scenario(&[(0, &[(0, 0, 1), (0, 2000, 1), (0, 3000, 1)])]);
    one.profile = Some(Profile::from_rows([(2, 5, 7.0), (3, 5, 8.0), (1, 1, 0.0)]).unwrap());
    let events = events(&one, Mode::Later);
    let of: Vec<_> = events
        .iter()
        .map(|e| (e.time_ns / US, e.miss, e.hints.clone()))
        .collect();
    // At 11 ms chunks 2 and 3 are asked for together; they come at 22 and 22.5 ms.
    assert_eq!(
        vec![
            (0, true, vec![2, 3]),
            (11_000, false, vec![]),
            (22_000, false, vec![])
        ],
        of
    );
    let report = run(&one, Mode::Later);
    assert_eq!(vec![22_500], boots_us(&report));
    let boot = report.boots[0];
    assert_eq!((1, 2, 2), (boot.misses, boot.prefetched, boot.used));
    let rows: Vec<_> = report.profile.rows().map(|(c, n, _)| (c, n)).collect();
    assert_eq!(vec![(0, 1), (1, 1), (2, 6), (3, 6)], rows);
}

#[test]
fn later_learns_from_a_first_run() {
    let reads: &[_] = &[(10, 0, 1), (900, 2000, 1), (900, 1000, 1)];
    let two = scenario(&[(0, reads), (20, reads)]);
    let first = run(&two, Mode::First);
    let known = Scenario {
        profile: Some(first.profile),
        ..two.clone()
    };
    assert_eq!(run(&known, Mode::Later), run(&two, Mode::Later));
    assert!(run(&two, Mode::Later).boots[0].prefetched > 0);
}

#[test]
fn figure_3_by_events() {
    let a = (0, 0, 1);
    let (b, c, d) = (1000, 2000, 3000);
    let mut figure = scenario(&[
        (0, &[a, (100_000, b, 1)]),
        (0, &[a, (200_000, c, 1)]),
        (0, &[a, (300_000, c, 1)]),
        (0, &[a, (400_000, d, 1)]),
    ]);
    figure.image_bytes = 4000;
    let seen: Vec<_> = events(&figure, Mode::First)
        .into_iter()
        .map(|e| {
            let v = e.visit;
            (
                e.instance,
                e.chunk,
                e.miss,
                e.hints,
                (v.remote, v.cached, v.skipped),
            )
        })
        .collect();
    let first = |instance| (instance, 0, true, vec![], (3, 0, 4));
    assert_eq!(
        vec![
            first(0),
            first(1),
            first(2),
            first(3),
            (0, 1, true, vec![], (1, 3, 3)),
            (1, 2, true, vec![], (2, 3, 2)),
            (2, 2, false, vec![], (0, 0, 0)),
            (3, 3, true, vec![2], (3, 3, 1)),
        ],
        seen
    );
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let fine = scenario(&[(0, &[(0, 0, 1)])]);
    let refused = |change: fn(&mut Scenario)| {
        let mut bad = fine.clone();
        change(&mut bad);
        replay(&bad, Mode::OnDemand, &mut |_| {}).unwrap_err()
    };
    let field = |change| match refused(change) {
        ReplayError::Field(field, _) => field,
        ReplayError::TooLong => "too long",
    };
    assert_eq!("image_bytes", field(|s| s.chunk_bytes = 0));
    assert_eq!("image_bytes", field(|s| s.image_bytes = 0));
    assert_eq!("chunk", field(|s| s.image_bytes = u64::MAX));
    assert_eq!("instances", field(|s| s.instances.clear()));
    assert_eq!("homes", field(|s| s.layout.homes = Some(0)));
    assert_eq!("homes", field(|s| s.layout.homes = Some(2)));
    assert_eq!("group", field(|s| s.layout.group = 0));
    assert_eq!("fan_out", field(|s| s.fan_out = 0));
    assert_eq!("links", field(|s| s.links.wan_mbps = 0.0));
    assert_eq!("links", field(|s| s.links.lan_rtt_ms = f64::NAN));
    assert_eq!("instances", field(|s| s.instances[0].reads[0].length = 0));
    assert_eq!(
        "instances",
        field(|s| s.instances[0].reads[0].offset = u64::MAX)
    );
    assert_eq!("too long", field(|s| s.instances[0].start_ns = u64::MAX));
    assert_eq!("too long", field(|s| s.links.wan_mbps = 1e-300));
}

#[test]
fn the_rest_of_a_file_is_prefetched_while_an_instance_thinks() {
    // Chunk 0 ends with the beginning of a file that goes on in chunk 2.
    let extent = |start, end, position| FileExtent {
        start,
        end,
        file: 0,
        position,
    };
    let reads: &[_] = &[(0, 900, 100), (50_000, 2000, 100)];
    let mut alone = scenario(&[(0, reads)]);
    alone.files = Files::new(vec![extent(900, 1000, 0), extent(2000, 2100, 100)]);
    alone.policy.rest = 0;
    let without = run(&alone, Mode::First);
    assert_eq!(vec![11_000 + 50_000 + 11_000], boots_us(&without));
    alone.policy.rest = 4;
    let report = run(&alone, Mode::First);
    assert_eq!(vec![11_000 + 50_000], boots_us(&report));
    assert_eq!((1, 1), (report.boots[0].prefetched, report.boots[0].used));
}

/// Eight reads of one chunk of instance 0, which is its home; instances 1 to 7 start by turns.
fn many(apart_us: u64) -> Scenario {
    let reads: &[Row] = &[(0, 0, 1)];
    let traces: Vec<_> = (0..8).map(|number| (number * apart_us, reads)).collect();
    scenario(&traces)
}

#[test]
fn a_busy_home_refers_to_those_that_asked_before() {
    // All wait for 11 ms. The home sends to 1 and 2 itself and refers 3 and 4 to 1, 5 and 6 to 2,
    // and 7 to 3: they ask there at 13 ms, when 1 and 2 have had the chunk for a while.
    let report = run(&many(0), Mode::Refer);
    let (there, asked) = (11_000, 13_000);
    assert_eq!(
        vec![
            there,
            there + 1100,
            there + 1200,
            asked + 1100,
            asked + 1200,
            asked + 1100,
            asked + 1200,
            asked + 2200
        ],
        boots_us(&report)
    );
    assert_eq!(7000, report.lan_bytes);
    // One that is not busy answers all itself.
    let mut late = many(20_000);
    let report = run(&late, Mode::Refer);
    assert_eq!(report, run(&late, Mode::First));
    // With a fan-out of one they form a chain.
    late = many(0);
    late.fan_out = 1;
    let chain = boots_us(&run(&late, Mode::Refer));
    assert_eq!(vec![there, 12_100, 14_100, 15_200], chain[..4]);
}

#[test]
fn chunks_have_their_homes_by_groups() {
    let mut three = scenario(&[(0, &[(0, 0, 3000)]), (0, &[]), (0, &[])]);
    three.striped = true;
    let sent = |scenario: &Scenario| run(scenario, Mode::OnDemand).lan_bytes;
    assert_eq!(2000, sent(&three));
    three.layout.group = 2;
    assert_eq!(1000, sent(&three));
    three.layout.homes = Some(1);
    assert_eq!(0, sent(&three));
}
