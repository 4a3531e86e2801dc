//! A lease, whatever backend gave it.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::Result;

/// What a backend implements for [`Lease`].
#[async_trait]
pub trait LeaseHandle: Send + Sync + Debug + 'static {
    /// True as far as is known here, without asking anybody.
    fn is_held(&self) -> bool;
    /// Starts the time to live anew. False if the lease was lost; it does not come back.
    async fn renew(&self) -> Result<bool>;
    /// Completes when the lease is no longer held.
    async fn lost(&self);
    /// Gives the lease up, best effort and without waiting.
    fn release(&self);
}

/// The right to do something alone *for the sake of economy*. It is no proof: a node that was paused may believe
/// in a lease that another has by now, so what is done under a lease must be safe to do twice.
#[derive(Debug)]
pub struct Lease {
    handle: Box<dyn LeaseHandle>,
}

impl Lease {
    /// For backends.
    pub fn new(handle: impl LeaseHandle) -> Self {
        Self { handle: Box::new(handle) }
    }

    /// True as far as is known here.
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    /// Starts the time to live anew; false if the lease was lost.
    pub async fn renew(&self) -> Result<bool> {
        self.handle.renew().await
    }

    /// Completes when the lease is lost: to stop work that another does by now.
    pub async fn lost(&self) {
        self.handle.lost().await;
    }

    /// Gives the lease up. Dropping does the same.
    pub fn release(self) {}
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.handle.release();
    }
}
