//! The concave hull of a volume's choices, or of a range of them.

use super::choices::Choice;

/// A choice at a corner of a hull.
#[derive(Clone, Copy, Debug)]
pub struct Corner {
    /// Index of the choice.
    pub at: usize,
    /// Its size.
    pub steps: u64,
    /// Its gain.
    pub gain: f64,
    /// Gain of a step between the corner before and this one; of the first corner infinite.
    pub slope: f64,
}

/// The corners of the least concave function that no choice is above; their slopes descend.
#[derive(Clone, Debug)]
pub struct Hull {
    corners: Vec<Corner>,
}

impl Hull {
    /// Returns the hull of all choices; there is at least one.
    pub fn of(choices: &[Choice]) -> Self {
        let mut corners = Vec::new();
        extend(&mut corners, choices, 0, choices.len() - 1);
        Hull { corners }
    }

    /// Returns the hull without the choices after `last`.
    pub fn up_to(&self, choices: &[Choice], last: usize) -> Self {
        // Choices below a segment make no corner before it.
        let kept = self.corners.partition_point(|corner| corner.at <= last);
        let mut corners = self.corners[..kept].to_vec();
        let next = corners.last().map_or(0, |corner| corner.at + 1);
        extend(&mut corners, choices, next, last);
        Hull { corners }
    }

    /// Returns the hull without the choices before `first`.
    pub fn beginning_at(&self, choices: &[Choice], first: usize) -> Self {
        let kept = self.corners.partition_point(|corner| corner.at < first);
        let mut corners = Vec::with_capacity(self.corners.len() - kept + 1);
        extend(&mut corners, choices, first, self.corners[kept].at);
        corners.extend_from_slice(&self.corners[kept + 1..]);
        Hull { corners }
    }

    /// The corners, of ascending size.
    pub fn corners(&self) -> &[Corner] {
        &self.corners
    }

    /// The corner of the smallest size.
    pub fn first(&self) -> &Corner {
        &self.corners[0]
    }

    /// The corner of the largest size.
    pub fn last(&self) -> &Corner {
        &self.corners[self.corners.len() - 1]
    }

    /// Returns the index of the last corner of which each step before it gains at least `price`.
    pub fn corner_at(&self, price: f64) -> usize {
        self.corners.partition_point(|corner| corner.slope >= price) - 1
    }
}

/// Adds the choices from `first` to `last` to a hull that ends before them.
fn extend(corners: &mut Vec<Corner>, choices: &[Choice], first: usize, last: usize) {
    for (at, choice) in choices.iter().enumerate().take(last + 1).skip(first) {
        let mut slope = f64::INFINITY;
        while let Some(corner) = corners.last() {
            slope = (choice.gain - corner.gain) / (choice.steps - corner.steps) as f64;
            if corner.slope > slope {
                break;
            }
            corners.pop();
        }
        corners.push(Corner {
            at,
            steps: choice.steps,
            gain: choice.gain,
            slope,
        });
    }
}
