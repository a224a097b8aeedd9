//! Where chunks come from: the sources of one image and the choice among them. Those that are data planes of other hosts are in [`crate::peers`].

pub mod backoff;
pub mod build;
pub mod local;
pub mod local_patch;
pub mod selection;
pub mod source;
pub mod version;
