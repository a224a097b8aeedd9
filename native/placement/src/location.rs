//! Which templates of one component to have near, when having one near has a
//! price: uncapacitated facility location, from above and from below.

use crate::rows::Rows;
use crate::ways::Way;

/// Costs of one component's clients; indexes are templates of the whole
/// instance, so that scratch arrays are shared by all components.
pub struct Costs<'a> {
    /// Ways by target.
    pub ways: &'a Rows<Way>,
    /// Cost of each way over all requests for its target.
    pub way: &'a [f64],
    /// Cost of each template when it is near itself.
    pub direct: &'a [f64],
    /// Cost of each template from the repository.
    pub far: &'a [f64],
    /// Price of having each template near; infinite if it fits nowhere.
    pub price: &'a [f64],
}

impl Costs<'_> {
    /// Calls `visit` with each template that can serve `target`, and its cost.
    fn each(&self, target: usize, mut visit: impl FnMut(usize, f64)) {
        visit(target, self.direct[target]);
        for n in self.ways.range(target) {
            visit(self.ways.items()[n].base as usize, self.way[n]);
        }
    }
}

/// Arrays over all templates, of which one component is in use at a time.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    gain: Vec<f64>,
    now: Vec<f64>,
    trial: Vec<f64>,
    over: Vec<f64>,
    server: Vec<Option<u32>>,
}

impl Scratch {
    /// Scratch for this many templates.
    #[must_use]
    pub fn new(templates: usize) -> Self {
        let zero = vec![0.0; templates];
        Self {
            gain: zero.clone(),
            now: zero.clone(),
            trial: zero.clone(),
            over: zero,
            server: vec![None; templates],
        }
    }
}

/// Opens templates greedily, drops and swaps; returns the cost.
pub fn open(costs: &Costs, members: &[u32], open: &mut [bool], scratch: &mut Scratch) -> f64 {
    for &t in members {
        open[t as usize] = costs.price[t as usize] <= 0.0;
    }
    serve(costs, members, open, &mut scratch.now);
    while let Some((best, gain)) = best_gain(costs, members, open, scratch) {
        if gain <= 0.0 {
            break;
        }
        open[best] = true;
        serve(costs, members, open, &mut scratch.now);
    }
    let mut total = value(costs, members, open, &scratch.now);
    let chosen: Vec<u32> = members
        .iter()
        .copied()
        .filter(|&t| open[t as usize])
        .collect();
    if chosen.len() <= 12 {
        for t in chosen {
            total = swap(costs, members, open, scratch, t as usize, total);
        }
    }
    total
}

/// Takes `t` out, puts the best other in if any helps; keeps what is better.
fn swap(
    costs: &Costs,
    members: &[u32],
    open: &mut [bool],
    scratch: &mut Scratch,
    t: usize,
    total: f64,
) -> f64 {
    if costs.price[t] <= 0.0 {
        return total;
    }
    open[t] = false;
    serve(costs, members, open, &mut scratch.now);
    let without = value(costs, members, open, &scratch.now);
    let (best, gain) = best_gain(costs, members, open, scratch).unwrap_or((t, 0.0));
    let with = without - gain.max(0.0);
    if with < total * (1.0 - 1e-12) {
        if gain > 0.0 {
            open[best] = true;
        }
        return with;
    }
    open[t] = true;
    total
}

fn serve(costs: &Costs, members: &[u32], open: &[bool], now: &mut [f64]) {
    for &t in members {
        let mut least = costs.far[t as usize];
        costs.each(t as usize, |base, cost| {
            if open[base] && cost < least {
                least = cost;
            }
        });
        now[t as usize] = least;
    }
}

fn value(costs: &Costs, members: &[u32], open: &[bool], now: &[f64]) -> f64 {
    members
        .iter()
        .map(|&t| {
            now[t as usize]
                + if open[t as usize] {
                    costs.price[t as usize]
                } else {
                    0.0
                }
        })
        .sum()
}

