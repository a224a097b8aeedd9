//! DiffCache: the data plane, by which hosts hand each other templates, patches, manifests and forms.
//!
//! Plain threads and blocking sockets: a host has few peers and large objects, so a thread per connection is the simplest thing that keeps the
//! link full. [`plane::DataPlane`] ties the parts together:
//!
//! * [`server`] answers HTTP/1.1 with [`request`]'s strict parser, [`auth`]'s signatures, [`objects`]' files and [`shaper`]'s link speed;
//! * [`tls`] tells hosts of the deployment from others and encrypts, in [`session`]s, what goes over a [`wire`];
//! * [`admission`] keeps connections that prove nothing from taking the places of others;
//! * [`flight`] lets peers read an object while it is still arriving, and [`claims`] lets one host of a site at a time fetch it from afar;
//! * [`delivery`] gets an object from the first of several ranked sources, under a claim that its [`claimant`] applies for if it crosses the WAN, and
//!   with requests before fills on the [`wan`];
//! * [`client`] asks peers over [`connection`]s; [`fetch`] gets whole objects, verified, into [`part`]s that survive interruptions; [`source`] reads ranges for core's
//!   patcher and [`build`] writes what that makes.
//! * [`minimum_rate`] says how slow a peer may be, [`origins`] which bytes of a part came from whom, and [`standing`] which hosts are left alone for a while.
//!
//! What a peer sends is never trusted: templates are verified leaf by leaf against their manifest, patches, manifests and forms by their own hash.

pub mod admission;
pub mod auth;
pub mod build;
pub mod claimant;
pub mod claims;
pub mod client;
pub mod complaints;
pub mod connection;
pub mod counters;
pub mod delivery;
pub mod error;
pub mod fetch;
pub mod flight;
pub mod gate;
pub mod ids;
pub mod leaves;
pub mod minimum_rate;
pub mod objects;
pub mod origins;
pub mod part;
pub mod plane;
pub mod progress;
pub mod request;
pub mod server;
pub mod session;
pub mod shaper;
mod sigpipe;
pub mod source;
pub mod standing;
pub mod tls;
pub mod wan;
pub mod window;
pub mod wire;

#[cfg(test)]
mod testing;
