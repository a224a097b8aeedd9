//! What each host of a site knows of the others' counts, spread along requests and replies that are sent anyway.
//!
//! The paper keeps the counts at the nodes of one distributed tree, which readers visit (section 2.3). Here each host keeps those of all hosts, as
//! grow-only counters: of each host and chunk, how many instances read it, and their mean time. A request says which version of each host's counts
//! the requester has, and what its own instances read; the reply has what is newer. No message is sent for this, and no node of a tree is fetched.
//!
//! Of two counts of one chunk at one host the greater is kept, so that messages may be lost, repeated and overtaken, and come by any way. Versions
//! only keep messages short: a version is the number of the last change that a host has counted in an epoch, a new one for each start. A host that
//! has a version has all of the changes up to it.

mod message;

use std::collections::BTreeMap;

use crate::chunks::Chunk;

pub use message::{Block, Fact, Malformed, Message, LONGEST};

/// Hosts whose counts are kept at most.
pub const MOST_HOSTS: usize = 64;
/// Chunks of a host that are counted at most.
pub const MOST_FACTS: usize = 8192;
/// Instances for which a host counts at most, so that two instances on other hosts outweigh one that reports what was never read.
pub const HOST_SHARE: u64 = 16;
/// Bytes of a requester's own counts in a request.
const OWN_BYTES: usize = 1024;
const US_PER_MS: f64 = 1000.0;

/// Names a host: the beginning of a hash of its name.
pub type HostId = u64;

/// How far a host's counts are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The host's start.
    pub epoch: u64,
    /// The number of its last change.
    pub number: u32,
}

/// What instances of one host have read of one chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Read {
    count: u32,
    mean_ms: u32,
    /// Of the change, in the epoch of the host's version; 0 if it is of another one.
    number: u32,
}

/// What is known of one host.
#[derive(Debug, Clone, Default)]
struct Known {
    version: Version,
    reads: BTreeMap<Chunk, Read>,
    changes: BTreeMap<u32, Chunk>,
}

impl Known {
    /// Begins another epoch: what was counted remains, and is numbered anew as it comes.
    fn begin(&mut self, epoch: u64) {
        self.version = Version { epoch, number: 0 };
        self.changes.clear();
        self.reads.values_mut().for_each(|read| read.number = 0);
    }

    /// Keeps the greater count of a chunk, and returns whether it is a new one.
    fn count(&mut self, fact: &Fact) -> bool {
        if self.reads.len() >= MOST_FACTS && !self.reads.contains_key(&fact.chunk) {
            return false;
        }
        let read = self.reads.entry(fact.chunk).or_default();
        let is_new = (fact.count, fact.mean_ms) > (read.count, read.mean_ms);
        if is_new {
            (read.count, read.mean_ms) = (fact.count, fact.mean_ms);
        }
        is_new
    }

    /// Notes the number of a chunk's last change in the present epoch.
    fn number(&mut self, chunk: Chunk, number: u32) {
        let Some(read) = self.reads.get_mut(&chunk) else {
            return;
        };
        if read.number >= number {
            return;
        }
        if self.changes.get(&read.number) == Some(&chunk) {
            self.changes.remove(&read.number);
        }
        read.number = number;
        self.changes.insert(number, chunk);
    }

    /// Returns the changes after a version, in their order, in at most this many bytes; none if there are none or they do not fit.
    fn changes_since(&self, host: HostId, since: u32, bytes: usize) -> Option<Block> {
        if since >= self.version.number {
            return None;
        }
        let mut block = Block::new(host, self.version.epoch, since);
        let mut left = bytes.checked_sub(block.head_len())?;
        for (&number, &chunk) in self.changes.range(since + 1..=self.version.number) {
            let read = self.reads.get(&chunk)?;
            let fact = Fact {
                chunk,
                number,
                count: read.count,
                mean_ms: read.mean_ms,
            };
            match left.checked_sub(fact.len_after(block.upto)) {
                Some(rest) => left = rest,
                None => return (!block.facts.is_empty()).then_some(block),
            }
            block.facts.push(fact);
            block.upto = number;
        }
        block.upto = self.version.number;
        Some(block)
    }
}

/// What came of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// Chunks of which more is known now.
    pub chunks: Vec<Chunk>,
    /// Hosts that are not of the site, as this one knows it.
    pub unknown: usize,
}

/// The counts of a site's hosts, as one of them knows them.
#[derive(Debug, Clone)]
pub struct SiteCounts {
    own: HostId,
    hosts: BTreeMap<HostId, Known>,
    /// With which host the next answer begins, so that each has its turn where not all fits.
    turn: usize,
}

impl SiteCounts {
    /// Begins an epoch of this host, greater than those before, without counts of other hosts.
    #[must_use]
    pub fn new(own: HostId, others: impl IntoIterator<Item = HostId>, epoch: u64) -> Self {
        let others = others.into_iter().take(MOST_HOSTS);
        let mut hosts: BTreeMap<_, _> = others.map(|host| (host, Known::default())).collect();
        hosts.entry(own).or_default().begin(epoch);
        Self {
            own,
            hosts,
            turn: 0,
        }
    }

