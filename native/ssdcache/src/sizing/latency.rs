//! Sizes with the largest sum of weighted hits within a capacity.
//!
//! A knapsack problem with a choice for each volume (multiple-choice knapsack). Its relaxation,
//! greedy on the concave hulls of the curves, gives a bound and a price of a block (Sinha and
//! Zoltners, "The multiple-choice knapsack problem", 1979). At this price each size has a loss:
//! what it yields less than the best size of its volume. The losses of a solution, and the price of
//! the blocks that it leaves, add up to what it is below the bound. So all solutions up to a loss
//! are found by combining the sizes of small losses only, for growing losses, until the best of
//! them has no larger one: it is optimal.

use super::Demand;

/// Combinations that are looked at, at most, before the search is given up.
const MOST_PAIRS: usize = 1 << 26;
/// Losses that are tried grow by this factor.
const GROWTH: f64 = 2.0;
/// Part of the bound that rounding may cost.
const ROUNDING: f64 = 1e-12;

/// The sizes that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Blocks of each volume, multiples of the step.
    pub blocks: Vec<u64>,
    /// Whether no sizes have a larger sum.
    pub optimal: bool,
}

/// A size of one volume, in steps.
#[derive(Clone, Copy, Debug)]
struct Choice {
    steps: u64,
    gain: f64,
    loss: f64,
}

