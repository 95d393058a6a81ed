//! Recently claimed ids in memory, so that a known duplicate needs no query.
//!
//! The set may say "duplicate" and nothing else, and only of ids that this worker owns and whose window's Kafka commit
//! is known: they are settled. It is emptied on every abort, unknown outcome, revocation and discontinuity: kept over an abort it loses, kept over a release too. A
//! claim that is freed by `semel release` may be remembered by a running daemon until it is pushed out.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use crate::key::Key;

/// Two generations of 128-bit digests under keys drawn at start. A digest that stands for two ids would lose one of
/// them; among a million ids the odds of any such pair are below 1 in 10²⁶, and nobody outside can aim at one.
pub struct Known {
    young: Set,
    old: Set,
    /// Of one generation.
    capacity: usize,
}

type Set = HashSet<u128, BuildHasherDefault<Digested>>;

impl Known {
    pub fn new(capacity: usize) -> Known {
        Known { young: Set::default(), old: Set::default(), capacity: capacity / 2 }
    }

    pub fn has(&self, digest: u128) -> bool {
        self.young.contains(&digest) || self.old.contains(&digest)
    }

    pub fn learn(&mut self, digests: &[u128]) {
        if self.capacity == 0 {
            return;
        }
        for &digest in digests {
            if self.young.len() >= self.capacity {
                std::mem::swap(&mut self.young, &mut self.old);
                self.young.clear();
            }
            self.young.insert(digest);
        }
    }

    pub fn forget_all(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// Draws the keys of the digests; one per worker.
#[derive(Default)]
pub struct Digester {
    upper: RandomState,
    lower: RandomState,
}

impl Digester {
    pub fn digest(&self, key: &Key) -> u128 {
        let half = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            key.event_id.hash(&mut hasher);
            key.week.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(&self.upper) << 64 | half(&self.lower)
    }
}

/// The digests are random already: their lower half is the hash.
#[derive(Default)]
pub struct Digested(u64);

impl Hasher for Digested {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}
