//! What an event is called: its scope, its stored id and its week.
//!
//! The three together are the primary key of `processed_kafka_events`. All three must come out the same wherever and
//! whenever the event is read again, so all three are pure functions of the message and the configuration.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use sha2::{Digest, Sha256};

/// Longest scope in bytes. With [`EVENT_ID_BYTES_MAX`] it stays well below the 2,704 bytes of a PostgreSQL index row.
pub const SCOPE_BYTES_MAX: usize = 255;

/// Longest stored event id in bytes; longer ids are stored as their SHA-256.
pub const EVENT_ID_BYTES_MAX: usize = 512;

/// Longest id of arbitrary bytes that is stored in hexadecimal rather than as its SHA-256.
const HEX_BYTES_MAX: usize = 128;

/// First character of every stored id that is not the id's own text.
const ESCAPE: char = '~';

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("the scope is blank")]
    BlankScope,
    #[error("the scope is longer than {SCOPE_BYTES_MAX} bytes")]
    LongScope,
    #[error("the scope has a control character in it")]
    ScopeControl,
    #[error("the event id is blank")]
    BlankEventId,
}

/// For whom "once" holds: the consumer's logical identity (`consumer_scope_id`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Box<str>);

impl Scope {
    /// At most [`SCOPE_BYTES_MAX`] bytes, not blank, no control characters.
    pub fn new(text: &str) -> Result<Scope, BadName> {
        if text.trim().is_empty() {
            Err(BadName::BlankScope)
        } else if text.len() > SCOPE_BYTES_MAX {
            Err(BadName::LongScope)
        } else if text.chars().any(char::is_control) {
            Err(BadName::ScopeControl)
        } else {
            Ok(Scope(text.into()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An event id in the form in which it is stored: at most [`EVENT_ID_BYTES_MAX`] bytes of text without NUL.
///
/// The form is injective. Readable text of bounded length stands for itself; everything else begins with `~`:
/// `~x` and hexadecimal for short ids of arbitrary bytes (or text that itself begins with `~`), `~h` and the SHA-256
/// for long ones. No two ids share a stored form short of a SHA-256 collision.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Box<str>);

impl EventId {
    /// Encodes the id's own bytes. Blank (empty or white space only) is no id.
    pub fn encode(id: &[u8]) -> Result<EventId, BadName> {
        if id.iter().all(u8::is_ascii_whitespace) {
            return Err(BadName::BlankEventId);
        }
        if id.len() <= EVENT_ID_BYTES_MAX
            && let Ok(text) = std::str::from_utf8(id)
        {
            if text.trim().is_empty() {
                return Err(BadName::BlankEventId);
            }
            if !text.starts_with(ESCAPE) && !text.chars().any(char::is_control) {
                return Ok(EventId(text.into()));
            }
        }
        let stored = if id.len() <= HEX_BYTES_MAX {
            format!("{ESCAPE}x{}", hex::encode(id))
        } else {
            format!("{ESCAPE}h{}", hex::encode(Sha256::digest(id)))
        };
        Ok(EventId(stored.into()))
    }

    /// Joins the parts of a composite id so that `("a-b", "c")` and `("a", "b-c")` differ: parts are separated by
    /// `+`, and `+` and `\` inside a part are escaped by `\`. One part alone is itself.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        if let [only] = parts {
            return only.to_vec();
        }
        let mut joined = Vec::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
        for (n, part) in parts.iter().enumerate() {
            if n > 0 {
                joined.push(b'+');
            }
            EventId::escape_part(part, &mut joined);
        }
        joined
    }

    /// One part as [`EventId::join`] writes it.
    pub fn escape_part(part: &[u8], joined: &mut Vec<u8>) {
        for &byte in part {
            if byte == b'+' || byte == b'\\' {
                joined.push(b'\\');
            }
            joined.push(byte);
        }
    }

    /// Takes back an id that [`EventId::encode`] made, as read from a store.
    pub fn from_stored(stored: impl Into<Box<str>>) -> EventId {
        EventId(stored.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The event's own time, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventTime(i64);

impl EventTime {
    pub const MICROS_PER_DAY: i64 = 86_400_000_000;

    pub const fn from_micros(micros: i64) -> EventTime {
        EventTime(micros)
    }

    /// Saturates at the ends of the range, which the policies for old and future times then refuse.
    pub const fn from_millis(millis: i64) -> EventTime {
        EventTime(millis.saturating_mul(1000))
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub fn to_datetime(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_micros(self.0)
    }
}

impl From<DateTime<Utc>> for EventTime {
    fn from(time: DateTime<Utc>) -> EventTime {
        EventTime(time.timestamp_micros())
    }
}

/// The week of a claim: the Monday 00:00 UTC at or before the event's time, as a day number since 1970-01-01.
///
/// Only arithmetic on UTC days: no time zone of any server, session or process has an influence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Week(i32);

impl Week {
    /// The one week of events that have no time: 0001-01-01, a Monday before any real event. Retention leaves it alone.
    pub const UNDATED: Week = Week(-719_162);

    /// Day number of Monday 1969-12-29, the week of the epoch.
    const EPOCH_MONDAY: i64 = -3;

    pub fn of(time: EventTime) -> Week {
        let day = time.0.div_euclid(EventTime::MICROS_PER_DAY);
        // The division bounds the day number to about ±106,751,991: it fits.
        Week(((day - Self::EPOCH_MONDAY).div_euclid(7) * 7 + Self::EPOCH_MONDAY) as i32)
    }

    /// The week that has this Monday, or none where `date` is another day.
    pub fn starting(date: NaiveDate) -> Option<Week> {
        let day = date.num_days_from_ce() - Self::CE_OF_EPOCH;
        ((i64::from(day) - Self::EPOCH_MONDAY).rem_euclid(7) == 0).then_some(Week(day))
    }

    pub const fn day_number(self) -> i32 {
        self.0
    }

    pub const fn from_day_number(day: i32) -> Option<Week> {
        if (day as i64 - Self::EPOCH_MONDAY).rem_euclid(7) == 0 { Some(Week(day)) } else { None }
    }

    pub const fn plus(self, weeks: i32) -> Week {
        Week(self.0.saturating_add(weeks.saturating_mul(7)))
    }

    /// None for weeks beyond what a calendar date can hold (some 260,000 years off).
    pub fn monday(self) -> Option<NaiveDate> {
        NaiveDate::from_num_days_from_ce_opt(self.0.checked_add(Self::CE_OF_EPOCH)?)
    }

    /// 1970-01-01 counted in days from 0000-12-31.
    const CE_OF_EPOCH: i32 = 719_163;
}

impl fmt::Display for Week {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.monday() {
            _ if *self == Week::UNDATED => f.write_str("undated"),
            Some(monday) => write!(f, "{monday}"),
            None => write!(f, "day {}", self.0),
        }
    }
}

macro_rules! shown_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &self.0)
            }
        }
    )*};
}
shown_as_text!(Scope, EventId);
