//! Choosing places in data by their content.

use diffcache_base::words::Words;

/// Bytes that an anchor consists of: short enough to fit between two addresses in machine code.
pub const ANCHOR_LEN: usize = 16;
/// Fewest bytes per anchor, on average.
pub const MIN_SPACING: u32 = 32;
/// Bytes other than zero that an anchor has at least. Tables of small numbers look alike everywhere.
const MIN_NONZERO: u32 = 6;

/// How many of all places are anchors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spacing {
    threshold: u32,
}

impl Spacing {
    /// Returns the densest spacing at which `bytes` of data have about `anchors` anchors at most.
    pub fn for_data(bytes: u64, anchors: u64) -> Spacing {
        let spacing = bytes.div_ceil(anchors.max(1)).max(u64::from(MIN_SPACING));
        Spacing {
            threshold: (u64::from(u32::MAX) / spacing) as u32,
        }
    }

    /// Estimates how many anchors `bytes` of data have.
    pub fn expected(self, bytes: u64) -> u64 {
        // Both factors can be large: the product has up to 76 bits.
        ((u128::from(bytes) * u128::from(self.threshold)) >> 32) as u64 + 1
    }
}

/// A random number for each byte value, from which the rolling hash is made.
const GEAR: [u32; 256] = gear();

const fn gear() -> [u32; 256] {
    let mut table = [0; 256];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut i = 0;
    while i < 256 {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[i] = (z >> 32) as u32;
        i += 1;
    }
    table
}

/// An anchor: where it starts in the data, and the hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Offset of its first byte.
    pub at: u32,
    /// Hash of its bytes.
    pub hash: u64,
}

/// Places that are looked at together, by `LANES` hashes side by side: each waits for its last step, and all four take the time of one.
const STRETCH: usize = LANES * LANE;
const LANES: usize = 4;
const LANE: usize = 1 << 10;

/// Appends the anchors in `data`, which is less than 4 GiB, in order.
pub fn find_anchors(data: &[u8], spacing: Spacing, out: &mut Vec<Anchor>) {
    let places = (data.len() + 1).saturating_sub(ANCHOR_LEN);
    let mut at = 0;
    let mut found = [[0; LANE]; LANES];
    while places - at >= STRETCH {
        let counts = find_in_lanes(
            &data[at..at + STRETCH + ANCHOR_LEN - 1],
            spacing,
            &mut found,
        );
        for ((lane, found), count) in found.iter().enumerate().zip(counts) {
            for place in &found[..count] {
                push(data, at + lane * LANE + usize::from(*place), out);
            }
        }
        at += STRETCH;
    }
    let mut rolling = start(data, at);
    for place in at..places {
        rolling = step(rolling, data[place + ANCHOR_LEN - 1]);
        if rolling < spacing.threshold {
            push(data, place, out);
        }
    }
}

/// Finds the places in each lane of a stretch whose hashes are small, without a branch that depends on them; returns their numbers.
fn find_in_lanes(
    stretch: &[u8],
    spacing: Spacing,
    found: &mut [[u16; LANE]; LANES],
) -> [usize; LANES] {
    let mut rolling: [u32; LANES] = std::array::from_fn(|lane| start(stretch, lane * LANE));
    let mut counts = [0; LANES];
    let ahead = &stretch[ANCHOR_LEN - 1..];
    for place in 0..LANE {
        for lane in 0..LANES {
            rolling[lane] = step(rolling[lane], ahead[lane * LANE + place]);
            found[lane][counts[lane]] = place as u16;
            counts[lane] += usize::from(rolling[lane] < spacing.threshold);
        }
    }
    counts
}

/// Returns the hash before the last byte of the anchor at a place.
fn start(data: &[u8], place: usize) -> u32 {
    let bytes = data[place.min(data.len())..].iter().take(ANCHOR_LEN - 1);
    bytes.fold(0, |rolling, byte| step(rolling, *byte))
}

