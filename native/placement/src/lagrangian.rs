//! Lower bounds by Lagrangian relaxation, in which each host packs whole templates.
//!
//! [`crate::dual`] lets a host be filled with parts of templates. Where a host
//! holds two or three, the capacity that cannot be used matters. Here the relaxed
//! constraints have multipliers: that every request (a cell) is assigned a way,
//! that a near template is held somewhere, and that patches fit into the space of
//! hosts. Given these,
//!
//! * a template is near if near requests contribute more than its multiplier,
//! * a host holds the templates that are worth most to it, a knapsack: the worth
//!   of each is its near multiplier and the contributions of local requests.
//!
//! The gains of near templates and hosts are subtracted from the sum of all
//! assignment multipliers, which leaves a bound for any multipliers (weak duality).
//! Good ones are found by subgradient steps along a running average of directions,
//! as in the volume algorithm of Barahona and Anbil (2000).

pub mod ascent;

use crate::knapsack::{Item, Knapsack};
use crate::problem::Problem;
use crate::rows::Rows;
use crate::ways::Way;

/// Steps of the grid on which hosts are packed.
const GRID: f64 = 500.0;
/// Least share that a request keeps in a patch, so that it can come back.
const LEAST_SHARE: f64 = 1e-4;

/// Lagrange multipliers of the relaxed constraints.
#[derive(Debug, Clone, Default)]
pub struct Multipliers {
    /// Of each request (cell) being assigned a way.
    pub assignment: Vec<f64>,
    /// Of each near template being held by a host.
    pub near: Vec<f64>,
    /// Of each host's space, per byte of patches.
    pub space: Vec<f64>,
    /// Part of a near patch's space that each cell is charged, by entry.
    pub share: Vec<f64>,
}

impl Multipliers {
    fn zero(problem: &Problem) -> Self {
        Self {
            assignment: vec![0.0; problem.cells.items().len()],
            near: vec![0.0; problem.templates],
            space: vec![0.0; problem.hosts()],
            share: Vec::new(),
        }
    }

    fn lists(&self) -> [&[f64]; 3] {
        [&self.assignment, &self.near, &self.space]
    }

    fn lists_mut(&mut self) -> [&mut [f64]; 3] {
        [&mut self.assignment, &mut self.near, &mut self.space]
    }
}

/// A request's contribution to having a base near or local.
#[derive(Debug, Clone, Copy)]
struct Contribution {
    base: u32,
    target: u32,
    cell: u32,
    /// Bytes of the patch.
    patch: f64,
    /// The space that the patch is charged for.
    space: Space,
    /// The entry of the cell and the way.
    entry: u32,
}

/// The requests of a cell.
#[derive(Debug, Clone, Copy)]
struct Request {
    template: u32,
    /// Position of the cell.
    cell: u32,
    host: usize,
    rate: f64,
    /// Entry of the cell and the first way.
    first: usize,
    /// Price per byte of a patch on the cell's own host, above that of one near.
    own: f64,
}

/// The space that a cell's patches are charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// A part of one copy's in the site.
    Near,
    /// That of a copy on its own host.
    Local,
    /// None: it is fetched from the repository.
    Far,
}

/// The relaxed problem; evaluates multipliers.
pub struct Lagrangian<'a> {
    problem: &'a Problem,
    ways: &'a Rows<Way>,
    /// Positions of the ways that may be worth it with a base from far.
    far_ways: &'a Rows<u32>,
    /// (template, position) of the cells of each host.
    at: Rows<(u32, u32)>,
    /// Requests for each template.
    rate: Vec<f64>,
    room: f64,
    knapsack: Knapsack,
    items: Vec<Item>,
    near_contributions: Vec<Contribution>,
    local_contributions: Vec<Contribution>,
    /// Contributions of near requests to each template.
    contributed: Vec<f64>,
    /// Contributions of the current host's local requests to each template.
    worth: Vec<f64>,
    touched: Vec<u32>,
    /// Direction in which the value rises.
    slope: Multipliers,
    /// Price per byte of patches to each template being near.
    patch_rate: Vec<f64>,
    /// The host whose price of space that is.
    patch_host: Vec<u32>,
    /// First entry of each template.
    first: Vec<usize>,
    /// (template, entry) of each patch near or local that a request used.
    used: Vec<(u32, u32)>,
}

