//! An open root: what a query node keeps of one version of a collection. All of it can be rebuilt from the bucket.

mod files;
mod keep;
mod leaves;
mod open;
mod pieces;
mod rank;
mod records;
mod sums;
mod vectors;

use std::sync::Arc;

use pando_format::{Manifest, RootId, RowSet};
use pando_tree::search::{Frame, Nav};

pub use files::Files;
pub use leaves::{GroupEntry, WaveLeaves, WaveView};
pub use pieces::{Loaded, Wanted};
pub use vectors::{RowVectors, SegmentData};

use crate::environment::{Environment, Reservation};
use crate::rootio::RootIo;

/// One version of a collection, ready to be searched.
pub struct OpenRoot {
    env: Environment,
    io: RootIo,
    id: RootId,
    manifest: Arc<Manifest>,
    nav: Nav,
    groups: Vec<GroupEntry>,
    group_of: Vec<u32>,
    deaths: RowSet,
    segments: Vec<Arc<SegmentData>>,
    _memory: Option<Reservation>,
}

impl std::fmt::Debug for OpenRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenRoot({})", self.id)
    }
}

impl OpenRoot {
    /// The root's id.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Its navigation.
    pub fn nav(&self) -> &Nav {
        &self.nav
    }

    /// Metric, rotation and root mean.
    pub fn frame(&self) -> &Arc<Frame> {
        self.nav.frame()
    }

    /// Its groups, in the order of leaves.
    pub fn groups(&self) -> &[GroupEntry] {
        &self.groups
    }

    /// Dead rows that are still in leaves or segments.
    pub fn deaths(&self) -> &RowSet {
        &self.deaths
    }

    /// Its segments, in row order.
    pub fn segments(&self) -> &[Arc<SegmentData>] {
        &self.segments
    }

    /// Reader of the collection's objects.
    pub fn io(&self) -> &RootIo {
        &self.io
    }

    /// The group of each leaf.
    pub fn group_of(&self) -> &[u32] {
        &self.group_of
    }
}
