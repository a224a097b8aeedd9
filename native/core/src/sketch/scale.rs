//! What sampled blocks cost in a patch.

use super::{
    sampled, shift_for, Block, Placed, SketchError, BLOCK, CONTEXT, COSTED, FRAME_GAIN, ROUGH_LEVEL,
};
use crate::source::{ReadAt, SourceError};
use crate::task::{for_each_piece, Task};

/// Estimates the cost of each sampled block: roughly by itself, corrected by how far off this is for those also compressed in their places.
pub(super) fn cost(
    image: &dyn ReadAt,
    placed: &[Placed],
    shift: u32,
    data_blocks: u64,
    task: &Task<'_>,
) -> Result<Vec<Block>, SketchError> {
    let fine = shift_for(data_blocks, COSTED).max(shift);
    // Those to compress in place are chosen by other bits than those that were kept, or the second choice would depend on the first.
    let chosen = |hash: u64| sampled(hash << shift, fine - shift);
    let silent = task.silent();
    let groups = for_each_piece(&silent, placed.len().div_ceil(GROUP) as u64, |group| {
        let from = group as usize * GROUP;
        let mut scale = Scale::new()?;
        placed[from..placed.len().min(from + GROUP)]
            .iter()
            .map(|&(hash, place)| {
                let alone = scale.alone(image, place)?;
                let inside = if chosen(hash) {
                    Some(scale.inside(image, place)?)
                } else {
                    None
                };
                Ok((hash, alone, inside))
            })
            .collect::<Result<Vec<_>, SketchError>>()
    })?;
    let weighed: Vec<_> = groups.into_iter().flatten().collect();
    let mut classes = [(0_u64, 0_u64); CLASSES];
    for &(_, alone, inside) in &weighed {
        if let Some(inside) = inside {
            let class = &mut classes[class_of(alone)];
            *class = (class.0 + 1, class.1 + u64::from(inside));
        }
    }
    let cost = |alone: u16| match classes[class_of(alone)] {
        (0, _) => alone,
        (count, bytes) => (bytes / count) as u16,
    };
    Ok(weighed
        .into_iter()
        .map(|(hash, alone, inside)| Block {
            hash,
            cost: inside.unwrap_or_else(|| cost(alone)),
        })
        .collect())
}

/// Blocks that compress to similar sizes by themselves.
const CLASSES: usize = 32;

/// Blocks weighed as one piece of work.
const GROUP: usize = 256;

fn class_of(alone: u16) -> usize {
    (usize::from(alone) * CLASSES / (BLOCK + 1)).min(CLASSES - 1)
}

/// Measures the cost of a block.
struct Scale {
    full: zstd_safe::CCtx<'static>,
    rough: zstd_safe::CCtx<'static>,
    data: Vec<u8>,
    packed: Vec<u8>,
}

impl Scale {
    fn new() -> Result<Self, SketchError> {
        use zstd_safe::CParameter as Parameter;
        let mut full = new_context()?;
        // What level 3, the block codec's default, means for large inputs. Left to itself, zstd takes other tables for other lengths,
        // and a difference between two lengths would be one of tables.
        for parameter in [
            Parameter::CompressionLevel(3),
            Parameter::WindowLog(20),
            Parameter::HashLog(17),
            Parameter::ChainLog(16),
            Parameter::MinMatch(5),
            Parameter::Strategy(zstd_safe::Strategy::ZSTD_dfast),
        ] {
            full.set_parameter(parameter)
                .map_err(|_| SketchError::Memory)?;
        }
        Ok(Self {
            full,
            rough: new_context()?,
            data: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Returns the bytes that the block at `place` compresses to by itself, roughly.
    fn alone(&mut self, image: &dyn ReadAt, place: u64) -> Result<u16, SketchError> {
        let end = image.len().min(place + BLOCK as u64);
        self.read(image, place, end)?;
        self.make_room(self.data.len());
        let size = self
            .rough
            .compress(&mut self.packed, &self.data, ROUGH_LEVEL)
            .map_err(|_| SketchError::Memory)?;
        Ok(size.min(BLOCK) as u16)
    }

    /// Returns the bytes that the block at `place` adds to those before it.
    fn inside(&mut self, image: &dyn ReadAt, place: u64) -> Result<u16, SketchError> {
        let start = place.saturating_sub(CONTEXT as u64);
        let end = image.len().min(place + BLOCK as u64);
        self.read(image, start, end)?;
        let before = self.size((place - start) as usize)?;
        let added = self.size((end - start) as usize)?.saturating_sub(before);
        if added >= BLOCK {
            return Ok(BLOCK as u16);
        }
        Ok((added as f64 * FRAME_GAIN) as u16)
    }

    fn read(&mut self, image: &dyn ReadAt, start: u64, end: u64) -> Result<(), SourceError> {
        self.data.resize((end - start) as usize, 0);
        image.read_exact_at(&mut self.data, start)
    }

    fn size(&mut self, length: usize) -> Result<usize, SketchError> {
        self.make_room(length);
        self.full
            .compress2(&mut self.packed, &self.data[..length])
            .map_err(|_| SketchError::Memory)
    }

    fn make_room(&mut self, length: usize) {
        self.packed.clear();
        self.packed.reserve(zstd_safe::compress_bound(length));
    }
}

fn new_context() -> Result<zstd_safe::CCtx<'static>, SketchError> {
    zstd_safe::CCtx::try_create().ok_or(SketchError::Memory)
}
