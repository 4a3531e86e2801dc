//! Timeouts, back-off, and what a backend's error means for a read and for a write.

use std::future::Future;
use std::time::Duration;

use object_store::Error as BackendError;

use crate::clock::Clock;
use crate::error::{ErrorKind, StoreError};
use crate::keys::ObjectKind;
use crate::local::LocalError;

/// Runs `work`, or gives up after `limit` by the given clock.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        out = work => Some(out),
        () = clock.sleep(limit) => None,
    }
}

/// The pause before attempt number `attempt` (from 1): doubling, between a half and the whole of the step, so that
/// many readers that failed together do not come back together. The share comes from `salt`, which differs per
/// request, and not from a random source.
pub(crate) fn backoff(base: Duration, max: Duration, attempt: u32, salt: u64) -> Duration {
    let step = base.saturating_mul(1u32 << (attempt - 1).min(16)).min(max);
    let share = (mix(salt.wrapping_add(u64::from(attempt))) >> 40) as u32; // 24 bits
    step / 2 + (step / 2).mul_f64(f64::from(share) / f64::from(1u32 << 24))
}

/// The finaliser of SplitMix64 (public domain, Steele et al. 2014).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a backend's error means when nothing was written, or when writing again is harmless.
pub(crate) fn read_error(object: ObjectKind, error: BackendError) -> StoreError {
    let kind = match &error {
        BackendError::NotFound { .. } => ErrorKind::NotFound,
        BackendError::NotImplemented { .. } | BackendError::NotSupported { .. } => ErrorKind::Unsupported,
        BackendError::InvalidPath { .. } => ErrorKind::Invalid,
        BackendError::Generic { source, .. } => match source.downcast_ref::<LocalError>() {
            Some(local) => local.read_kind(),
            None => ErrorKind::Unavailable,
        },
        _ => ErrorKind::Unavailable,
    };
    StoreError::new(kind, object, describe(&error))
}

/// What a backend's error means for a create that is not repeated. Everything that does not prove that nothing
/// was applied is unclear: backends retry inside, so that even a refusal may follow an attempt that took effect.
pub(crate) fn create_error(object: ObjectKind, error: BackendError) -> StoreError {
    let kind = match &error {
        BackendError::NotImplemented { .. } | BackendError::NotSupported { .. } => ErrorKind::Unsupported,
        BackendError::InvalidPath { .. } => ErrorKind::Invalid,
        BackendError::Generic { source, .. } => match source.downcast_ref::<LocalError>() {
            Some(local) => local.create_kind(),
            None => ErrorKind::Unclear,
        },
        _ => ErrorKind::Unclear,
    };
    StoreError::new(kind, object, describe(&error))
}

/// The error with its causes, for the log.
fn describe(error: &BackendError) -> String {
    use std::error::Error as _;
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        let text = c.to_string();
        if !out.contains(&text) {
            out.push_str(": ");
            out.push_str(&text);
        }
        cause = c.source();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_within_its_bounds_and_spreads() {
        let (base, max) = (Duration::from_millis(50), Duration::from_secs(5));
        for attempt in 1..=20 {
            let step = base.saturating_mul(1 << (attempt - 1).min(16)).min(max);
            let pauses: Vec<_> = (0..64).map(|salt| backoff(base, max, attempt, salt)).collect();
            assert!(pauses.iter().all(|p| *p >= step / 2 && *p <= step));
            let (low, high) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            assert!(*high - *low > step / 4, "attempt {attempt}: {low:?}..{high:?}");
        }
    }
}
