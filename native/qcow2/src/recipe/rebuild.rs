//! Rebuilding a file from its recipe and the guest's content.

use std::fs::File;
use std::os::unix::fs::FileExt;

use diffcache_core::source::ReadAt;
use diffcache_core::task::{for_each_piece, Meter, Task};

use super::prediction::Tables;
use super::{Layout, Origin, Recipe, Run, Stream};
use crate::cluster::Cluster;
use crate::compress::Pool;
use crate::error::{written, Qcow2Error};
use crate::source::Qcow2Source;

/// Content that is compressed before it is written, in bytes: what the threads work on at a time.
const BATCH: u64 = 32 << 20;
/// Plain content is copied in pieces of this many bytes.
const COPY: u64 = 1 << 20;

/// Inputs of a rebuild.
pub struct Ingredients<'a> {
    /// The target's recipe.
    pub recipe: &'a Recipe,
    /// The target's guest content.
    pub content: &'a dyn ReadAt,
    /// The base to copy streams from, if it is the file that the patch was created from.
    pub base: Option<&'a Qcow2Source>,
    /// Streams that the patch stores, one after the other.
    pub stored: &'a dyn ReadAt,
}

/// Writes the file that `ingredients` give to `out`, an empty file.
///
/// # Errors
/// `Source`, `BadPatch`, `BaseMismatch`, `Compressor`, `Memory`, `Write`, `Cancelled`.
pub fn rebuild(
    ingredients: &Ingredients<'_>,
    out: &File,
    task: &Task<'_>,
) -> Result<(), Qcow2Error> {
    let recipe = ingredients.recipe;
    ingredients.check_size()?;
    written(out.set_len(recipe.layout.file_size))?;
    let writer = Writer {
        ingredients,
        out,
        pool: Pool::new(recipe.settings)?,
        meter: task.meter(recipe.layout.file_size),
    };
    let placed = writer.write_streams(task)?;
    for run in &recipe.runs {
        writer.write_run(run, task)?;
    }
    let tables = Tables::new(&recipe.layout, &recipe.streams, &placed, &recipe.runs);
    let mut at = 0;
    while let Some(offset) = tables.next_place(at) {
        if let Some(table) = tables.at(offset) {
            written(out.write_all_at(&table, offset))?;
        }
        at = offset + 1;
    }
    for difference in &recipe.differences {
        written(out.write_all_at(&difference.bytes, difference.offset))?;
    }
    Ok(())
}

impl Ingredients<'_> {
    /// Returns the stream of one compressed cluster; of a stored one that at `stored_at`.
    pub(super) fn stream(
        &self,
        stream: &Stream,
        stored_at: u64,
        pool: &Pool,
    ) -> Result<Vec<u8>, Qcow2Error> {
        match (stream.origin, self.base) {
            (Origin::Stored(length), _) => {
                let mut bytes = vec![0; length as usize];
                self.stored.read_exact_at(&mut bytes, stored_at)?;
                Ok(bytes)
            }
            (Origin::Copy(twin), Some(base)) => copy(base, twin),
            (Origin::Copy(_), None) => Err(Qcow2Error::BaseMismatch(
                "it needs the base as the qcow2 file that it was created from".into(),
            )),
            (Origin::RecompressOrCopy(twin), Some(base)) => {
                copy(base, twin).or_else(|_| self.recompress(stream.index, pool))
            }
            (Origin::Recompress | Origin::RecompressOrCopy(_), _) => {
                self.recompress(stream.index, pool)
            }
        }
    }

    fn recompress(&self, index: u64, pool: &Pool) -> Result<Vec<u8>, Qcow2Error> {
        let layout = &self.recipe.layout;
        let cluster_size = layout.cluster_size();
        let start = index * cluster_size;
        let visible = cluster_size.min(layout.guest_size - start) as usize;
        let mut cluster = vec![0; cluster_size as usize];
        self.content.read_exact_at(&mut cluster[..visible], start)?;
        let mut out = Vec::new();
        match pool.compress(&cluster, &mut out)? {
            true => Ok(out),
            // The right content was compressible when the patch was created.
            false => Err(Qcow2Error::BaseMismatch(
                "its content differs from that of the base the patch was created from".into(),
            )),
        }
    }

    pub(super) fn check_size(&self) -> Result<(), Qcow2Error> {
        match self.content.len() == self.recipe.layout.guest_size {
            true => Ok(()),
            false => Err(Qcow2Error::bad_patch(
                "content and recipe are of different sizes",
            )),
        }
    }
}