    /// Forgets the counts of other hosts.
    pub fn forget_others(&mut self) {
        let others = self.hosts.iter_mut().filter(|(host, _)| **host != self.own);
        others.for_each(|(_, known)| *known = Known::default());
    }

    /// Counts what instances of this host have read of a chunk: how many in all, and when on average after their start.
    pub fn count(&mut self, chunk: Chunk, count: u64, mean_ms: u64) {
        let Some(known) = self.hosts.get_mut(&self.own) else {
            return;
        };
        let number = known.version.number.saturating_add(1);
        let fact = Fact::new(chunk, number, count, mean_ms);
        if known.count(&fact) {
            known.number(chunk, number);
            known.version.number = number;
        }
    }

    /// Returns what goes with a request: which versions this host has, and its own counts since the version that the other host was `told`; none
    /// of them while it is not known to take them.
    #[must_use]
    pub fn ask(&self, told: Option<Version>) -> Message {
        let others = self.hosts.iter().filter(|(host, _)| **host != self.own);
        let known = others.filter(|(_, known)| known.version != Version::default());
        let own = told.and_then(|told| self.changes_for(self.own, Some(told), OWN_BYTES));
        Message {
            sender: self.own,
            versions: known.map(|(host, known)| (*host, known.version)).collect(),
            blocks: own.into_iter().collect(),
        }
    }

    /// Returns what goes with the reply to a request: which version of the requester's counts this host has, and what is newer than the requester's,
    /// in at most [`LONGEST`] bytes.
    pub fn answer(&mut self, request: &Message) -> Message {
        let requester = request.sender;
        let had = self.hosts.get(&requester).map(|known| known.version);
        let mut reply = Message {
            sender: self.own,
            versions: had.map(|had| (requester, had)).into_iter().collect(),
            blocks: Vec::new(),
        };
        let mut left = LONGEST.saturating_sub(reply.len());
        let hosts: Vec<_> = self.hosts.keys().copied().collect();
        self.turn = (self.turn + 1) % hosts.len().max(1);
        let (later, sooner) = hosts.split_at(self.turn);
        for host in sooner.iter().chain(later) {
            let had = request.versions.iter().find(|(known, _)| known == host);
            let had = had.map(|(_, version)| *version);
            let wanted = (*host != requester).then_some(());
            let block = wanted.and_then(|()| self.changes_for(*host, had, left));
            if let Some(block) = block {
                left = left.saturating_sub(block.len());
                reply.blocks.push(block);
            }
        }
        reply
    }

    fn changes_for(&self, host: HostId, had: Option<Version>, bytes: usize) -> Option<Block> {
        let known = self.hosts.get(&host)?;
        let since = match had {
            // Of itself a host knows best which version there is.
            Some(had) if host == self.own && had.number > known.version.number => 0,
            Some(had) if had.epoch == known.version.epoch => had.number,
            Some(had) if had.epoch > known.version.epoch && host != self.own => return None,
            _ => 0,
        };
        known.changes_since(host, since, bytes)
    }

    /// Takes what a host has sent.
    pub fn learn(&mut self, sender: HostId, message: &Message) -> News {
        let mut news = News::default();
        for block in &message.blocks {
            if block.host == self.own {
                continue;
            }
            match self.hosts.get_mut(&block.host) {
                Some(known) => take(known, block, block.host == sender, &mut news.chunks),
                None => news.unknown += 1,
            }
        }
        news
    }

    /// Returns how many instances of all hosts have read a chunk, and their mean time in microseconds; a host counts for [`HOST_SHARE`] of them at
    /// most.
    #[must_use]
    pub fn sum(&self, chunk: Chunk) -> (u64, f64) {
        let reads = self
            .hosts
            .values()
            .filter_map(|known| known.reads.get(&chunk));
        let (mut count, mut total_ms) = (0, 0);
        for read in reads {
            let share = u64::from(read.count).min(HOST_SHARE);
            count += share;
            total_ms += share * u64::from(read.mean_ms);
        }
        (count, total_ms as f64 / count.max(1) as f64 * US_PER_MS)
    }
}

/// Takes a host's counts; `is_own` are those that it sent itself.
fn take(known: &mut Known, block: &Block, is_own: bool, news: &mut Vec<Chunk>) {
    let is_other = block.epoch != known.version.epoch;
    // What a host sends of itself from the beginning holds, whatever others said.
    if block.epoch > known.version.epoch || (is_own && (is_other || block.since == 0)) {
        known.begin(block.epoch);
    }
    let is_present = block.epoch == known.version.epoch;
    // After a gap the version stays, and what is missing comes again; until then no number says that all before it is known.
    let has_all_before = is_present && block.since <= known.version.number;
    for fact in &block.facts {
        if known.count(fact) {
            news.push(fact.chunk);
        }
        if has_all_before {
            known.number(fact.chunk, fact.number);
        }
    }
    if has_all_before {
        known.version.number = known.version.number.max(block.upto);
    }
}

#[cfg(test)]
mod tests;
