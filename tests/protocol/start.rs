//! The start table: a row for each line of protocol.md's, and for each reason that a start can have.

use proptest::option;
use proptest::prelude::*;
use semel::protocol::lane::{Cut, LaneId, Mark, Position, StoreId, TopicId};
use semel::protocol::start::{Halt, Reset, Row, Seen, Settled, Start, Why, decide};

const OPEN: LaneId = LaneId(7);
const OTHER: LaneId = LaneId(8);
const PREV: LaneId = LaneId(6);

fn store(name: &str) -> StoreId {
    StoreId(name.into())
}

fn topic(name: &str) -> TopicId {
    TopicId(name.into())
}

/// A log from 10 to 100 of a group that nobody has heard of.
fn nothing() -> Seen {
    Seen {
        committed: None,
        settled: None,
        row: None,
        open_elsewhere: false,
        former: None,
        store: store("s"),
        topic: topic("t"),
        log_start: 10,
        log_end: 100,
        reset: Reset::Earliest,
        added_later: false,
    }
}

fn marked(position: Position, lane: LaneId, cut: Option<Cut>) -> Option<Settled> {
    Some(Settled { position, mark: Some(Mark { store: store("s"), topic: topic("t"), lane, cut }) })
}

fn row(open: LaneId, drained: Option<Position>) -> Option<Row> {
    Some(Row { open, drained })
}

/// The group's own offset and the settled one, on the lane that is open.
fn running(committed: Position, settled: Position) -> Seen {
    Seen { committed: Some(committed), settled: marked(settled, OPEN, None), row: row(OPEN, None), ..nothing() }
}

fn new_lane(position: Position, cut: Option<(LaneId, Position)>, why: Why) -> Start {
    Start::NewLane { position, cut: cut.map(|(prev, cut)| Cut { prev, cut }), why }
}

fn go_on(position: Position) -> Start {
    Start::Continue { lane: OPEN, position }
}

fn check(cases: &[(Seen, Start, &str)]) {
    for (seen, right, why) in cases {
        assert_eq!(decide(seen), *right, "{why}");
    }
}

#[test]
fn nobody_has_read_it_with_semel() {
    let latest = Seen { reset: Reset::Latest, ..nothing() };
    check(&[
        (nothing(), new_lane(10, None, Why::FirstStart), "first start: from the earliest"),
        (latest.clone(), new_lane(100, None, Why::FirstStart), "unless the latest is configured"),
        (
            Seen { added_later: true, ..latest.clone() },
            new_lane(10, None, Why::FirstStart),
            "a partition added later is read from its start all the same",
        ),
        (
            Seen { committed: Some(42), ..nothing() },
            new_lane(42, None, Why::Adoption),
            "adoption of an existing group: from its offset",
        ),
        (Seen { committed: Some(42), ..latest }, new_lane(42, None, Why::Adoption), "an offset outweighs the policy"),
        (
            Seen { committed: Some(4), ..nothing() },
            new_lane(10, None, Why::Adoption),
            "adoption of a group that retention overtook",
        ),
    ]);
}

#[test]
fn it_goes_on() {
    check(&[
        (running(42, 42), go_on(42), "both offsets equal, on the open lane"),
        (running(10, 10), go_on(10), "at the log's start"),
        (running(100, 100), go_on(100), "at the log's end"),
        (
            Seen { committed: None, ..running(0, 42) },
            go_on(42),
            "the group's own offset was deleted or expired: from settled",
        ),
        (
            Seen { committed: None, reset: Reset::Latest, ..running(0, 42) },
            go_on(42),
            "whatever the policy says: never start over silently",
        ),
        (
            Seen { row: row(OPEN, Some(40)), ..running(42, 42) },
            go_on(42),
            "a recorded drain does not count beside the settled offset",
        ),
        (
            Seen { settled: marked(42, OPEN, Some(Cut { prev: PREV, cut: 20 })), ..running(42, 42) },
            go_on(42),
            "the lane is open, so its cut was carried out",
        ),
    ]);
}

#[test]
fn it_was_moved() {
    let at_settled = |settled| Some((OPEN, settled));
    check(&[
        (
            running(20, 42),
            new_lane(20, at_settled(42), Why::Rewind),
            "what is settled is foreign: it stays deduplicated",
        ),
        (
            running(60, 42),
            new_lane(60, at_settled(42), Why::Skip),
            "what is not settled is free again: nothing is lost",
        ),
        (running(4, 42), new_lane(10, at_settled(42), Why::Retention), "moved back to before the log"),
        (running(4, 4), new_lane(10, at_settled(4), Why::Retention), "retention overtook the group"),
        (
            Seen { committed: None, ..running(0, 4) },
            new_lane(10, at_settled(4), Why::Retention),
            "and its own offset expired besides",
        ),
        (running(4, 10), go_on(10), "moved to before the log, which begins where settled is: nothing was moved past"),
        (running(120, 120), new_lane(10, at_settled(120), Why::Truncated), "the log lost its tail: read what it has"),
        (running(120, 42), new_lane(10, at_settled(42), Why::Truncated), "moved to beyond the log"),
    ]);
}

