//! Knapsack on a grid: which items of whole weights are worth most together.

/// An item that may go in once.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Steps of the grid that it takes; an item of none takes nothing.
    pub weight: usize,
    /// What it is worth; above 0.
    pub profit: f64,
    /// The caller's number for it.
    pub id: u32,
}

/// Scratch that knapsacks share.
#[derive(Debug, Clone, Default)]
pub struct Knapsack {
    kept: Vec<Item>,
    /// Kept items by falling profit, and the weight of each with all before.
    ranks: Vec<(f64, usize)>,
    table: Vec<f64>,
    /// Numbers of the items that the last call chose.
    pub chosen: Vec<u32>,
}

impl Knapsack {
    /// The greatest profit of items whose weights add up to at most `room`.
    ///
    /// Dynamic programming over the items that no others make superfluous.
    /// `items` is put in order of weight.
    pub fn solve(&mut self, items: &mut [Item], room: usize) -> f64 {
        self.reduce(items, room);
        self.chosen.clear();
        let width = room + 1;
        let rows = self.kept.len() + 1;
        if self.table.len() < rows * width {
            self.table.resize(rows * width, 0.0);
        }
        self.table[..width].fill(0.0);
        for (n, item) in self.kept.iter().enumerate() {
            let (before, after) = self.table.split_at_mut((n + 1) * width);
            let before = &before[n * width..];
            let after = &mut after[..width];
            after[..item.weight].copy_from_slice(&before[..item.weight]);
            let without = &before[item.weight..width];
            for ((slot, &with), &without) in
                after[item.weight..].iter_mut().zip(before).zip(without)
            {
                *slot = without.max(with + item.profit);
            }
        }
        let mut left = room;
        for (n, item) in self.kept.iter().enumerate().rev() {
            if self.table[(n + 1) * width + left] > self.table[n * width + left] {
                self.chosen.push(item.id);
                left -= item.weight;
            }
        }
        self.table[(rows - 1) * width + room]
    }

    /// Keeps the items that some best choice may need: if an item and all that
    /// are no heavier and worth no less do not fit together, one of those that
    /// is left out could take the item's place.
    fn reduce(&mut self, items: &mut [Item], room: usize) {
        items.sort_unstable_by(|a, b| {
            (a.weight.cmp(&b.weight))
                .then(b.profit.total_cmp(&a.profit))
                .then(a.id.cmp(&b.id))
        });
        self.kept.clear();
        self.ranks.clear();
        for item in items.iter() {
            let rank = self
                .ranks
                .partition_point(|(profit, _)| *profit >= item.profit);
            let above = rank.checked_sub(1).map_or(0, |last| self.ranks[last].1);
            let weight = above + item.weight;
            if weight > room {
                continue;
            }
            self.kept.push(*item);
            self.ranks.insert(rank, (item.profit, weight));
            for (_, total) in &mut self.ranks[rank + 1..] {
                *total += item.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn brute(items: &[Item], room: usize) -> f64 {
        (0u32..1 << items.len())
            .filter_map(|choice| {
                let inside = || (0..items.len()).filter(move |n| choice >> n & 1 == 1);
                let weight: usize = inside().map(|n| items[n].weight).sum();
                (weight <= room).then(|| inside().map(|n| items[n].profit).sum::<f64>())
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn finds_what_trying_all_finds() {
        let mut random = Random::new(3);
        let mut knapsack = Knapsack::default();
        for _ in 0..300 {
            let mut items: Vec<Item> = (0..random.below(11))
                .map(|id| Item {
                    weight: random.below(9),
                    profit: 1.0 + random.unit() * 5.0,
                    id: id as u32,
                })
                .collect();
            let room = random.below(25);
            let best = brute(&items, room);
            let value = knapsack.solve(&mut items, room);
            assert!((value - best).abs() < 1e-9);
            let inside = || {
                items
                    .iter()
                    .filter(|item| knapsack.chosen.contains(&item.id))
            };
            assert!(inside().map(|item| item.weight).sum::<usize>() <= room);
            let profit: f64 = inside().map(|item| item.profit).sum();
            assert!((profit - best).abs() < 1e-9);
        }
    }
}
