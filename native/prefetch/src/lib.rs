//! Prefetching for instances that boot from an image which is still arriving.
//!
//! Follows Nicolae, Cappello and Antoniu, "Optimizing Multi-deployment on Clouds by Means of
//! Self-adaptive Prefetching" (section 2). Pure: no I/O and no clock, so that a daemon and the
//! simulation run the same policy. Times are nanoseconds, unless named otherwise.
//!
//! * [`profile`]: how many instances read each chunk, and when;
//! * [`threshold`]: from how many readers on a chunk is a hint;
//! * [`tree`]: the binary segment tree that finds such chunks, and what of it an instance caches;
//! * [`counts`]: what the hosts of a site know of each other's counts, spread along their requests;
//! * [`learn`]: counts reads and answers misses with hints;
//! * [`sequence`]: read-ahead where nothing is known;
//! * [`files`]: the rest of the file that a read belongs to;
//! * [`queue`]: what one instance prefetches next;
//! * [`referrals`]: to which host a busy one refers a request;
//! * [`policy`]: how much an instance prefetches.

pub mod chunks;
pub mod counts;
pub mod files;
pub mod learn;
pub mod policy;
pub mod profile;
pub mod queue;
pub mod referrals;
pub mod sequence;
pub mod threshold;
pub mod tree;

pub use chunks::{Chunk, ChunkSet};
pub use counts::SiteCounts;
pub use files::{FileExtent, Files};
pub use learn::{Hint, Learner, Reader, Reply};
pub use policy::Policy;
pub use profile::{Profile, ProfileError, Record};
pub use queue::Queue;
pub use referrals::Referrals;
pub use sequence::Sequences;
pub use threshold::Threshold;
