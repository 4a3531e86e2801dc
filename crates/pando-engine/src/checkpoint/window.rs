//! The write window of the new root: recent nonces and idempotency keys.

use pando_format::{Manifest, PackKind, Stored, WindowBlock, WindowEntry, WindowKey, WindowNonce};

use super::constants::{WINDOW, WINDOW_BLOCK};
use super::context::Context;
use super::encode::Place;
use super::live::Condemned;
use super::packs::Packs;
use crate::error::{Error, Result};

/// A block of the window, before packs are sealed.
pub struct WindowDraft {
    first_sequence: u64,
    last_sequence: u64,
    nonces: u32,
    keys: u32,
    place: Place,
}

/// The last `WINDOW` items.
fn newest<T>(mut items: Vec<T>) -> Vec<T> {
    let extra = items.len().saturating_sub(WINDOW as usize);
    items.drain(..extra);
    items
}

/// Adds the plan's entries; drops blocks that the newer ones make needless.
pub fn write(
    ctx: &Context,
    parent: Option<&Manifest>,
    nonces: Vec<WindowNonce>,
    keys: Vec<WindowKey>,
    condemned: &Condemned,
    packs: &mut Packs<'_>,
) -> Result<Vec<WindowDraft>> {
    let mut held: Vec<WindowEntry> = parent.map_or(Vec::new(), |p| p.window.clone());
    let mut block = WindowBlock { nonces: newest(nonces), keys: newest(keys) };
    // An entry has one nonce, so keys never reach past the last nonce; they may begin before the first.
    let sequences =
        block.nonces.first().map(|n| n.sequence).into_iter().chain(block.keys.first().map(|k| k.sequence));
    let mut first = sequences.min();
    if let (Some(last), Some(_)) = (held.last().copied(), first) {
        let items =
            u64::from(last.nonces) + u64::from(last.keys) + (block.nonces.len() + block.keys.len()) as u64;
        if items <= WINDOW_BLOCK {
            let mut joined = ctx.block(ctx.io.window(&last))?;
            joined.nonces.append(&mut block.nonces);
            joined.keys.append(&mut block.keys);
            (block, first) = (joined, Some(last.first_sequence));
            held.pop();
        }
    }
    let mut counts: Vec<(u64, u64)> = held.iter().map(|w| (u64::from(w.nonces), u64::from(w.keys))).collect();
    counts.push((block.nonces.len() as u64, block.keys.len() as u64));
    let needless = needless(&counts);
    let mut out = Vec::new();
    for entry in held.into_iter().skip(needless) {
        let place = match condemned.has(&entry.block.pack) {
            true => Place::New(packs.append(PackKind::Side, &ctx.block(ctx.io.block(&entry.block))?)?),
            false => Place::Kept(entry.block),
        };
        let WindowEntry { first_sequence, last_sequence, nonces, keys, .. } = entry;
        out.push(WindowDraft { first_sequence, last_sequence, nonces, keys, place });
    }
    if let (Some(first_sequence), Some(last)) = (first, block.nonces.last()) {
        let last_sequence = last.sequence;
        let (nonces, keys) = (block.nonces.len() as u32, block.keys.len() as u32);
        let bytes = block.encode().map_err(|e| Error::internal(format!("encoding a write window: {e}")))?;
        let place = Place::New(packs.append(PackKind::Side, &bytes)?);
        out.push(WindowDraft { first_sequence, last_sequence, nonces, keys, place });
    }
    Ok(out)
}

/// How many of the oldest blocks (nonces, keys) can go because the others hold enough.
fn needless(counts: &[(u64, u64)]) -> usize {
    let mut nonces: u64 = counts.iter().map(|c| c.0).sum();
    let mut keys: u64 = counts.iter().map(|c| c.1).sum();
    for (i, (n, k)) in counts.iter().enumerate() {
        nonces -= n;
        keys -= k;
        if nonces < WINDOW || (*k > 0 && keys < WINDOW) {
            return i;
        }
    }
    counts.len()
}

impl WindowDraft {
    /// The manifest's entry, once packs are sealed.
    pub fn entry(self, packs: &Packs<'_>) -> Result<WindowEntry> {
        let Self { first_sequence, last_sequence, nonces, keys, place } = self;
        Ok(WindowEntry { first_sequence, last_sequence, nonces, keys, block: place.resolve(packs)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_when_the_rest_covers_the_window() {
        assert_eq!(needless(&[(10, 0), (WINDOW - 1, 0)]), 0);
        assert_eq!(needless(&[(10, 0), (WINDOW, 0)]), 1);
        assert_eq!(needless(&[(10, 1), (WINDOW, 0)]), 0);
        assert_eq!(needless(&[(10, 1), (WINDOW, WINDOW)]), 1);
        assert_eq!(needless(&[(1, 0), (2, 0), (WINDOW, 0), (5, 0)]), 2);
        assert_eq!(needless(&[]), 0);
        assert_eq!(newest((0..WINDOW + 3).collect())[0], 3);
    }
}
