//! Objects of an open root that one search reads on the spot: what it reads lies in few of them.

use std::ops::Range;

use pando_format::{BlockRef, ObjectRef};
use pando_store::AtHand;

use super::leaves::BlockMap;
use super::{OpenRoot, SegmentData};

/// The pack and the segment that were read last, if they can be read without waiting.
#[derive(Default)]
pub struct Files<'a> {
    pack: Option<(ObjectRef, Option<AtHand<'a>>)>,
    segment: Option<(usize, Option<AtHand<'a>>)>,
}

impl<'a> Files<'a> {
    /// Appends the whole parts of a block that hold `range`, checked; where `range` begins in `out`. Nothing, if the operating
    /// system has not all of it in memory, or if it is damaged.
    pub(super) fn append(
        &mut self,
        root: &'a OpenRoot,
        block: &BlockRef,
        map: &BlockMap,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.pack.as_ref().is_none_or(|(open, _)| *open != block.pack) {
            self.pack = Some((block.pack, root.io.store().at_hand(&root.io.pack_key(&block.pack))));
        }
        let file = self.pack.as_ref()?.1.as_ref()?;
        let cover = map.sums.cover(&range);
        let (at, len) = (out.len(), (cover.end - cover.start) as usize);
        out.resize(at + len, 0);
        if file.read(block.offset + cover.start, &mut out[at..]) && map.sums.check(cover.start, &out[at..]) {
            return Some(at + (range.start - cover.start) as usize);
        }
        out.truncate(at);
        None
    }

    /// The file of segment `at` of the root.
    pub(super) fn segment(&mut self, at: usize, segment: &'a SegmentData) -> Option<&AtHand<'a>> {
        if self.segment.as_ref().is_none_or(|(open, _)| *open != at) {
            let reader = segment.reader();
            self.segment = Some((at, reader.store().at_hand(reader.key())));
        }
        self.segment.as_ref()?.1.as_ref()
    }
}
