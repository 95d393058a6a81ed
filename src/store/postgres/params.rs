//! Values as PostgreSQL's binary protocol takes them.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::protocol::event::{EventTime, Week};

/// A parameter and its type: statements are sent with the types, so that the server is not asked for them first.
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Days from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * EventTime::MICROS_PER_DAY;

/// PostgreSQL's dates end at 4713-11-24 BC and 5874897-12-31.
const DAY_MIN: i32 = -2_440_588;
const DAY_MAX: i32 = 2_145_031_948;

/// A week as a `date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(i32);

impl Day {
    /// None for a week that no `date` can name, of which there can be no partition either.
    pub fn of(week: Week) -> Option<Day> {
        let day = week.day_number();
        (DAY_MIN..=DAY_MAX).contains(&day).then_some(Day(day))
    }
}

impl ToSql for Day {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i32(self.0 - EPOCH_DAYS);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::DATE
    }

    to_sql_checked!();
}

/// A time as a `timestamptz`, saturated at the ends of its range.
#[derive(Debug, Clone, Copy)]
pub struct Stamp(pub EventTime);

impl ToSql for Stamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let first = i64::from(DAY_MIN) * EventTime::MICROS_PER_DAY;
        // 294276-12-31, the last day of a `timestamptz`, is beyond what microseconds since 1970 reach by 30 years.
        out.put_i64(self.0.micros().max(first) - EPOCH_MICROS);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}
