//! Distances, rotation, 1-bit and multi-bit codes, and their SIMD kernels. No I/O, no async.
