//! Compressors and buffers shared by the threads of one job.

use std::sync::{Mutex, PoisonError};

use crate::compress::{Compress, Recipe};
use crate::error::Qcow2Error;

/// Compressors of one recipe; as many are made as threads ask at a time.
pub struct Pool {
    recipe: Recipe,
    idle: Mutex<Vec<Box<dyn Compress>>>,
}

impl Pool {
    /// An empty pool. Fails if this machine cannot follow the recipe.
    pub fn new(recipe: Recipe) -> Result<Self, Qcow2Error> {
        Ok(Self {
            recipe,
            idle: Mutex::new(vec![recipe.compressor()?]),
        })
    }

    /// See [`Compress::compress`].
    pub fn compress(&self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        let idle = self.idle().pop();
        let mut compressor = match idle {
            Some(compressor) => compressor,
            None => self.recipe.compressor()?,
        };
        let shorter = compressor.compress(cluster, out)?;
        self.idle().push(compressor);
        Ok(shorter)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Compress>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