/// Returns the best sizes, or none if the least sizes exceed the capacity.
///
/// Sizes are multiples of `step` blocks; a volume has at least `min` and at most `max` blocks.
pub fn most_hits(demands: &[Demand<'_>], capacity: u64, step: u64) -> Option<Sizes> {
    let capacity = capacity / step;
    let mut choices = Vec::with_capacity(demands.len());
    for demand in demands {
        choices.push(choices_of(demand, capacity, step)?);
    }
    let least: u64 = choices.iter().map(|each| each[0].steps).sum();
    if least > capacity {
        return None;
    }
    let greedy = Greedy::new(&choices, capacity);
    let (found, optimal) = match greedy.price {
        Some(price) => {
            set_losses(&mut choices, price);
            improve(&choices, capacity, price, greedy.chosen)
        }
        None => (greedy.chosen, true),
    };
    let blocks = choices
        .iter()
        .zip(found)
        .map(|(each, at)| each[at].steps * step)
        .collect();
    Some(Sizes { blocks, optimal })
}

/// Returns the sizes at which a volume's hits change, ascending; none if no size is possible.
fn choices_of(demand: &Demand<'_>, capacity: u64, step: u64) -> Option<Vec<Choice>> {
    let least = demand.min.div_ceil(step);
    let most = (demand.max / step).min(capacity);
    if least > most {
        return None;
    }
    let choice = |steps: u64, hits: u64| Choice {
        steps,
        gain: demand.weight * hits as f64,
        loss: 0.0,
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

/// The corners of the concave hull of a volume's choices, as indexes.
fn hull(choices: &[Choice]) -> Vec<usize> {
    let slope = |from: usize, to: usize| slope(&choices[from], &choices[to]);
    let mut corners: Vec<usize> = Vec::new();
    for at in 0..choices.len() {
        while let [.., before, last] = corners[..] {
            if slope(before, last) > slope(last, at) {
                break;
            }
            corners.pop();
        }
        corners.push(at);
    }
    corners
}

fn slope(from: &Choice, to: &Choice) -> f64 {
    (to.gain - from.gain) / (to.steps - from.steps) as f64
}

/// The solution of the relaxation, rounded down, and the price of a step there.
struct Greedy {
    chosen: Vec<usize>,
    /// None if each volume has as much as it gains from.
    price: Option<f64>,
}

impl Greedy {
    fn new(choices: &[Vec<Choice>], capacity: u64) -> Self {
        let mut segments = Vec::new();
        for (volume, each) in choices.iter().enumerate() {
            let corners = hull(each);
            for pair in corners.windows(2) {
                segments.push((slope(&each[pair[0]], &each[pair[1]]), volume, pair[1]));
            }
        }
        // Segments of a volume stay in their order: their slopes descend.
        segments.sort_by(|one, other| other.0.total_cmp(&one.0));
        let mut chosen = vec![0; choices.len()];
        let mut left = capacity - choices.iter().map(|each| each[0].steps).sum::<u64>();
        for (price, volume, corner) in segments {
            let each = &choices[volume];
            let more = each[corner].steps - each[chosen[volume]].steps;
            if more > left {
                return Greedy {
                    chosen,
                    price: Some(price),
                };
            }
            left -= more;
            chosen[volume] = corner;
        }
        Greedy {
            chosen,
            price: None,
        }
    }
}

fn set_losses(choices: &mut [Vec<Choice>], price: f64) {
    for each in choices {
        let value = |choice: &Choice| choice.gain - price * choice.steps as f64;
        let best = each.iter().map(value).fold(f64::MIN, f64::max);
        for choice in each {
            choice.loss = best - value(choice);
        }
    }
}

/// Returns the best choices and whether they are optimal.
fn improve(
    choices: &[Vec<Choice>],
    capacity: u64,
    price: f64,
    greedy: Vec<usize>,
) -> (Vec<usize>, bool) {
    let mut best = fill(choices, capacity, greedy);
    let mut worst = loss_of(choices, capacity, price, &best);
    let gains = choices.iter().map(|each| each[each.len() - 1].gain);
    let rounding = gains.sum::<f64>() * ROUNDING;
    let mut limit = (worst / 1024.0).max(rounding);
    loop {
        let Some(found) = combine(choices, capacity, limit + rounding) else {
            return (best, false);
        };
        if let Some(found) = found {
            let loss = loss_of(choices, capacity, price, &found);
            if loss < worst {
                (best, worst) = (found, loss);
            }
        }
        // All solutions of no larger loss were among those that were combined.
        if worst <= limit + rounding {
            return (best, true);
        }
        limit = (limit * GROWTH).min(worst);
    }
}

/// Gives what is left to the volumes that gain most from it, one after the other.
fn fill(choices: &[Vec<Choice>], capacity: u64, mut chosen: Vec<usize>) -> Vec<usize> {
    let used = |chosen: &[usize]| -> u64 {
        let pairs = choices.iter().zip(chosen);
        pairs.map(|(each, &at)| each[at].steps).sum()
    };
    let mut left = capacity - used(&chosen);
    loop {
        let gain = |volume: usize, at: usize| {
            choices[volume][at].gain - choices[volume][chosen[volume]].gain
        };
        let best = (0..choices.len())
            .map(|volume| {
                let each = &choices[volume];
                let most = each[chosen[volume]].steps + left;
                let at = each.partition_point(|choice| choice.steps <= most) - 1;
                (gain(volume, at), volume, at)
            })
            .max_by(|one, other| one.0.total_cmp(&other.0));
        match best {
            Some((gain, volume, at)) if gain > 0.0 => {
                left -= choices[volume][at].steps - choices[volume][chosen[volume]].steps;
                chosen[volume] = at;
            }
            _ => return chosen,
        }
    }
}

/// Returns what a solution is below the bound.
fn loss_of(choices: &[Vec<Choice>], capacity: u64, price: f64, chosen: &[usize]) -> f64 {
    let mut left = capacity;
    let mut loss = 0.0;
    for (each, &at) in choices.iter().zip(chosen) {
        left -= each[at].steps;
        loss += each[at].loss;
    }
    loss + price * left as f64
}

/// A choice for each of the first volumes.
#[derive(Clone, Copy)]
struct State {
    steps: u64,
    gain: f64,
    loss: f64,
    before: u32,
    choice: u32,
}

/// Returns the best of all solutions whose sizes lose at most `limit`; nothing if they are too many.
///
/// The price of what a solution leaves is not counted in that.
fn combine(choices: &[Vec<Choice>], capacity: u64, limit: f64) -> Option<Option<Vec<usize>>> {
    let mut layers: Vec<Vec<State>> = vec![vec![State {
        steps: 0,
        gain: 0.0,
        loss: 0.0,
        before: 0,
        choice: 0,
    }]];
    let mut pairs = 0;
    for (volume, each) in choices.iter().enumerate() {
        let mut near: Vec<usize> = (0..each.len())
            .filter(|&at| each[at].loss <= limit)
            .collect();
        near.sort_by(|&one, &other| each[one].loss.total_cmp(&each[other].loss));
        let mut next = Vec::new();
        for (before, state) in layers[volume].iter().enumerate() {
            for &at in &near {
                let choice = &each[at];
                let loss = state.loss + choice.loss;
                if loss > limit {
                    break;
                }
                pairs += 1;
                let steps = state.steps + choice.steps;
                if steps <= capacity {
                    next.push(State {
                        steps,
                        gain: state.gain + choice.gain,
                        loss,
                        before: before as u32,
                        choice: at as u32,
                    });
                }
            }
            if pairs > MOST_PAIRS {
                return None;
            }
        }
        layers.push(undominated(next));
    }
    let last = &layers[choices.len()];
    let best = (0..last.len()).max_by(|&one, &other| last[one].gain.total_cmp(&last[other].gain));
    Some(best.map(|at| trace_back(&layers, at)))
}

/// Leaves out states that take as much as another one, or more, and gain less.
fn undominated(mut states: Vec<State>) -> Vec<State> {
    states.sort_by(|one, other| {
        let by_steps = one.steps.cmp(&other.steps);
        by_steps.then(other.gain.total_cmp(&one.gain))
    });
    let mut best = f64::MIN;
    states.retain(|state| {
        let better = state.gain > best;
        best = best.max(state.gain);
        better
    });
    states
}

fn trace_back(layers: &[Vec<State>], mut at: usize) -> Vec<usize> {
    let mut found = Vec::with_capacity(layers.len() - 1);
    for layer in layers[1..].iter().rev() {
        found.push(layer[at].choice as usize);
        at = layer[at].before as usize;
    }
    found.reverse();
    found
}
