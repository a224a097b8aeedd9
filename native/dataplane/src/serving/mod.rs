//! Answering other hosts: connections, requests, objects and claims.

pub mod admission;
mod body;
pub mod borrowed;
pub mod claim_messages;
pub mod claims;
mod connection;
pub mod hints;
pub mod object_file;
pub mod objects;
pub mod partial;
pub mod ranges;
pub mod referrals;
pub mod request;
pub mod response;
pub mod server;
pub mod service;
mod sigpipe;
