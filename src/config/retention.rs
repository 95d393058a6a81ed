//! How long claims are kept.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Default, Kind, Setting};
use super::units::show_duration;
use crate::key::Bounds;

/// Twenty years: a start makes room for all of them.
pub const RETENTION_WEEKS_MAX: u64 = 1_040;
pub const WEEKS_AHEAD_MAX: u64 = 52;

pub const RETENTION_WEEKS: Setting = Setting::new(
    "SEMEL_RETENTION_WEEKS",
    Kind::Count(1..=RETENTION_WEEKS_MAX),
    Default::Value("5"),
    "Weeks before the present one whose claims are kept. Longer than SEMEL_LONGEST_OUTAGE, and than the topics keep \
     what may be read again.",
)
.in_pipe()
.told_in_pipe("Weeks before the present one whose claims are kept, where events have a time of their own.");

pub const WEEKS_AHEAD: Setting = Setting::new(
    "SEMEL_WEEKS_AHEAD",
    Kind::Count(1..=WEEKS_AHEAD_MAX),
    Default::Value("2"),
    "Weeks after the present one that are made beforehand; an event of a later one is a future event.",
)
.in_pipe()
.told_in_pipe("Weeks after the present one whose events are taken; an event of a later one is a future event.");

pub const LONGEST_OUTAGE: Setting = Setting::new(
    "SEMEL_LONGEST_OUTAGE",
    Kind::Duration,
    Default::Value("7d"),
    "How long this pipeline may be down at most. Claims are kept longer, and a compacted source must leave messages \
     alone for longer.",
);

pub const SETTINGS: &[&Setting] = &[&RETENTION_WEEKS, &WEEKS_AHEAD, &LONGEST_OUTAGE];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub bounds: Bounds,
    pub longest_outage: Duration,
}

impl Retention {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Retention> {
        let weeks_kept = reader.count(&RETENTION_WEEKS);
        let weeks_ahead = reader.count(&WEEKS_AHEAD);
        let longest_outage = reader.duration(&LONGEST_OUTAGE, "1m", "36500d");
        let bounds =
            Bounds { weeks_kept: u32::try_from(weeks_kept?).ok()?, weeks_ahead: u32::try_from(weeks_ahead?).ok()? };
        Some(Retention { bounds, longest_outage: longest_outage? })
    }
}

/// Claims outlive the longest outage and the longest life (`zombie`) of a process that nobody hears of.
pub(super) fn check_kept(reader: &Reader<'_>, retention: &Retention, zombie: Duration) {
    const WEEK: Duration = Duration::from_secs(7 * 86_400);
    let weeks = retention.bounds.weeks_kept;
    let kept = WEEK * weeks;
    if kept < retention.longest_outage + zombie {
        let [kept, outage, zombie] = [kept, retention.longest_outage, zombie].map(show_duration);
        let plural = if weeks == 1 { "" } else { "s" };
        reader.problem_with(
            &RETENTION_WEEKS,
            format!(
                "{kept} ({weeks} week{plural}) is less than {}, {outage}, and {zombie} more, for which an instance that \
                 lost its connections may go on",
                LONGEST_OUTAGE.name
            ),
        );
    }
}