struct Writer<'a> {
    ingredients: &'a Ingredients<'a>,
    out: &'a File,
    pool: Pool,
    meter: Meter<'a>,
}

impl Writer<'_> {
    fn layout(&self) -> &Layout {
        &self.ingredients.recipe.layout
    }

    /// Writes the compressed clusters; returns offset and length of each.
    fn write_streams(&self, task: &Task<'_>) -> Result<Vec<(u64, u64)>, Qcow2Error> {
        let streams = &self.ingredients.recipe.streams;
        let stored_at = stored_offsets(streams);
        let mut placed = Vec::with_capacity(streams.len());
        let batch = (BATCH >> self.layout().cluster_bits).max(1) as usize;
        let mut end = 0;
        for (number, part) in streams.chunks(batch).enumerate() {
            let first = number * batch;
            let made = for_each_piece(task, part.len() as u64, |piece| {
                let at = piece as usize;
                self.ingredients
                    .stream(&part[at], stored_at[first + at], &self.pool)
            })?;
            let mut joined = Joined::new(self.out);
            for (stream, bytes) in part.iter().zip(&made) {
                let length = bytes.len() as u64;
                let offset = self.layout().place(end, stream.offset, length)?;
                joined.append(offset, bytes)?;
                placed.push((offset, length));
                end = offset + length;
                self.meter.add(length);
            }
            joined.flush()?;
        }
        Ok(placed)
    }

    fn write_run(&self, run: &Run, task: &Task<'_>) -> Result<(), Qcow2Error> {
        let start = run.index << self.layout().cluster_bits;
        let visible = self.layout().visible(run);
        for_each_piece(task, visible.div_ceil(COPY), |piece| {
            let from = piece * COPY;
            let mut bytes = vec![0; COPY.min(visible - from) as usize];
            self.ingredients
                .content
                .read_exact_at(&mut bytes, start + from)?;
            written(self.out.write_all_at(&bytes, run.offset + from))?;
            self.meter.add(bytes.len() as u64);
            Ok::<(), Qcow2Error>(())
        })?;
        Ok(())
    }
}

/// Copies the stream of the base's guest cluster `index`.
fn copy(base: &Qcow2Source, index: u64) -> Result<Vec<u8>, Qcow2Error> {
    let Cluster::Compressed { offset, length } = base.map().cluster(index) else {
        return Err(Qcow2Error::BaseMismatch(
            "a cluster it should copy is not compressed there".into(),
        ));
    };
    let (mut stream, mut cluster) = (Vec::new(), Vec::new());
    base.read_compressed(offset, length, &mut stream, &mut cluster)?;
    Ok(stream)
}

/// Returns where in the patch's stored bytes each stream starts.
pub(super) fn stored_offsets(streams: &[Stream]) -> Vec<u64> {
    let mut at = 0;
    streams
        .iter()
        .map(|stream| {
            let start = at;
            if let Origin::Stored(length) = stream.origin {
                at += u64::from(length);
            }
            start
        })
        .collect()
}

/// Gathers writes that follow each other into few calls.
struct Joined<'a> {
    out: &'a File,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Joined<'a> {
    fn new(out: &'a File) -> Self {
        Self {
            out,
            start: 0,
            bytes: Vec::new(),
        }
    }

    fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Qcow2Error> {
        if self.start + self.bytes.len() as u64 != offset {
            self.flush()?;
            self.start = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Qcow2Error> {
        written(self.out.write_all_at(&self.bytes, self.start))?;
        self.bytes.clear();
        Ok(())
    }
}
