//! Leaves: images in pieces of 64 KiB.

/// Bytes per leaf; only an image's last leaf may be shorter.
pub const LEAF_SIZE: u64 = 65536;
/// `LEAF_SIZE` as a length in memory.
pub const LEAF_LEN: usize = 65536;
/// Returns whether all bytes are zero. Runs at memory speed.
pub fn is_zero(data: &[u8]) -> bool {
    // Most data show in their first bytes that they are not zero, and most of the others within 4 KiB; in between an OR over a fixed width vectorises.
    let (head, rest) = data.split_at(data.len().min(64));
    no_bit(head) && rest.chunks(4032).all(no_bit)
}

fn no_bit(data: &[u8]) -> bool {
    let mut words = data.chunks_exact(8);
    let any = words.by_ref().fold(0u64, |any, word| {
        any | u64::from_ne_bytes([
            word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
        ])
    });
    any == 0 && words.remainder().iter().all(|byte| *byte == 0)
}

/// Returns the number of leaves of an image of `size` bytes.
pub fn leaf_count(size: u64) -> u64 {
    size.div_ceil(LEAF_SIZE)
}

/// Returns the length in bytes of leaf `index` of an image of `size` bytes: `LEAF_SIZE`, or less for the last.
pub fn leaf_len(size: u64, index: u64) -> usize {
    size.saturating_sub(index.saturating_mul(LEAF_SIZE))
        .min(LEAF_SIZE) as usize
}
