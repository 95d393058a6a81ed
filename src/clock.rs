//! The only place that reads the time. Everything else is handed a [`Clock`], or a time.

use std::sync::Arc;

use crate::protocol::event::EventTime;

/// Wall-clock time for what is written down (`first_seen_at`) and for the policies on old and future events. Nothing
/// that decides about correctness asks it.
pub trait Clock: Send + Sync {
    fn now(&self) -> EventTime;
}

pub type SharedClock = Arc<dyn Clock>;

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> EventTime {
        chrono::Utc::now().into()
    }
}

/// Milliseconds since the epoch, for expiry times that another program's clock will judge.
pub fn unix_millis() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// A clock that stands still, for tests.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub EventTime);

impl Clock for FixedClock {
    fn now(&self) -> EventTime {
        self.0
    }
}
