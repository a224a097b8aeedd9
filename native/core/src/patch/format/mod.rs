//! The patch file format, versions 1 and 2. All integers are little-endian.
//!
//! ```text
//! header    288 bytes, see `Header`; its last 32 bytes are the BLAKE3 of those before
//! data      the literal frames, one after the other
//! meta      map    zstd: the runs of blocks of the target, in order
//!           frames zstd: one record per literal frame, in order
//!           leaves 32 bytes per changed leaf of the target, in order
//! ```
//!
//! Integers inside the map and the frame records are LEB128 varints; differences are zigzag-coded.
//!
//! * map: per run `length * 4 + kind`; kind 0 zero, 1 base, 2 the next literals, 3 other literals. Base: then the difference of (base block -
//!   target block) to that of the last base run. Other literals: then the index of the first.
//! * frame: blocks; bytes in the file; kind (0 stored, 1 zstd, 2 near; the last in version 2 only); number of dictionary pieces; per piece the difference of its first base block to
//!   the end of the last piece, and its blocks; and the low 32 bits of the XXH3 of the frame's bytes in the file (4 bytes). The dictionary is the
//!   concatenation of its pieces of the base, padded with zeroes past the base's end.
//! * leaves: a leaf is *changed* unless all its blocks are zero, or all come from the base at the same offset and the base's leaf has the same length.
//!   An image of a single leaf has none.

mod frames;
mod header;
mod records;

pub use frames::{frame_check, Coded, Frame, FrameKind, Piece};
pub use header::{
    block_count, info, read_meta, Header, PatchInfo, HEADER_LEN, LEAF_BLOCKS, MAGIC,
    MAX_DICT_BLOCKS, MAX_FRAMES, MAX_FRAME_BLOCKS, MAX_RUNS, MAX_SIZE, STALE_UNKNOWN,
};
pub use records::{decode_frames, decode_map, encode_frames, encode_map};
