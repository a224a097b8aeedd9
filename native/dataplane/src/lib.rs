//! DiffCache: the data plane, by which hosts hand each other images, patches, manifests and forms.
//!
//! Plain threads and blocking sockets: a host has few peers and large objects, so a thread per connection is the simplest design that keeps
//! the link full. [`plane::DataPlane`] ties the parts together:
//!
//! * [`server`](serving::server) answers HTTP/1.1 with [`request`](serving::request)'s strict parser, [`auth`](transport::auth)'s signatures, [`objects`](serving::objects)' files and [`shaper`]'s link speed;
//! * [`tls`](transport::tls) authenticates hosts of the deployment and encrypts, in [`session`](transport::session)s, what goes over a [`wire`](transport::wire);
//! * [`frames`](transport::frames) are what an image's bytes cross in where a site's own network is slow;
//! * [`admission`](serving::admission) keeps connections that prove nothing from taking the places of others;
//! * [`flight`] lets peers read an object while it is still arriving, and [`claims`](serving::claims) lets one host of a site at a time fetch it from afar;
//! * [`delivery`](fetching::delivery) gets an object from the first of several ranked sources, under a claim that its [`claimant`](fetching::claimant) applies for if it crosses the WAN, and
//!   with requests before fills on the [`wan`](fetching::wan);
//! * [`client`](fetching::client) asks peers over [`connection`](fetching::connection)s; [`fetch`](fetching::fetch) gets whole objects, verified, into [`part`](fetching::part)s that survive interruptions; [`source`](fetching::source) reads ranges for core's
//!   patcher and [`build`](fetching::build) writes what that makes.
//! * [`shared`](fetching::shared) takes what an image on its way has in common with images that are held here.
//! * [`minimum_rate`](fetching::minimum_rate) says how slow a peer may be, [`origins`](fetching::origins) which bytes of a part came from whom, and [`standing`](fetching::standing) which hosts are left alone for a while.
//! * [`traces`] keep what was sent for requests that belong to a trace.
//!
//! What a peer sends is never trusted: images are verified leaf by leaf against their manifest, patches, manifests and recipes by their own hash.

pub mod complaints;
pub mod counters;
pub mod error;
pub mod fetching;
pub mod flight;
pub mod gate;
pub mod ids;
pub mod plane;
pub mod progress;
pub mod serving;
pub mod shaper;
pub mod traces;
pub mod transport;

#[cfg(test)]
mod testing;
