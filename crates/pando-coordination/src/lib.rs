//! Leases, members and hints, behind one trait: [`Coordinator`].
//!
//! **Everything here may be lost or old.** A hint can be missing, late, repeated, out of order or from a restored
//! backup; a lease can be held by two nodes for a while (a paused process, a wiped store); a watch can skip events.
//! So nothing true lives only here: which root is newest and where a log ends is decided by the objects in the
//! bucket, and a second compactor does the same work for nothing but writes the same bytes. Coordination makes
//! things fast, never right.
//!
//! * [`InProcess`] serves one process, by an injected clock.
//! * A cluster uses etcd (a later backend), under the keys of DESIGN section 8.
//! * [`conformance`] is what both must pass.

pub mod conformance;
mod error;
mod in_process;
mod lease;
mod watch;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use error::CoordinationError;
pub use in_process::InProcess;
pub use lease::{Lease, LeaseHandle};
pub use pando_store::Clock;
pub use watch::{Watch, WatchEvent, Watched};

/// What this crate's functions return.
pub type Result<T, E = CoordinationError> = std::result::Result<T, E>;

/// A node of the cluster. Small and of constant size: metadata must not grow with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Unique among live nodes; a node that registers under a name in use replaces the earlier one.
    pub node: String,
    /// Where clients and gateways reach it, `host:port`.
    pub address: String,
    /// Where other nodes reach it, `host:port`.
    pub internal_address: String,
    /// What it does.
    pub roles: Roles,
    /// The newest format version that it reads.
    pub format_version: u32,
}

/// The roles a node runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// API, writes, routing.
    pub gateway: bool,
    /// Reads.
    pub query: bool,
    /// Checkpoints.
    pub compactor: bool,
}

/// What a lease is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseKey {
    /// Compacting this collection.
    Owner(Uuid),
}

/// News of a head: where to look first. The bucket says whether it is so, and whether it is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadHint {
    /// The collection.
    pub collection: Uuid,
    /// The head's generation.
    pub generation: u64,
    /// The root that it names.
    pub root: [u8; 32],
    /// The log sequence that the root covers.
    pub sequence: u64,
}

/// News of a log that grew past its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyHint {
    /// The collection.
    pub collection: Uuid,
    /// The newest entry that the sender knows.
    pub sequence: u64,
    /// Rows in the tail, for sharing out work by backlog.
    pub rows: u64,
    /// Bytes in the tail.
    pub bytes: u64,
}

/// Leases, members and hints. See the crate's documentation for how little it promises.
///
/// Methods fail with [`CoordinationError`] when the backend is away. Callers then go on more slowly: they probe the
/// bucket, and compact without a lease.
#[async_trait]
pub trait Coordinator: Send + Sync + Debug + 'static {
    /// Takes a lease for `ttl`, or `None` if somebody holds it. Renew it at a third of `ttl` or so; released when
    /// dropped.
    async fn acquire_lease(&self, key: &LeaseKey, ttl: Duration) -> Result<Option<Lease>>;

    /// Makes this node known as long as the lease is held and renewed.
    async fn register_member(&self, member: Member, ttl: Duration) -> Result<Lease>;

    /// The live members, by name.
    async fn members(&self) -> Result<Vec<Member>>;

    /// Members as they come and go; begins with all of them.
    async fn watch_members(&self) -> Result<Watch<Member>>;

    /// Announces a head. A hint older than the one known is dropped.
    async fn hint_head(&self, hint: HeadHint) -> Result<()>;

    /// The newest head heard of.
    async fn head_hint(&self, collection: Uuid) -> Result<Option<HeadHint>>;

    /// Heads as they are announced; begins with all that are known. Publication reaches every node this way.
    async fn watch_heads(&self) -> Result<Watch<HeadHint>>;

    /// Announces that a log grew. Forgotten after `ttl`, so that an idle collection has no key. A hint older than
    /// the one known only extends it.
    async fn hint_dirty(&self, hint: DirtyHint, ttl: Duration) -> Result<()>;

    /// Collections whose log grew, by uuid.
    async fn dirty(&self) -> Result<Vec<DirtyHint>>;

    /// Dirty collections as they are announced and cleared; begins with all that are known.
    async fn watch_dirty(&self) -> Result<Watch<DirtyHint>>;

    /// Takes back a dirty hint when a head covers `sequence`; one that says more stays.
    async fn clear_dirty(&self, collection: Uuid, sequence: u64) -> Result<()>;

    /// Drops every hint about a collection, when it is deleted.
    async fn forget(&self, collection: Uuid) -> Result<()>;
}
