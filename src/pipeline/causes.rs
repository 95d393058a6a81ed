//! Why a message is not simply claimed and forwarded, and which policy says what becomes of it.

use crate::config::policy::{Oversize, Policies, Unclaimable};
use crate::key::{KeyError, OutOfBounds, TimeError, Unkeyed};

/// Why a message is a dead letter or goes on unclaimed. A closed list: it is a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    MissingId,
    BadId,
    MissingTime,
    BadTime,
    OldEvent,
    FutureEvent,
    TooLarge,
    RefusedBySink,
    StoreAway,
}

impl Cause {
    pub const fn label(self) -> &'static str {
        match self {
            Cause::MissingId => "missing_id",
            Cause::BadId => "bad_id",
            Cause::MissingTime => "missing_time",
            Cause::BadTime => "bad_time",
            Cause::OldEvent => "old_event",
            Cause::FutureEvent => "future_event",
            Cause::TooLarge => "too_large",
            Cause::RefusedBySink => "refused_by_sink",
            Cause::StoreAway => "store_away",
        }
    }

    pub fn of(error: &Unkeyed) -> Cause {
        match error {
            Unkeyed::Id(KeyError::Missing) => Cause::MissingId,
            Unkeyed::Id(_) => Cause::BadId,
            Unkeyed::Time(TimeError::Missing) => Cause::MissingTime,
            Unkeyed::Time(_) => Cause::BadTime,
        }
    }

    pub fn of_week(error: OutOfBounds) -> Cause {
        match error {
            OutOfBounds::Old { .. } => Cause::OldEvent,
            OutOfBounds::Ahead { .. } => Cause::FutureEvent,
        }
    }

    pub fn policy(self, policies: &Policies) -> Unclaimable {
        match self {
            Cause::MissingId | Cause::BadId => policies.missing_id,
            Cause::MissingTime | Cause::BadTime => policies.missing_time,
            Cause::OldEvent => policies.old_event,
            Cause::FutureEvent => policies.future_event,
            Cause::TooLarge if policies.oversize == Oversize::Stop => Unclaimable::Stop,
            Cause::TooLarge | Cause::RefusedBySink | Cause::StoreAway => Unclaimable::Reject,
        }
    }
}
