//! The k nearest of a stream of rows, ties with the k-th included.

use super::search::Ranked;

/// Keeps rows at most as far as the k-th nearest so far.
#[derive(Debug)]
pub struct Top {
    k: usize,
    limit: f64,
    rows: Vec<Ranked>,
}

impl Top {
    /// For the `k` nearest, at least 1.
    pub fn new(k: usize) -> Self {
        Self { k, limit: f64::INFINITY, rows: Vec::new() }
    }

    /// Offers a row.
    #[inline]
    pub fn offer(&mut self, row: u64, distance: f64) {
        if distance <= self.limit {
            self.rows.push(Ranked { row, distance });
            if self.rows.len() >= 4 * self.k + 256 && self.rows.len().is_power_of_two() {
                self.cut();
            }
        }
    }

    /// Drops what cannot be among the first k. Called when the list has doubled, so that ties cost no more than sorting.
    fn cut(&mut self) {
        if self.rows.len() <= self.k {
            return;
        }
        let (_, kth, _) =
            self.rows.select_nth_unstable_by(self.k - 1, |a, b| a.distance.total_cmp(&b.distance));
        self.limit = kth.distance;
        self.rows.retain(|r| r.distance <= self.limit);
    }

    /// The rows, in no order.
    pub fn finish(mut self) -> Vec<Ranked> {
        self.cut();
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_nearest_and_all_ties() {
        let mut top = Top::new(3);
        for row in 0..10_000u64 {
            top.offer(row, ((row * 7919) % 1000) as f64);
        }
        let mut rows = top.finish();
        rows.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.row.cmp(&b.row)));
        assert_eq!(rows.len(), 10, "ten rows have distance 0, the k-th is one of them");
        assert!(rows.iter().all(|r| r.distance == 0.0));
    }

    #[test]
    fn fewer_rows_than_k() {
        let mut top = Top::new(5);
        top.offer(1, 2.0);
        top.offer(2, 1.0);
        assert_eq!(top.finish().len(), 2);
    }
}