#[test]
fn another_lane_is_open() {
    let cut = Some(Cut { prev: PREV, cut: 20 });
    let interrupted = Seen { settled: marked(42, OTHER, cut), ..running(42, 0) };
    check(&[
        (
            interrupted.clone(),
            new_lane(42, Some((PREV, 20)), Why::OtherLane),
            "a takeover was interrupted before its lane was opened: what it was to release is carried on",
        ),
        (
            Seen { committed: Some(30), ..interrupted.clone() },
            new_lane(30, Some((PREV, 20)), Why::Rewind),
            "and an operator moved since",
        ),
        (
            Seen { row: None, ..interrupted },
            new_lane(42, Some((PREV, 20)), Why::OtherLane),
            "and the store does not know the stream",
        ),
        (
            Seen { settled: marked(42, OTHER, None), row: None, ..running(42, 0) },
            new_lane(42, None, Why::OtherLane),
            "a first start was interrupted: nothing was claimed yet",
        ),
    ]);
}

#[test]
fn the_settled_offset_is_gone() {
    let gone = |committed, drained| Seen { committed, settled: None, row: row(OPEN, drained), ..nothing() };
    let halt = Start::Halt(Halt::SettledMissing { open: OPEN });
    check(&[
        (
            gone(Some(42), Some(42)),
            new_lane(42, Some((OPEN, 42)), Why::DrainRecorded),
            "a clean drain recorded where it left off",
        ),
        (
            gone(Some(20), Some(42)),
            new_lane(20, Some((OPEN, 42)), Why::DrainRecorded),
            "and an operator moved back since",
        ),
        (gone(None, Some(42)), new_lane(42, Some((OPEN, 42)), Why::DrainRecorded), "and the group's own is gone too"),
        (gone(None, Some(4)), new_lane(10, Some((OPEN, 4)), Why::DrainRecorded), "and retention overtook it"),
        (gone(Some(42), None), halt.clone(), "nothing says which claims are settled: the operator's word is needed"),
        (gone(None, None), halt, "nor here, and it is no first start: the store knows the stream"),
    ]);
}

#[test]
fn the_offsets_went_with_the_topic() {
    let former = |drained| Seen { former: row(PREV, drained), ..nothing() };
    check(&[
        (
            former(Some(20)),
            new_lane(10, Some((PREV, 20)), Why::TopicMadeAnew),
            "whoever read the deleted topic recorded where it left off",
        ),
        (
            former(None),
            Start::Halt(Halt::SettledMissing { open: PREV }),
            "nobody did: which claims are settled is not known",
        ),
        (
            Seen { row: row(OPEN, Some(42)), ..former(None) },
            new_lane(42, Some((OPEN, 42)), Why::DrainRecorded),
            "the topic's own lane comes before the former one's",
        ),
    ]);
}

#[test]
fn the_settled_offset_is_not_to_be_believed() {
    let foreign = Some(Settled { position: 42, mark: None });
    let of = |store_name: &str, topic_name: &str| {
        let mark = Mark { store: store(store_name), topic: topic(topic_name), lane: OPEN, cut: None };
        Some(Settled { position: 42, mark: Some(mark) })
    };
    check(&[
        (
            Seen { settled: foreign.clone(), ..running(42, 0) },
            Start::Halt(Halt::SettledForeign),
            "somebody else's metadata: who moved it, and what it means, is not known",
        ),
        (Seen { settled: foreign, row: None, ..running(42, 0) }, Start::Halt(Halt::SettledForeign), "in any case"),
        (
            Seen { settled: of("elsewhere", "t"), row: None, ..running(42, 0) },
            Start::Halt(Halt::OtherStore),
            "a new, empty database is not a discontinuity: everything would double",
        ),
        (
            Seen { settled: of("elsewhere", "t"), ..running(42, 0) },
            Start::Halt(Halt::OtherStore),
            "nor is one that has a lane of that number",
        ),
        (
            Seen { settled: of("elsewhere", "former"), ..running(42, 0) },
            Start::Halt(Halt::OtherStore),
            "the store comes before the topic",
        ),
    ]);
}

