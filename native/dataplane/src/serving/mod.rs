//! Answering other hosts: connections, requests, objects and claims.

pub mod admission;
mod body;
pub mod borrowed;
pub mod claims;
pub mod hints;
pub mod objects;
pub mod partial;
pub mod referrals;
pub mod request;
pub mod server;
mod sigpipe;
