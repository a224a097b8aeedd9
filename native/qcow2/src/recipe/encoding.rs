//! How a recipe is stored in a patch.

use diffcache_base::varint::put;

use super::varint::{put_step, Reader};
use super::{Difference, Layout, Origin, Recipe, Run, Sequence, Stream, MAX_STREAMS};
use crate::compress::Settings;
use crate::error::Qcow2Error;

const ORIGIN_RECOMPRESS: u8 = 0;
const ORIGIN_EITHER: u8 = 1;
const ORIGIN_COPY: u8 = 2;
const ORIGIN_STORED: u8 = 3;
const SETTINGS_ZLIB: u64 = 0;
const SETTINGS_ZSTD: u64 = 1;

impl Recipe {
    /// Encodes the recipe. Offsets become distances from the end of the stream before, which `placed` (offset and length of each) gives:
    /// they are nearly all zero.
    pub fn encode(&self, placed: &[(u64, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        self.layout.encode(&mut out);
        let settings = match self.settings {
            Settings::Zlib { level, memory } => [SETTINGS_ZLIB, level.into(), memory.into()],
            Settings::Zstd { level, version } => [SETTINGS_ZSTD, level.into(), version.into()],
        };
        for value in settings {
            put(&mut out, value);
        }
        put(&mut out, self.streams.len() as u64);
        self.encode_streams(placed, &mut out);
        put(&mut out, self.runs.len() as u64);
        let mut last = (0, 0);
        for run in &self.runs {
            put_step(&mut out, last.0, run.index);
            put_step(&mut out, last.1, run.offset);
            put(&mut out, run.count);
            last = (
                run.index + run.count,
                run.offset + (run.count << self.layout.cluster_bits),
            );
        }
        put(&mut out, self.differences.len() as u64);
        let mut at = 0;
        for difference in &self.differences {
            put_step(&mut out, at, difference.offset);
            put(&mut out, difference.bytes.len() as u64);
            at = difference.offset + difference.bytes.len() as u64;
        }
        for difference in &self.differences {
            out.extend_from_slice(&difference.bytes);
        }
        if let Some(sequence) = &self.sequence {
            sequence.encode(&self.streams, &mut out);
        }
        out
    }

    /// Encodes one column after the other: similar values next to each other compress better.
    fn encode_streams(&self, placed: &[(u64, u64)], out: &mut Vec<u8>) {
        out.extend(self.streams.iter().map(|stream| match stream.origin {
            Origin::Recompress => ORIGIN_RECOMPRESS,
            Origin::RecompressOrCopy(_) => ORIGIN_EITHER,
            Origin::Copy(_) => ORIGIN_COPY,
            Origin::Stored(_) => ORIGIN_STORED,
        }));
        let mut next = 0;
        for stream in &self.streams {
            put_step(out, next, stream.index);
            next = stream.index + 1;
        }
        let mut end = 0;
        for &(offset, length) in placed {
            put_step(out, end, offset);
            end = offset + length;
        }
        for stream in &self.streams {
            match stream.origin {
                Origin::Recompress => {}
                Origin::RecompressOrCopy(twin) | Origin::Copy(twin) => {
                    put_step(out, stream.index, twin)
                }
                Origin::Stored(length) => put(out, length.into()),
            }
        }
    }

    /// Decodes what [`Recipe::encode`] returned. The streams' offsets are still distances; [`Layout::place`] resolves them.
    pub fn decode(bytes: &[u8]) -> Result<Self, Qcow2Error> {
        let mut reader = Reader(bytes);
        let layout = Layout::decode(&mut reader)?;
        let settings = decode_settings(&mut reader)?;
        let streams = decode_streams(&mut reader, &layout)?;
        let runs = decode_runs(&mut reader, &layout)?;
        let differences = decode_differences(&mut reader, &layout)?;
        let sequence = Sequence::decode(&mut reader, &layout, &streams)?;
        Ok(Self {
            layout,
            settings,
            streams,
            runs,
            differences,
            sequence,
        })
    }
}

fn decode_settings(reader: &mut Reader<'_>) -> Result<Settings, Qcow2Error> {
    let bad = |_| Qcow2Error::bad_patch("an unknown compressor");
    let (kind, level, extra) = (reader.take()?, reader.take()?, reader.take()?);
    let level = u8::try_from(level).map_err(bad)?;
    match kind {
        SETTINGS_ZLIB => Ok(Settings::Zlib {
            level,
            memory: u8::try_from(extra).map_err(bad)?,
        }),
        SETTINGS_ZSTD => Ok(Settings::Zstd {
            level,
            version: u32::try_from(extra).map_err(bad)?,
        }),
        _ => Err(Qcow2Error::bad_patch("an unknown compressor")),
    }
}

fn decode_streams(reader: &mut Reader<'_>, layout: &Layout) -> Result<Vec<Stream>, Qcow2Error> {
    let count = reader.take_count()?;
    if count > MAX_STREAMS {
        return Err(Qcow2Error::bad_patch("too many clusters"));
    }
    let kinds = reader.take_bytes(count)?;
    let clusters = layout.guest_size.div_ceil(layout.cluster_size());
    let mut streams = Vec::with_capacity(count);
    let mut next = 0;
    for _ in 0..count {
        let index = reader.take_step(next)?;
        if index >= clusters {
            return Err(Qcow2Error::bad_patch("a cluster beyond the disk's end"));
        }
        streams.push(Stream {
            index,
            offset: 0,
            origin: Origin::Recompress,
        });
        next = index + 1;
    }
    for stream in &mut streams {
        stream.offset = reader.take_step(0)?;
    }
    for (stream, &kind) in streams.iter_mut().zip(kinds) {
        stream.origin = match kind {
            ORIGIN_RECOMPRESS => Origin::Recompress,
            ORIGIN_EITHER => Origin::RecompressOrCopy(reader.take_step(stream.index)?),
            ORIGIN_COPY => Origin::Copy(reader.take_step(stream.index)?),
            ORIGIN_STORED => Origin::Stored(layout.stream_length(reader.take()?)?),
            _ => return Err(Qcow2Error::bad_patch("a cluster of unknown origin")),
        };
    }
    Ok(streams)
}

fn decode_runs(reader: &mut Reader<'_>, layout: &Layout) -> Result<Vec<Run>, Qcow2Error> {
    let bad = || Qcow2Error::bad_patch("a plain cluster outside the file");
    let clusters = layout.guest_size.div_ceil(layout.cluster_size());
    let mut total = 0_u64;
    let mut last = (0_u64, 0_u64);
    let mut runs = Vec::new();
    for _ in 0..reader.take_count()? {
        let run = Run {
            index: reader.take_step(last.0)?,
            offset: reader.take_step(last.1)?,
            count: reader.take()?,
        };
        let guest_end = run
            .index
            .checked_add(run.count)
            .filter(|&end| end <= clusters)
            .ok_or_else(bad)?;
        let bytes = run
            .count
            .checked_mul(layout.cluster_size())
            .ok_or_else(bad)?;
        let file_end = run.offset.checked_add(bytes).ok_or_else(bad)?;
        // Only the last cluster of a file may be cut short.
        if run.count == 0 || file_end - layout.cluster_size() >= layout.file_size {
            return Err(bad());
        }
        total = total.saturating_add(run.count);
        last = (guest_end, file_end);
        runs.push(run);
    }
    if total > MAX_STREAMS as u64 {
        return Err(Qcow2Error::bad_patch("too many clusters"));
    }
    Ok(runs)
}

fn decode_differences(
    reader: &mut Reader<'_>,
    layout: &Layout,
) -> Result<Vec<Difference>, Qcow2Error> {
    let mut places = Vec::new();
    let mut at = 0;
    for _ in 0..reader.take_count()? {
        let offset = reader.take_step(at)?;
        let length = reader.take_count()?;
        let end = offset
            .checked_add(length as u64)
            .filter(|&end| end <= layout.file_size);
        at = end.ok_or_else(|| Qcow2Error::bad_patch("a difference outside the file"))?;
        places.push((offset, length));
    }
    let mut differences = Vec::with_capacity(places.len());
    for (offset, length) in places {
        differences.push(Difference {
            offset,
            bytes: reader.take_bytes(length)?.to_vec(),
        });
    }
    Ok(differences)
}
