//! Reading the target of a patch without building it, in any order, each piece verified.

use std::path::Path;
use std::sync::Arc;

use diffcache_core::patch::PatchView;
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::Task;

use super::container::Container;
use super::part::Section;
use crate::error::Qcow2Error;
use crate::recipe::{Ingredients, RecipeView, PIECE};

/// The file that a recipe makes of an image's raw content.
pub struct TargetView {
    container: Container<FileSource>,
    content: PatchView<Arc<dyn ReadAt>, Section<FileSource>>,
    places: RecipeView,
}

impl TargetView {
    /// Opens the target of `patch`, whose base's content is given; `None` if the patch does not say where each part of the target is.
    ///
    /// # Errors
    /// `Source`, `BadPatch`, `BaseMismatch`, `Content`, `Compressor`, `Memory`.
    pub fn open(content: Arc<dyn ReadAt>, patch: &Path) -> Result<Option<Self>, Qcow2Error> {
        let container = Container::open(FileSource::open(patch)?)?;
        let header = *container.header();
        let Some(recipe) = container.recipe() else {
            return Ok(None);
        };
        let Some(places) = RecipeView::new(recipe, &header.target_hash)? else {
            return Ok(None);
        };
        let section = Section::new(
            FileSource::open(patch)?,
            header.content_at(),
            header.content_len,
        );
        Ok(Some(Self {
            content: PatchView::open(content, section, None)?,
            places,
            container,
        }))
    }

    /// Returns the bytes of the target.
    pub fn size(&self) -> u64 {
        self.container.header().target_size
    }

    /// Returns up to `length` bytes from `offset` on, less at the target's end. Whole pieces of [`PIECE`] bytes are made and verified.
    ///
    /// # Errors
    /// As [`RecipeView::read`].
    pub fn read(&self, offset: u64, length: u64, task: &Task<'_>) -> Result<Vec<u8>, Qcow2Error> {
        let offset = offset.min(self.size());
        let end = offset.saturating_add(length).min(self.size());
        let Some(recipe) = self.container.recipe().filter(|_| offset < end) else {
            return Ok(Vec::new());
        };
        let stored = self.container.stored();
        let ingredients = Ingredients {
            recipe,
            content: &self.content,
            base: None,
            stored: &stored,
        };
        let pieces = offset / PIECE..end.div_ceil(PIECE);
        let start = pieces.start * PIECE;
        let mut bytes = self.places.read(&ingredients, pieces, task)?;
        bytes.truncate((end - start) as usize);
        bytes.drain(..(offset - start) as usize);
        Ok(bytes)
    }
}
