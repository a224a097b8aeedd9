//! What several modules' tests need.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory of its own for one test, removed at the end.
pub struct Directory {
    pub path: PathBuf,
}

impl Directory {
    pub fn new() -> Directory {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dataplane-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory { path }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}
