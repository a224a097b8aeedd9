//! Images of filesystems, below `data`.

use std::sync::{Arc, LazyLock};

/// An image that is unpacked when it is first used.
pub type Image = LazyLock<Arc<Vec<u8>>>;

/// Unpacks an image.
#[allow(clippy::unwrap_used)]
pub fn load(name: &str) -> Arc<Vec<u8>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let packed = std::fs::read(path.join(format!("{name}.raw.zst"))).unwrap();
    Arc::new(zstd::decode_all(packed.as_slice()).unwrap())
}
