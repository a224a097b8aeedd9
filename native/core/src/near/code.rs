//! A target as copies from a reference, differences and literals.
//!
//! A coded target has three parts. The *control* part is a list of varints: for each copy the number of literal bytes before it, its length, and the
//! difference (zigzag-coded) of its place in the reference to the place that the shift of the last copy would give. Literals that follow the last copy
//! are not counted. The *literals* are the bytes outside of all copies. The *differences* are, for each byte of all copies, a signed byte: the
//! target's less the reference's and a carry, modulo 256. The carry is 0 at the start of a copy, and then what the sum of the last byte, its carry and
//! its difference was beyond 0..=255: -1, 0 or 1. So a number of several bytes has the same difference wherever it grew by the same amount, and where it
//! starts need not be known.

use super::align::Copy;
use diffcache_base::varint;

/// A target, taken apart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Lengths and places of the copies.
    pub control: Vec<u8>,
    /// The bytes outside of copies.
    pub literals: Vec<u8>,
    /// The differences of the bytes inside.
    pub differences: Vec<u8>,
}

/// Why a coded target cannot be put together: it contradicts itself or its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("copies contradict the lengths of target and reference")]
pub struct Contradiction;

/// Returns the most bytes that the control part of a target of `len` bytes has: a reader refuses more.
pub const fn max_control(len: usize) -> usize {
    len / 2 + 64
}

impl Parts {
    /// Takes a target apart. The copies are in order, do not overlap, and their places are in the reference.
    pub fn encode(target: &[u8], copies: &[Copy], reference: &[u8]) -> Parts {
        let mut parts = Parts::default();
        let (mut at, mut from) = (0usize, 0i64);
        for copy in copies {
            let (start, end) = (copy.at as usize, copy.end() as usize);
            let gap = start - at;
            varint::put(&mut parts.control, gap as u64);
            varint::put(&mut parts.control, u64::from(copy.len));
            let place = copy.from as i64;
            varint::put(
                &mut parts.control,
                varint::zigzag(place - (from + gap as i64)),
            );
            parts.literals.extend_from_slice(&target[at..start]);
            let old = &reference[copy.from as usize..copy.from as usize + copy.len as usize];
            subtract(&target[start..end], old, &mut parts.differences);
            at = end;
            from = place + i64::from(copy.len);
        }
        parts.literals.extend_from_slice(&target[at..]);
        parts
    }

    /// Puts a target together in `target`, whose length it has.
    ///
    /// # Errors
    /// `Contradiction` if the parts do not fit together; then the contents of `target` mean nothing.
    pub fn decode(
        control: &[u8],
        literals: &[u8],
        differences: &[u8],
        reference: &[u8],
        target: &mut [u8],
    ) -> Result<(), Contradiction> {
        let mut numbers = control;
        let (mut rest, mut literals, mut differences) = (target, literals, differences);
        let mut from = 0i64;
        while !numbers.is_empty() {
            let gap = length(&mut numbers)?;
            let len = length(&mut numbers)?;
            let jump = varint::unzigzag(varint::take(&mut numbers).ok_or(Contradiction)?);
            take_literals(&mut rest, &mut literals, gap)?;
            let place = from
                .checked_add(gap as i64)
                .and_then(|place| place.checked_add(jump))
                .ok_or(Contradiction)?;
            let start = usize::try_from(place).map_err(|_| Contradiction)?;
            let end = start.checked_add(len).ok_or(Contradiction)?;
            let old = reference.get(start..end).ok_or(Contradiction)?;
            let (difference, later) = differences.split_at_checked(len).ok_or(Contradiction)?;
            let (new, behind) = std::mem::take(&mut rest)
                .split_at_mut_checked(len)
                .ok_or(Contradiction)?;
            add(old, difference, new);
            (rest, differences) = (behind, later);
            from = end as i64;
        }
        let left = rest.len();
        take_literals(&mut rest, &mut literals, left)?;
        match literals.is_empty() && differences.is_empty() {
            true => Ok(()),
            false => Err(Contradiction),
        }
    }
}

/// Appends the differences of two pieces of the same length.
fn subtract(new: &[u8], old: &[u8], differences: &mut Vec<u8>) {
    let at = differences.len();
    differences.resize(at + new.len(), 0);
    let words = new.chunks(8).zip(old.chunks(8));
    let mut carry = 0i16;
    for ((new, old), out) in words.zip(differences[at..].chunks_mut(8)) {
        if carry == 0 && new == old {
            continue;
        }
        for ((new, old), out) in new.iter().zip(old).zip(out) {
            let sum = i16::from(*old) + carry;
            let difference = (i16::from(*new) - sum) as u8 as i8;
            *out = difference as u8;
            carry = (sum + i16::from(difference)) >> 8;
        }
    }
}

