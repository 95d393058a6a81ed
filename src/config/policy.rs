//! What is done with messages that are not simply claimed and forwarded. By default nothing is forwarded that was not
//! claimed.

use super::reader::Reader;
use super::setting::{Choice, Setting};
use crate::key::TimeRecipe;

pub const MODE: Setting = Setting::choice::<Mode>(
    "SEMEL_MODE",
    "enforce",
    "`observe` claims, judges and counts, but forwards everything, duplicates marked: for a safe rollout.",
);

pub const MISSING_ID: Setting = Setting::choice::<Unclaimable>(
    "SEMEL_MISSING_ID",
    "reject",
    "Messages without an event id: to the dead-letter topic, on unclaimed and marked, or stop.",
)
.in_pipe()
.told_in_pipe("Lines without an event id: to the file of rejected lines, on to the output unclaimed, or stop.");

pub const MISSING_TIME: Setting =
    Setting::choice::<Unclaimable>("SEMEL_MISSING_TIME", "reject", "Messages without a readable event time.")
        .in_pipe()
        .told_in_pipe("Lines without a readable event time.");

pub const OLD_EVENT: Setting = Setting::choice::<Unclaimable>(
    "SEMEL_OLD_EVENT",
    "reject",
    "Messages of weeks that are no longer kept. Forwarded ones may be forwarded again.",
)
.in_pipe()
.told_in_pipe("Lines of weeks that are no longer kept. Forwarded ones may be forwarded again.");

pub const FUTURE_EVENT: Setting =
    Setting::choice::<Unclaimable>("SEMEL_FUTURE_EVENT", "reject", "Messages of weeks beyond SEMEL_WEEKS_AHEAD.")
        .in_pipe()
        .told_in_pipe("Lines of weeks beyond SEMEL_WEEKS_AHEAD.");

pub const OVERSIZE: Setting =
    Setting::choice::<Oversize>("SEMEL_OVERSIZE", "reject", "Messages that are too large for the sink.");

pub const DUPLICATES: Setting = Setting::choice::<Duplicates>(
    "SEMEL_DUPLICATES",
    "drop",
    "Duplicates: away with them, to SEMEL_DUPLICATES_TOPIC, or on with a header that says so.",
);

pub const STORE_AWAY: Setting = Setting::choice::<StoreAway>(
    "SEMEL_STORE_AWAY",
    "block",
    "While the claim store is away: wait and catch up, or forward unclaimed and marked, which may forward twice.",
);

pub const SETTINGS: &[&Setting] =
    &[&MODE, &MISSING_ID, &MISSING_TIME, &OLD_EVENT, &FUTURE_EVENT, &OVERSIZE, &DUPLICATES, &STORE_AWAY];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Observe,
}

/// What to do with a message that cannot be claimed: it has no id or no time, or its time is out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimable {
    /// To the dead-letter topic.
    Reject,
    /// On to the sink, unclaimed and marked.
    Forward,
    /// End the pipeline with an error that names the message.
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversize {
    /// To the dead-letter topic.
    Reject,
    /// End the pipeline with an error that names the message.
    Stop,
}

/// What to do with a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    Drop,
    /// To a topic of their own.
    Route,
    /// On to the sink, with a header that says so.
    Mark,
}

/// What to do while the claim store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAway {
    /// Wait, and catch up.
    Block,
    /// On to the sink, unclaimed and marked.
    Forward,
}

impl Choice for Mode {
    const ALL: &'static [(&'static str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];
}

impl Choice for Unclaimable {
    const ALL: &'static [(&'static str, Unclaimable)] =
        &[("reject", Unclaimable::Reject), ("forward", Unclaimable::Forward), ("stop", Unclaimable::Stop)];
}

impl Choice for Oversize {
    const ALL: &'static [(&'static str, Oversize)] = &[("reject", Oversize::Reject), ("stop", Oversize::Stop)];
}

impl Choice for Duplicates {
    const ALL: &'static [(&'static str, Duplicates)] =
        &[("drop", Duplicates::Drop), ("route", Duplicates::Route), ("mark", Duplicates::Mark)];
}

impl Choice for StoreAway {
    const ALL: &'static [(&'static str, StoreAway)] = &[("block", StoreAway::Block), ("forward", StoreAway::Forward)];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    pub missing_id: Unclaimable,
    pub missing_time: Unclaimable,
    pub old_event: Unclaimable,
    pub future_event: Unclaimable,
    pub oversize: Oversize,
    pub duplicates: Duplicates,
    pub store_away: StoreAway,
    /// Claim, judge and count, but forward everything, duplicates marked.
    pub observe: bool,
}

impl Policies {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Policies> {
        let mode = reader.choice(&MODE);
        let missing_id = reader.choice(&MISSING_ID);
        let missing_time = reader.choice(&MISSING_TIME);
        let old_event = reader.choice(&OLD_EVENT);
        let future_event = reader.choice(&FUTURE_EVENT);
        let oversize = reader.choice(&OVERSIZE);
        let duplicates = reader.choice(&DUPLICATES);
        let store_away = reader.choice(&STORE_AWAY);
        if mode == Some(Mode::Observe) {
            reader.has_no_effect(&DUPLICATES, "SEMEL_MODE=observe marks duplicates and forwards them");
        }
        Some(Policies {
            missing_id: missing_id?,
            missing_time: missing_time?,
            old_event: old_event?,
            future_event: future_event?,
            oversize: oversize?,
            duplicates: duplicates?,
            store_away: store_away?,
            observe: mode? == Mode::Observe,
        })
    }

    /// Names of the settings that send messages to the dead-letter topic.
    pub(super) fn rejecting(&self) -> Vec<&'static str> {
        let of = |policy, setting: &Setting| (policy == Unclaimable::Reject).then_some(setting.name);
        [
            of(self.missing_id, &MISSING_ID),
            of(self.missing_time, &MISSING_TIME),
            of(self.old_event, &OLD_EVENT),
            of(self.future_event, &FUTURE_EVENT),
            (self.oversize == Oversize::Reject).then_some(OVERSIZE.name),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Events without a time by intent are never early, late or without one by accident.
pub(super) fn check_undated(reader: &Reader<'_>, time: &TimeRecipe) {
    if *time == TimeRecipe::None {
        for setting in [&MISSING_TIME, &OLD_EVENT, &FUTURE_EVENT] {
            reader.has_no_effect(setting, "SEMEL_EVENT_TIME is none");
        }
    }
}
