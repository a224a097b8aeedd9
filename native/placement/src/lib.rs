//! Inner loops of the placement solvers: one site, instance in, placement out.
//!
//! * [`problem`]: the instance in the shape that the loops want;
//! * [`held`]: which host holds which object;
//! * [`chains`]: the cheapest chains of patches, in rounds;
//! * [`ways`]: for each template, the bases it can be built from;
//! * [`dual`]: lower bounds by prices for space and for being served;
//! * [`lagrangian`]: lower bounds with whole templates on each host;
//! * [`knapsack`]: exact packing of one host, on a grid;
//! * [`state`]: a placement with its cost, changed object by object;
//! * [`recreate`]: density-ordered lazy insertion;
//! * [`pack`](mod@pack): exact packing of a few hosts;
//! * [`search`]: large-neighbourhood search with ejection;
//! * [`solve`](mod@solve): how these are put together.

pub mod chains;
pub mod dual;
pub mod held;
pub mod knapsack;
pub mod lagrangian;
pub mod location;
pub mod pack;
pub mod problem;
pub mod random;
pub mod recreate;
pub mod rows;
pub mod search;
pub mod solve;
pub mod state;
pub mod ways;

pub use held::Held;
pub use problem::{Hosts, Links, Patches, Problem, ProblemError, Templates};
pub use solve::{solve, Limits, Outcome, Report};
