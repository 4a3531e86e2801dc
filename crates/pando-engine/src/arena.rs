//! Memory for the blocks that an open root keeps: anonymous mappings in huge pages, given out in pieces of 64 bytes.
//!
//! The allocator of the process is made for many small pieces of all ages. Blocks of half a megabyte that live for hours
//! leave its huge pages half empty, twice the bytes that were asked for; in pages of 4 KiB every vector costs a walk of the
//! page table. Here pieces lie densely in mappings of [`CHUNK`] bytes, the lowest free place first, and a huge page that
//! is free is given back to the system. Who allocates has reserved the bytes before ([`crate::environment::MemoryBudget`]).

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};
use metrics::gauge;
use pando_format::AlignedBytes;
use parking_lot::Mutex;

/// Bytes of one mapping, unless a piece is larger.
const CHUNK: usize = 32 << 20;
/// A huge page of x86-64, and of aarch64 with pages of 4 KiB.
const HUGE: usize = 2 << 20;
/// Pieces begin at multiples of it.
const LINE: usize = 64;

/// Hands out pieces of memory; clones are the same arena.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    chunks: Arc<Mutex<Chunks>>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// By number, which is never used again.
    by_number: BTreeMap<u64, Chunk>,
    next: u64,
    used: usize,
}

#[derive(Debug)]
struct Chunk {
    map: MmapRaw,
    /// Where the first huge page begins in `map`.
    start: usize,
    len: usize,
    free: Free,
}

/// Free ranges of a chunk: lengths by offset. Neighbours are joined.
#[derive(Debug)]
struct Free(BTreeMap<usize, usize>);

/// A piece of the arena, its own until it is dropped.
#[derive(Debug)]
pub struct Piece {
    arena: Arena,
    chunk: u64,
    offset: usize,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: a piece is the only handle to its range of the mapping, which outlives it; it is written through `&mut` alone.
unsafe impl Send for Piece {}
// SAFETY: as above; `&Piece` reads only.
unsafe impl Sync for Piece {}

impl Arena {
    /// A copy of `bytes` in `arena`; on the heap if there is none or the system gives it no memory.
    pub fn aligned(arena: Option<&Self>, bytes: &[u8]) -> AlignedBytes {
        match arena.and_then(|arena| arena.copy(bytes)) {
            Some(piece) => AlignedBytes::from_owner(piece),
            None => AlignedBytes::copy_from(bytes),
        }
    }

    /// A piece with a copy of `bytes`, which begins at a multiple of 64; nothing if the system has no memory to give.
    pub fn copy(&self, bytes: &[u8]) -> Option<Piece> {
        let mut piece = self.take(bytes.len())?;
        piece.as_mut().copy_from_slice(bytes);
        Some(piece)
    }

    /// A piece of `len` bytes, of any content.
    fn take(&self, len: usize) -> Option<Piece> {
        let size = len.max(1).next_multiple_of(LINE);
        let mut chunks = self.chunks.lock();
        let found =
            chunks.by_number.iter_mut().find_map(|(&number, chunk)| Some((number, chunk.free.take(size)?)));
        let (number, offset) = match found {
            Some(found) => found,
            None => chunks.add(size)?,
        };
        let chunk = chunks.by_number.get(&number)?;
        let at = NonNull::new(chunk.map.as_mut_ptr().wrapping_add(chunk.start + offset))?;
        chunks.used += size;
        chunks.publish();
        Some(Piece { arena: self.clone(), chunk: number, offset, at, len })
    }

    /// Bytes given out, and bytes of the mappings that they lie in.
    pub fn bytes(&self) -> (usize, usize) {
        let chunks = self.chunks.lock();
        (chunks.used, chunks.mapped())
    }
}

impl Chunks {
    /// Maps a chunk and takes its first `size` bytes.
    fn add(&mut self, size: usize) -> Option<(u64, usize)> {
        let len = size.max(CHUNK).next_multiple_of(HUGE);
        let map = MmapRaw::from(MmapMut::map_anon(len + HUGE).ok()?);
        let start = map.as_ptr().align_offset(HUGE);
        #[cfg(target_os = "linux")]
        // Only a wish: without huge pages everything works, slower.
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
        let mut free = Free(BTreeMap::from([(0, len)]));
        let offset = free.take(size)?;
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Chunk { map, start, len, free });
        Some((number, offset))
    }

    fn mapped(&self) -> usize {
        self.by_number.values().map(|chunk| chunk.len).sum()
    }