/// Each step shifts by two bits, so that a byte has left the hash after 16 steps.
#[inline]
fn step(rolling: u32, byte: u8) -> u32 {
    (rolling << 2).wrapping_add(GEAR[usize::from(byte)])
}

fn push(data: &[u8], place: usize, out: &mut Vec<Anchor>) {
    if let Some(hash) = anchor_hash(&data[place..place + ANCHOR_LEN]) {
        out.push(Anchor {
            at: place as u32,
            hash,
        });
    }
}

/// Returns the hash of an anchor's bytes; none if they are too regular to say where they are from.
fn anchor_hash(bytes: &[u8]) -> Option<u64> {
    let (a, b) = (Words(bytes).le64(0), Words(bytes).le64(8));
    if a == b || nonzero_bytes(a) + nonzero_bytes(b) < MIN_NONZERO {
        return None;
    }
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    Some(product as u64 ^ (product >> 64) as u64)
}

/// Counts the bytes of a word that are not zero.
#[inline]
pub fn nonzero_bytes(word: u64) -> u32 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    ((((word & LOW) + LOW) | word) & !LOW).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;

    const DENSE: Spacing = Spacing {
        threshold: u32::MAX / MIN_SPACING,
    };

    fn anchors(data: &[u8], spacing: Spacing) -> Vec<Anchor> {
        let mut out = Vec::new();
        find_anchors(data, spacing, &mut out);
        out
    }

    #[test]
    fn the_same_content_has_the_same_anchors_at_any_offset() {
        let data = noise(1, 40_000);
        let moved = [noise(2, 1235), data.clone()].concat();
        let found = anchors(&data, DENSE);
        let later: Vec<Anchor> = anchors(&moved, DENSE)
            .into_iter()
            .filter(|anchor| anchor.at >= 1235)
            .map(|anchor| Anchor {
                at: anchor.at - 1235,
                ..anchor
            })
            .collect();
        assert!(found.len() > 900, "{}", found.len());
        assert_eq!(found, later);
    }

    #[test]
    fn anchors_are_those_of_each_place_alone() {
        let data = noise(4, 3 * STRETCH + 100);
        let is_anchor = |place: &usize| {
            let bytes = data[*place..place + ANCHOR_LEN].iter();
            bytes.fold(0, |rolling, byte| step(rolling, *byte)) < DENSE.threshold
        };
        for len in [
            0,
            15,
            16,
            100,
            STRETCH + 14,
            STRETCH + 15,
            STRETCH + 16,
            data.len(),
        ] {
            let places = (0..(len + 1).saturating_sub(ANCHOR_LEN)).filter(is_anchor);
            let found = anchors(&data[..len], DENSE);
            let found: Vec<usize> = found.iter().map(|anchor| anchor.at as usize).collect();
            assert_eq!(found, places.collect::<Vec<_>>());
        }
    }

    #[test]
    fn sparser_anchors_are_among_the_denser_ones() {
        let data = noise(3, 100_000);
        let sparse = Spacing::for_data(1 << 40, 1 << 32);
        let (all, few) = (anchors(&data, DENSE), anchors(&data, sparse));
        assert!(few.len() * 4 < all.len() && !few.is_empty());
        assert!(few.iter().all(|anchor| all.contains(anchor)));
    }

    #[test]
    fn regular_data_have_no_anchors() {
        for byte in 0..=255 {
            assert_eq!(anchors(&[byte; 5000], DENSE), []);
        }
        let numbers: Vec<u8> = (0..5000u32).flat_map(|n| (n & 7).to_le_bytes()).collect();
        assert_eq!(anchors(&numbers, DENSE), []);
        assert_eq!(anchors(&[1; 3], DENSE), []);
    }

    #[test]
    fn bytes_are_counted() {
        for (word, count) in [(0, 0), (1, 1), (0x8000_0000_0000_0080, 2), (u64::MAX, 8)] {
            assert_eq!(nonzero_bytes(word), count);
        }
    }
}
