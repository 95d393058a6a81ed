//! How long to wait before the next try.

use std::time::Duration;

/// Doubles from `first` to at most `longest`, and spreads each wait over its upper half so that instances that failed
/// together do not return together.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, tries: 0 }
    }

    /// The wait before the next try. `spread` in 0..=255 places it between half and all of the current step.
    pub fn next(&mut self, spread: u8) -> Duration {
        let step = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        step / 2 + step / 2 * u32::from(spread) / 255
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}
