//! Sets of row numbers and their one encoding.
//!
//! Chunks of 65,536 rows in ascending order. Each chunk is stored in whichever form is shortest; on a tie
//! runs before array before bitmap. The encoding depends on the set alone, not on how it was built or on the
//! roaring library's own serialisation.
//!
//! ```text
//! u32 chunks; each chunk: u64 row >> 16, u8 form, then
//!   form 0 array:  u32 n, n × u16 low bits, ascending
//!   form 1 runs:   u32 n, n × (u16 first, u16 last), ascending, not adjacent
//!   form 2 bitmap: 8,192 bytes, bit i of byte i/8 (least significant first)
//! ```

use roaring::{RoaringBitmap, RoaringTreemap};

use crate::codec::{Bad, Codec, Reader};

/// A set of row numbers.
pub type RowSet = RoaringTreemap;

const ARRAY: u8 = 0;
const RUNS: u8 = 1;
const BITMAP: u8 = 2;
const BITMAP_BYTES: usize = 8192;

impl Codec for RowSet {
    const MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        0u32.put(out);
        let mut chunks = 0u32;
        let mut lows: Vec<u16> = Vec::new();
        let mut high = 0u64;
        for row in self {
            if row >> 16 != high && !lows.is_empty() {
                put_chunk(high, &lows, out);
                chunks += 1;
                lows.clear();
            }
            high = row >> 16;
            lows.push(row as u16);
        }
        if !lows.is_empty() {
            put_chunk(high, &lows, out);
            chunks += 1;
        }
        out[at..at + 4].copy_from_slice(&chunks.to_le_bytes());
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        // The shortest chunk: 9 bytes of header, a count, and one value or run.
        let chunks = r.count(8 + 1 + 4 + 2)?;
        let mut set = Self::new();
        let mut last: Option<u64> = None;
        for _ in 0..chunks {
            let high = u64::take(r)?;
            if high > u64::MAX >> 16 || last.is_some_and(|last| last >= high) {
                return Err("chunks of a row set are not in order");
            }
            last = Some(high);
            take_chunk(high << 16, r, &mut set)?;
        }
        Ok(set)
    }
}

/// The inclusive runs of ascending values.
fn runs_of(lows: &[u16]) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &low in lows {
        match runs.last_mut() {
            Some((_, last)) if u32::from(*last) + 1 == u32::from(low) => *last = low,
            _ => runs.push((low, low)),
        }
    }
    runs
}

/// The form of the shortest encoding of `n` values in `runs` runs.
fn form_of(n: usize, runs: usize) -> u8 {
    let (run_bytes, array_bytes) = (4 + 4 * runs, 4 + 2 * n);
    if run_bytes <= array_bytes && run_bytes <= BITMAP_BYTES {
        RUNS
    } else if array_bytes <= BITMAP_BYTES {
        ARRAY
    } else {
        BITMAP
    }
}

fn put_chunk(high: u64, lows: &[u16], out: &mut Vec<u8>) {
    let runs = runs_of(lows);
    let form = form_of(lows.len(), runs.len());
    high.put(out);
    out.push(form);
    match form {
        RUNS => {
            (runs.len() as u32).put(out);
            for (first, last) in runs {
                first.put(out);
                last.put(out);
            }
        }
        ARRAY => {
            (lows.len() as u32).put(out);
            for low in lows {
                low.put(out);
            }
        }
        _ => {
            let at = out.len();
            out.resize(at + BITMAP_BYTES, 0);
            for &low in lows {
                out[at + usize::from(low / 8)] |= 1 << (low % 8);
            }
        }
    }
}

fn take_chunk(base: u64, r: &mut Reader<'_>, set: &mut RowSet) -> Result<(), Bad> {
    let [form] = r.array::<1>()?;
    let (mut n, mut runs) = (0usize, 0usize);
    let mut single: Vec<u64> = Vec::new();
    // One past the last value of the run being read; runs that touch would be one run.
    let mut next: Option<u32> = None;
    let mut add = |first: u16, last: u16| -> Result<(), Bad> {
        if first > last || next.is_some_and(|next| u32::from(first) < next) {
            return Err("values of a row set are not in order");
        }
        if next != Some(u32::from(first)) {
            runs += 1;
        } else if form == RUNS {
            return Err("runs of a row set touch");
        }
        n += usize::from(last - first) + 1;
        next = Some(u32::from(last) + 1);
        if form == RUNS {
            set.insert_range(base + u64::from(first)..=base + u64::from(last));
        } else {
            single.push(base + u64::from(first));
        }
        Ok(())
    };
    match form {
        ARRAY => {
            for _ in 0..r.count(2)? {
                let low = u16::take(r)?;
                add(low, low)?;
            }
        }
        RUNS => {
            for _ in 0..r.count(4)? {
                add(u16::take(r)?, u16::take(r)?)?;
            }
        }
        BITMAP => {
            for (i, byte) in r.bytes(BITMAP_BYTES)?.iter().enumerate() {
                for bit in 0..8 {
                    if byte >> bit & 1 == 1 {
                        let low = (8 * i + bit) as u16;
                        add(low, low)?;
                    }
                }
            }
        }
        _ => return Err("a chunk of a row set has an unknown form"),
    }
    set.append(single).map_err(|_| "values of a row set are not in order")?;
    if n == 0 || form_of(n, runs) != form {
        return Err("a chunk of a row set is not in its shortest form");
    }
    Ok(())
}

/// The set's encoding on its own.
pub fn encode_row_set(set: &RowSet) -> Vec<u8> {
    let mut out = Vec::new();
    set.put(&mut out);
    out
}

/// The dead or deleted rows of one chunk of 65,536 row numbers (`row >> 16 == chunk`), as low bits.
pub fn chunk_of(set: &RowSet, chunk: u64) -> RoaringBitmap {
    let first = chunk << 16;
    let mut rows = set.iter();
    rows.advance_to(first);
    rows.take_while(|row| row >> 16 == chunk).map(|row| row as u16 as u32).collect()
}
