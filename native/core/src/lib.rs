//! DiffCache core: sources, manifests and patches between disk images.
//!
//! Files in, files out: this crate knows no service, no network and no database. What the others build on:
//!
//! * [`source::ReadAt`]: random access to an image, wherever it is stored. Errors say whether another attempt may succeed.
//! * [`manifest::Manifest`]: the BLAKE3 subtree hashes of an image's 64 KiB leaves. They merge to the image's content id (what `b3sum` prints), so a
//!   manifest is verified by the id alone, and every leaf of an image by the manifest.
//! * [`sink::LeafSink`]: takes verified leaves in any order.
//! * [`patch`]: creates patches between images, applies them to files or to sinks, and reads through base + patch without applying.
//! * [`compressed`]: an image's data in frames of zstd, for thin links.
//! * [`near`]: bytes as copies of other bytes at any offset, plus the byte-wise difference.
//! * [`content_index`]: which leaves of an image other images have at the same place.
//! * [`overlap`]: how much of an image occurs in another at any offset, estimated.
//! * [`common_blocks`]: where the blocks of some chunks of an image occur in another.
//! * [`task::Task`]: threads, progress and cancellation of a long job; [`workers`]: threads that do jobs as they come.
//!
//! Errors are one enum per module. `is_retryable()` on an error means that the same call may succeed later or with another source; everything
//! else fails until the input changes.
//!
//! Nothing in this crate trusts a length, an offset or a count that it reads from a file before it is checked against the file's own size and
//! against the limits stated in the module that reads it.

pub mod common_blocks;
pub mod compressed;
pub mod content_index;
pub mod hash_tree;
pub mod leaf;
pub mod manifest;
pub mod near;
pub mod overlap;
pub mod patch;
pub mod reflink;
pub mod retry;
pub mod signature;
pub mod sink;
pub mod sketch;
pub mod source;
pub mod task;
pub mod workers;
pub mod zeroes;

#[cfg(test)]
#[path = "../tests/images/mod.rs"]
mod images;
