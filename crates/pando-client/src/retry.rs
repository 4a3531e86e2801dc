//! When to try again: what the server asks for, else exponential back-off.

use std::time::Duration;

use crate::error::{Error, Result};

/// How often and how long a call is repeated.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Calls in all, the first included. Default 10.
    pub attempts: u32,
    /// Wait after the first failure; doubled after each further one. Default 50 ms.
    pub first_wait: Duration,
    /// Longest wait, also when the server asks for more. Default 5 s.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 10, first_wait: Duration::from_millis(50), longest_wait: Duration::from_secs(5) }
    }
}

impl RetryPolicy {
    /// Never again.
    pub const NEVER: Self = Self { attempts: 1, first_wait: Duration::ZERO, longest_wait: Duration::ZERO };

    /// How long to wait after `failures` failures in a row, `None` to give up.
    pub(crate) fn wait(&self, error: &Error, failures: u32) -> Option<Duration> {
        if failures >= self.attempts || !error.is_retryable() {
            return None;
        }
        let back_off = self.first_wait.saturating_mul(1 << (failures - 1).min(16));
        // Up to a quarter more, so that many clients do not come back at once.
        let jitter = back_off.mul_f64(f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 1024.0);
        Some((error.retry_after.unwrap_or_default().max(back_off) + jitter).min(self.longest_wait))
    }

    /// Calls until it succeeds, fails for good, or the attempts are used up.
    pub(crate) async fn run<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, tonic::Status>>,
    {
        let mut failures = 0;
        loop {
            let error = match call().await {
                Ok(value) => return Ok(value),
                Err(status) => Error::from(status),
            };
            failures += 1;
            match self.wait(&error, failures) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn waits_as_asked_and_gives_up_where_waiting_does_not_help() {
        let policy = RetryPolicy::default();
        let mut error = Error::local(Code::ResourceExhausted, "BACKLOG_FULL", "busy");
        assert_eq!(policy.wait(&error, 1), None, "no time to wait: a limit of size");
        error.retry_after = Some(Duration::from_millis(400));
        let wait = policy.wait(&error, 1).unwrap();
        assert!(wait >= Duration::from_millis(400) && wait <= Duration::from_millis(413), "{wait:?}");
        error.retry_after = Some(Duration::from_secs(3600));
        assert_eq!(policy.wait(&error, 1), Some(policy.longest_wait));
        assert_eq!(policy.wait(&error, policy.attempts), None);
        error.code = Code::InvalidArgument;
        assert_eq!(policy.wait(&error, 1), None);
    }
}