    fn give_back(&mut self, number: u64, offset: usize, size: usize) {
        self.used -= size;
        let Some(chunk) = self.by_number.get_mut(&number) else { return };
        let (from, len) = chunk.free.give(offset, size);
        if len == chunk.len {
            self.by_number.remove(&number);
        } else {
            // Only pages that this piece lay in: the others of the free range were given back before.
            let first = from.next_multiple_of(HUGE).max(offset / HUGE * HUGE);
            let last = ((from + len) / HUGE * HUGE).min((offset + size).next_multiple_of(HUGE));
            if first < last {
                chunk.forget(first, last - first);
            }
        }
        self.publish();
    }

    fn publish(&self) {
        gauge!("pando_arena_used_bytes").set(self.used as f64);
        gauge!("pando_arena_mapped_bytes").set(self.mapped() as f64);
    }
}

impl Chunk {
    /// Gives whole free huge pages back to the system.
    #[cfg(unix)]
    fn forget(&self, offset: usize, len: usize) {
        // SAFETY: the range is free: no piece lies in it, and the next one is written before it is read.
        let _ = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start + offset, len)
        };
    }

    #[cfg(not(unix))]
    fn forget(&self, _offset: usize, _len: usize) {}
}

impl Free {
    /// The offset of `size` bytes, the lowest place that has them.
    fn take(&mut self, size: usize) -> Option<usize> {
        let (&offset, &len) = self.0.iter().find(|(_, len)| **len >= size)?;
        self.0.remove(&offset);
        if len > size {
            self.0.insert(offset + size, len - size);
        }
        Some(offset)
    }

    /// Takes a range back; the free range it is part of now.
    fn give(&mut self, offset: usize, size: usize) -> (usize, usize) {
        let (mut from, mut len) = (offset, size);
        if let Some((&before, &before_len)) = self.0.range(..offset).next_back()
            && before + before_len == offset
        {
            self.0.remove(&before);
            (from, len) = (before, before_len + size);
        }
        if let Some(after_len) = self.0.remove(&(offset + size)) {
            len += after_len;
        }
        self.0.insert(from, len);
        (from, len)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `at` begins `len` bytes of a mapping that stays as long as a piece of it does, initialised by the system
        // with zeros; nobody else writes them.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for Piece {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`, and `&mut self` is the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let size = self.len.max(1).next_multiple_of(LINE);
        self.arena.chunks.lock().give_back(self.chunk, self.offset, size);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Pieces keep their bytes whatever is allocated and dropped beside them, and all memory is found again.
        #[test]
        fn pieces_do_not_touch_each_other(steps in prop::collection::vec((any::<bool>(), 0usize..3 << 20, any::<u8>()), 1..120)) {
            let arena = Arena::default();
            let mut held: Vec<(Piece, u8)> = Vec::new();
            for (drop_one, len, fill) in steps {
                if drop_one && !held.is_empty() {
                    let (piece, fill) = held.swap_remove(len % held.len());
                    prop_assert!(piece.as_ref().iter().all(|b| *b == fill));
                } else {
                    let piece = arena.copy(&vec![fill; len]).unwrap();
                    prop_assert!(piece.at.addr().get() % LINE == 0);
                    held.push((piece, fill));
                }
                let used: usize = held.iter().map(|(p, _)| p.len.max(1).next_multiple_of(LINE)).sum();
                prop_assert_eq!(arena.bytes().0, used);
            }
            prop_assert!(held.iter().all(|(piece, fill)| piece.as_ref().iter().all(|b| b == fill)));
            held.clear();
            prop_assert_eq!(arena.bytes(), (0, 0));
        }
    }

    #[test]
    fn places_are_used_again_and_large_pieces_have_their_own_chunk() {
        let arena = Arena::default();
        let first = arena.copy(&[1; 1000]).unwrap();
        let second = arena.copy(&[2; 1000]).unwrap();
        let at = first.offset;
        drop(first);
        let third = arena.copy(&[3; 900]).unwrap();
        assert_eq!((third.offset, third.chunk), (at, second.chunk));
        let large = arena.copy(&vec![4; CHUNK + 1]).unwrap();
        assert_ne!(large.chunk, second.chunk);
        assert_eq!(arena.bytes().1, CHUNK + CHUNK + HUGE);
        drop(large);
        assert_eq!(arena.bytes().1, CHUNK);
        assert!(second.as_ref().iter().all(|b| *b == 2));
    }

    #[test]
    fn threads_share_an_arena() {
        let arena = Arena::default();
        std::thread::scope(|scope| {
            for fill in 0..4u8 {
                let arena = arena.clone();
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for i in 0..200usize {
                        held.push(arena.copy(&vec![fill; 1 + (i * 7919) % 40_000]).unwrap());
                        if i % 3 == 0 {
                            held.swap_remove(i % held.len());
                        }
                    }
                    assert!(held.iter().all(|piece| piece.as_ref().iter().all(|b| *b == fill)));
                });
            }
        });
        assert_eq!(arena.bytes(), (0, 0));
    }
}
