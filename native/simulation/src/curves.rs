//! Miss-ratio curves of recorded requests.
//!
//! * [`exact`]: the distances of all references of a volume;
//! * [`analysis`]: the curves of all volumes of a trace.

pub mod analysis;
pub mod exact;

#[cfg(test)]
mod tests;
