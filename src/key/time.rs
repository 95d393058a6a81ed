//! How an event's time is picked out of a message, and which times are acceptable.
//!
//! Uniqueness holds within one week, so the time must be a pure function of the event: a field that the producer
//! stores, or the time inside the id. A time that a transport renews on a retry makes two events of one.
//!
//! | recipe | is |
//! | --- | --- |
//! | `record` | the message's own timestamp |
//! | `header:NAME`, `json:/pointer` | RFC 3339 with an offset; or, with `:s`, `:ms`, `:us`, `:ns` behind it, a decimal number since 1970 |
//! | `id` | the time inside a UUID (version 1, 6, 7) or a ULID: the event id, or the last part of a composite |
//! | `none` | events have no time, their claims stay in the one undated week |

use std::fmt;

use chrono::DateTime;

use super::View;
use super::grammar::{BadRecipe, Piece, escaped};
use super::idtime::time_inside;
use super::json::{Document, Fault, Found, Pointer};
use crate::protocol::event::{EventTime, Week};

/// How an event's time is picked out of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeRecipe {
    Record,
    Header(String, Format),
    Json(Pointer, Format),
    Id,
    None,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Rfc3339,
    Epoch(Unit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

/// Why a message has no usable time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("the message has no event time")]
    Missing,
    #[error("the value is not JSON: {0}")]
    NotJson(Fault),
    #[error("the place of the event time holds no {0}")]
    NotATime(Format),
    #[error("there is no time inside the event id")]
    NoneInId,
}

impl TimeRecipe {
    pub fn parse(text: &str) -> Result<TimeRecipe, BadRecipe> {
        let whole = Piece::whole(text);
        match whole.named() {
            ("record", None) => return Ok(TimeRecipe::Record),
            ("id", None) => return Ok(TimeRecipe::Id),
            ("none", None) => return Ok(TimeRecipe::None),
            ("header" | "json", Some(_)) => {}
            ("header", None) => return Err(whole.bad("`header` names a header: `header:NAME`")),
            ("json", None) => return Err(whole.bad("`json` names a place: `json:/pointer`")),
            ("", None) => return Err(whole.bad("a source of the time is missing here")),
            _ => {
                let known = "record, header:NAME, json:/pointer, id, none";
                return Err(whole.bad(format!("`{}` is none of {known}", whole.text)));
            }
        }
        // The suffix is one only behind the name: `header:ms` names a header.
        let with_unit = whole.suffixed().filter(|(front, _)| front.text.contains(':'));
        let (front, format) = match with_unit {
            None => (whole, Format::Rfc3339),
            Some((front, suffix)) => match Unit::named(suffix) {
                Some(unit) => (front, Format::Epoch(unit)),
                None => {
                    let problem = format!(r"`{suffix}` is no unit (s, ms, us, ns); in a name `:` is written `\:`");
                    return Err(whole.bad(problem));
                }
            },
        };
        match front.named() {
            ("header", Some(name)) if !name.text.is_empty() => Ok(TimeRecipe::Header(name.unescaped()?, format)),
            ("json", Some(place)) => {
                let pointer = Pointer::parse(&place.unescaped()?).map_err(|error| place.bad(error.to_string()))?;
                Ok(TimeRecipe::Json(pointer, format))
            }
            _ => Err(whole.bad("`header` names a header: `header:NAME`")),
        }
    }

    /// `id`: the last part of the event id. `json`: number of this recipe's pointer in the document. None without a
    /// time by intent.
    pub(super) fn time(
        &self,
        view: &View<'_>,
        id: &[u8],
        document: &Document<'_>,
        json: usize,
    ) -> Result<Option<EventTime>, TimeError> {
        match self {
            TimeRecipe::None => Ok(None),
            TimeRecipe::Record => view.timestamp_millis.map(EventTime::from_millis).ok_or(TimeError::Missing).map(Some),
            TimeRecipe::Id => time_inside(id).ok_or(TimeError::NoneInId).map(Some),
            TimeRecipe::Header(name, format) => {
                let value = view.headers.last(name).flatten().ok_or(TimeError::Missing)?;
                format.read(std::str::from_utf8(value).map_err(|_| TimeError::NotATime(*format))?).map(Some)
            }
            TimeRecipe::Json(_, format) => match document.get(json).map_err(TimeError::NotJson)? {
                None | Some(Found::Null) => Err(TimeError::Missing),
                Some(Found::Text(text)) => format.read(&text).map(Some),
                Some(Found::Number(text)) => format.read(text).map(Some),
                Some(_) => Err(TimeError::NotATime(*format)),
            },
        }
    }

    /// The week that these events' claims are filed under.
    pub(super) fn week(time: Option<EventTime>) -> Week {
        time.map_or(Week::UNDATED, Week::of)
    }
}

impl Unit {
    const ALL: [(&'static str, Unit); 4] =
        [("s", Unit::Seconds), ("ms", Unit::Millis), ("us", Unit::Micros), ("ns", Unit::Nanos)];

    fn named(name: &str) -> Option<Unit> {
        Unit::ALL.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit)
    }

    const fn nanos(self) -> i128 {
        match self {
            Unit::Seconds => 1_000_000_000,
            Unit::Millis => 1_000_000,
            Unit::Micros => 1_000,
            Unit::Nanos => 1,
        }
    }
}

impl Format {
    fn read(self, text: &str) -> Result<EventTime, TimeError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TimeError::Missing);
        }
        let time = match self {
            Format::Rfc3339 => DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc().into()),
            Format::Epoch(unit) => epoch(text, unit),
        };
        time.ok_or(TimeError::NotATime(self))
    }
}

/// A decimal number without an exponent, exact, rounded down to the microsecond.
fn epoch(text: &str, unit: Unit) -> Option<EventTime> {
    /// Digits on either side of the point that cannot overflow the arithmetic below.
    const DIGITS_MAX: usize = 19;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |digits: &str| {
        let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if sound { digits[..digits.len().min(DIGITS_MAX)].parse::<i128>().ok() } else { None }
    };
    if whole.len() > DIGITS_MAX {
        return None;
    }
    let scale = 10_i128.pow(fraction.len().min(DIGITS_MAX) as u32);
    let parts = number(whole)? * unit.nanos() * scale + number(fraction)? * unit.nanos();
    let micros = (if negative { -parts } else { parts }).div_euclid(scale * 1_000);
    i64::try_from(micros).ok().map(EventTime::from_micros)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Rfc3339 => "RFC 3339 time with an offset",
            Format::Epoch(_) => "decimal number",
        })
    }
}

/// The recipe's text, which parses to the same recipe.
impl fmt::Display for TimeRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self {
            TimeRecipe::Record => return f.write_str("record"),
            TimeRecipe::Id => return f.write_str("id"),
            TimeRecipe::None => return f.write_str("none"),
            TimeRecipe::Header(name, format) => {
                write!(f, "header:{}", escaped(name))?;
                format
            }
            TimeRecipe::Json(pointer, format) => {
                write!(f, "json:{}", escaped(&pointer.to_string()))?;
                format
            }
        };
        match format {
            Format::Rfc3339 => Ok(()),
            Format::Epoch(unit) => {
                let name = Unit::ALL.iter().find(|(_, known)| known == unit).map_or("", |(name, _)| name);
                write!(f, ":{name}")
            }
        }
    }
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
