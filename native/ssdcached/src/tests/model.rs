//! What a volume may have, after each request and whatever its origin does.

use std::collections::BTreeSet;

/// Bytes that a write changes as a whole.
pub const SECTOR: usize = 512;

/// What may be read of a sector; each write has a number of its own, zeroes have 0.
#[derive(Clone)]
struct Sector {
    /// Now.
    now: BTreeSet<u64>,
    /// After the origin lost what was not flushed.
    after: BTreeSet<u64>,
    /// What the client wrote: a flush that succeeds says that it is durable.
    belief: BTreeSet<u64>,
}

impl Sector {
    fn of(value: u64) -> Self {
        let only: BTreeSet<u64> = [value].into();
        Self {
            now: only.clone(),
            after: only.clone(),
            belief: only,
        }
    }

    /// All that it may have.
    fn any(&self) -> BTreeSet<u64> {
        let now = self.now.union(&self.after).copied();
        now.chain(self.belief.iter().copied()).collect()
    }
}

/// A volume as its client knows it.
pub struct Model {
    sectors: Vec<Sector>,
    /// Whether the origin may have lost what was not flushed, and no flush has succeeded since.
    in_doubt: bool,
}

impl Model {
    pub fn new(size: usize) -> Self {
        Self {
            sectors: vec![Sector::of(0); size / SECTOR],
            in_doubt: false,
        }
    }

    pub fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// It has another size; what is added has zeroes.
    pub fn grow(&mut self, size: usize) {
        self.sectors.resize(size / SECTOR, Sector::of(0));
    }

    /// A write, or one that failed and may have been done in part.
    pub fn write(&mut self, (first, count): (usize, usize), value: u64, done: bool) {
        for sector in &mut self.sectors[first..first + count] {
            if done {
                sector.now.clear();
                sector.belief.clear();
            }
            sector.now.insert(value);
            sector.belief.insert(value);
            sector.after.insert(value);
        }
    }

    /// What was read, which becomes known.
    pub fn read(&mut self, first: usize, data: &[u8]) {
        for (n, bytes) in (first..).zip(data.chunks(SECTOR)) {
            let found = value_of(bytes);
            let (in_doubt, sector) = (self.in_doubt, &mut self.sectors[n]);
            let possible = match in_doubt {
                true => sector.any(),
                false => sector.now.clone(),
            };
            assert!(
                possible.contains(&found),
                "sector {n}: {found} of {possible:?}"
            );
            if !in_doubt {
                sector.now = [found].into();
                sector.belief = sector.now.clone();
            }
        }
    }

    /// A flush that succeeded: what the client wrote is there, and stays.
    pub fn flush(&mut self) {
        for sector in &mut self.sectors {
            sector.now = sector.belief.clone();
            sector.after = sector.belief.clone();
        }
        self.in_doubt = false;
    }

    /// The origin may have lost what was not flushed.
    pub fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// The client goes on with whatever it is.
    pub fn accept(&mut self) {
        for sector in &mut self.sectors {
            let any = sector.any();
            (sector.now, sector.belief) = (any.clone(), any);
        }
    }

    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }
}

/// The bytes of a sector.
pub fn bytes_of(value: u64) -> [u8; SECTOR] {
    std::array::from_fn(|n| value.to_le_bytes()[n % 8])
}

fn value_of(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    let value = u64::from_le_bytes(first);
    assert!(bytes == bytes_of(value), "a torn sector");
    value
}
