//! qcow2 images: reading their guest content, and patches that re-create such a file bit for bit.
//!
//! Published images are compressed, and equal content then has unequal bytes. A patch of this codec therefore holds two things: a block
//! patch between the *contents* (what a guest reads), and the target's *form* (see [`form`]), from which and the content the file is made
//! again. Base and target may each be raw or qcow2; a base may be given in either form when the patch is applied, unless clusters that
//! cannot be compressed again had to be copied from it.
//!
//! An image is input from its author. Backing files, data files, encryption and unknown features are refused by [`header`] before any
//! other path could be opened (nothing here ever opens a path that an image names); [`map`] refuses tables that are absurd or overlap.

pub mod compress;
pub mod container;
pub mod describe;
mod error;
pub mod form;
pub mod header;
pub mod map;
mod part;
pub mod patch;
mod pool;
pub mod rebuild;
mod refcounts;
pub mod snapshots;
pub mod source;
mod tables;
#[cfg(test)]
mod tests;
mod varint;
pub mod writer;

pub use error::Qcow2Error;
pub use source::Qcow2Source;
pub use tables::Cluster;
