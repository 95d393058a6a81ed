//! The demo's stream: the same for the same seed.
//!
//! A repeated event has the id of its first copy and another `attempt`, so that the proof can tell which copy came
//! through. Half of the repeats follow closely, half come from anywhere before.

use std::io::{self, Write};

/// Of a hundred lines, how many repeat an event.
const REPEATED_PERCENT: u64 = 30;
/// How far back a close repeat reaches, in events.
const CLOSE: u64 = 500;
const LINE_BYTES: usize = 300;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub lines: u64,
    pub bytes: u64,
    pub distinct: u64,
    /// Of the first copies alone.
    pub distinct_bytes: u64,
}

/// Writes `lines` lines. Ends early where `stop` says so.
pub fn write(out: &mut impl Write, lines: u64, seed: u64, stop: impl Fn() -> bool) -> io::Result<Sent> {
    let mut random = Random(seed);
    let mut attempts: Vec<u32> = Vec::new();
    let (mut sent, mut line) = (Sent::default(), Vec::with_capacity(LINE_BYTES + 32));
    while sent.lines < lines && !(sent.lines.is_multiple_of(4096) && stop()) {
        let known = attempts.len() as u64;
        let repeats = known > 0 && random.below(100) < REPEATED_PERCENT;
        let event = match (repeats, random.below(2)) {
            (false, _) => known,
            (true, 0) => known - 1 - random.below(known.min(CLOSE)),
            (true, _) => random.below(known),
        };
        if !repeats {
            attempts.push(0);
        }
        let attempt = &mut attempts[event as usize];
        *attempt += 1;
        write_line(&mut line, seed, event, *attempt);
        out.write_all(&line)?;
        sent.lines += 1;
        sent.bytes += line.len() as u64;
        if !repeats {
            sent.distinct += 1;
            sent.distinct_bytes += line.len() as u64;
        }
    }
    out.flush()?;
    Ok(sent)
}

fn write_line(line: &mut Vec<u8>, seed: u64, event: u64, attempt: u32) {
    let (high, low) = (mixed(seed ^ mixed(event)), mixed(event.wrapping_mul(3) ^ seed.rotate_left(17)));
    line.clear();
    let head = format!(
        r#"{{"id":"{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}","type":"order.created","attempt":{attempt},"amount":{},"note":""#,
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff,
        low % 100_000,
    );
    line.extend_from_slice(head.as_bytes());
    line.resize(line.len().max(LINE_BYTES - 3), b'.');
    line.extend_from_slice(b"\"}\n");
}
