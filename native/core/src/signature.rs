//! Signatures of images: some hundred numbers of which two images share about as many as they share content, wherever that is stored.
//!
//! A *feature* is a window of 32 bytes at which a rolling hash (Gear, of Xia et al., 2014) has ten zero bits: one in a kilobyte, chosen by
//! content alone, so that moving content by any number of bytes changes nothing. Features are divided into bins by their hash, and the
//! smallest hash of each bin is kept (one-permutation hashing of Li, Owen and Zhang, 2012); an empty bin takes the value of another one
//! (Shrivastava's optimal densification, 2017). Two images have the same value in a bin with the probability that is their Jaccard similarity.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Numbers of a signature.
pub const BINS: usize = 144;
/// Bytes of each number.
pub const VALUE_LEN: usize = 3;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = BINS * VALUE_LEN;
/// Bytes of a feature: those that the rolling hash depends on.
const WINDOW: usize = 32;
/// Bits of the rolling hash that are zero at a feature.
const ZERO_BITS: u32 = 10;
/// Times another bin is tried for the value of an empty one. With one bin filled, all of these miss with a probability of e^-28.
const TRIES: u64 = 4096;

const GEAR: [u32; 256] = gear_table();

/// Returns numbers that look random, by the generator SplitMix64.
const fn gear_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut state: u64 = 0x5ee7;
    let mut at = 0;
    while at < 256 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        table[at] = (mixed >> 32) as u32;
        at += 1;
    }
    table
}

/// A signature as bytes; all zero for an image without features.
pub type Signature = [u8; SIGNATURE_LEN];

/// The smallest hashes of the features of a part of an image.
#[derive(Debug, Clone)]
pub struct Bins([u64; BINS]);

impl Default for Bins {
    fn default() -> Self {
        Self([u64::MAX; BINS])
    }
}

impl Bins {
    /// Adds the features of some consecutive bytes.
    pub fn add(&mut self, data: &[u8]) {
        let mut state: u32 = 0;
        for (at, &byte) in data.iter().enumerate() {
            state = (state << 1).wrapping_add(GEAR[usize::from(byte)]);
            if state >> (32 - ZERO_BITS) == 0 && at + 1 >= WINDOW {
                let hash = xxh3_64(&data[at + 1 - WINDOW..=at]);
                let smallest = &mut self.0[(hash % BINS as u64) as usize];
                *smallest = hash.min(*smallest);
            }
        }
    }

    /// Adds the features of another part of the image.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*theirs).min(*mine);
        }
    }

    /// Returns the signature of all that was added.
    #[must_use]
    pub fn signature(&self) -> Signature {
        let mut bytes = [0; SIGNATURE_LEN];
        if self.0.iter().all(|&hash| hash == u64::MAX) {
            return bytes;
        }
        for (number, value) in bytes.chunks_exact_mut(VALUE_LEN).enumerate() {
            let hash = self.filled(number);
            value.copy_from_slice(&xxh3_64(&hash.to_le_bytes()).to_le_bytes()[..VALUE_LEN]);
        }
        bytes
    }

    /// Returns the hash of a bin, of another one if it is empty. Which one depends on the number alone, so similar images choose the same.
    fn filled(&self, number: usize) -> u64 {
        (0..TRIES)
            .map(|attempt| match attempt {
                0 => number,
                _ => {
                    let mixed = xxh3_64_with_seed(&attempt.to_le_bytes(), number as u64);
                    (mixed % BINS as u64) as usize
                }
            })
            .map(|bin| self.0[bin])
            .find(|&hash| hash != u64::MAX)
            .unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes that look random and are the same each time.
    fn noise(length: usize, seed: u64) -> Vec<u8> {
        (0..length as u64 / 8)
            .flat_map(|at| xxh3_64_with_seed(&at.to_le_bytes(), seed).to_le_bytes())
            .collect()
    }

    fn signature(data: &[u8]) -> Signature {
        let mut bins = Bins::default();
        bins.add(data);
        bins.signature()
    }

    fn shared(one: &Signature, other: &Signature) -> usize {
        let values = one.chunks(VALUE_LEN).zip(other.chunks(VALUE_LEN));
        values.filter(|(mine, theirs)| mine == theirs).count()
    }

    #[test]
    fn moving_content_by_some_bytes_keeps_the_signature() {
        let image = noise(4 << 20, 1);
        let mut moved = noise(8, 2);
        moved.extend(&image);
        assert!(shared(&signature(&image), &signature(&moved[..])) >= BINS - 2);
        assert!(shared(&signature(&image), &signature(&moved[5..])) >= BINS - 2);
    }

    #[test]
    fn shared_values_are_in_proportion_to_shared_content() {
        let image = noise(8 << 20, 3);
        for eighths in [0, 2, 4, 6, 7] {
            let mut other = noise(8 << 20, 4);
            let kept = eighths << 20;
            other[..kept].copy_from_slice(&image[..kept]);
            // Of two images of the same length that share a part p: p / (2 - p).
            let part = eighths as f64 / 8.0;
            let expected = part / (2.0 - part) * BINS as f64;
            let found = shared(&signature(&image), &signature(&other)) as f64;
            let deviation = (expected * (1.0 - expected / BINS as f64)).sqrt();
            assert!(
                (found - expected).abs() <= 4.0 * deviation + 1.0,
                "{eighths}"
            );
        }
    }

    #[test]
    fn small_images_have_all_values_and_similar_ones_share_them() {
        let image = noise(32 << 10, 5);
        let mut other = image.clone();
        other[..4096].copy_from_slice(&noise(4096, 6));
        let (one, two) = (signature(&image), signature(&other));
        assert!(one.chunks(VALUE_LEN).all(|value| value != [0; VALUE_LEN]));
        assert!(shared(&one, &two) > BINS / 2);
        assert!(shared(&one, &signature(&noise(32 << 10, 7))) < 4);
    }

    #[test]
    fn parts_merge_to_the_whole() {
        let image = noise(1 << 20, 8);
        let mut bins = Bins::default();
        for part in image.chunks(256 << 10) {
            let mut one = Bins::default();
            one.add(part);
            bins.merge(&one);
        }
        assert!(shared(&bins.signature(), &signature(&image)) >= BINS - 2);
    }

    #[test]
    fn without_features_it_is_zero() {
        assert_eq!(signature(&[]), [0; SIGNATURE_LEN]);
        assert_eq!(signature(&[0; 100_000]), [0; SIGNATURE_LEN]);
    }
}
