//! All divisions that are close to a bound, combined volume by volume.
//!
//! At the price of a step each size has a loss: what it gains less, after its price, than the best
//! size of its volume. The losses of a division, and the price of the steps that it leaves, add up
//! to what it is below the bound. So a division of a small loss has sizes of small losses only.
//! Volumes whose other sizes all lose more stay as they are; most do, if there are many of them.

use std::ops::Range;
use std::rc::Rc;

use super::choices::Choice;
use super::hull::{Corner, Hull};
use super::relaxation::Relaxation;

/// States that are kept unsorted, besides those that no other dominates.
const UNSORTED: usize = 1 << 18;
/// States of all volumes that are kept to trace a division back.
const MOST_STATES: usize = 1 << 23;

/// The best division that was found.
#[derive(Debug)]
pub struct Best {
    /// Its gain.
    pub gain: f64,
    /// Index of a choice for each volume.
    pub chosen: Vec<usize>,
}

/// A part of all divisions: sizes within hulls.
pub struct Part<'a> {
    /// Choices of each volume.
    pub choices: &'a [Vec<Choice>],
    /// Hull of those that are allowed.
    pub hulls: &'a [Rc<Hull>],
    /// Their bound.
    pub relaxation: &'a Relaxation,
    /// Steps to divide.
    pub capacity: u64,
    /// A better division gains more than the best one by more than this.
    pub resolution: f64,
}

/// A choice beside the one of the relaxation.
struct Near {
    at: usize,
    more_steps: i64,
    more_gain: f64,
    loss: f64,
}

/// The near choices of a volume, those of small losses first; the first is the relaxation's.
struct Open {
    volume: usize,
    near: Vec<Near>,
}

/// A division in which volumes up to some one have other choices than the relaxation's.
#[derive(Clone, Copy)]
struct State {
    steps: i64,
    gain: f64,
    origin: Origin,
}

/// Where a state is from: the one before, and what the last volume has there.
#[derive(Clone, Copy)]
struct Origin {
    before: u32,
    near: u32,
}

impl Part<'_> {
    /// Returns the corner of the relaxation.
    fn base(&self, volume: usize) -> &Corner {
        &self.hulls[volume].corners()[self.relaxation.chosen[volume]]
    }

    /// Returns what a division with more steps and gain than the relaxation's loses.
    fn loss(&self, more_steps: i64, more_gain: f64) -> f64 {
        self.relaxation.price * more_steps as f64 - more_gain
    }

    /// Finds the best of all divisions whose sizes lose at most `limit` together.
    ///
    /// Reduces `effort` by the combinations that were looked at; `false`: it did not suffice.
    pub fn combine(&self, limit: f64, effort: &mut usize, best: &mut Best) -> bool {
        let Some(mut open) = self.open(limit, effort) else {
            return false;
        };
        let filler = self.take_filler(&mut open);
        let mut search = Search {
            part: self,
            filler,
            front: vec![State {
                steps: self.relaxation.steps as i64,
                gain: self.relaxation.gain,
                origin: Origin { before: 0, near: 0 },
            }],
            layers: Vec::new(),
        };
        search.fill(&open, best);
        for at in 0..open.len() {
            let missing = self.relaxation.bound - best.gain - self.resolution;
            let limit = limit.min(missing);
            if !search.expand(&open[at], limit, effort) {
                return false;
            }
            search.fill(&open, best);
        }
        true
    }

    /// Returns the volumes with near choices besides the relaxation's, those first that lose least.
    fn open(&self, limit: f64, effort: &mut usize) -> Option<Vec<Open>> {
        let mut found = Vec::new();
        for volume in 0..self.hulls.len() {
            let range = self.range(volume, limit);
            *effort = effort.checked_sub(range.len())?;
            let near = self.near(volume, range, limit);
            if near.len() > 1 {
                found.push(Open { volume, near });
            }
        }
        found.sort_by(|one, other| one.near[1].loss.total_cmp(&other.near[1].loss));
        Some(found)
    }

    /// Takes the volume that needs no combinations: it gets what others leave.
    fn take_filler(&self, open: &mut Vec<Open>) -> usize {
        match (0..open.len()).max_by_key(|&at| open[at].near.len()) {
            Some(at) => open.remove(at).volume,
            None => self.relaxation.cut.unwrap_or(0),
        }
    }

    /// Returns the choices among which those are whose loss is at most `limit`.
    fn range(&self, volume: usize, limit: f64) -> Range<usize> {
        let corners = self.hulls[volume].corners();
        let base = self.base(volume);
        let loss = |corner: &Corner| {
            let more = corner.steps as i64 - base.steps as i64;
            self.loss(more, corner.gain - base.gain)
        };
        let chosen = self.relaxation.chosen[volume];
        let first = corners[..chosen].partition_point(|corner| loss(corner) > limit);
        let last = chosen + corners[chosen..].partition_point(|corner| loss(corner) <= limit) - 1;
        // Between a near corner and a far one, the hull is near up to where its loss is the limit.
        let choices = &self.choices[volume];
        let reach = |corner: &Corner, slope: f64| {
            let steps = (limit - loss(corner)) / (slope - self.relaxation.price).abs();
            steps.min(1e18) as u64
        };
        let begin = match first {
            0 => corners[0].at,
            _ => {
                let near = &corners[first];
                let least = near.steps.saturating_sub(reach(near, near.slope));
                let far = corners[first - 1].at;
                far + choices[far..near.at].partition_point(|choice| choice.steps < least)
            }
        };
        let end = match corners.get(last + 1) {
            None => corners[last].at + 1,
            Some(far) => {
                let near = &corners[last];
                let most = near.steps.saturating_add(reach(near, far.slope));
                near.at + choices[near.at..far.at].partition_point(|choice| choice.steps <= most)
            }
        };
        begin..end
    }

    fn near(&self, volume: usize, range: Range<usize>, limit: f64) -> Vec<Near> {
        let base = self.base(volume);
        let choices = &self.choices[volume];
        let mut found = vec![Near {
            at: base.at,
            more_steps: 0,
            more_gain: 0.0,
            loss: 0.0,
        }];
        for at in range {
            let more_steps = choices[at].steps as i64 - base.steps as i64;
            let more_gain = choices[at].gain - base.gain;
            let loss = self.loss(more_steps, more_gain).max(0.0);
            if loss <= limit && at != base.at {
                found.push(Near {
                    at,
                    more_steps,
                    more_gain,
                    loss,
                });
            }
        }
        found.sort_by(|one, other| one.loss.total_cmp(&other.loss));
        found
    }
}

