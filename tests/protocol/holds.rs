//! The protocol holds in every small world that is searched.

use std::time::Instant;

use crate::model::faults::Faults;
use crate::model::search;
use crate::model::world::{A, B, Setup};

#[test]
fn crashes_rebalances_and_unknown_outcomes() {
    let faults = Faults { crashes: 1, rebalances: 2, commits_unanswered: 1, aborts: 1, ..Faults::NONE };
    holds(&Setup { faults, ..Setup::new([&[A, B], &[A]]) });
}

fn holds(setup: &Setup) {
    let begun = Instant::now();
    match search(setup) {
        Ok(states) => println!("{states} states, {:.1?}", begun.elapsed()),
        Err(found) => panic!("{:?} after {:#?}", found.wrong, found.acts),
    }
}
