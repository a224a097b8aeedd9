//! A version's content as a source of bytes.

use diffcache_core::source::{ReadAt, SourceError};
use diffcache_qcow2::Image as Base;

use crate::error::VersionsError;
use crate::restore::Image;
use crate::store::nodes::NodeRef;
use crate::store::Store;

/// A version's content, with the store that it is in.
pub struct Content {
    /// The store.
    pub store: Store,
    /// The version's tree.
    pub root: NodeRef,
    /// Bytes of the disk.
    pub size: u64,
    /// The base image, if there is one.
    pub base: Option<Base>,
}

impl Content {
    /// Fills `buf` with the bytes from `offset` on, which are wholly inside.
    ///
    /// # Errors
    /// `Damaged`, `Missing`, `Source`, `Io`; `Invalid` if the base image is needed and not given.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), VersionsError> {
        let image = Image {
            store: &self.store,
            root: self.root,
            size: self.size,
            base: self.base.as_ref().map(Base::content),
        };
        read(&image, buf, offset)
    }
}

/// Errors do not name the version.
impl ReadAt for Image<'_> {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.size {
            return Err(SourceError::PastEnd {
                name: "the version".to_owned(),
                len: self.size,
                end,
            });
        }
        read(self, buf, offset).map_err(to_source_error)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        if offset >= self.size {
            return Ok(None);
        }
        let found = self
            .next_range(offset, self.size)
            .map_err(to_source_error)?;
        Ok(found.map(|(start, end)| (start.max(offset), end.min(self.size))))
    }
}

/// Reads the whole blocks that a range touches, and copies the range.
pub(crate) fn read(image: &Image<'_>, buf: &mut [u8], offset: u64) -> Result<(), VersionsError> {
    if buf.is_empty() {
        return Ok(());
    }
    let start = offset - offset % image.block();
    let end = (offset + buf.len() as u64).next_multiple_of(image.block());
    let window = image.window(start, end - start)?;
    let from = (offset - start) as usize;
    buf.copy_from_slice(&window.bytes[from..from + buf.len()]);
    Ok(())
}

fn to_source_error(error: VersionsError) -> SourceError {
    let name = "the version".to_owned();
    match error {
        VersionsError::Source(error) => error,
        VersionsError::Io { name, source } => SourceError::Io { name, source },
        VersionsError::Damaged { object, reason } => SourceError::Corrupt {
            name: object,
            reason,
        },
        // Of this state of the store: a prune may have removed it meanwhile.
        VersionsError::Missing(name) => SourceError::Corrupt {
            name,
            reason: "it is not in the store".to_owned(),
        },
        error if error.is_retryable() => SourceError::Unavailable {
            name,
            reason: error.to_string(),
        },
        error => SourceError::Refused {
            name,
            reason: error.to_string(),
        },
    }
}
