use super::*;
use crate::protocol::lane::Holder;
use crate::protocol::slot::{Conflicting, LaneSeen};

const ME: Coordinate = Coordinate { lane: LaneId(1), position: 5 };

fn held(lane: i64, position: Position, settled: Position, (open, lapsed): (bool, bool)) -> Answer {
    let holder = Holder { lane: Some(LaneId(lane)), position };
    Answer::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled, open, lapsed }) }))
}

#[test]
fn what_an_answer_means() {
    const RUNS: (bool, bool) = (true, false);
    let without_lane = Holder { lane: None, position: 9 };
    let [take, sweep] = [Remedy::TakeOver(LaneId(2)), Remedy::Sweep(LaneId(2))].map(Wait::Remedy);
    let cases = [
        (Answer::Inserted, Judged::Publish { again: false }, "claimed just now"),
        (held(1, 5, 5, RUNS), Judged::Publish { again: true }, "its own claim, not settled"),
        (held(1, 5, 6, RUNS), Judged::Duplicate, "its own claim, settled: read again after a move back"),
        (held(1, 3, 5, RUNS), Judged::Duplicate, "an earlier message of this lane"),
        (held(2, 7, 8, RUNS), Judged::Duplicate, "another's, settled"),
        (held(2, 7, 7, RUNS), Judged::InFlight(Wait::Holder), "another's, at work"),
        (held(2, 7, 7, (true, true)), Judged::InFlight(take), "another's that is gone"),
        (held(2, 7, 7, (false, false)), Judged::InFlight(Wait::Holder), "left in doubt, its lease runs"),
        (held(2, 7, 7, (false, true)), Judged::InFlight(sweep), "left in doubt"),
        (Answer::InTheWay(None), Judged::InFlight(Wait::Gone), "gone before it was read: no duplicate"),
        (
            Answer::InTheWay(Some(Conflicting { holder: without_lane, lane: None })),
            Judged::Duplicate,
            "without a lane: settled for ever",
        ),
    ];
    for (answer, right, why) in cases {
        assert_eq!(judge_answer(answer, ME), right, "{why}");
    }
}

#[test]
fn a_window_goes_as_far_as_what_is_in_flight() {
    let (new, dup) = (Some(Judged::Publish { again: false }), Some(Judged::Duplicate));
    let own = Some(Judged::Publish { again: true });
    let wait = Some(Judged::InFlight(Wait::Holder));
    let all = |length| Front { length, wait: None, give_back: vec![] };
    let until = |length, give_back| Front { length, wait: Some(Wait::Holder), give_back };
    let cases: [(&[Option<Judged>], Front, &str); 5] = [
        (&[new, dup, None, own], all(4), "to its end"),
        (&[], all(0), "empty"),
        (&[new, wait, dup, None], until(1, vec![]), "nothing is claimed behind it"),
        (&[wait, new, wait, None, own, dup], until(0, vec![1, 4]), "claims behind it are given back, old ones too"),
        (&[new, own, wait], until(2, vec![]), "those before it go on"),
    ];
    for (judged, right, why) in cases {
        assert_eq!(front(judged), right, "{why}");
    }
}

#[test]
fn where_a_start_is() {
    let lane = LaneId(7);
    let seen = |committed, open| Seen {
        committed,
        open,
        log_start: 10,
        log_end: 50,
        reset: Reset::Latest,
        added_later: false,
        made_anew: false,
    };
    let anew = |position, settled: Option<Position>, why| Start::NewLane {
        position,
        cut: settled.map(|cut| Cut { prev: lane, cut }),
        why,
    };
    let at = |settled| Some((lane, settled));
    let cases = [
        (seen(Some(20), at(20)), Start::Continue { lane, position: 20 }, "as it was left"),
        (seen(Some(15), at(20)), anew(15, Some(20), Why::Rewind), "moved back, or the commit is behind"),
        (seen(Some(30), at(20)), anew(30, Some(20), Why::Skip), "moved forward"),
        (seen(None, at(20)), Start::Continue { lane, position: 20 }, "the group's offset expired"),
        (seen(None, at(5)), anew(10, Some(5), Why::Retention), "and the log begins later"),
        (seen(Some(5), at(5)), anew(10, Some(5), Why::Retention), "retention overtook the group"),
        (seen(Some(60), at(60)), anew(10, Some(60), Why::Truncated), "the log lost its tail"),
        (seen(None, None), anew(50, None, Why::FirstStart), "nobody has read it, latest"),
        (Seen { added_later: true, ..seen(None, None) }, anew(10, None, Why::FirstStart), "a partition added later"),
        (Seen { reset: Reset::Earliest, ..seen(None, None) }, anew(10, None, Why::FirstStart), "earliest"),
        (seen(Some(20), None), anew(20, None, Why::Adoption), "a group of before"),
        (
            Seen { made_anew: true, ..seen(Some(20), None) },
            anew(10, None, Why::TopicMadeAnew),
            "the offset is of another log",
        ),
    ];
    for (seen, right, why) in cases {
        assert_eq!(start(&seen), right, "{why}");
    }
}
