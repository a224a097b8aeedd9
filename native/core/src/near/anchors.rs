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

/// Appends the anchors in `data`, which is less than 4 GiB, in order.
pub fn find_anchors(data: &[u8], spacing: Spacing, out: &mut Vec<Anchor>) {
    let mut rolling = 0u32;
    let head = data.len().min(ANCHOR_LEN - 1);
    for byte in &data[..head] {
        rolling = (rolling << 2).wrapping_add(GEAR[usize::from(*byte)]);
    }
    // Each step shifts by two bits, so that a byte has left the hash after 16 steps.
    for (start, byte) in data[head..].iter().enumerate() {
        rolling = (rolling << 2).wrapping_add(GEAR[usize::from(*byte)]);
        if rolling < spacing.threshold {
            if let Some(hash) = anchor_hash(&data[start..start + ANCHOR_LEN]) {
                out.push(Anchor {
                    at: start as u32,
                    hash,
                });
            }
        }
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
