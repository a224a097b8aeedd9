//! What serving and fetching share: signatures, TLS and the bytes of a connection.

pub mod auth;
pub mod frames;
pub mod session;
pub mod tls;
pub mod wire;
