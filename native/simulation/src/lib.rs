//! What recorded requests and boots would have found: simulations, and what is sized by them.
//!
//! The policies are those of the daemons, because it is the same code. Nothing here serves
//! anybody.
//!
//! * [`trace`]: requests to volumes that were recorded;
//! * [`curves`]: miss-ratio curves of a trace;
//! * [`sizing`]: sizes of partitions, from curves;
//! * [`cache`]: a trace, played to the partitions of an SSD cache;
//! * [`boots`]: recorded boots, played to the prefetching of lazy boot.

pub mod boots;
pub mod cache;
pub mod curves;
pub mod sizing;
pub mod trace;