impl<'a> Lagrangian<'a> {
    /// Scratch for an instance and its ways.
    #[must_use]
    pub fn new(problem: &'a Problem, ways: &'a Rows<Way>, far_ways: &'a Rows<u32>) -> Self {
        let cells = (0..problem.templates).flat_map(|t| {
            problem
                .cells
                .range(t)
                .map(move |position| (t as u32, position as u32))
        });
        let by_host = cells.map(|(t, c)| (problem.cells.items()[c as usize].host as usize, (t, c)));
        let n = problem.templates;
        Self {
            problem,
            ways,
            far_ways,
            at: Rows::collect(problem.hosts(), by_host),
            rate: (0..n)
                .map(|t| problem.cells.row(t).iter().map(|cell| cell.rate).sum())
                .collect(),
            room: problem.capacity.iter().copied().fold(0.0, f64::max),
            knapsack: Knapsack::default(),
            items: Vec::new(),
            near_contributions: Vec::new(),
            local_contributions: Vec::new(),
            contributed: vec![0.0; n],
            worth: vec![0.0; n],
            touched: Vec::new(),
            slope: Multipliers::zero(problem),
            patch_rate: vec![0.0; n],
            patch_host: vec![0; n],
            first: (0..n)
                .scan(0, |next, t| {
                    let at = *next;
                    *next += problem.cells.row(t).len() * ways.row(t).len();
                    Some(at)
                })
                .collect(),
            used: Vec::new(),
        }
    }

    /// Multipliers to start from; what patches cost is shared out by rate.
    #[must_use]
    pub fn start(&self, assignment: Vec<f64>, near: Vec<f64>, space: Vec<f64>) -> Multipliers {
        let mut share = Vec::new();
        for t in 0..self.problem.templates {
            for cell in self.problem.cells.row(t) {
                let part = cell.rate / self.rate[t];
                share.extend(std::iter::repeat_n(part, self.ways.row(t).len()));
            }
        }
        Multipliers {
            assignment,
            near,
            space,
            share,
        }
    }

    /// Multiplies the shares of requests that used a patch, and has the shares
    /// in each patch add up to one again.
    fn reshare(&self, share: &mut [f64], factor: f64) {
        let mut touched: Vec<(u32, u32)> = Vec::new();
        for &(template, entry) in &self.used {
            share[entry as usize] *= factor;
            let t = template as usize;
            let way = (entry as usize - self.first[t]) % self.ways.row(t).len();
            touched.push((template, way as u32));
        }
        touched.sort_unstable();
        touched.dedup();
        for (t, way) in touched {
            let width = self.ways.row(t as usize).len();
            let from = self.first[t as usize] + way as usize;
            let count = self.problem.cells.row(t as usize).len();
            let entries = (0..count).map(|n| from + n * width);
            let sum: f64 = (entries.clone()).map(|n| share[n].max(LEAST_SHARE)).sum();
            for n in entries {
                share[n] = share[n].max(LEAST_SHARE) / sum;
            }
        }
    }

    /// The bound at some multipliers; assignment multipliers beyond the repository's cost are
    /// lowered to it. Leaves the direction of ascent in `slope`.
    pub fn evaluate(&mut self, multipliers: &mut Multipliers) -> f64 {
        self.price_patches(&multipliers.space);
        self.slope.assignment.fill(1.0);
        self.slope.near.fill(0.0);
        self.slope.space.fill(0.0);
        self.contributed.fill(0.0);
        self.near_contributions.clear();
        self.used.clear();
        let mut total = 0.0;
        for host in 0..self.problem.hosts() {
            self.list_contributions(host, multipliers);
            total -= self.pack(host, multipliers);
            for &(_, cell) in self.at.row(host) {
                total += multipliers.assignment[cell as usize];
            }
        }
        for t in 0..self.problem.templates {
            let excess = self.contributed[t] - multipliers.near[t];
            if excess > 0.0 {
                total -= excess;
                self.slope.near[t] += 1.0;
            }
        }
        let contributions = std::mem::take(&mut self.near_contributions);
        for contribution in &contributions {
            let base = contribution.base as usize;
            if self.contributed[base] > multipliers.near[base] {
                self.serve(*contribution, multipliers);
            }
        }
        self.near_contributions = contributions;
        total
    }

