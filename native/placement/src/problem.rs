//! The instance of one site in the shape that the inner loops want.
//!
//! Sizes and capacities are whole numbers below 2^53, so that sums and
//! differences of them are exact.

use crate::rows::Rows;
use thiserror::Error;

/// Why the arrays do not make an instance.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProblemError {
    /// {0}: arrays that belong together differ in length
    #[error("{0}: arrays that belong together differ in length")]
    Length(&'static str),
    /// {0}: an index points outside the instance
    #[error("{0}: an index points outside the instance")]
    Index(&'static str),
}

/// Seconds per byte into one host, by where the bytes come from.
#[derive(Debug, Clone, Copy)]
pub struct Links {
    /// From its own disk.
    pub local: f64,
    /// From the nearest holder when some host of the site is one.
    pub near: f64,
    /// From the repository.
    pub repo: f64,
}

/// Requests for one template at one host.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Column of the host.
    pub host: u32,
    /// Requests.
    pub rate: f64,
}

/// The requests of one component of templates at one host.
#[derive(Debug, Clone)]
pub struct Group {
    /// The component.
    pub component: u32,
    /// Column of the host.
    pub host: u32,
    /// (template, position of the cell) of each.
    pub cells: Vec<(u32, u32)>,
}

/// The templates of an instance, one element of each list for each template.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    /// Bytes.
    pub size: Vec<f64>,
    /// Bytes that cross the link to the repository.
    pub wire: Vec<f64>,
}

impl Templates {
    /// Templates that cross the link to the repository as they are.
    #[must_use]
    pub fn uncompressed(size: Vec<f64>) -> Self {
        Self {
            wire: size.clone(),
            size,
        }
    }
}

/// The patches of an instance, one element of each list for each patch.
#[derive(Debug, Clone, Default)]
pub struct Patches {
    /// Template that it is applied to.
    pub base: Vec<u32>,
    /// Template that it builds.
    pub target: Vec<u32>,
    /// Bytes.
    pub size: Vec<f64>,
    /// Seconds to apply it.
    pub apply: Vec<f64>,
}

impl Patches {
    fn check_lengths(&self) -> Result<(), ProblemError> {
        if [self.target.len(), self.size.len(), self.apply.len()] != [self.base.len(); 3] {
            return Err(ProblemError::Length("patch_sizes"));
        }
        Ok(())
    }

    fn check_ends(&self, templates: usize) -> Result<(), ProblemError> {
        let mut ends = self.base.iter().chain(&self.target);
        if ends.any(|&template| template as usize >= templates) {
            return Err(ProblemError::Index("patch_sizes"));
        }
        Ok(())
    }
}

/// The hosts of an instance, one element of each list for each host.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// Bytes that it may hold.
    pub capacity: Vec<f64>,
    /// Its links.
    pub links: Vec<Links>,
}

/// An instance. Objects are numbered templates first, then patches.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Bytes of each object.
    pub size: Vec<f64>,
    /// Bytes of each object that cross the link to the repository. From there no
    /// object arrives faster than from near.
    pub wire: Vec<f64>,
    /// Number of templates.
    pub templates: usize,
    /// Base of each patch.
    pub base: Vec<u32>,
    /// Target of each patch.
    pub target: Vec<u32>,
    /// Seconds to apply each patch.
    pub apply: Vec<f64>,
    /// Bytes that each host may hold.
    pub capacity: Vec<f64>,
    /// Links of each host.
    pub links: Vec<Links>,
    /// Requests by template; hosts ascend.
    pub cells: Rows<Cell>,
    /// Patches by base; targets ascend.
    pub from: Rows<u32>,
    /// Patches by target.
    pub into: Rows<u32>,
    /// Component of the patch graph that each template is in.
    pub component: Vec<u32>,
    /// Templates by component.
    pub members: Rows<u32>,
    /// Requests by component and host.
    pub groups: Vec<Group>,
    /// Groups by component; hosts ascend.
    pub groups_of: Rows<u32>,
    /// Most patches that are applied one after another.
    pub hops: usize,
}

