//! Merges of counts in any order, what messages carry, and messages that were damaged.

use super::*;

use proptest::prelude::*;

const CHUNKS: Chunk = 40;

/// Hosts 0..count of a site; the epochs are those of their first start.
fn site(count: u64) -> Vec<SiteCounts> {
    (0..count)
        .map(|own| SiteCounts::new(own, 0..count, 1))
        .collect()
}

/// One request and its reply, both as bytes; `told` is what an earlier reply said.
fn exchange(hosts: &mut [SiteCounts], from: usize, to: usize, told: &mut Option<Version>) {
    let pass = |message: &Message| Message::decode(&message.encode(), CHUNKS).unwrap();
    let request = pass(&hosts[from].ask(*told));
    hosts[to].learn(request.sender, &request);
    let reply = pass(&hosts[to].answer(&request));
    *told = reply.versions.first().map(|(_, version)| *version);
    hosts[from].learn(to as HostId, &reply);
}

fn sums(host: &SiteCounts) -> Vec<(u64, f64)> {
    (0..CHUNKS).map(|chunk| host.sum(chunk)).collect()
}

fn fact(chunk: Chunk, number: u32, count: u64, mean_ms: u64) -> Fact {
    Fact::new(chunk, number, count, mean_ms)
}

fn message(sender: HostId, block: Block) -> Message {
    Message {
        sender,
        versions: Vec::new(),
        blocks: vec![block],
    }
}

