//! Other hosts: reading from their data planes, homes of chunks, hints that hosts exchange, and what peers request of this host.

pub mod group;
pub mod hints;
pub mod homes;
pub mod object;
pub mod peer;
pub mod peer_requests;
pub mod referrals;
