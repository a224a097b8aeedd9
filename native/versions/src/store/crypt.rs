//! Names and secrecy of blocks.
//!
//! A block's name is the first 24 bytes of its BLAKE3. In a project with a key the hash is keyed, so that names tell nothing to who has no
//! key, and frames are sealed with XChaCha20-Poly1305. The nonce is a keyed hash of what is sealed (convergent within the project: equal
//! frames have equal bytes; deduplication, which goes by names, is not hindered), so no two different frames share one.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::error::{Result, VersionsError};

/// Bytes of a name.
pub const NAME_LEN: usize = 24;
/// Bytes that sealing adds to a frame: nonce and tag.
pub const SEAL_LEN: usize = 24 + 16;

/// What a block is called: equal names mean equal blocks.
pub type Name = [u8; NAME_LEN];

const NAMES: &str = "DiffCache versions 2026 names of blocks";
const NONCES: &str = "DiffCache versions 2026 nonces of frames";
const SEALS: &str = "DiffCache versions 2026 seals of frames";

/// Names blocks, and seals frames if there is a key.
#[derive(Clone)]
pub struct Cipher {
    keys: Option<Keys>,
}

#[derive(Clone)]
struct Keys {
    names: [u8; 32],
    nonces: [u8; 32],
    seal: XChaCha20Poly1305,
}

impl Cipher {
    /// A cipher for a project's key; without a key nothing is sealed.
    pub fn new(key: Option<&[u8; 32]>) -> Self {
        let keys = key.map(|key| Keys {
            names: blake3::derive_key(NAMES, key),
            nonces: blake3::derive_key(NONCES, key),
            seal: XChaCha20Poly1305::new(&blake3::derive_key(SEALS, key).into()),
        });
        Self { keys }
    }

    /// Whether frames are sealed.
    pub fn seals(&self) -> bool {
        self.keys.is_some()
    }

    /// The name of a block.
    pub fn name(&self, block: &[u8]) -> Name {
        let hash = match &self.keys {
            Some(keys) => blake3::keyed_hash(&keys.names, block),
            None => blake3::hash(block),
        };
        let mut name = [0; NAME_LEN];
        name.copy_from_slice(&hash.as_bytes()[..NAME_LEN]);
        name
    }

    /// The frame as it is kept.
    ///
    /// # Errors
    /// `Invalid` if the frame is absurdly long.
    pub fn seal(&self, frame: Vec<u8>) -> Result<Vec<u8>> {
        let Some(keys) = &self.keys else {
            return Ok(frame);
        };
        let nonce = &blake3::keyed_hash(&keys.nonces, &frame);
        let nonce = XNonce::from_slice(&nonce.as_bytes()[..24]);
        let sealed = keys
            .seal
            .encrypt(nonce, Payload::from(frame.as_slice()))
            .map_err(|_| VersionsError::Invalid("a frame cannot be sealed".to_owned()))?;
        let mut out = nonce.to_vec();
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// The frame that was sealed.
    ///
    /// # Errors
    /// `Damaged` if it was changed, or sealed with another key.
    pub fn open(&self, frame: Vec<u8>, object: &str) -> Result<Vec<u8>> {
        let Some(keys) = &self.keys else {
            return Ok(frame);
        };
        let damaged = || VersionsError::damaged(object, "a frame does not open with this key");
        if frame.len() < SEAL_LEN {
            return Err(damaged());
        }
        let (nonce, sealed) = frame.split_at(24);
        let opened = keys.seal.decrypt(XNonce::from_slice(nonce), sealed);
        opened.map_err(|_| damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_frames_open_with_their_key_only() {
        let (ours, theirs) = (Cipher::new(Some(&[1; 32])), Cipher::new(Some(&[2; 32])));
        let sealed = ours.seal(b"frame".to_vec()).unwrap();
        assert_eq!(ours.seal(b"frame".to_vec()).unwrap(), sealed);
        assert_eq!(ours.open(sealed.clone(), "x").unwrap(), b"frame");
        assert!(theirs.open(sealed.clone(), "x").is_err());
        let mut changed = sealed;
        changed[30] ^= 1;
        assert!(ours.open(changed, "x").is_err());
        assert!(ours.open(vec![0; 3], "x").is_err());
    }

    #[test]
    fn names_depend_on_the_key() {
        let plain = Cipher::new(None);
        let keyed = Cipher::new(Some(&[1; 32]));
        assert_eq!(plain.name(b"x")[..], blake3::hash(b"x").as_bytes()[..24]);
        assert_ne!(plain.name(b"x"), keyed.name(b"x"));
        assert_ne!(keyed.name(b"x"), Cipher::new(Some(&[2; 32])).name(b"x"));
    }
}
