//! Recorded boots of many instances in virtual time, over modelled links.
//!
//! The homes of groups of adjacent chunks are the instances by turns. A transfer takes half a round trip, waits for the
//! sender's port (in order of arrival), takes its bytes over the rate, then half a round trip. The
//! repository's port is the WAN, each instance's the LAN; nothing else limits. A home fetches a
//! chunk over the WAN once, when it is first asked for, unless the image is striped over the homes.

mod engine;
mod ports;
mod referring;
mod report;
mod scenario;
mod site;
#[cfg(test)]
mod tests;

use diffcache_prefetch::Profile;

pub use report::{Boot, Event, Report, Requests};
pub use scenario::{Layout, Links, Mode, Read, ReplayError, Scenario, Trace};

/// Replays the boots of a scenario; the same scenario gives the same report.
///
/// `events` receives every access to a chunk, in order.
pub fn replay(
    scenario: &Scenario,
    mode: Mode,
    events: &mut dyn FnMut(Event),
) -> Result<Report, ReplayError> {
    scenario.check()?;
    let profile = match (mode, &scenario.profile) {
        (Mode::Later, Some(profile)) => profile.clone(),
        (Mode::Later, None) => {
            engine::run(scenario, Mode::First, Profile::default(), &mut |_| {})?.profile
        }
        _ => Profile::default(),
    };
    engine::run(scenario, mode, profile, events)
}
