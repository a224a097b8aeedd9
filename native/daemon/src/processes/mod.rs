//! The processes and what they share: the supervisor, a keeper and a worker for each image, their memory, signals and control sockets.

pub mod keeper;
pub mod mapping;
pub mod memory;
pub mod mounts;
pub mod panics;
pub mod program;
pub mod refusal;
pub mod resend;
pub mod restarts;
pub mod served;
pub mod shared;
pub mod signals;
pub mod status;
pub mod supervisor;
pub mod worker;
