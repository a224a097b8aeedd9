//! Options of creating a patch.

use crate::task::Task;

/// How to create a patch.
///
/// Memory, whatever the images: 0.22 GiB, and 32 bytes per 64 KiB of either image that is not zero, and 12 bytes for each run of the map, three times
/// while it is made. At first most of that is the index of the base (128 MiB) and hashes of blocks that are not settled yet (32 MiB), then the hashes of literals among which repeats are searched
/// for (112 MiB), then the anchors of literals (128 MiB) and what up to four threads compress (24 MiB each).
#[derive(Clone, Copy)]
pub struct CreateOptions<'a> {
    /// 1 is the fast path; higher levels spend more time on compressing. 3 is the default.
    pub level: i32,
    /// Whether literals may be coded as near copies; without, every reader of the format's first version reads the patch.
    pub near: bool,
    /// Start and end in bytes, in order, of what the target's filesystems mark free; none where that is not known.
    pub free: Option<&'a [(u64, u64)]>,
    /// How the job runs.
    pub task: Task<'a>,
}

impl Default for CreateOptions<'_> {
    fn default() -> Self {
        CreateOptions {
            level: 3,
            near: true,
            free: None,
            task: Task::default(),
        }
    }
}