fn blocks() -> impl Strategy<Value = Block> {
    let facts = prop::collection::vec((0..CHUNKS, 1u32..9, 1u64..40, 0u64..90), 0..6);
    let head = (0u64..5, 0u64..4, 0u32..20, 0u32..9);
    (head, facts).prop_map(|((host, epoch, since, more), rows)| {
        let mut block = Block::new(host, epoch, since);
        for (chunk, step, count, mean_ms) in rows {
            block.upto += step;
            block.facts.push(fact(chunk, block.upto, count, mean_ms));
        }
        block.upto += more;
        block
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let by_host = |blocks: Vec<Block>| {
        BTreeMap::from_iter(blocks.into_iter().map(|block| (block.host, block)))
    };
    let one = (0u64..5, prop::collection::vec(blocks(), 0..4));
    let one = one.prop_map(move |(sender, blocks)| Message {
        sender,
        versions: Vec::new(),
        blocks: Vec::from_iter(by_host(blocks).into_values()),
    });
    prop::collection::vec(one, 0..8)
}

fn learn_all<'a>(messages: impl Iterator<Item = &'a Message>) -> SiteCounts {
    let mut host = SiteCounts::new(0, 0..4, 1);
    host.count(3, 2, 7);
    messages.for_each(|message| drop(host.learn(message.sender, message)));
    host
}

proptest! {
    /// Whatever hosts send, honest or not.
    #[test]
    fn learning_is_commutative_idempotent_and_monotone(
        (sent, shuffled) in messages().prop_flat_map(|sent| (Just(sent.clone()), Just(sent).prop_shuffle())),
    ) {
        let once = learn_all(sent.iter());
        prop_assert_eq!(sums(&once), sums(&learn_all(shuffled.iter())));
        prop_assert_eq!(sums(&once), sums(&learn_all(sent.iter().chain(&shuffled))));
        let mut host = learn_all([].iter());
        for message in &sent {
            let before = sums(&host);
            let news = host.learn(message.sender, message);
            for (chunk, (was, is)) in (0..).zip(before.iter().zip(sums(&host))) {
                prop_assert!(is.0 >= was.0);
                prop_assert!(is == *was || news.chunks.contains(&chunk));
            }
            let answer = host.answer(&Message { blocks: Vec::new(), ..message.clone() }).encode();
            prop_assert!(Message::decode(&answer, CHUNKS).is_ok());
        }
    }

    /// Requests between any hosts in any order, of which some replies are lost and some hosts start again: in the end all know all.
    #[test]
    fn all_hosts_learn_all_counts(
        steps in prop::collection::vec((0usize..4, 0usize..4, 0..CHUNKS, 0u8..6), 0..80),
    ) {
        let mut hosts = site(4);
        let mut told = [[None; 4]; 4];
        let mut read = vec![BTreeMap::new(); 4];
        let mut epoch = 1;
        for (from, to, chunk, action) in steps {
            match action {
                0 => {
                    // A worker that was killed knows its own counts again, and nothing else.
                    epoch += 1;
                    hosts[from] = SiteCounts::new(from as HostId, 0..4, epoch);
                    read[from].iter().for_each(|(chunk, count)| hosts[from].count(*chunk, *count, 5));
                    told[from] = [None; 4];
                }
                1 | 2 => {
                    let count = read[from].entry(chunk).or_insert(0);
                    *count += 1;
                    hosts[from].count(chunk, *count, 5);
                }
                3 => {
                    let request = hosts[from].ask(told[from][to]);
                    hosts[to].learn(request.sender, &request);
                }
                _ => exchange(&mut hosts, from, to, &mut told[from][to]),
            }
        }
        for _ in 0..3 {
            for (from, told) in told.iter_mut().enumerate() {
                (0..4).for_each(|to| exchange(&mut hosts, from, to, &mut told[to]));
            }
        }
        for chunk in 0..CHUNKS {
            let counts = read.iter().filter_map(|read| read.get(&chunk));
            let expected: u64 = counts.map(|count| (*count).min(HOST_SHARE)).sum();
            for host in &hosts {
                prop_assert_eq!(host.sum(chunk).0, expected);
            }
        }
        // Nothing is sent twice.
        let request = hosts[0].ask(told[0][1]);
        prop_assert!(request.blocks.is_empty() && hosts[1].answer(&request).blocks.is_empty());
    }

    #[test]
    fn messages_are_read_as_they_were_written(sent in messages()) {
        for message in sent {
            let bytes = message.encode();
            prop_assert_eq!(message.len(), bytes.len());
            prop_assert_eq!(Message::decode(&bytes, CHUNKS), Ok(message));
            for cut in 0..bytes.len() {
                prop_assert!(Message::decode(&bytes[..cut], CHUNKS).is_err());
            }
        }
    }

    #[test]
    fn no_bytes_confuse_the_reader(
        sent in messages(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        other in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let _ = Message::decode(&other, CHUNKS);
        for message in sent {
            let mut bytes = message.encode();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if let Ok(read) = Message::decode(&bytes, CHUNKS) {
                let mut host = SiteCounts::new(0, 0..4, 1);
                let news = host.learn(1, &read);
                prop_assert!(news.chunks.iter().all(|chunk| *chunk < CHUNKS));
                prop_assert!((0..CHUNKS).all(|chunk| host.sum(chunk).0 <= 4 * HOST_SHARE));
                prop_assert!(host.answer(&read).encode().len() <= LONGEST);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// What does not fit comes with the next replies.
    #[test]
    fn replies_are_bounded_and_nothing_is_left_out(chunks in 1u32..3000, hosts in 2u64..5) {
        let mut known: Vec<_> = (0..hosts).map(|own| SiteCounts::new(own, 0..hosts, 1 << 40)).collect();
        for host in &mut known[1..] {
            (0..chunks).for_each(|chunk| host.count(chunk * 7, 3, 100_000));
        }
        let mut told = None;
        for _ in 0..60 {
            for to in 1..hosts as usize {
                let request = known[0].ask(told);
                let reply = known[to].answer(&request).encode();
                prop_assert!(reply.len() <= LONGEST);
                known[0].learn(to as HostId, &Message::decode(&reply, chunks * 7).unwrap());
            }
        }
        told = Some(Version::default());
        (0..chunks).for_each(|chunk| assert_eq!(known[0].sum(chunk * 7).0, 3 * (hosts - 1)));
        (0..chunks).for_each(|chunk| known[0].count(chunk, 1, 1));
        let request = known[0].ask(told);
        prop_assert!(request.encode().len() <= OWN_BYTES + MOST_HOSTS * 20);
        prop_assert_eq!(request.blocks.len(), 1);
    }
}

#[test]
fn one_host_teaches_another_through_a_third() {
    let mut hosts = site(3);
    let [mut to_home, mut from_home] = [None, None];
    // That the home takes counts is known after its first reply.
    exchange(&mut hosts, 1, 0, &mut to_home);
    hosts[1].count(5, 2, 30);
    exchange(&mut hosts, 1, 0, &mut to_home);
    exchange(&mut hosts, 2, 0, &mut from_home);
    assert_eq!(hosts[2].sum(5), (2, 30_000.0));
    hosts[2].count(5, 1, 60);
    assert_eq!(hosts[2].sum(5), (3, 40_000.0));
}

#[test]
fn forged_counts_are_refused() {
    let read = |bytes: &[u8]| Message::decode(bytes, CHUNKS);
    let with = |fact: Fact| {
        let mut block = Block::new(1, 1, 0);
        block.upto = fact.number;
        block.facts.push(fact);
        message(1, block).encode()
    };
    let sound = fact(3, 1, 2, 7);
    assert!(read(&with(sound)).is_ok());
    for (forged, reason) in [
        (
            Fact {
                chunk: CHUNKS,
                ..sound
            },
            Malformed::Range,
        ),
        (Fact { number: 0, ..sound }, Malformed::Range),
        (Fact { count: 0, ..sound }, Malformed::Range),
        (
            Fact {
                count: 65_536,
                ..sound
            },
            Malformed::Range,
        ),
        (
            Fact {
                mean_ms: 3_600_001,
                ..sound
            },
            Malformed::Range,
        ),
    ] {
        assert_eq!(read(&with(forged)), Err(reason), "{forged:?}");
    }
    assert_eq!(read(&[]), Err(Malformed::Length));
    assert_eq!(read(&[2]), Err(Malformed::Format));
    assert_eq!(read(&[1; LONGEST + 1]), Err(Malformed::TooLong));
    let mut twice = message(1, Block::new(1, 1, 0));
    twice.blocks.push(Block::new(1, 1, 0));
    assert_eq!(read(&twice.encode()), Err(Malformed::Hosts));
    let mut many = message(1, Block::new(1, 1, 0));
    many.versions = (0..65).map(|host| (host, Version::default())).collect();
    assert_eq!(read(&many.encode()), Err(Malformed::Hosts));
    let mut longer = with(sound);
    longer.push(0);
    assert_eq!(read(&longer), Err(Malformed::Length));
    // 11 bytes of an integer.
    let mut number = vec![1; 9];
    number.extend([1, 0, 0, 0, 0, 0, 0, 0, 0]);
    number.extend([0xff; 11]);
    assert_eq!(read(&number), Err(Malformed::Range));
}

#[test]
fn counts_of_one_host_are_bounded_and_those_of_unknown_ones_are_not_taken() {
    let mut host = SiteCounts::new(0, 0..4, 1);
    let most = fact(3, 1, 65_535, 7);
    let mut block = Block::new(9, 1, 0);
    block.facts.push(most);
    let news = host.learn(2, &message(2, block.clone()));
    assert_eq!((news.chunks.len(), news.unknown), (0, 1));
    // Nor is a host taught what it has read itself.
    block.host = 0;
    assert_eq!(host.learn(2, &message(2, block.clone())), News::default());
    block.host = 3;
    host.learn(2, &message(2, block));
    assert_eq!(host.sum(3).0, HOST_SHARE);
}

#[test]
fn a_host_is_believed_of_itself_whatever_others_say() {
    let mut hosts = site(3);
    hosts[1].count(5, 2, 30);
    for (epoch, upto) in [(u64::MAX, u32::MAX), (1, u32::MAX)] {
        let mut forged = Block::new(1, epoch, 0);
        forged.upto = upto;
        hosts[0].learn(2, &message(2, forged));
        exchange(&mut hosts, 0, 1, &mut None);
        assert_eq!(
            hosts[0].hosts[&1].version,
            Version {
                epoch: 1,
                number: 1
            }
        );
        assert_eq!(hosts[0].sum(5).0, 2);
    }
}

#[test]
fn no_more_chunks_of_a_host_than_a_profile_has() {
    let mut host = SiteCounts::new(0, 0..2, 1);
    (0..MOST_FACTS as Chunk + 5).for_each(|chunk| host.count(chunk, 1, 1));
    assert_eq!(host.sum(MOST_FACTS as Chunk - 1).0, 1);
    assert_eq!(host.sum(MOST_FACTS as Chunk).0, 0);
    host.count(7, 2, 1);
    assert_eq!(host.sum(7).0, 2);
}

/// The changes of host 1 after one up to another, each of a chunk of its own.
fn changes(since: u32, upto: u32) -> Message {
    let mut block = Block::new(1, 1, since);
    block.facts = (since + 1..=upto)
        .map(|number| fact(number, number, 1, 90))
        .collect();
    block.upto = upto;
    message(1, block)
}

/// What a home that has learned these tells host 2 of host 1.
fn told_after(messages: &[Message]) -> (u32, usize) {
    let mut home = learn_all(messages.iter());
    let request = Message {
        sender: 2,
        versions: Vec::new(),
        blocks: Vec::new(),
    };
    let reply = Message::decode(&home.answer(&request).encode(), CHUNKS).unwrap();
    let block = reply.blocks.iter().find(|block| block.host == 1).unwrap();
    (block.upto, block.facts.len())
}

#[test]
fn an_overtaken_block_makes_no_reply_malformed() {
    assert_eq!(told_after(&[changes(0, 25), changes(0, 12)]), (12, 12));
    let again = [changes(0, 25), changes(0, 12), changes(12, 25)];
    assert_eq!(told_after(&again), (25, 25));
}

#[test]
fn what_came_behind_a_gap_is_told_when_the_gap_is_filled() {
    assert_eq!(told_after(&[changes(0, 5), changes(9, 12)]), (5, 5));
    let filled = [changes(0, 5), changes(9, 12), changes(5, 12)];
    assert_eq!(told_after(&filled), (12, 12));
}

#[test]
fn a_cut_reply_of_a_host_with_a_gap_can_be_read() {
    let mut home = SiteCounts::new(0, 0..4, 1);
    let read = 900;
    home.learn(1, &changes(0, read));
    home.learn(1, &changes(read + 100, read + 200));
    let mut peer = SiteCounts::new(2, 0..4, 1);
    for _ in 0..4 {
        let reply = home.answer(&peer.ask(None)).encode();
        let reply = Message::decode(&reply, 2 * read).unwrap();
        peer.learn(0, &reply);
    }
    let known = &peer.hosts[&1];
    assert_eq!((known.version.number, known.reads.len()), (read, 900));
}
