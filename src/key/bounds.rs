//! Which weeks claims are kept in.
//!
//! Older ones have been retired, and a claim in them would be forgotten at once; those far ahead come from a clock
//! that is wrong, and would be kept for long. Both are found before a claim is asked for.

use crate::protocol::event::{EventTime, Week};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Weeks kept before the present one.
    pub weeks_kept: u32,
    /// Weeks made ahead of the present one.
    pub weeks_ahead: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    #[error("the event is of the week of {week}, claims are kept from {first_kept} on")]
    Old { week: Week, first_kept: Week },
    #[error("the event is of the week of {week}, claims are taken up to {last}")]
    Ahead { week: Week, last: Week },
}

impl Bounds {
    /// First week kept and last week made. The undated week is beside them.
    pub fn weeks(&self, now: EventTime) -> (Week, Week) {
        let present = Week::of(now);
        let weeks = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        (present.plus(-weeks(self.weeks_kept)), present.plus(weeks(self.weeks_ahead)))
    }

    pub fn check(&self, week: Week, now: EventTime) -> Result<(), OutOfBounds> {
        let (first_kept, last) = self.weeks(now);
        if week == Week::UNDATED || (first_kept..=last).contains(&week) {
            Ok(())
        } else if week < first_kept {
            Err(OutOfBounds::Old { week, first_kept })
        } else {
            Err(OutOfBounds::Ahead { week, last })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_kept_and_made() {
        // Wednesday.
        let now = EventTime::from("2026-01-07T12:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().expect("a time"));
        let bounds = Bounds { weeks_kept: 2, weeks_ahead: 1 };
        let cases = [
            ("2025-12-22T00:00:00Z", "ok", "the first instant of the first week kept"),
            ("2025-12-21T23:59:59.999999Z", "old", "the last instant before it"),
            ("2026-01-18T23:59:59.999999Z", "ok", "the last instant of the last week made"),
            ("2026-01-19T00:00:00Z", "ahead", "the first instant after it"),
            ("0001-01-01T00:00:00Z", "ok", "the undated week is always there"),
            ("0001-01-08T00:00:00Z", "old", "the week after the undated one is not"),
        ];
        for (time, right, why) in cases {
            let week = Week::of(time.parse::<chrono::DateTime<chrono::Utc>>().expect("a time").into());
            let found = match bounds.check(week, now) {
                Ok(()) => "ok",
                Err(OutOfBounds::Old { .. }) => "old",
                Err(OutOfBounds::Ahead { .. }) => "ahead",
            };
            assert_eq!(found, right, "{time}: {why}");
        }
    }
}
