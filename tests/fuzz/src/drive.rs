//! Mutations of seeds, without knowledge of what the code does with them.

use std::path::{Path, PathBuf};

/// Where inputs that found something, or that libFuzzer kept, are.
pub fn corpus_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Kept inputs of a target, in order of their names.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let Ok(folder) = std::fs::read_dir(corpus_folder(target)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files.into_iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

/// Makes inputs out of seeds; the same number gives the same inputs.
pub struct Mutator(pub u64);

/// Values that break arithmetic on lengths.
const EXTREMES: [u64; 12] = [
    0,
    1,
    u64::MAX,
    u64::MAX - 7,
    i64::MAX as u64,
    1 << 63,
    u32::MAX as u64,
    i32::MAX as u64,
    1 << 31,
    1 << 32,
    1 << 20,
    u16::MAX as u64,
];

impl Mutator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A seed with one to eight changes.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, seeds);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let len = bytes.len();
        let at = self.below(len);
        match self.below(10) {
            _ if len == 0 => bytes.push(self.next() as u8),
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes[at] = self.next() as u8,
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
            4 | 5 => {
                let width = [2, 4, 8][self.below(3)];
                let at = if self.below(2) == 0 { at } else { at / width * width };
                let value = match self.below(3) {
                    0 => EXTREMES[self.below(EXTREMES.len())],
                    1 => (len as u64 + self.below(17) as u64).wrapping_sub(8),
                    _ => self.below(300) as u64,
                };
                let end = (at + width).min(len);
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            6 => bytes.truncate(at),
            7 => {
                let end = (at + 1 + self.below(32)).min(len);
                bytes.drain(at..end);
            }
            8 => {
                let end = (at + 1 + self.below(64)).min(len);
                let copy = bytes[at..end].to_vec();
                let to = self.below(len);
                bytes.splice(to..to, copy);
            }
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
}
