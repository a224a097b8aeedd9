//! The `qcow2` codec: patches between images of which at least one is qcow2.
//!
//! Published images are compressed, and equal content then has unequal bytes. A patch of this codec therefore has two parts: a block
//! patch between the *contents* (what a guest reads), and the [`recipe`](crate::recipe) of the target, which re-creates the file from its
//! content. Base and target may each be raw or qcow2; the base may be given as either when the patch is applied, unless clusters that
//! cannot be compressed again had to be copied from it.
//!
//! A patch from an image's own raw content holds little but the recipe; agents keep such a patch as *the recipe of an image*.

mod apply;
mod container;
mod create;
mod part;
mod view;

use std::path::Path;

use diffcache_core::patch as block;
use diffcache_core::source::{FileSource, ReadAt};

use crate::error::Qcow2Error;

pub use apply::{apply, verify};
pub use container::{Container, Header};
pub use create::create;
pub use view::TargetView;

/// The headers of a patch and of the block patch in it.
#[derive(Debug, Clone)]
pub struct PatchInfo {
    /// The fixed part.
    pub header: Header,
    /// Bytes of the patch.
    pub patch_size: u64,
    /// The patch of the guest's content.
    pub content: block::PatchInfo,
}

/// Reads the headers of a patch.
///
/// # Errors
/// `Source`, `BadPatch`, `Content`.
pub fn info(patch: &Path) -> Result<PatchInfo, Qcow2Error> {
    let source = FileSource::open(patch)?;
    let container = Container::open(&source)?;
    let content = block::info(&container.content())?;
    Ok(PatchInfo {
        header: *container.header(),
        patch_size: source.len(),
        content,
    })
}
