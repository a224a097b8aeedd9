//! Any part of a file, from a recipe with its sequence and the guest's content, without the rest of it.

use std::ops::Range;

use diffcache_core::hash_tree::{leaf_hash, Hash};
use diffcache_core::leaf::LEAF_SIZE;
use diffcache_core::task::{for_each_piece, Task};

use super::prediction::Tables;
use super::rebuild::{stored_offsets, Ingredients};
use super::sequence::{sorted_runs, Sequence, PIECE};
use super::{Difference, Recipe, Run};
use crate::compress::Pool;
use crate::error::Qcow2Error;

/// The places of all parts of a file.
pub struct RecipeView {
    file: Hash,
    size: u64,
    /// Offset and length of each stream, ascending.
    placed: Vec<(u64, u64)>,
    /// Where each stream starts among those that the patch stores.
    stored_at: Vec<u64>,
    /// By offset.
    runs: Vec<Run>,
    tables: Tables,
    pool: Pool,
}

impl RecipeView {
    /// Computes the places; `file` is the file's hash. `None` if the recipe does not say them.
    ///
    /// # Errors
    /// `BadPatch`; `Compressor` if this machine does not have it; `Memory`.
    pub fn new(recipe: &Recipe, file: &Hash) -> Result<Option<Self>, Qcow2Error> {
        let Some(sequence) = &recipe.sequence else {
            return Ok(None);
        };
        if !sequence.is_of(file) {
            return Err(Qcow2Error::bad_patch(
                "its pieces are not those of its file",
            ));
        }
        let layout = &recipe.layout;
        let overlap = || Qcow2Error::bad_patch("two clusters overlap");
        let runs = sorted_runs(&recipe.runs, layout.cluster_bits).ok_or_else(overlap)?;
        if !recipe
            .differences
            .windows(2)
            .all(|pair| end_of(&pair[0]) <= pair[1].offset)
        {
            return Err(Qcow2Error::bad_patch("two differences overlap"));
        }
        let placed = sequence.places(layout, &recipe.streams)?;
        Ok(Some(Self {
            file: *file,
            size: layout.file_size,
            stored_at: stored_offsets(&recipe.streams),
            tables: Tables::new(layout, &recipe.streams, &placed, &runs),
            runs,
            placed,
            pool: Pool::new(recipe.settings)?,
        }))
    }

    /// Returns the pieces of the file in `pieces`, verified. Compresses with the threads of `task`.
    ///
    /// # Errors
    /// `Integrity` if they are not the file's: its content is another one, or damaged; `Source`, `BaseMismatch`, `Memory`, `Cancelled`.
    pub fn read(
        &self,
        ingredients: &Ingredients<'_>,
        pieces: Range<u64>,
        task: &Task<'_>,
    ) -> Result<Vec<u8>, Qcow2Error> {
        ingredients.check_size()?;
        let start = pieces.start.saturating_mul(PIECE).min(self.size);
        let end = pieces.end.saturating_mul(PIECE).min(self.size);
        let mut window = Window::new(start, end);
        self.put_streams(ingredients, &mut window, task)?;
        self.put_runs(ingredients, &mut window)?;
        self.put_tables(&mut window);
        put_differences(&ingredients.recipe.differences, &mut window);
        let sequence = ingredients.recipe.sequence.as_ref();
        let verified = sequence.is_some_and(|sequence| {
            let mut found = pieces.clone().zip(window.bytes.chunks(PIECE as usize));
            found.all(|(piece, bytes)| self.is_piece(sequence, piece, bytes))
        });
        match verified {
            true => Ok(window.bytes),
            false => Err(Qcow2Error::Integrity),
        }
    }

    fn put_streams(
        &self,
        ingredients: &Ingredients<'_>,
        window: &mut Window,
        task: &Task<'_>,
    ) -> Result<(), Qcow2Error> {
        let streams = &ingredients.recipe.streams;
        let first = self
            .placed
            .partition_point(|&(offset, length)| offset + length <= window.start);
        let last = self
            .placed
            .partition_point(|&(offset, _)| offset < window.end);
        let made = for_each_piece(task, last.saturating_sub(first) as u64, |piece| {
            let at = first + piece as usize;
            ingredients.stream(&streams[at], self.stored_at[at], &self.pool)
        })?;
        for (&(offset, length), bytes) in self.placed[first..].iter().zip(&made) {
            // All that follows would be at another place.
            if bytes.len() as u64 != length {
                return Err(Qcow2Error::Integrity);
            }
            window.put(offset, bytes);
        }
        Ok(())
    }

    fn put_runs(
        &self,
        ingredients: &Ingredients<'_>,
        window: &mut Window,
    ) -> Result<(), Qcow2Error> {
        let layout = &ingredients.recipe.layout;
        let first = self
            .runs
            .partition_point(|run| run.offset + layout.visible(run) <= window.start);
        let last = window.end;
        for run in self.runs[first..]
            .iter()
            .take_while(|run| run.offset < last)
        {
            let guest = run.index << layout.cluster_bits;
            let start = run.offset.max(window.start);
            let end = (run.offset + layout.visible(run)).min(window.end);
            let target = &mut window.bytes[(start - window.start) as usize..];
            ingredients.content.read_exact_at(
                &mut target[..(end - start) as usize],
                guest + (start - run.offset),
            )?;
        }
        Ok(())
    }

    fn put_tables(&self, window: &mut Window) {
        // A table may begin before the window.
        let mut at = window.start.saturating_sub(self.tables.size() - 1);
        while let Some(offset) = self.tables.next_place(at).filter(|&at| at < window.end) {
            if let Some(table) = self.tables.at(offset) {
                window.put(offset, &table);
            }
            at = offset + 1;
        }
    }

    fn is_piece(&self, sequence: &Sequence, piece: u64, bytes: &[u8]) -> bool {
        if sequence.pieces.is_empty() {
            return *blake3::hash(bytes).as_bytes() == self.file;
        }
        let wanted = usize::try_from(piece)
            .ok()
            .and_then(|piece| sequence.pieces.get(piece));
        wanted == Some(&leaf_hash(piece * (PIECE / LEAF_SIZE), bytes))
    }
}

fn put_differences(differences: &[Difference], window: &mut Window) {
    let first = differences.partition_point(|difference| end_of(difference) <= window.start);
    let end = window.end;
    for difference in differences[first..]
        .iter()
        .take_while(|difference| difference.offset < end)
    {
        window.put(difference.offset, &difference.bytes);
    }
}

fn end_of(difference: &Difference) -> u64 {
    difference.offset + difference.bytes.len() as u64
}

/// A range of a file that is put together.
struct Window {
    start: u64,
    end: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            bytes: vec![0; (end - start) as usize],
        }
    }

    /// Puts the part of `data`, which is at `offset` in the file, that is inside.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let from = offset.clamp(self.start, self.end);
        let to = (offset + data.len() as u64).clamp(from, self.end);
        if from < to {
            self.bytes[(from - self.start) as usize..(to - self.start) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
    }
}