#[test]
fn the_topic_was_made_anew() {
    let former = |cut| {
        Some(Settled { position: 42, mark: Some(Mark { store: store("s"), topic: topic("former"), lane: OPEN, cut }) })
    };
    let cut = Some(Cut { prev: PREV, cut: 20 });
    let anew = Seen { settled: former(cut), row: None, open_elsewhere: true, ..running(42, 0) };
    check(&[
        (
            anew.clone(),
            new_lane(10, Some((OPEN, 42)), Why::TopicMadeAnew),
            "both offsets speak of a log that is gone: this one is read whole, and what was in doubt is free",
        ),
        (
            Seen { open_elsewhere: false, ..anew.clone() },
            new_lane(10, Some((PREV, 20)), Why::TopicMadeAnew),
            "a takeover of the former topic was interrupted: carried on",
        ),
        (
            Seen { settled: former(None), open_elsewhere: false, ..anew.clone() },
            new_lane(10, None, Why::TopicMadeAnew),
            "or there is nothing to release",
        ),
        (
            Seen { reset: Reset::Latest, ..anew },
            new_lane(10, Some((OPEN, 42)), Why::TopicMadeAnew),
            "from its start, whatever the policy says of partitions that nobody has read",
        ),
    ]);
}

fn marks() -> impl Strategy<Value = Mark> {
    let cut = option::of((0i64..4, 0i64..120).prop_map(|(prev, cut)| Cut { prev: LaneId(prev), cut }));
    (0u8..4, 0u8..4, 0i64..4, cut).prop_map(|(other_store, other_topic, lane, cut)| Mark {
        store: store(if other_store == 0 { "elsewhere" } else { "s" }),
        topic: topic(if other_topic == 0 { "former" } else { "t" }),
        lane: LaneId(lane),
        cut,
    })
}

fn rows() -> impl Strategy<Value = Row> {
    (0i64..4, option::of(0i64..120)).prop_map(|(open, drained)| Row { open: LaneId(open), drained })
}

fn seen() -> impl Strategy<Value = Seen> {
    let settled = (0i64..120, option::weighted(0.9, marks())).prop_map(|(position, mark)| Settled { position, mark });
    (option::of(0i64..120), option::of(settled), option::of(rows()), option::of(rows()), any::<[bool; 3]>()).prop_map(
        |(committed, settled, row, former, [open_elsewhere, latest, added_later])| Seen {
            committed,
            settled,
            row,
            former,
            open_elsewhere,
            reset: if latest { Reset::Latest } else { Reset::Earliest },
            added_later,
            ..nothing()
        },
    )
}

proptest! {
    #[test]
    fn a_start_lies_within_the_log(seen in seen()) {
        match decide(&seen) {
            Start::Continue { position, .. } | Start::NewLane { position, .. } => {
                prop_assert!((seen.log_start..=seen.log_end).contains(&position), "{position}");
            }
            Start::Halt(_) => {}
        }
    }

    /// Going on rests on all of it: both offsets, the store's open lane, the store and the topic themselves.
    #[test]
    fn it_goes_on_only_where_everything_agrees(seen in seen()) {
        if let Start::Continue { lane, position } = decide(&seen) {
            let settled = seen.settled.as_ref().expect("a settled offset");
            let mark = settled.mark.as_ref().expect("a mark");
            prop_assert_eq!((&mark.store, &mark.topic, mark.lane), (&seen.store, &seen.topic, lane));
            prop_assert_eq!(seen.row.map(|row| row.open), Some(lane));
            prop_assert_eq!(settled.position, position);
        }
    }

    /// A claim that may have been published is never released: what is released is of the lane that the settled offset
    /// (or a drain's record) speaks of and at or above it, or is carried on from its mark.
    #[test]
    fn only_what_is_known_to_be_unsettled_is_released(seen in seen()) {
        if let Start::NewLane { cut: Some(cut), .. } = decide(&seen) {
            let settled = seen.settled.as_ref();
            let of_settled = settled.and_then(|settled| {
                settled.mark.as_ref().map(|mark| Cut { prev: mark.lane, cut: settled.position })
            });
            let carried = settled.and_then(|settled| settled.mark.as_ref()?.cut);
            let drained = seen.row.or(seen.former).and_then(|row| Some(Cut { prev: row.open, cut: row.drained? }));
            let drained = drained.filter(|_| settled.is_none());
            prop_assert!([of_settled, carried, drained].contains(&Some(cut)), "{cut:?}");
        }
    }

    /// A lane that is left behind while it is open is cut at its settled position, so that nothing in doubt stays claimed.
    #[test]
    fn the_open_lane_that_settled_speaks_of_is_always_cut_there(seen in seen()) {
        let start = decide(&seen);
        let settled = seen.settled.as_ref();
        let mark = settled.and_then(|settled| settled.mark.as_ref());
        if let (Start::NewLane { cut, .. }, Some(settled), Some(mark)) = (start, settled, mark) {
            let open = if mark.topic == seen.topic {
                seen.row.is_some_and(|row| row.open == mark.lane)
            } else {
                seen.open_elsewhere
            };
            if open {
                prop_assert_eq!(cut, Some(Cut { prev: mark.lane, cut: settled.position }));
            }
        }
    }
}