    /// Notes that the relaxed solution assigns a request a way.
    fn serve(&mut self, contribution: Contribution, multipliers: &Multipliers) {
        let cell = contribution.cell as usize;
        self.slope.assignment[cell] -= 1.0;
        if contribution.patch <= 0.0 {
            return;
        }
        let t = contribution.target as usize;
        let cell = self.problem.cells.items()[cell];
        if contribution.space == Space::Far {
            return;
        }
        self.used.push((contribution.target, contribution.entry));
        let mut near = multipliers.share[contribution.entry as usize];
        if contribution.space == Space::Local {
            self.slope.space[cell.host as usize] += contribution.patch;
            near -= 1.0;
        }
        if self.patch_rate[t] > 0.0 {
            self.slope.space[self.patch_host[t] as usize] += near * contribution.patch;
        }
    }

    /// Prices a byte of patches to each template being near.
    fn price_patches(&mut self, space: &[f64]) {
        let problem = self.problem;
        let mut least = (f64::MAX, 0);
        for (host, &price) in space.iter().enumerate() {
            if problem.capacity[host] > 0.0 && price < least.0 {
                least = (price, host as u32);
            }
        }
        for t in 0..problem.templates {
            let (mut rate, mut at) = least;
            for cell in problem.cells.row(t) {
                let links = problem.links[cell.host as usize];
                let left = space[cell.host as usize] - cell.rate * (links.near - links.local);
                if problem.capacity[cell.host as usize] > 0.0 && left < rate {
                    (rate, at) = (left.max(0.0), cell.host);
                }
            }
            self.patch_rate[t] = rate;
            self.patch_host[t] = at;
        }
    }

    /// Seconds per byte of a patch to `t` that a cell with some share in its
    /// price pays at least, space included, and whose space that is.
    fn patch_seconds(&self, t: usize, cell: usize, own: f64, share: f64) -> (f64, Space) {
        let problem = self.problem;
        let cell = problem.cells.items()[cell];
        let links = problem.links[cell.host as usize];
        let part = self.patch_rate[t] * share;
        let near = cell.rate * links.near + part;
        let mut least = (cell.rate * links.repo, Space::Far);
        if near < least.0 {
            least = (near, Space::Near);
        }
        let local = cell.rate * links.local + part + own;
        if local < least.0 {
            least = (local, Space::Local);
        }
        least
    }

    /// Lists the contributions of a host's requests to each base.
    fn list_contributions(&mut self, host: usize, multipliers: &mut Multipliers) {
        let problem = self.problem;
        self.local_contributions.clear();
        self.touched.clear();
        for n in 0..self.at.row(host).len() {
            let (template, cell) = self.at.row(host)[n];
            let (t, c) = (template as usize, cell as usize);
            let width = self.ways.row(t).len();
            let own = if problem.capacity[host] > 0.0 {
                (multipliers.space[host] - self.patch_rate[t]).max(0.0)
            } else {
                f64::INFINITY
            };
            let request = Request {
                template,
                cell,
                host,
                rate: problem.cells.items()[c].rate,
                first: self.first[t] + (c - problem.cells.range(t).start) * width,
                own,
            };
            let far = self.far_seconds(request, &multipliers.share);
            let assignment = multipliers.assignment[c].min(far);
            multipliers.assignment[c] = assignment;
            if far <= assignment {
                self.slope.assignment[c] = 0.0;
            }
            self.contribute_all(request, assignment, &multipliers.share);
        }
    }

    /// Returns the seconds of a cell's requests if all that they need is fetched from the
    /// repository, by the best way; patches from near or local.
    fn far_seconds(&self, request: Request, share: &[f64]) -> f64 {
        let problem = self.problem;
        let (t, rate) = (request.template as usize, request.rate);
        let repo = problem.links[request.host].repo;
        let mut far = rate * repo * problem.wire[t];
        for &n in self.far_ways.row(t) {
            let way = self.ways.items()[n as usize];
            let patch = problem.size[problem.patch(way.patch)];
            let base = rate * (repo * problem.wire[way.base as usize] + way.seconds);
            let entry = request.first + n as usize - self.ways.range(t).start;
            let (seconds, _) = self.patch_seconds_within(request, patch, share[entry]);
            far = far.min(base + patch * seconds);
        }
        far
    }

