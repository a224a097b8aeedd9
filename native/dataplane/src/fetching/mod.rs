//! Getting objects from other hosts: sources, ranges, parts, and what they become.

pub mod announcements;
mod blob;
pub mod build;
pub mod claimant;
pub mod client;
pub mod compressed;
pub mod connection;
pub mod delivery;
pub mod fetch;
mod frames;
pub mod leaves;
pub mod measured_rate;
pub mod minimum_rate;
pub mod origins;
pub mod part;
pub mod peer;
pub mod repositories;
pub mod shared;
pub mod source;
pub mod standing;
pub mod wan;
pub mod window;
