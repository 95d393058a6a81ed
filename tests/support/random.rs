//! Random numbers that follow from a seed (SplitMix64): the same seed, the same test.

use std::ops::Range;

#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the range, which must not be empty. (The bias of the remainder is of no matter here.)
    pub fn among(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True for so many of a hundred calls.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.among(0..100) < u64::from(chance)
    }
}

/// The seed of a test: `SEMEL_TEST_SEED`, else drawn from the clock. The caller prints it.
pub fn seed() -> u64 {
    match std::env::var("SEMEL_TEST_SEED") {
        Ok(text) => text.parse().expect("SEMEL_TEST_SEED is a number"),
        Err(_) => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
            since.as_nanos() as u64 % 1_000_000_000
        }
    }
}
