//! Each rule dropped, one at a time: the search finds what it was there for.

use super::ending::Wrong;
use super::rules::Rule;
use super::world::{A, Event, Faults, Setup, Sink, World};
use crate::searching::goes_wrong;

const NONE: Faults = Faults::NONE;
const TWO: [usize; 2] = [0, 1];
const ONE: [usize; 2] = [0, 0];

#[derive(Debug, Clone, Copy)]
enum Goes {
    Lost,
    Doubled,
    Stuck,
}
use Goes::*;

struct Row {
    dropped: Rule,
    goes: Goes,
    how: &'static str,
    sink: Sink,
    slots: [usize; 2],
    queue: &'static [Event],
    faults: Faults,
}

fn check(rows: &[Row]) {
    for &Row { dropped, goes, how, sink, slots, queue, faults } in rows {
        let counts = match goes {
            Lost => |wrong| matches!(wrong, Wrong::Lost(_)),
            Doubled => |wrong| matches!(wrong, Wrong::Doubled(_)),
            Stuck => |wrong| wrong == Wrong::Stuck,
        };
        let setup = Setup { sink, slots, queue, window: 2, faults, dropped: Some(dropped) };
        goes_wrong::<World>(&setup, counts, how);
    }
}

const TWICE: &[Event] = &[A, A];

fn row(
    dropped: Rule,
    goes: Goes,
    how: &'static str,
    (sink, slots, queue): (Sink, [usize; 2], &'static [Event]),
    faults: Faults,
) -> Row {
    Row { dropped, goes, how, sink, slots, queue, faults }
}

#[test]
fn of_claims() {
    check(&[
        row(
            Rule::GoneIsAskedAgain,
            Lost,
            "the holder released it without publishing, and its caller does not come again",
            (Sink::Transactional, TWO, TWICE),
            Faults { refused: 1, gone: 1, ..NONE },
        ),
        row(
            Rule::InFlightNotAcknowledged,
            Lost,
            "the holder never publishes it",
            (Sink::Transactional, TWO, TWICE),
            NONE,
        ),
        row(
            Rule::AckAfterKnownCommit,
            Lost,
            "the transaction aborted after all",
            (Sink::Transactional, ONE, &[A]),
            Faults { unknown: 1, takeovers: 1, ..NONE },
        ),
        row(Rule::IdleFlush, Stuck, "the other copy is in flight for ever", (Sink::Transactional, TWO, TWICE), NONE),
    ]);
}

#[test]
fn of_unknown_outcomes() {
    check(&[
        row(
            Rule::UnknownReserveCuts,
            Stuck,
            "its own claim of the first try is in its way for ever",
            (Sink::Transactional, ONE, &[A]),
            Faults { lost: 1, ..NONE },
        ),
        row(
            Rule::ReleaseBounded,
            Doubled,
            "a release that lands late deletes the claim of a later window, and the other copy is claimed",
            (Sink::Plain, TWO, TWICE),
            Faults { refused: 1, late: 1, ..NONE },
        ),
        row(
            Rule::ReleaseRepeated,
            Stuck,
            "claims that were never released are in flight for ever",
            (Sink::Transactional, TWO, &[A]),
            Faults { refused: 1, late: 1, ..NONE },
        ),
    ]);
}

#[test]
fn of_takeovers() {
    let transactional = (Sink::Transactional, ONE, TWICE);
    check(&[
        row(
            Rule::StartWaits,
            Doubled,
            "the run before publishes what its successor has released",
            (Sink::Plain, ONE, TWICE),
            Faults { takeovers: 1, ..NONE },
        ),
        row(
            Rule::StealOnlyLapsed,
            Doubled,
            "the holder publishes what another has released",
            (Sink::Plain, TWO, TWICE),
            Faults { takeovers: 1, ..NONE },
        ),
        row(
            Rule::ProducerInitialised,
            Doubled,
            "the run before commits after its claims were released",
            transactional,
            Faults { takeovers: 1, ..NONE },
        ),
        row(
            Rule::RowReadAgain,
            Doubled,
            "the cut is that of a lane which another has closed since",
            transactional,
            Faults { crashes: 1, takeovers: 3, ..NONE },
        ),
        row(
            Rule::KafkaStepFirst,
            Stuck,
            "the store has a lane open of which Kafka has never heard",
            transactional,
            Faults { crashes: 1, takeovers: 2, ..NONE },
        ),
        row(
            Rule::OpenGuarded,
            Doubled,
            "an overtaken takeover closes the lane of its successor",
            transactional,
            Faults { late: 1, crashes: 1, takeovers: 3, ..NONE },
        ),
        row(
            Rule::RecordedCutUsed,
            Doubled,
            "what the lane before had committed is released",
            transactional,
            Faults { crashes: 1, takeovers: 2, ..NONE },
        ),
    ]);
}
