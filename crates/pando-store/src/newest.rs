//! Finding the newest number of a series without listing: gallop up from a hint, then search between.

use crate::keys::Series;
use crate::{Result, Store};

impl Store {
    /// The newest number of a series that has no gaps, 0 if there is none. `hint` is where it is thought to be: a
    /// right hint costs two requests side by side, a wrong one the logarithm of the error.
    ///
    /// The answer was the newest at some moment during the call; another may have come since.
    pub async fn newest(&self, series: &Series, hint: u64) -> Result<u64> {
        self.newest_after(series, 0, hint).await
    }

    /// As [`Store::newest`] when `known` is known to have existed (0 for nothing): numbers at or below it are not
    /// asked for, because they may be gone (log entries under the floor). Returns at least `known`.
    pub async fn newest_after(&self, series: &Series, known: u64, hint: u64) -> Result<u64> {
        let exists = |n: u64| async move { Ok(self.try_head(&series.key(n)).await?.is_some()) };
        let first = hint.max(known).max(1);
        // Invariant from here on: `low` exists (or is `known`), `high` does not (or is none yet).
        let mut low = known;
        let mut high = None;
        if first > known {
            let next = first.saturating_add(1);
            let (here, above) = if next > first {
                futures::future::try_join(exists(first), exists(next)).await?
            } else {
                (exists(first).await?, false)
            };
            match (here, above) {
                // `above` alone can only mean that both were written between the two requests.
                (_, true) => low = next,
                (true, false) => return Ok(first),
                (false, false) => high = Some(first),
            }
        }
        let mut step: u64 = 1;
        let mut high = loop {
            if let Some(high) = high {
                break high;
            }
            let Some(probe) = low.checked_add(step) else { break u64::MAX };
            if exists(probe).await? {
                low = probe;
                step = step.saturating_mul(2);
            } else {
                high = Some(probe);
            }
        };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if exists(middle).await? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
