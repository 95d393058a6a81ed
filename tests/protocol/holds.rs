//! The protocol holds in every small world that is searched, each to its last state.
//!
//! `SEMEL_TEST_FULL=1` searches wider worlds of the same kinds: more faults in one history, larger windows.

use std::time::Instant;

use crate::model::faults::Faults;
use crate::model::search;
use crate::model::world::{A, B, Begins, C, Known, Log, Setup};
use crate::searching::full;

const TWO_ONE: Log = [&[A, B], &[A]];
const ONE_ONE: Log = [&[A], &[A]];
/// An event twice on one lane.
const REPEATED: Log = [&[A, A], &[A]];

/// Two assignments, and a crash between any two steps or with statements under way.
const NONE: Faults = Faults::NONE;
const CRASH: Faults = Faults { rebalances: 2, crashes: 1, ..NONE };
/// And an operator moves the group's own offset once, back or forward.
const MOVED: Faults = Faults { moves: 1, skips: true, ..CRASH };

fn holds(setup: &Setup) {
    let begun = Instant::now();
    match search(setup) {
        Ok(states) => println!("{states} states in {:.1?}", begun.elapsed()),
        Err(found) => panic!("{:?} after {:?}", found.wrong, found.acts),
    }
}

#[test]
fn where_answers_are_lost_and_transactions_abort() {
    let faults = Faults { commits_unanswered: 1, aborts: 1, ..CRASH };
    holds(&Setup { faults, ..Setup::new(TWO_ONE) });
    let faults = Faults { claims_unanswered: 1, ..CRASH };
    holds(&Setup { faults, ..Setup::new(REPEATED) });
    if full() {
        let faults = Faults { commits_unanswered: 1, aborts: 1, claims_unanswered: 1, ..CRASH };
        holds(&Setup { faults, ..Setup::new(TWO_ONE) });
    }
}

#[test]
fn where_an_operator_moves_offsets() {
    holds(&Setup { faults: MOVED, ..Setup::new(TWO_ONE) });
    holds(&Setup { faults: Faults { moves: 2, ..MOVED }, ..Setup::new(ONE_ONE) });
    if full() {
        holds(&Setup { faults: Faults { moves: 2, ..MOVED }, ..Setup::new(TWO_ONE) });
    }
}

#[test]
fn where_retention_overtakes_the_group() {
    holds(&Setup { faults: Faults { retentions: 1, ..MOVED }, ..Setup::new(ONE_ONE) });
}

#[test]
fn where_two_windows_overlap() {
    let overlap = |faults| Setup { windows: 2, records: 1, faults, ..Setup::new(TWO_ONE) };
    holds(&overlap(Faults { commits_unanswered: 1, aborts: 1, ..CRASH }));
    holds(&overlap(MOVED));
    if full() {
        let faults = Faults { commits_unanswered: 1, aborts: 1, claims_unanswered: 1, ..CRASH };
        holds(&Setup { known: Known::Committed, ..overlap(faults) });
    }
}

#[test]
fn where_known_ids_need_no_question() {
    for known in [Known::Committed, Known::Claimed] {
        holds(&Setup { known, faults: Faults { aborts: 1, ..MOVED }, ..Setup::new(ONE_ONE) });
    }
}

#[test]
fn where_the_broker_refuses_a_record() {
    let faults = Faults { rebalances: 2, claims_unanswered: 1, heals: 1, ..NONE };
    holds(&Setup { faults, windows: 2, records: 1, refused: &[(0, 0)], ..Setup::new(ONE_ONE) });
    if full() {
        let faults = Faults { claims_unanswered: 1, heals: 1, ..CRASH };
        holds(&Setup { faults, refused: &[(0, 0)], ..Setup::new(TWO_ONE) });
    }
}

#[test]
fn from_the_first_start_through_drains_and_lost_offsets() {
    let faults = Faults { own_lost: 1, settled_lost: 1, drains: 1, ..CRASH };
    holds(&Setup { begins: Begins::Never, faults, ..Setup::new(ONE_ONE) });
    holds(&Setup { begins: Begins::Adopted, faults: MOVED, ..Setup::new(ONE_ONE) });
    if full() {
        holds(&Setup { faults: Faults { moves: 1, skips: true, ..faults }, ..Setup::new(ONE_ONE) });
    }
}

#[test]
fn where_the_topic_or_the_database_is_another() {
    let log_anew: Log = [&[C, A], &[B]];
    for offsets_go in [false, true] {
        let faults = Faults { topics_anew: 1, offsets_go, ..CRASH };
        holds(&Setup { faults, log_anew, ..Setup::new(TWO_ONE) });
    }
    holds(&Setup { faults: Faults { new_stores: 1, ..CRASH }, ..Setup::new(TWO_ONE) });
}
