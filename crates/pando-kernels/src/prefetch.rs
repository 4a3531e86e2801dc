//! A hint to the processor.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the cache lines of `data`. Changes nothing but the time that later reads take.
#[inline(always)]
pub fn prefetch<T>(data: &[T]) {
    let start = data.as_ptr().cast::<u8>();
    let bytes = size_of_val(data);
    let mut at = 0;
    while at < bytes {
        line(start.wrapping_add(at));
        at += LINE;
    }
    if bytes > 0 {
        // The last line, where the data does not start at a line's border.
        line(start.wrapping_add(bytes - 1));
    }
}

#[cfg(target_arch = "x86_64")]
/// Asks for one cache line.
#[inline(always)]
pub(crate) fn line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program can see and faults on no address; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
/// Asks for one cache line.
#[inline(always)]
pub(crate) fn line(_: *const u8) {}