impl Problem {
    /// Checks the arrays and indexes them.
    ///
    /// `rates` is row by row, one row of hosts per template; `hops` is the number of
    /// patches that may be applied one after another.
    ///
    /// # Errors
    /// Arrays of different lengths, or patches of templates that are not there.
    pub fn new(
        Templates { size: sizes, wire }: Templates,
        patches: Patches,
        Hosts { capacity, links }: Hosts,
        rates: &[f64],
        hops: usize,
    ) -> Result<Self, ProblemError> {
        let (templates, hosts) = (sizes.len(), capacity.len());
        if wire.len() != templates {
            return Err(ProblemError::Length("wire_sizes"));
        }
        patches.check_lengths()?;
        if links.len() != hosts {
            return Err(ProblemError::Length("bandwidths"));
        }
        if rates.len() != templates * hosts {
            return Err(ProblemError::Length("rates"));
        }
        patches.check_ends(templates)?;
        let Patches {
            base,
            target,
            size: patch_sizes,
            apply,
        } = patches;
        let cells = cells_of(rates, templates, hosts);
        let mut from = numbers_by(templates, base.iter().copied());
        from.sort_rows_by(|&a, &b| target[a as usize].cmp(&target[b as usize]));
        let component = components(templates, &base, &target);
        let count = component.iter().max().map_or(0, |&c| c as usize + 1);
        let members = numbers_by(count, component.iter().copied());
        let groups = group(&cells, &members, hosts);
        let groups_of = numbers_by(count, groups.iter().map(|group| group.component));
        let with_patches = |each: Vec<f64>| each.iter().chain(&patch_sizes).copied().collect();
        Ok(Self {
            size: with_patches(sizes),
            wire: with_patches(wire),
            templates,
            into: numbers_by(templates, target.iter().copied()),
            base,
            target,
            apply,
            capacity,
            links,
            cells,
            from,
            component,
            members,
            groups,
            groups_of,
            hops,
        })
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.capacity.len()
    }

    /// Number of templates and patches.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.size.len()
    }

    /// The object number of a patch.
    #[must_use]
    pub fn patch(&self, patch: u32) -> usize {
        self.templates + patch as usize
    }

    /// The patch that an object is, if it is one.
    #[must_use]
    pub fn as_patch(&self, object: usize) -> Option<usize> {
        object.checked_sub(self.templates)
    }

    /// The template whose requests an object's presence changes first.
    #[must_use]
    pub fn anchor(&self, object: usize) -> usize {
        self.as_patch(object)
            .map_or(object, |patch| self.target[patch] as usize)
    }

    /// Position among all cells of a template's requests at a host.
    #[must_use]
    pub fn cell_at(&self, template: usize, host: usize) -> Option<usize> {
        let row = self.cells.row(template);
        let found = row
            .binary_search_by_key(&(host as u32), |cell| cell.host)
            .ok()?;
        Some(self.cells.range(template).start + found)
    }

    /// The requests of a host for one component.
    fn group_at(&self, component: usize, host: usize) -> Option<&Group> {
        let row = self.groups_of.row(component);
        let found = row
            .binary_search_by_key(&(host as u32), |&g| self.groups[g as usize].host)
            .ok()?;
        Some(&self.groups[row[found] as usize])
    }

    /// (patch, position) of a host's requests that a template is a base for.
    pub fn built_at(
        &self,
        base: usize,
        host: usize,
    ) -> impl Iterator<Item = (u32, usize)> + use<'_> {
        let group = self.group_at(self.component[base] as usize, host);
        let cells = group.map_or(&[][..], |group| &group.cells);
        let patches = self.from.row(base);
        let few = patches.len() < cells.len();
        let by_patch = if few { patches } else { &[] };
        let by_cell = if few { &[] } else { cells };
        let one = by_patch.iter().filter_map(move |&patch| {
            let target = self.target[patch as usize];
            let at = cells.binary_search_by_key(&target, |cell| cell.0).ok()?;
            Some((patch, cells[at].1 as usize))
        });
        let other = by_cell.iter().filter_map(move |&(target, position)| {
            let target_of = |&patch: &u32| self.target[patch as usize];
            let at = patches.binary_search_by_key(&target, target_of).ok()?;
            Some((patches[at], position as usize))
        });
        one.chain(other)
    }
}

