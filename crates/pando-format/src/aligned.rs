//! A byte buffer that begins at a 64-byte boundary, so that its sections can be used as columns of
//! numbers in place.

use std::fmt;

use bytes::Bytes;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes aligned to 64: of its own, or of whoever keeps them elsewhere.
#[derive(Clone)]
pub struct AlignedBytes {
    memory: Memory,
    len: usize,
}

#[derive(Clone)]
enum Memory {
    Own(Vec<Line>),
    Lent(Bytes),
}

impl AlignedBytes {
    /// A copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Self::written(bytes.len(), |out| out.copy_from_slice(bytes))
    }

    /// `len` bytes, which `write` finds zero.
    pub fn written(len: usize, write: impl FnOnce(&mut [u8])) -> Self {
        let mut lines: Vec<Line> = bytemuck::zeroed_vec(len.div_ceil(64));
        write(&mut bytemuck::cast_slice_mut(&mut lines)[..len]);
        Self { memory: Memory::Own(lines), len }
    }

    /// The bytes of `owner`, which is dropped with the last clone.
    ///
    /// # Panics
    /// If they do not begin at a 64-byte boundary.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        let bytes = Bytes::from_owner(owner);
        assert!(
            bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(64),
            "the owner's bytes are aligned to 64"
        );
        Self { len: bytes.len(), memory: Memory::Lent(bytes) }
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(lines) => &bytemuck::cast_slice(lines)[..self.len],
            Memory::Lent(bytes) => bytes,
        }
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Own(lines) => lines.capacity() * 64,
            Memory::Lent(bytes) => bytes.len().next_multiple_of(64),
        }
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from(bytes)
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({} bytes)", self.len)
    }
}