/// Combinations of the volumes so far, and how to trace them back.
struct Search<'a> {
    part: &'a Part<'a>,
    filler: usize,
    /// Of ascending steps and gains.
    front: Vec<State>,
    layers: Vec<Vec<Origin>>,
}

impl Search<'_> {
    /// Combines all states with the near choices of one more volume.
    fn expand(&mut self, open: &Open, limit: f64, effort: &mut usize) -> bool {
        let (steps, gain) = (self.part.relaxation.steps as i64, self.part.relaxation.gain);
        let mut next: Vec<State> = Vec::new();
        let mut most = UNSORTED;
        for (before, state) in self.front.iter().enumerate() {
            let loss = self.part.loss(state.steps - steps, state.gain - gain);
            let count = open.near.partition_point(|near| loss + near.loss <= limit);
            match effort.checked_sub(count) {
                Some(left) => *effort = left,
                None => return false,
            }
            next.extend(
                open.near[..count]
                    .iter()
                    .enumerate()
                    .map(|(at, near)| State {
                        steps: state.steps + near.more_steps,
                        gain: state.gain + near.more_gain,
                        origin: Origin {
                            before: before as u32,
                            near: at as u32,
                        },
                    }),
            );
            if next.len() > most {
                retain_undominated(&mut next);
                most = 2 * next.len() + UNSORTED;
            }
        }
        retain_undominated(&mut next);
        self.layers
            .push(next.iter().map(|state| state.origin).collect());
        self.front = next;
        self.layers.iter().map(Vec::len).sum::<usize>() <= MOST_STATES
    }

    /// Gives the filler what each state leaves, and keeps the best division.
    fn fill(&self, open: &[Open], best: &mut Best) {
        let hull = &self.part.hulls[self.filler];
        let base = self.part.base(self.filler);
        let choices = &self.part.choices[self.filler];
        let mut at = hull.last().at;
        let mut found = None;
        for (index, state) in self.front.iter().enumerate() {
            let room = self.part.capacity as i64 - (state.steps - base.steps as i64);
            if room < hull.first().steps as i64 {
                break;
            }
            while choices[at].steps as i64 > room {
                at -= 1;
            }
            let gain = state.gain - base.gain + choices[at].gain;
            if gain > best.gain {
                best.gain = gain;
                found = Some((index, at));
            }
        }
        if let Some((index, at)) = found {
            best.chosen = self.trace_back(open, index);
            best.chosen[self.filler] = at;
        }
    }

    /// Returns the choices of a state.
    fn trace_back(&self, open: &[Open], mut index: usize) -> Vec<usize> {
        let volumes = 0..self.part.hulls.len();
        let mut chosen: Vec<usize> = volumes.map(|at| self.part.base(at).at).collect();
        for (layer, open) in self.layers.iter().zip(open).rev() {
            let origin = layer[index];
            chosen[open.volume] = open.near[origin.near as usize].at;
            index = origin.before as usize;
        }
        chosen
    }
}

/// Leaves out states that take as much as another one, or more, and gain less.
fn retain_undominated(states: &mut Vec<State>) {
    states.sort_unstable_by(|one, other| {
        let by_steps = one.steps.cmp(&other.steps);
        by_steps.then(other.gain.total_cmp(&one.gain))
    });
    let mut best = f64::MIN;
    states.retain(|state| {
        let better = state.gain > best;
        best = best.max(state.gain);
        better
    });
}