fn components(templates: usize, base: &[u32], target: &[u32]) -> Vec<u32> {
    let mut root: Vec<u32> = (0..templates as u32).collect();
    fn find(root: &mut [u32], mut t: u32) -> u32 {
        while root[t as usize] != t {
            root[t as usize] = root[root[t as usize] as usize];
            t = root[t as usize];
        }
        t
    }
    for (&a, &b) in base.iter().zip(target) {
        let (a, b) = (find(&mut root, a), find(&mut root, b));
        let (low, high) = (a.min(b), a.max(b));
        root[high as usize] = low;
    }
    let mut number = vec![u32::MAX; templates];
    let mut next = 0;
    (0..templates as u32)
        .map(|t| {
            let top = find(&mut root, t) as usize;
            if number[top] == u32::MAX {
                number[top] = next;
                next += 1;
            }
            number[top]
        })
        .collect()
}

/// The requests for each template, from a row of hosts for each.
fn cells_of(rates: &[f64], templates: usize, hosts: usize) -> Rows<Cell> {
    let hosts = hosts.max(1);
    let requested = rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
    let by_template = requested.map(|(n, &rate)| {
        let host = (n % hosts) as u32;
        (n / hosts, Cell { host, rate })
    });
    Rows::collect(templates, by_template)
}

/// The numbers of elements by the row that each of them is in.
fn numbers_by(rows: usize, of: impl Iterator<Item = u32> + Clone) -> Rows<u32> {
    let numbered = of.enumerate();
    Rows::collect(rows, numbered.map(|(n, row)| (row as usize, n as u32)))
}

fn group(cells: &Rows<Cell>, members: &Rows<u32>, hosts: usize) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut at_host: Vec<Vec<(u32, u32)>> = vec![Vec::new(); hosts];
    for component in 0..members.len() {
        for &template in members.row(component) {
            for position in cells.range(template as usize) {
                let host = cells.items()[position].host as usize;
                at_host[host].push((template, position as u32));
            }
        }
        for (host, cells) in at_host.iter_mut().enumerate() {
            if !cells.is_empty() {
                groups.push(Group {
                    component: component as u32,
                    host: host as u32,
                    cells: std::mem::take(cells),
                });
            }
        }
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Three templates of which 0 builds 1 and 1 builds 2, and two hosts.
    pub(crate) fn chain(hops: usize) -> Problem {
        chain_of(Templates::uncompressed(vec![1000.0, 1100.0, 1200.0]), hops)
    }

    /// The same with templates that are compressed for the repository's link.
    pub(crate) fn compressed_chain(hops: usize) -> Problem {
        let templates = Templates {
            size: vec![1000.0, 1100.0, 1200.0],
            wire: vec![300.0, 1000.0, 600.0],
        };
        chain_of(templates, hops)
    }

    fn chain_of(templates: Templates, hops: usize) -> Problem {
        let links = vec![
            Links {
                local: 0.02,
                near: 0.04,
                repo: 0.8
            };
            2
        ];
        Problem::new(
            templates,
            Patches {
                base: vec![0, 1],
                target: vec![1, 2],
                size: vec![100.0, 100.0],
                apply: vec![5.0, 5.0],
            },
            Hosts {
                capacity: vec![1150.0, 1000.0],
                links,
            },
            &[3.0, 1.0, 2.0, 2.0, 0.0, 4.0],
            hops,
        )
        .unwrap()
    }

    #[test]
    fn indexes_requests_and_components() {
        let problem = chain(1);
        assert_eq!(problem.members.len(), 1);
        assert_eq!(problem.groups.len(), 2);
        assert_eq!(problem.cell_at(2, 0), None);
        assert_eq!(problem.cell_at(2, 1), Some(4));
    }

    #[test]
    fn refuses_what_does_not_fit_together() {
        let links = vec![Links {
            local: 1.0,
            near: 1.0,
            repo: 1.0,
        }];
        let result = Problem::new(
            Templates::uncompressed(vec![1.0]),
            Patches {
                base: vec![0],
                target: vec![1],
                size: vec![1.0],
                apply: vec![0.0],
            },
            Hosts {
                capacity: vec![1.0],
                links,
            },
            &[1.0],
            1,
        );
        assert_eq!(result.err(), Some(ProblemError::Index("patch_sizes")));
    }

    #[test]
    fn refuses_templates_without_bytes_on_the_link() {
        let templates = Templates {
            size: vec![1.0],
            wire: Vec::new(),
        };
        let result = Problem::new(templates, Patches::default(), Hosts::default(), &[], 1);
        assert_eq!(result.err(), Some(ProblemError::Length("wire_sizes")));
    }
}
