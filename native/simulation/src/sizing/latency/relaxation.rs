//! The bound of a division: the best one if sizes between two corners of a hull were possible.
//!
//! It takes the segments of all hulls by descending slope until one does not fit. The slope of this
//! one is the price of a step (Sinha and Zoltners, "The multiple-choice knapsack problem", 1979).

use std::rc::Rc;

use super::hull::Hull;

/// Segments that are sorted once the price is known to be one of their slopes.
const FEW: usize = 64;

/// The solution of the relaxation, rounded down.
#[derive(Debug)]
pub struct Relaxation {
    /// Index of a corner for each hull.
    pub chosen: Vec<usize>,
    /// Steps of these together.
    pub steps: u64,
    /// Their gain.
    pub gain: f64,
    /// Gain of each step that is left.
    pub price: f64,
    /// What no division gains more than.
    pub bound: f64,
    /// The hull of which a segment does not fit; none if all of them do.
    pub cut: Option<usize>,
}

/// Returns the bound of sizes within the hulls; none if the least sizes exceed the capacity.
pub fn relax(hulls: &[Rc<Hull>], capacity: u64) -> Option<Relaxation> {
    let least: u64 = hulls.iter().map(|hull| hull.first().steps).sum();
    if least > capacity {
        return None;
    }
    let (low, high) = price_range(hulls, capacity);
    let mut chosen: Vec<usize> = hulls.iter().map(|hull| hull.corner_at(high)).collect();
    let mut left = capacity - steps_of(hulls, &chosen);
    let mut cut = None;
    for (volume, corner) in segments_between(hulls, low, high) {
        let corners = hulls[volume].corners();
        let more = corners[corner].steps - corners[corner - 1].steps;
        if more > left {
            cut = Some((volume, corners[corner].slope));
            break;
        }
        left -= more;
        chosen[volume] = corner;
    }
    let gain = hulls
        .iter()
        .zip(&chosen)
        .map(|(hull, &at)| hull.corners()[at].gain)
        .sum::<f64>();
    let price = cut.map_or(0.0, |(_, slope)| slope);
    Some(Relaxation {
        steps: capacity - left,
        gain,
        price,
        bound: gain + price * left as f64,
        cut: cut.map(|(volume, _)| volume),
        chosen,
    })
}

/// Returns two prices between which the price is: what costs the lower one may not fit.
fn price_range(hulls: &[Rc<Hull>], capacity: u64) -> (f64, f64) {
    let mut low = Price::of(hulls, 0.0);
    if low.steps <= capacity {
        return (0.0, 0.0);
    }
    let mut high = Price::of(hulls, f64::INFINITY);
    // The numbers of positive doubles are in their order.
    while low.corners - high.corners > FEW && low.price.to_bits() + 1 < high.price.to_bits() {
        let middle = (low.price.to_bits() + high.price.to_bits()) / 2;
        let tried = Price::of(hulls, f64::from_bits(middle));
        if tried.steps > capacity {
            low = tried;
        } else {
            high = tried;
        }
    }
    (low.price, high.price)
}

/// What hulls take at a price.
struct Price {
    price: f64,
    /// Sum of the indexes of their corners.
    corners: usize,
    steps: u64,
}

impl Price {
    fn of(hulls: &[Rc<Hull>], price: f64) -> Self {
        let mut found = Price {
            price,
            corners: 0,
            steps: 0,
        };
        for hull in hulls {
            let at = hull.corner_at(price);
            found.corners += at;
            found.steps += hull.corners()[at].steps;
        }
        found
    }
}

/// Returns the segments of slopes from `low` to below `high`, as hull and index of their ends.
fn segments_between(hulls: &[Rc<Hull>], low: f64, high: f64) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (volume, hull) in hulls.iter().enumerate() {
        let corners = hull.corner_at(high) + 1..hull.corner_at(low) + 1;
        found.extend(corners.map(|at| (volume, at)));
    }
    let slope = |&(volume, at): &(usize, usize)| hulls[volume].corners()[at].slope;
    found.sort_by(|one, other| slope(other).total_cmp(&slope(one)));
    found
}

fn steps_of(hulls: &[Rc<Hull>], chosen: &[usize]) -> u64 {
    let pairs = hulls.iter().zip(chosen);
    pairs.map(|(hull, &at)| hull.corners()[at].steps).sum()
}
