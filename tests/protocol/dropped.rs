//! Each rule of protocol.md dropped, one at a time: the search finds what it was there for.
//!
//! A row names the rule, what goes wrong without it and how, and the smallest world that shows it.

use std::time::Instant;

use crate::model::ending::Wrong;
use crate::model::faults::Faults;
use crate::model::shortest_wrong;
use crate::model::variants::Rule;
use crate::model::world::{A, B, Known, Log, Setup};

const TWO_ONE: Log = [&[A, B], &[A]];
const TWO_NONE: Log = [&[A, B], &[]];
const ONE_ONE: Log = [&[A], &[A]];
const ONE_NONE: Log = [&[A], &[]];

enum Goes {
    Lost,
    Doubled,
}
use Goes::*;

struct Row {
    dropped: &'static [Rule],
    goes: Goes,
    how: &'static str,
    world: Setup,
}

fn row(dropped: &'static [Rule], goes: Goes, how: &'static str, log: Log, faults: Faults) -> Row {
    Row { dropped, goes, how, world: Setup { dropped, faults, ..Setup::new(log) } }
}

fn check(rows: &[Row]) {
    for Row { dropped, goes, how, world } in rows {
        let begun = Instant::now();
        let counts = match goes {
            Lost => |wrong| matches!(wrong, Wrong::Lost(_)),
            Doubled => |wrong| matches!(wrong, Wrong::Doubled(_)),
        };
        let Some(found) = shortest_wrong(world, counts) else { panic!("not found, dropping {dropped:?}: {how}") };
        println!("{dropped:?}: {how}: {:?} in {} steps, {:.1?}", found.wrong, found.acts.len(), begun.elapsed());
        println!("    {:?}", found.acts);
    }
}

const NONE: Faults = Faults::NONE;
/// Two assignments in a row.
const HANDOVER: Faults = Faults { rebalances: 2, ..NONE };
const ONCE: Faults = Faults { rebalances: 1, ..NONE };

#[test]
fn rules_1_to_6() {
    check(&[
        row(
            &[Rule::StableFetch],
            Doubled,
            "the next owner reads the old offset while the transaction that moves it is still pending",
            ONE_NONE,
            HANDOVER,
        ),
        row(
            &[Rule::MetadataCaptured],
            Doubled,
            "a window of the old generation is sent under the new one, of which the client has heard meanwhile",
            ONE_ONE,
            HANDOVER,
        ),
        row(
            &[Rule::SeekAfterAbort],
            Lost,
            "the next window commits an offset beyond the aborted one",
            TWO_NONE,
            Faults { aborts: 1, ..ONCE },
        ),
        row(
            &[Rule::UnknownResolved],
            Doubled,
            "the window is sent again, and the first transaction commits after all",
            ONE_NONE,
            Faults { commits_unanswered: 1, ..ONCE },
        ),
        row(
            &[Rule::GenerationFence],
            Doubled,
            "a zombie commits its window after the new owner did",
            ONE_NONE,
            HANDOVER,
        ),
    ]);
}

#[test]
fn rule_7() {
    check(&[
        row(
            &[Rule::LanesNotWatermark],
            Doubled,
            "a window committed, nothing raised the watermark yet, and an operator moves back",
            ONE_ONE,
            Faults { moves: 1, ..HANDOVER },
        ),
        row(
            &[Rule::LanesNotWatermark],
            Lost,
            "an operator skips a claimed record that was not published: its other copy is dropped for its sake",
            ONE_ONE,
            Faults { moves: 1, skips: true, ..HANDOVER },
        ),
        row(
            &[Rule::LanesNotSettledAlone],
            Lost,
            "as with a watermark: nothing releases the claim that was skipped",
            ONE_ONE,
            Faults { moves: 1, skips: true, ..HANDOVER },
        ),
        row(
            &[Rule::OwnerToken],
            Lost,
            "an opening that was overtaken releases a claim that the new owner made meanwhile",
            ONE_ONE,
            Faults { moves: 2, skips: true, ..HANDOVER },
        ),
        row(
            &[Rule::KafkaStepFirst],
            Doubled,
            "a zombie releases what the owner is about to publish, and only then fails at Kafka",
            ONE_ONE,
            Faults { retentions: 1, ..HANDOVER },
        ),
        row(
            &[Rule::Release],
            Lost,
            "an operator skips a claimed record that was not published: its other copy is dropped for its sake",
            ONE_ONE,
            Faults { moves: 1, skips: true, ..HANDOVER },
        ),
        row(
            &[Rule::CutCarriedOn],
            Lost,
            "the Kafka step commits, the opening does not come to be, and the next owner forgets what to release",
            ONE_ONE,
            Faults { moves: 1, skips: true, ..HANDOVER },
        ),
        row(
            &[Rule::SettledSentFirst],
            Doubled,
            "an operator's move overtakes a window whose settled offset is sent only after the next owner fetched it",
            TWO_ONE,
            Faults { moves: 1, ..HANDOVER },
        ),
        row(
            &[Rule::SettledSentFirst, Rule::GroupFetchedFirst],
            Doubled,
            "settled is fetched before a window commits, the group's own offset after: its claims are released",
            TWO_ONE,
            HANDOVER,
        ),
    ]);
}