fn best_gain(
    costs: &Costs,
    members: &[u32],
    open: &[bool],
    scratch: &mut Scratch,
) -> Option<(usize, f64)> {
    for &t in members {
        scratch.gain[t as usize] = -costs.price[t as usize];
    }
    for &t in members {
        let now = scratch.now[t as usize];
        costs.each(t as usize, |base, cost| {
            scratch.gain[base] += (now - cost).max(0.0)
        });
    }
    members
        .iter()
        .map(|&t| (t as usize, scratch.gain[t as usize]))
        .filter(|(t, _)| !open[*t])
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Value of the dual at the multipliers of being served: a lower bound whatever
/// they are, because excess over prices is subtracted.
fn dual_value(costs: &Costs, members: &[u32], multipliers: &[f64], over: &mut [f64]) -> f64 {
    for &t in members {
        over[t as usize] = -costs.price[t as usize];
    }
    let mut total = 0.0;
    for &t in members {
        let multiplier = multipliers[t as usize];
        total += multiplier;
        costs.each(t as usize, |base, cost| {
            if multiplier > cost {
                over[base] += multiplier - cost;
            }
        });
    }
    total
        - members
            .iter()
            .map(|&t| over[t as usize].max(0.0))
            .sum::<f64>()
}

/// Improves `multipliers` and returns the bound it proves.
///
/// Starts from the better of the multipliers given and shares of the open templates'
/// prices in proportion to what each target saves, then takes subgradient
/// steps whose length the known `above` sets, and ends with ascent by single
/// coordinates.
pub fn price(
    costs: &Costs,
    members: &[u32],
    open: &[bool],
    above: f64,
    steps: usize,
    multipliers: &mut [f64],
    scratch: &mut Scratch,
) -> f64 {
    let mut best_multipliers: Vec<f64> = members.iter().map(|&t| multipliers[t as usize]).collect();
    let mut best = dual_value(costs, members, multipliers, &mut scratch.over);
    share(costs, members, open, multipliers, scratch);
    let mut value = dual_value(costs, members, multipliers, &mut scratch.over);
    for step in 0..=steps {
        if value > best {
            best = value;
            for (slot, &t) in best_multipliers.iter_mut().zip(members) {
                *slot = multipliers[t as usize];
            }
        }
        if step == steps || above - best <= 2e-5 * above.abs() {
            break;
        }
        if !descend(costs, members, above - value, multipliers, scratch) {
            break;
        }
        value = dual_value(costs, members, multipliers, &mut scratch.over);
    }
    for (&slot, &t) in best_multipliers.iter().zip(members) {
        multipliers[t as usize] = slot;
    }
    raise(costs, members, multipliers, scratch);
    best.max(dual_value(costs, members, multipliers, &mut scratch.over))
}

fn share(
    costs: &Costs,
    members: &[u32],
    open: &[bool],
    multipliers: &mut [f64],
    scratch: &mut Scratch,
) {
    for &t in members {
        scratch.gain[t as usize] = 0.0;
    }
    for &t in members {
        let t = t as usize;
        let (mut least, mut second, mut by) = (costs.far[t], costs.far[t], None);
        costs.each(t, |base, cost| {
            if open[base] && cost < least {
                second = least;
                least = cost;
                by = Some(base as u32);
            } else if open[base] && cost < second {
                second = cost;
            }
        });
        scratch.now[t] = least;
        scratch.trial[t] = second - least;
        scratch.server[t] = by;
        if let Some(by) = by {
            scratch.gain[by as usize] += second - least;
        }
    }
    for &t in members {
        let t = t as usize;
        multipliers[t] = scratch.now[t];
        let Some(by) = scratch.server[t] else {
            continue;
        };
        let saved = scratch.gain[by as usize];
        if saved > 0.0 {
            multipliers[t] += (costs.price[by as usize] / saved).min(1.0) * scratch.trial[t];
        }
    }
}

/// One subgradient step; false if the point is already a maximum.
fn descend(
    costs: &Costs,
    members: &[u32],
    distance: f64,
    multipliers: &mut [f64],
    scratch: &mut Scratch,
) -> bool {
    let mut norm = 0.0;
    for &t in members {
        let multiplier = multipliers[t as usize];
        let mut slope = 1.0;
        costs.each(t as usize, |base, cost| {
            if multiplier > cost && scratch.over[base] > 0.0 {
                slope -= 1.0;
            }
        });
        if slope > 0.0 && multiplier >= costs.far[t as usize] {
            slope = 0.0;
        }
        scratch.trial[t as usize] = slope;
        norm += slope * slope;
    }
    if norm == 0.0 {
        return false;
    }
    for &t in members {
        let t = t as usize;
        multipliers[t] =
            (multipliers[t] + distance / norm * scratch.trial[t]).clamp(0.0, costs.far[t]);
    }
    true
}

/// Raises each multiplier as far as no price is exceeded (dual ascent, Erlenkotter
/// 1978).
fn raise(costs: &Costs, members: &[u32], multipliers: &mut [f64], scratch: &mut Scratch) {
    dual_value(costs, members, multipliers, &mut scratch.over);
    for &t in members {
        let t = t as usize;
        let multiplier = multipliers[t];
        let mut top = costs.far[t];
        costs.each(t, |base, cost| {
            let room = -scratch.over[base];
            top = top.min(multiplier.max(cost) + room.max(0.0));
        });
        if top <= multiplier {
            continue;
        }
        costs.each(t, |base, cost| {
            scratch.over[base] += (top - cost).max(0.0) - (multiplier - cost).max(0.0);
        });
        multipliers[t] = top;
    }
}
