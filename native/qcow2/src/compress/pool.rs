//! Compressors and buffers shared by the threads of one job.

use std::sync::Mutex;

use super::{Compress, Settings};
use crate::error::Qcow2Error;
use diffcache_base::locks::Unpoisoned;

/// Compressors with the same settings: as many as there are threads that compress at a time.
pub(crate) struct Pool {
    settings: Settings,
    idle: Mutex<Vec<Box<dyn Compress>>>,
}

impl Pool {
    /// Creates a pool with one compressor.
    ///
    /// # Errors
    /// `Compressor` if this machine does not have it; `Memory`.
    pub fn new(settings: Settings) -> Result<Self, Qcow2Error> {
        Ok(Self {
            settings,
            idle: Mutex::new(vec![settings.compressor()?]),
        })
    }

    /// See [`Compress::compress`].
    pub fn compress(&self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        let idle = self.idle().pop();
        let mut compressor = match idle {
            Some(compressor) => compressor,
            None => self.settings.compressor()?,
        };
        let shorter = compressor.compress(cluster, out)?;
        self.idle().push(compressor);
        Ok(shorter)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Compress>>> {
        self.idle.lock().unpoisoned()
    }
}
