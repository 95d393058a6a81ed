//! Where to read on after an assignment, and whether that is a discontinuity.
//!
//! Two offsets are committed in every window's transaction: the group's own, which operators may move, and the settled
//! one in a second group, which they do not touch. Equal, and on the lane that the store has open: go on. Anything else
//! means that somebody or something moved the reader (rule 7): a new lane is opened, so that what was settled is
//! foreign and stays deduplicated, and what was not is released, so that nothing is lost.
//!
//! What cannot be told apart from a loss is not guessed: [`Start::Halt`] names the operator's command.

use super::lane::{Cut, LaneId, Mark, Position, StoreId, TopicId};

/// What the group's reading policy says of a partition that nobody has read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reset {
    Earliest,
    Latest,
}

/// What the store says of a stream, read when its owner token was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    pub open: LaneId,
    /// The settled position that a clean drain recorded, valid until the next claim on the open lane.
    pub drained: Option<Position>,
}

/// The settled group's offset of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settled {
    pub position: Position,
    /// None where the metadata is not Semel's.
    pub mark: Option<Mark>,
}

/// Everything that the decision rests on. The group's own offset was fetched first, then the settled one, both stable
/// (the other order doubles).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    pub committed: Option<Position>,
    pub settled: Option<Settled>,
    pub row: Option<Row>,
    /// The lane that the settled offset's metadata names is open on another stream, that of the topic's former id.
    pub open_elsewhere: bool,
    /// The lane that is open on a stream of the topic's former id, where no offset names it: Kafka deletes the offsets
    /// of both groups with a topic. Where there are several, one that was not drained.
    pub former: Option<Row>,
    /// Of the store and the topic that are there now.
    pub store: StoreId,
    pub topic: TopicId,
    /// First offset and next offset of the partition's log.
    pub log_start: Position,
    pub log_end: Position,
    pub reset: Reset,
    /// Another partition of the topic was read by this group before: this one was added later.
    pub added_later: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Start {
    /// Read on at `position` on the open lane.
    Continue { lane: LaneId, position: Position },
    /// Choose a new lane; commit `position` to both groups with (new lane, `cut`) as metadata in a transaction without
    /// records; then in the store, only if still the owner, delete the claims of the cut and open the new lane.
    NewLane { position: Position, cut: Option<Cut>, why: Why },
    /// Stop and tell the operator.
    Halt(Halt),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// Nobody has read this partition before.
    FirstStart,
    /// The group was there before Semel.
    Adoption,
    /// The group's own offset was moved back, or forward, since the last settled window.
    Rewind,
    Skip,
    /// Retention removed what the group had not read.
    Retention,
    /// The log ends before the committed offset: the broker lost its tail.
    Truncated,
    /// The topic was deleted and made again under its name.
    TopicMadeAnew,
    /// A takeover was interrupted, or the store's open lane is another one.
    OtherLane,
    /// The settled offset is gone, and a clean drain recorded it.
    DrainRecorded,
    /// Scope or extraction changed: what was not settled is claimed anew under the new names.
    NewMeaning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Halt {
    /// The settled offset is gone and nothing says where the open lane left off.
    SettledMissing { open: LaneId },
    /// The settled offset's metadata is not Semel's.
    SettledForeign,
    /// The settled offset belongs to claims in another store.
    OtherStore,
}

impl Why {
    /// For metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Why::FirstStart => "first_start",
            Why::Adoption => "adoption",
            Why::Rewind => "rewind",
            Why::Skip => "skip",
            Why::Retention => "retention",
            Why::Truncated => "truncated",
            Why::TopicMadeAnew => "topic_made_anew",
            Why::OtherLane => "other_lane",
            Why::DrainRecorded => "drain_recorded",
            Why::NewMeaning => "new_meaning",
        }
    }
}

/// Decides by the table in `tests/protocol/start.rs`. Pure.
pub fn decide(seen: &Seen) -> Start {
    let Some(settled) = &seen.settled else { return without_settled(seen) };
    let Some(mark) = &settled.mark else { return Start::Halt(Halt::SettledForeign) };
    if mark.store != seen.store {
        return Start::Halt(Halt::OtherStore);
    }
    if mark.topic != seen.topic {
        // Both offsets speak of a log that is gone: read the new one whole. Its duplicates are known by their claims.
        let cut = cut_of(mark, settled.position, seen.open_elsewhere);
        return Start::NewLane { position: seen.log_start, cut, why: Why::TopicMadeAnew };
    }
    decide_from(seen, settled.position, mark)
}

