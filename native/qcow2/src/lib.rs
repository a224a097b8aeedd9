//! qcow2 images: reading their guest content, writing new ones, and patches that re-create such a file bit for bit.
//!
//! * [`header`], [`cluster`], [`map`]: the tables of an image, checked; [`Qcow2Source`]: what a guest reads; [`image`]: raw or qcow2 alike.
//! * [`snapshots`]: the internal snapshots of a server's disk, and what changed between two of its states.
//! * [`writer`]: new files, tables first.
//! * [`compress`]: compressing clusters exactly as QEMU does; [`recipe`]: what a file is beyond the guest's content; [`patch`]: the patch
//!   codec, a block patch between *contents* and the recipe of the target's file.
//!
//! An image is input from its author. Data files, encryption and unknown features are refused by [`header`], backing files by [`map`],
//! before any other path could be opened (nothing here ever opens a path that an image names). [`map`] refuses tables that are too large
//! or overlap.

pub mod cluster;
pub mod compress;
mod error;
pub mod header;
pub mod image;
pub mod map;
pub mod patch;
pub mod recipe;
mod refcounts;
pub mod snapshots;
mod source;
mod tables;
#[cfg(test)]
mod tests;
pub mod writer;

pub use cluster::Cluster;
pub use error::Qcow2Error;
pub use image::Image;
pub use source::Qcow2Source;
