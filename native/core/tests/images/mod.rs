//! Random images, and what became of them.

use proptest::prelude::*;

mod noise;

pub use noise::noise;

/// Bytes per block.
pub const BLOCK: usize = 4096;

/// One change to an image.
#[derive(Debug, Clone)]
enum Edit {
    Overwrite { at: usize, len: usize, seed: u64 },
    Zero { at: usize, len: usize },
    Move { from: usize, to: usize, len: usize },
    Truncate { len: usize },
    Grow { len: usize, seed: Option<u64> },
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = 0..600_000usize;
    let len = prop_oneof![
        1..200usize,
        1..40_000usize,
        (1..30usize).prop_map(|n| n * BLOCK)
    ];
    let place = prop_oneof![at.clone(), (0..150usize).prop_map(|n| n * BLOCK)];
    prop_oneof![
        (place.clone(), len.clone(), any::<u64>()).prop_map(|(at, len, seed)| Edit::Overwrite {
            at,
            len,
            seed
        }),
        (place.clone(), len.clone()).prop_map(|(at, len)| Edit::Zero { at, len }),
        (place.clone(), place, len.clone()).prop_map(|(from, to, len)| Edit::Move {
            from,
            to,
            len
        }),
        at.prop_map(|len| Edit::Truncate { len }),
        (len, any::<Option<u64>>()).prop_map(|(len, seed)| Edit::Grow { len, seed }),
    ]
}

fn apply_edit(image: &mut Vec<u8>, edit: &Edit) {
    let clip = |at: usize, len: usize, size: usize| at.min(size)..(at + len).min(size);
    match edit {
        Edit::Overwrite { at, len, seed } => {
            let range = clip(*at, *len, image.len());
            let new = noise(*seed, range.len());
            image[range].copy_from_slice(&new);
        }
        Edit::Zero { at, len } => {
            let range = clip(*at, *len, image.len());
            image[range].fill(0);
        }
        Edit::Move { from, to, len } => {
            let piece = image[clip(*from, *len, image.len())].to_vec();
            let range = clip(*to, piece.len(), image.len());
            let len = range.len();
            image[range].copy_from_slice(&piece[..len]);
        }
        Edit::Truncate { len } => image.truncate(*len),
        Edit::Grow { len, seed } => match seed {
            Some(seed) => image.extend(noise(*seed, *len)),
            None => image.extend(std::iter::repeat_n(0, *len)),
        },
    }
}

/// An image of text, noise and holes.
fn image() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        (any::<u64>(), 1..100_000usize).prop_map(|(seed, len)| noise(seed, len)),
        (1..200_000usize).prop_map(|len| vec![0; len]),
        (1..100_000usize).prop_map(|len| (0..len).map(|i| (i / 97) as u8).collect()),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// A base and what edits made of it.
pub fn pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (image(), prop::collection::vec(edit(), 0..8)).prop_map(|(base, edits)| {
        let mut target = base.clone();
        edits.iter().for_each(|edit| apply_edit(&mut target, edit));
        (base, target)
    })
}
