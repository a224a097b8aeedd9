//! What is fetched before it is read, and what is learned of reads for that: queue, files, deadline, counts and profiles.

pub mod file_follower;
pub mod hydration;
pub mod learned;
pub mod prefetcher;
pub mod profile;
pub mod record;
