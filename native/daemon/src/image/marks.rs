//! The file of marks: which leaves are present, and whether all that is marked is known to be durable.
//!
//! Little-endian: `DCLEAVES`, u32 version, 4 bytes 0, u64 size, content id (32 bytes), a seal of 64 bytes, 8 bytes 0; then one byte per leaf, 1 =
//! present. The seal is of a clean end: number, length, modification and change time of the data file (u64 each), and BLAKE3 of all that is before
//! them, of them, and of the marks. It is zeros while a worker uses the files.

use std::io;

use diffcache_core::manifest::Manifest;

use crate::image::storage::{Stamp, Storage};

const SEAL_AT: usize = 56;
const SEAL_LEN: usize = 64;
/// Where the marks begin.
pub const HEADER_LEN: usize = 128;
/// A leaf that is present.
pub const PRESENT: u8 = 1;

type Header = [u8; HEADER_LEN];

/// What the file of marks says.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing of this image that can be used.
    Nothing,
    /// These leaves were written, and may be wrong.
    Claims(Vec<u8>),
    /// These leaves are as they were when the image was closed.
    Sealed(Vec<u8>),
}

fn header(manifest: &Manifest) -> Header {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(b"DCLEAVES");
    header[8] = 1;
    header[16..24].copy_from_slice(&manifest.size().to_le_bytes());
    header[24..SEAL_AT].copy_from_slice(&manifest.content_id());
    header
}

fn seal(header: &Header, stamp: Stamp, marks: &[u8]) -> [u8; SEAL_LEN] {
    let mut seal = [0; SEAL_LEN];
    let stamp = stamp.to_bytes();
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&header[..SEAL_AT])
        .update(&stamp)
        .update(marks);
    seal[..32].copy_from_slice(&stamp);
    seal[32..].copy_from_slice(hasher.finalize().as_bytes());
    seal
}

/// Read the marks of an image whose data file has this stamp.
///
/// # Errors
/// Of the disk.
pub fn read(file: &impl Storage, manifest: &Manifest, data: Stamp) -> io::Result<Found> {
    let count = manifest.leaf_count() as usize;
    if file.stamp()?.len != (HEADER_LEN + count) as u64 {
        return Ok(Found::Nothing);
    }
    let (mut found, mut marks) = ([0; HEADER_LEN], vec![0; count]);
    file.read_at(&mut found, 0)?;
    file.read_at(&mut marks, HEADER_LEN as u64)?;
    let header = header(manifest);
    if found[..SEAL_AT] != header[..SEAL_AT] {
        log::warn!("Ignoring leaves of an unknown version or another image: fetching again");
        return Ok(Found::Nothing);
    }
    let kept = &found[SEAL_AT..SEAL_AT + SEAL_LEN];
    if kept == seal(&header, data, &marks) {
        return Ok(Found::Sealed(marks));
    }
    if kept.iter().any(|byte| *byte != 0) {
        log::warn!(
            "Verifying what is kept of {}: its files are not as they were when it was closed",
            manifest.content_id_hex()
        );
    }
    Ok(Found::Claims(marks))
}

/// Begin a file without marks.
///
/// # Errors
/// Of the disk.
pub fn begin(file: &impl Storage, manifest: &Manifest) -> io::Result<()> {
    file.resize(0)?;
    file.write_at(&header(manifest), 0)?;
    file.resize((HEADER_LEN as u64).saturating_add(manifest.leaf_count()))
}

/// Break the seal, durably, before the first change.
///
/// # Errors
/// Of the disk.
pub fn unseal(file: &impl Storage) -> io::Result<()> {
    file.write_at(&[0; SEAL_LEN], SEAL_AT as u64)?;
    file.sync()
}

/// Mark a leaf present or absent.
///
/// # Errors
/// Of the disk.
pub fn mark(file: &impl Storage, leaf: u64, mark: u8) -> io::Result<()> {
    file.write_at(&[mark], HEADER_LEN as u64 + leaf)
}

/// Write all marks, durably.
///
/// # Errors
/// Of the disk.
pub fn write(file: &impl Storage, marks: &[u8]) -> io::Result<()> {
    file.write_at(marks, HEADER_LEN as u64)?;
    file.sync()
}

/// Seal what was written, durably: the data file is synced and has this stamp.
///
/// # Errors
/// Of the disk.
pub fn close(
    file: &impl Storage,
    manifest: &Manifest,
    stamp: Stamp,
    marks: &[u8],
) -> io::Result<()> {
    let seal = seal(&header(manifest), stamp, marks);
    file.write_at(&seal, SEAL_AT as u64)?;
    file.sync()
}
