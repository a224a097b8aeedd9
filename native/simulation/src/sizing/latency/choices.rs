//! The sizes of a volume that a division may give it, and what it gains from them.

use crate::sizing::Demand;

/// A size of one volume.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Multiples of the step.
    pub steps: u64,
    /// Weighted hits.
    pub gain: f64,
}

/// Returns the sizes at which a volume's hits change, ascending; none if no size is possible.
///
/// `capacity` is in multiples of `step`.
pub fn choices_of(demand: &Demand<'_>, capacity: u64, step: u64) -> Option<Vec<Choice>> {
    let least = demand.min.div_ceil(step);
    let most = (demand.max / step).min(capacity);
    if least > most {
        return None;
    }
    let choice = |steps: u64, hits: u64| Choice {
        steps,
        gain: demand.weight * hits as f64,
    };
    let mut found = vec![choice(least, demand.curve.hits(least.saturating_mul(step)))];
    for each in &demand.curve.steps {
        let steps = each.size.div_ceil(step);
        if steps > most {
            break;
        }
        let new = choice(steps, each.hits);
        match found.last_mut() {
            Some(last) if steps <= last.steps => last.gain = last.gain.max(new.gain),
            Some(last) if new.gain <= last.gain => {}
            _ => found.push(new),
        }
    }
    Some(found)
}
