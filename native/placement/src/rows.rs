//! Rows of different lengths, one after the other.

use std::cmp::Ordering;

/// Rows of different lengths in one allocation.
#[derive(Debug, Clone, Default)]
pub struct Rows<T> {
    start: Vec<usize>,
    items: Vec<T>,
}

impl<T: Copy> Rows<T> {
    /// Rows from (row, item) pairs; items keep their order within a row.
    pub fn collect(rows: usize, pairs: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        let mut start = vec![0usize; rows + 1];
        for (row, _) in pairs.clone() {
            start[row + 1] += 1;
        }
        for row in 0..rows {
            start[row + 1] += start[row];
        }
        let mut next = start.clone();
        let mut order = vec![0usize; start[rows]];
        let mut flat = Vec::with_capacity(start[rows]);
        for (n, (row, item)) in pairs.enumerate() {
            order[next[row]] = n;
            next[row] += 1;
            flat.push(item);
        }
        Self {
            start,
            items: order.into_iter().map(|n| flat[n]).collect(),
        }
    }

    /// Puts the items of each row in order.
    pub fn sort_rows_by(&mut self, order: impl Fn(&T, &T) -> Ordering + Copy) {
        for row in 0..self.len() {
            let range = self.range(row);
            self.items[range].sort_by(order);
        }
    }

    /// The items of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[T] {
        &self.items[self.start[row]..self.start[row + 1]]
    }

    /// Positions of one row's items in [`Rows::items`].
    #[must_use]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.start[row]..self.start[row + 1]
    }

    /// All items, row after row.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.start.len().saturating_sub(1)
    }

    /// There is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
