//! The Network Block Device protocol: fixed newstyle handshake, simple replies; structured ones for block status.
//!
//! Source: the specification of the NBD project,
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
//!
//! * [`protocol`]: requests, replies, and their numbers;
//! * [`negotiation`]: the handshake, of both sides;
//! * [`server`]: serves exports;
//! * [`address`] and [`client`]: reads and writes an export of a server;
//! * [`allocation`]: learns which parts of it hold data.

pub mod address;
pub mod allocation;
pub mod client;
pub mod negotiation;
pub mod protocol;
pub mod server;
