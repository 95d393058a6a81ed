//! What is to become of a line, as far as the line alone can tell.

use crate::clock::SharedClock;
use crate::config::extraction::{EVENT_ID, EVENT_TIME, Keys};
use crate::config::pipe::PipeConfig;
use crate::config::policy::Unclaimable;
use crate::config::retention::{RETENTION_WEEKS, WEEKS_AHEAD};
use crate::config::setting::Setting;
use crate::key::{Bounds, Extraction, KeyError, NoHeaders, OutOfBounds, TimeError, Unkeyed, View};
use crate::protocol::event::EventTime;
use crate::store::embedded::ClaimKey;

/// Why a line cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("the line is not UTF-8")]
    NotUtf8,
    #[error("the line is longer than {} bytes", super::lines::LINE_BYTES_MAX)]
    TooLong,
    #[error(transparent)]
    Id(KeyError),
    #[error(transparent)]
    Time(TimeError),
    #[error(transparent)]
    Bounds(OutOfBounds),
}

impl Cause {
    /// What to look at where every line ends so.
    pub fn setting(&self) -> Option<&'static Setting> {
        match self {
            Cause::NotUtf8 | Cause::TooLong => None,
            Cause::Id(_) => Some(&EVENT_ID),
            Cause::Time(_) => Some(&EVENT_TIME),
            Cause::Bounds(OutOfBounds::Old { .. }) => Some(&RETENTION_WEEKS),
            Cause::Bounds(OutOfBounds::Ahead { .. }) => Some(&WEEKS_AHEAD),
        }
    }

    /// One word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Cause::NotUtf8 => "not-utf8",
            Cause::TooLong => "too-long",
            Cause::Id(KeyError::Missing) => "missing-id",
            Cause::Id(KeyError::NotJson(_)) | Cause::Time(TimeError::NotJson(_)) => "not-json",
            Cause::Id(KeyError::NotAnId { .. }) => "not-an-id",
            Cause::Time(TimeError::Missing | TimeError::NoneInId) => "missing-time",
            Cause::Time(TimeError::NotATime(_)) => "not-a-time",
            Cause::Bounds(OutOfBounds::Old { .. }) => "old-event",
            Cause::Bounds(OutOfBounds::Ahead { .. }) => "future-event",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// To be claimed, and forwarded if that is the first claim.
    Claim(ClaimKey),
    /// Nothing on it.
    Empty,
    Reject(Cause),
    /// On to the output, unclaimed.
    Forward,
    /// The end of the job, before this line.
    Stop(Cause),
}

/// The recipes and the policies.
pub struct Keyer {
    extraction: Extraction,
    missing_id: Unclaimable,
    missing_time: Unclaimable,
    old_event: Unclaimable,
    future_event: Unclaimable,
    bounds: Bounds,
    clock: SharedClock,
    /// Number of the scope in the store.
    scope: u32,
}

impl Keyer {
    pub fn new(config: &PipeConfig, clock: SharedClock, scope: u32) -> Keyer {
        let Keys { extraction, .. } = config.keys.clone();
        let PipeConfig { missing_id, missing_time, old_event, future_event, bounds, .. } = *config;
        Keyer { extraction, missing_id, missing_time, old_event, future_event, bounds, clock, scope }
    }

    /// For the bounds of a window's events.
    pub fn now(&self) -> EventTime {
        self.clock.now()
    }

    /// `line`: without its end.
    pub fn fate(&self, line: &[u8], now: EventTime) -> Fate {
        if line.trim_ascii().is_empty() {
            return Fate::Empty;
        }
        if std::str::from_utf8(line).is_err() {
            return by_policy(self.missing_id, Cause::NotUtf8);
        }
        let view = View { key: None, value: Some(line), timestamp_millis: None, headers: &NoHeaders };
        match self.extraction.key(&view) {
            Ok(key) => match self.bounds.check(key.week, now) {
                Ok(()) => Fate::Claim(ClaimKey::new(self.scope, &key.event_id, key.week)),
                Err(old @ OutOfBounds::Old { .. }) => by_policy(self.old_event, Cause::Bounds(old)),
                Err(ahead @ OutOfBounds::Ahead { .. }) => by_policy(self.future_event, Cause::Bounds(ahead)),
            },
            Err(Unkeyed::Id(error)) => by_policy(self.missing_id, Cause::Id(error)),
            Err(Unkeyed::Time(error)) => by_policy(self.missing_time, Cause::Time(error)),
        }
    }

    /// Of a line that was never seen whole, and so cannot be forwarded as one.
    pub fn fate_of_too_long(&self) -> Fate {
        match self.missing_id {
            Unclaimable::Stop => Fate::Stop(Cause::TooLong),
            Unclaimable::Reject | Unclaimable::Forward => Fate::Reject(Cause::TooLong),
        }
    }
}

fn by_policy(policy: Unclaimable, cause: Cause) -> Fate {
    match policy {
        Unclaimable::Reject => Fate::Reject(cause),
        Unclaimable::Forward => Fate::Forward,
        Unclaimable::Stop => Fate::Stop(cause),
    }
}
