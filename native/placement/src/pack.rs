//! Exact packing of a few hosts: which of a pool of templates go where, when
//! each is worth something and space left over is worth a little.

/// A template that may go to any of the hosts.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Bytes.
    pub size: f64,
    /// Seconds saved.
    pub value: f64,
}

/// Nodes of the search tree after which the best so far is taken.
const NODES: usize = 30_000;

/// For each item the host (position in `room`) it goes to, if any.
///
/// Branch and bound with the bound of the relaxation in which the hosts are
/// one and items can be cut; `filler` is the worth of a byte that stays free.
#[must_use]
pub fn pack(items: &[Item], room: &[f64], filler: f64) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let density = |n: &usize| items[*n].value / items[*n].size;
    order.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.cmp(b)));
    let mut tree = Tree {
        items,
        order: &order,
        filler,
        best: f64::NEG_INFINITY,
        best_at: vec![None; items.len()],
        at: vec![None; items.len()],
        nodes: 0,
    };
    tree.branch(0, 0.0, &mut room.to_vec());
    tree.best_at
}

struct Tree<'a> {
    items: &'a [Item],
    order: &'a [usize],
    filler: f64,
    best: f64,
    best_at: Vec<Option<usize>>,
    at: Vec<Option<usize>>,
    nodes: usize,
}

impl Tree<'_> {
    fn branch(&mut self, depth: usize, value: f64, room: &mut Vec<f64>) {
        self.nodes += 1;
        let free: f64 = room.iter().sum();
        let total = value + free * self.filler;
        if total > self.best {
            self.best = total;
            self.best_at.clone_from(&self.at);
        }
        if self.nodes > NODES || depth == self.order.len() {
            return;
        }
        if value + self.relaxed(depth, free) <= self.best * (1.0 + 1e-9) {
            return;
        }
        let n = self.order[depth];
        let item = self.items[n];
        if item.value > item.size * self.filler {
            for host in 0..room.len() {
                let same = room[..host].contains(&room[host]);
                if item.size <= room[host] && !same {
                    room[host] -= item.size;
                    self.at[n] = Some(host);
                    self.branch(depth + 1, value + item.value, room);
                    self.at[n] = None;
                    room[host] += item.size;
                }
            }
        }
        self.branch(depth + 1, value, room);
    }

    fn relaxed(&self, depth: usize, mut free: f64) -> f64 {
        let mut value = 0.0;
        for &n in &self.order[depth..] {
            let item = self.items[n];
            let density = item.value / item.size;
            if free <= 0.0 || density <= self.filler {
                break;
            }
            let part = item.size.min(free);
            value += density * part;
            free -= part;
        }
        value + free * self.filler
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_two_hosts_exactly() {
        let sizes = [60.0, 50.0, 40.0, 30.0, 20.0, 10.0];
        let items: Vec<Item> = sizes
            .iter()
            .map(|&size| Item { size, value: size })
            .collect();
        let at = pack(&items, &[100.0, 100.0], 0.0);
        let mut used = [0.0, 0.0];
        for (item, host) in items.iter().zip(at) {
            if let Some(host) = host {
                used[host] += item.size;
            }
        }
        assert_eq!(used, [100.0, 100.0]);
    }

    #[test]
    fn leaves_out_what_is_worth_less_than_free_space() {
        let items = [
            Item {
                size: 10.0,
                value: 5.0,
            },
            Item {
                size: 10.0,
                value: 50.0,
            },
        ];
        assert_eq!(pack(&items, &[20.0], 1.0), vec![None, Some(0)]);
    }
}