    /// Notes the contributions of a cell's requests to their template, and to the bases of its ways.
    fn contribute_all(&mut self, request: Request, assignment: f64, share: &[f64]) {
        let (problem, ways) = (self.problem, self.ways);
        let (t, rate) = (request.template as usize, request.rate);
        let local = problem.links[request.host].local;
        let direct = Contribution {
            base: request.template,
            target: request.template,
            cell: request.cell,
            patch: 0.0,
            space: Space::Far,
            entry: 0,
        };
        self.contribute(direct, assignment, rate * problem.size[t], request.host);
        for (n, way) in ways.row(t).iter().enumerate() {
            let patch = problem.size[problem.patch(way.patch)];
            let bytes = rate * problem.size[way.base as usize];
            let left = assignment - rate * way.seconds - local * (bytes + rate * patch);
            if left <= 0.0 {
                continue;
            }
            let entry = request.first + n;
            let (seconds, space) = self.patch_seconds_within(request, patch, share[entry]);
            let contribution = Contribution {
                base: way.base,
                patch,
                space,
                entry: entry as u32,
                ..direct
            };
            let left = assignment - rate * way.seconds - patch * seconds;
            self.contribute(contribution, left, bytes, request.host);
        }
    }

    /// Returns [`Self::patch_seconds`], or those from the repository for a patch that no host holds.
    fn patch_seconds_within(&self, request: Request, patch: f64, share: f64) -> (f64, Space) {
        if patch > self.room {
            let repo = self.problem.links[request.host].repo;
            return (request.rate * repo, Space::Far);
        }
        let (t, cell) = (request.template as usize, request.cell as usize);
        self.patch_seconds(t, cell, request.own, share)
    }

    /// Notes a request's contributions to a base, near and local: what is left
    /// of its multiplier after fetching the base.
    fn contribute(&mut self, contribution: Contribution, left: f64, bytes: f64, host: usize) {
        let links = self.problem.links[host];
        let b = contribution.base as usize;
        let local = left - links.local * bytes;
        if local <= 0.0 || self.problem.size[b] > self.room {
            return;
        }
        let near = left - links.near * bytes;
        if self.worth[b] == 0.0 {
            self.touched.push(contribution.base);
        }
        // What a local base is worth comes on top of its being near.
        if near > 0.0 {
            self.contributed[b] += near;
            self.near_contributions.push(contribution);
            self.worth[b] += local - near;
        } else {
            self.local_contributions.push(contribution);
            self.worth[b] += local;
        }
    }

    /// Packs a host; what it gains, patches included.
    fn pack(&mut self, host: usize, multipliers: &Multipliers) -> f64 {
        let problem = self.problem;
        let capacity = problem.capacity[host];
        // A whole number of bytes, for quotients that are rounded down exactly.
        let step = (self.room / GRID).ceil().max(1.0);
        let space = multipliers.space[host];
        self.items.clear();
        for t in 0..problem.templates {
            let size = problem.size[t];
            let profit = multipliers.near[t] + self.worth[t] - space * size;
            if profit > 0.0 && size <= capacity {
                self.items.push(Item {
                    weight: (size / step) as usize,
                    profit,
                    id: t as u32,
                });
            }
        }
        let gain = if self.items.is_empty() {
            self.knapsack.chosen.clear();
            0.0
        } else {
            let room = (capacity / step) as usize;
            self.knapsack.solve(&mut self.items, room)
        };
        self.slope.space[host] -= capacity;
        for &chosen in &self.knapsack.chosen {
            let t = chosen as usize;
            self.slope.near[t] -= 1.0;
            self.slope.space[host] += problem.size[t];
        }
        for n in 0..self.local_contributions.len() {
            let contribution = self.local_contributions[n];
            if self.knapsack.chosen.contains(&contribution.base) {
                self.serve(contribution, multipliers);
            }
        }
        for &base in &self.touched {
            self.worth[base as usize] = 0.0;
        }
        gain + space * capacity
    }
}
