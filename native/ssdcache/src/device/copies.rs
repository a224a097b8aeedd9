//! What a device has twice, and can be read once.

use std::io;

use rustix::io::Errno;

use super::disk::Disk;
use super::format::{BLOCK, COPIES};

/// Whether an error is of one block, which a disk cannot read until it is written.
pub fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Reads both copies of something. A block of one that cannot be read becomes what the other one has;
/// one of the first copy only if the second `suffices`.
///
/// # Errors
/// The device cannot be read or written.
pub fn read(
    disk: &dyn Disk,
    [first, second]: [&mut [u8]; COPIES],
    at: [u64; COPIES],
    suffices: bool,
) -> io::Result<()> {
    let length = first.len() as u64;
    let mut read = || {
        disk.read_at(first, at[0])?;
        disk.read_at(second, at[1])
    };
    match read() {
        Err(error) if is_unreadable(&error) => {
            log::warn!("Cache device: {error}; reading the other copy");
            for block in (0..length).step_by(BLOCK) {
                mend(disk, at.map(|at| at + block), suffices)?;
            }
            read()
        }
        done => done,
    }
}

fn mend(disk: &dyn Disk, at: [u64; COPIES], suffices: bool) -> io::Result<()> {
    let mut copies = [[0; BLOCK]; COPIES];
    let first = disk.read_at(&mut copies[0], at[0]);
    let second = disk.read_at(&mut copies[1], at[1]);
    match (first, second) {
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(error)) if is_unreadable(&error) => disk.write_durably(&copies[0], at[1]),
        (Err(error), Ok(())) if suffices && is_unreadable(&error) => {
            disk.write_durably(&copies[1], at[0])
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
