//! The `block` codec: patches between two disk images.
//!
//! A patch has for every 4 KiB block of its target whether it is all zeroes, block `n` of the base, or literal `n`. Literals are
//! kept in the order of the target and compressed in frames that are readable on their own, with a few pieces of the base as dictionary where that
//! pays, or as near copies of them (see [`crate::near`]); so any range of the target is read from little of base and patch, and a patch can be applied, or read through, wherever base and patch are stored.
//!
//! It also carries the hashes of those of the target's leaves that differ from the base's at the same place. Base manifest + patch = target
//! manifest, which must merge to the target's content id: given that id, neither base nor patch has to be trusted.
//!
//! The file format is in [`format`]. Memory while a patch is created, read or applied is bounded whatever the sizes: see [`format::MAX_RUNS`],
//! [`format::MAX_FRAMES`] and [`CreateOptions`].

pub mod apply;
mod build;
mod compare;
mod compress;
pub mod create;
mod error;
pub mod format;
pub mod frame_cache;
pub mod in_place;
mod index;
mod leaves;
mod literal_frames;
mod literals;
mod matching;
mod near_frames;
mod near_index;
mod new_file;
mod options;
pub mod reader;
mod repeats;
mod runs;
mod verified;
pub mod view;
mod writer;

pub use apply::{apply, apply_to_sink, apply_verified, target_manifest, verify, ApplyStats};
pub use create::{create, create_in, CreateStats};
pub use error::PatchError;
pub use format::{info, PatchInfo};
pub use in_place::apply_in_place;
pub(crate) use index::block_hash;
pub use options::CreateOptions;
pub use verified::VerifiedBase;
pub use view::PatchView;

/// Version of the format of patches.
pub const VERSION: u32 = 1;
