//! Claims in the way and cuts, row by row.

use semel::protocol::lane::{Coordinate, Cut, Holder, LaneId};
use semel::protocol::settled::{Held, Settling, cut_at_start, judge_settling};
use semel::protocol::slot::{Conflict, Conflicting, LaneSeen, Mine, SlotSeen, Truth, Unknown, cut_of, judge_conflict};

const MINE: LaneId = LaneId(1);
const OTHER: LaneId = LaneId(2);

#[test]
fn a_claim_in_the_way() {
    let on = |lane, position, (settled, open, lapsed)| {
        let holder = Holder { lane: Some(lane), position };
        Some(Conflicting { holder, lane: Some(LaneSeen { settled, open, lapsed }) })
    };
    let laneless = Some(Conflicting { holder: Holder { lane: None, position: 9 }, lane: None });
    let cases = [
        (None, Conflict::Gone, "released without a publish: no duplicate"),
        (laneless, Conflict::Duplicate, "a try claim is settled for ever"),
        (on(OTHER, 4, (5, true, false)), Conflict::Duplicate, "below another's settled position"),
        (on(OTHER, 4, (5, false, true)), Conflict::Duplicate, "settled on a lane that is closed and over"),
        (on(OTHER, 5, (5, true, false)), Conflict::InFlight, "another's work, its lease running"),
        (on(OTHER, 5, (5, true, true)), Conflict::TakeOver(OTHER), "another's work, its lease over"),
        (on(OTHER, 5, (5, false, false)), Conflict::InFlight, "left in doubt, its lease running"),
        (on(OTHER, 5, (5, false, true)), Conflict::LeftBehind(OTHER), "left in doubt, its lease over"),
        (on(MINE, 6, (5, true, false)), Conflict::Duplicate, "known to be done here, the store does not know yet"),
        (on(MINE, 7, (5, true, false)), Conflict::InFlight, "in this very window"),
        (on(MINE, 7, (5, true, true)), Conflict::InFlight, "nobody takes over from himself"),
    ];
    for (found, right, why) in cases {
        assert_eq!(judge_conflict(found, Mine { lane: MINE, committed: 7 }), right, "{why}");
    }
}

#[test]
fn a_cut() {
    let slot = |mirror, claimed_above| SlotSeen { open: OTHER, mirror, claimed_above };
    let truth = |lane, settled, cut| Some(Truth { lane, settled, cut });
    let at = |cut| Ok(Cut { prev: OTHER, cut });
    let unknown = Err(Unknown { open: OTHER });
    let recorded = |prev, cut| Some(Cut { prev, cut });
    let cases = [
        (slot(3, true), truth(OTHER, 8, None), at(8), "what Kafka has settled on the open lane, not the mirror"),
        (
            slot(3, true),
            truth(MINE, 1, recorded(OTHER, 6)),
            at(6),
            "a lane that the store never opened records its cut",
        ),
        (slot(3, true), truth(MINE, 1, recorded(MINE, 6)), unknown, "a record of another lane"),
        (slot(3, true), truth(MINE, 1, None), unknown, "a lane that nobody knows"),
        (slot(3, false), None, at(3), "nothing is claimed above the mirror"),
        (slot(3, true), None, unknown, "the offset is gone, and claims are in doubt"),
    ];
    for (slot, truth, right, why) in cases {
        assert_eq!(cut_of(slot, truth), right, "{why}");
    }
}

#[test]
fn settled_in_the_store() {
    let at = |lane, position| Coordinate { lane, position };
    let held = |by, settled| Some(Held { by, settled });
    let cases = [
        (None, Settling::Publish, "claimed just now"),
        (held(at(MINE, 4), 4), Settling::Publish, "its own claim, not settled: published or not"),
        (held(at(MINE, 4), 5), Settling::Duplicate, "its own claim, settled"),
        (held(at(MINE, 3), 3), Settling::InFlight, "another position of the lane, not settled"),
        (held(at(OTHER, 4), 9), Settling::Duplicate, "another's, settled"),
        (held(at(OTHER, 4), 4), Settling::InFlight, "another's, not settled"),
    ];
    for (held, right, why) in cases {
        assert_eq!(judge_settling(held, at(MINE, 4)), right, "{why}");
    }
    let cut = Some(Cut { prev: MINE, cut: 5 });
    for (start, right, why) in [(5, None, "where it left off"), (3, cut, "moved back"), (8, cut, "moved forward")] {
        assert_eq!(cut_at_start(MINE, 5, start), right, "{why}");
    }
}
