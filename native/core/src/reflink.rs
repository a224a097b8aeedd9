//! Sharing the blocks of whole files, where the filesystem can (XFS, Btrfs).

use std::fs::File;

use rustix::fs::ioctl_ficlone;

/// Makes `target` share all blocks of `source`; returns false, with `target` unchanged, if the filesystem cannot.
pub fn share_blocks(target: &File, source: &File) -> bool {
    ioctl_ficlone(target, source).is_ok()
}