fn decide_from(seen: &Seen, settled: Position, mark: &Mark) -> Start {
    // The group's own offset was deleted or expired: go on from settled.
    let committed = seen.committed.unwrap_or(settled);
    let (position, moved) = bounded(committed, seen);
    let on_open_lane = seen.row.is_some_and(|row| row.open == mark.lane);
    if on_open_lane && position == settled {
        return Start::Continue { lane: mark.lane, position };
    }
    let why = moved.unwrap_or(match position.cmp(&settled) {
        std::cmp::Ordering::Less => Why::Rewind,
        std::cmp::Ordering::Greater => Why::Skip,
        std::cmp::Ordering::Equal => Why::OtherLane,
    });
    Start::NewLane { position, cut: cut_of(mark, settled, on_open_lane), why }
}

fn without_settled(seen: &Seen) -> Start {
    if let (None, Some(Row { open, drained })) = (seen.row, seen.former) {
        // The topic was made anew and its offsets went with it. An offset that is still there speaks of the old log.
        return match drained {
            Some(cut) => {
                Start::NewLane { position: seen.log_start, cut: Some(Cut { prev: open, cut }), why: Why::TopicMadeAnew }
            }
            None => Start::Halt(Halt::SettledMissing { open }),
        };
    }
    match (seen.row, seen.committed) {
        (None, None) => {
            let latest = seen.reset == Reset::Latest && !seen.added_later;
            let position = if latest { seen.log_end } else { seen.log_start };
            Start::NewLane { position, cut: None, why: Why::FirstStart }
        }
        (None, Some(committed)) => {
            Start::NewLane { position: bounded(committed, seen).0, cut: None, why: Why::Adoption }
        }
        (Some(Row { open, drained: Some(drained) }), committed) => Start::NewLane {
            position: bounded(committed.unwrap_or(drained), seen).0,
            cut: Some(Cut { prev: open, cut: drained }),
            why: Why::DrainRecorded,
        },
        (Some(Row { open, drained: None }), _) => Start::Halt(Halt::SettledMissing { open }),
    }
}

/// Where a committed offset can still be read from, and why not at itself. Below the log: from its start. Beyond the
/// log's end nothing can be told of what was there: from its start too, since claims keep that from doubling.
pub(super) fn bounded(committed: Position, seen: &Seen) -> (Position, Option<Why>) {
    within_log(committed, (seen.log_start, seen.log_end))
}

pub(super) fn within_log(committed: Position, (start, end): (Position, Position)) -> (Position, Option<Why>) {
    if committed < start {
        (start, Some(Why::Retention))
    } else if committed > end {
        (start, Some(Why::Truncated))
    } else {
        (committed, None)
    }
}

/// The claims to release: of the metadata's lane where it is still open, at or above the settled position; otherwise
/// that lane never came to be, and what it was to release is carried on.
fn cut_of(mark: &Mark, settled: Position, still_open: bool) -> Option<Cut> {
    if still_open { Some(Cut { prev: mark.lane, cut: settled }) } else { mark.cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition of which no offset speaks.
    fn unknown(row: Option<Row>, former: Option<Row>) -> Seen {
        Seen {
            committed: None,
            settled: None,
            row,
            open_elsewhere: false,
            former,
            store: StoreId("here".into()),
            topic: TopicId("new".into()),
            log_start: 3,
            log_end: 50,
            reset: Reset::Latest,
            added_later: false,
        }
    }

    #[test]
    fn a_topic_made_anew_whose_offsets_went_with_it() {
        let (open, own) = (LaneId(1), LaneId(2));
        let row = |open, drained| Some(Row { open, drained });
        let anew = |cut| Start::NewLane { position: 3, cut: Some(Cut { prev: open, cut }), why: Why::TopicMadeAnew };
        let missing = |open| Start::Halt(Halt::SettledMissing { open });
        let first = Start::NewLane { position: 50, cut: None, why: Why::FirstStart };
        let stale = Seen { committed: Some(40), ..unknown(None, row(open, Some(20))) };
        let cases = [
            (unknown(None, row(open, Some(20))), anew(20), "read whole; claims behind the drain are free again"),
            (stale, anew(20), "an offset that outlived its topic says nothing"),
            (unknown(None, row(open, None)), missing(open), "which claims were settled cannot be known"),
            (unknown(row(own, None), row(open, Some(20))), missing(own), "the topic's own lane comes first"),
            (unknown(None, None), first, "nobody has read it before"),
        ];
        for (seen, right, why) in cases {
            assert_eq!(decide(&seen), right, "{why}");
        }
    }
}
