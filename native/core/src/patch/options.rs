//! Options of creating a patch.

use crate::task::Task;

/// How to create a patch.
///
/// Anonymous memory, whatever the images: up to 0.25 GiB for the index of the base, as much for the hashes of blocks that are not settled yet, 0.2 GiB
/// for finding repeats, 0.13 GiB for the anchors of literals and 0.4 GiB for compressing, not all at the same time, and 32 bytes per 64 KiB of either image that is not zero.
#[derive(Clone, Copy)]
pub struct CreateOptions<'a> {
    /// 1 is the fast path; higher levels spend more time on compressing. 3 is the default.
    pub level: i32,
    /// Whether literals may be coded as near copies; without, every reader of the format's first version reads the patch.
    pub near: bool,
    /// How the job runs.
    pub task: Task<'a>,
}

impl Default for CreateOptions<'_> {
    fn default() -> Self {
        CreateOptions {
            level: 3,
            near: true,
            task: Task::default(),
        }
    }
}