/// Puts a piece together from another and the differences: the opposite of `subtract`.
fn add(old: &[u8], differences: &[u8], new: &mut [u8]) {
    let words = old.chunks(8).zip(differences.chunks(8));
    let mut carry = 0i16;
    for ((old, differences), new) in words.zip(new.chunks_mut(8)) {
        if carry == 0 && differences == &[0; 8][..differences.len()] {
            new.copy_from_slice(old);
            continue;
        }
        for ((old, difference), new) in old.iter().zip(differences).zip(new) {
            let sum = i16::from(*old) + carry + i16::from(*difference as i8);
            *new = sum as u8;
            carry = sum >> 8;
        }
    }
}

fn length(numbers: &mut &[u8]) -> Result<usize, Contradiction> {
    let number = varint::take(numbers).ok_or(Contradiction)?;
    // No target is as long as that; what follows cannot overflow.
    u32::try_from(number)
        .map(|number| number as usize)
        .map_err(|_| Contradiction)
}

fn take_literals(
    rest: &mut &mut [u8],
    literals: &mut &[u8],
    len: usize,
) -> Result<(), Contradiction> {
    let (these, later) = literals.split_at_checked(len).ok_or(Contradiction)?;
    let (new, behind) = std::mem::take(rest)
        .split_at_mut_checked(len)
        .ok_or(Contradiction)?;
    new.copy_from_slice(these);
    (*rest, *literals) = (behind, later);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;
    use proptest::prelude::*;

    fn round_trip(target: &[u8], copies: &[Copy], reference: &[u8]) -> Vec<u8> {
        let parts = Parts::encode(target, copies, reference);
        let mut out = vec![0xaa; target.len()];
        Parts::decode(
            &parts.control,
            &parts.literals,
            &parts.differences,
            reference,
            &mut out,
        )
        .unwrap();
        assert_eq!(parts.literals.len() + parts.differences.len(), target.len());
        out
    }

    proptest! {
        #[test]
        fn what_was_taken_apart_is_put_together(
            seed in any::<u64>(),
            steps in prop::collection::vec((0..40u32, 1..60u32, 0..900u64, any::<bool>()), 0..20),
        ) {
            let reference = noise(seed, 1000);
            let (mut target, mut copies) = (Vec::new(), Vec::new());
            for (gap, len, from, is_equal) in steps {
                target.extend(noise(seed ^ from, gap as usize));
                copies.push(Copy { at: target.len() as u32, len, from });
                let old = &reference[from as usize..][..len as usize];
                target.extend(match is_equal {
                    true => old.to_vec(),
                    false => noise(seed ^ 1, len as usize),
                });
            }
            target.extend(noise(seed ^ 2, 9));
            prop_assert_eq!(round_trip(&target, &copies, &reference), target);
        }
    }

    #[test]
    fn numbers_that_grew_by_the_same_amount_have_the_same_differences() {
        for shift in [0x40i32, -0x40, 0x1c0, -70_000] {
            let numbers = (0..1000i32).map(|n| 0x12_0000 + n * 977);
            let old: Vec<u8> = numbers.clone().flat_map(i32::to_le_bytes).collect();
            let new: Vec<u8> = numbers.flat_map(|n| (n + shift).to_le_bytes()).collect();
            let copy = Copy {
                at: 0,
                len: 4000,
                from: 0,
            };
            let parts = Parts::encode(&new, &[copy], &old);
            let mut different: Vec<&[u8]> = parts.differences.chunks(4).collect();
            different.dedup();
            assert_eq!(different.len(), 1, "{shift}: {different:?}");
            assert!(round_trip(&new, &[copy], &old) == new);
        }
    }

    #[test]
    fn places_outside_of_the_reference_are_refused() {
        let mut out = [0; 10];
        for control in [[0, 10, 2], [0, 10, 1], [1, 10, 0], [0, 11, 0]] {
            assert!(Parts::decode(&control, &[], &[0; 10], &[7; 10], &mut out).is_err());
        }
        assert!(Parts::decode(&[0, 10, 0], &[], &[0; 10], &[7; 10], &mut out).is_ok());
        assert!(Parts::decode(&[0, 10, 0], &[1], &[0; 10], &[7; 10], &mut out).is_err());
    }
}
