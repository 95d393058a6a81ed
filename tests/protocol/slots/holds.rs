//! The rules hold in every small world that is searched, each to its last state.
//!
//! `SEMEL_TEST_FULL=1` searches wider worlds of the same kinds.

use super::world::{A, B, Faults, Setup, Sink, World};
use crate::searching::{self, full};

const NONE: Faults = Faults::NONE;
/// Two instances, or the second a later run of the first.
const TWO: [usize; 2] = [0, 1];
const ONE: [usize; 2] = [0, 0];

fn holds(sink: Sink, slots: [usize; 2], faults: Faults) {
    searching::holds::<World>(&Setup { sink, slots, queue: &[A, A], window: 1, faults, dropped: None });
}

const CRASH: Faults = Faults { crashes: 1, takeovers: 2, lapses: 1, ..NONE };

/// What may go wrong with either kind of sink, and with this one.
fn holds_with(sink: Sink, of_sink: &[Faults], of_sink_in_full: Faults) {
    for slots in [TWO, ONE] {
        holds(sink, slots, CRASH);
        holds(sink, slots, Faults { lost: 1, takeovers: 2, lapses: 1, ..NONE });
        holds(sink, slots, Faults { late: 1, takeovers: 2, lapses: 1, ..NONE });
        holds(sink, slots, Faults { refused: 1, lost: 1, late: 1, takeovers: 1, ..NONE });
        holds(sink, slots, Faults { cuts: 1, acks_lost: 1, ..CRASH });
        holds(sink, slots, Faults { refused: 1, gone: 1, ..CRASH });
        of_sink.iter().for_each(|faults| holds(sink, slots, *faults));
        if full() {
            holds(sink, slots, of_sink_in_full);
            holds(sink, slots, Faults { lost: 1, late: 1, takeovers: 3, ..CRASH });
        }
    }
}

#[test]
fn with_transactions() {
    let unknown = Faults { unknown: 1, takeovers: 2, lapses: 1, ..NONE };
    holds_with(Sink::Transactional, &[unknown], Faults { unknown: 1, late: 1, ..CRASH });
}

#[test]
fn without_transactions() {
    let doubt = Faults { doubts: 1, takeovers: 2, lapses: 1, ..NONE };
    let unanswered = Faults { doubts: 1, lost: 1, late: 1, takeovers: 2, ..NONE };
    holds_with(Sink::Plain, &[doubt, unanswered], Faults { doubts: 1, late: 1, ..CRASH });
}

/// Two events in one window: what comes before a failure is kept, what comes after is released.
#[test]
fn windows_of_two() {
    let window = |sink, faults| {
        searching::holds::<World>(&Setup { sink, slots: TWO, queue: &[A, B, A], window: 2, faults, dropped: None });
    };
    window(Sink::Plain, Faults { refused: 1, lost: 1, takeovers: 1, ..NONE });
    window(Sink::Plain, Faults { doubts: 1, takeovers: 1, ..NONE });
    window(Sink::Transactional, Faults { refused: 1, lost: 1, takeovers: 1, ..NONE });
    window(Sink::Transactional, Faults { unknown: 1, takeovers: 1, ..NONE });
}
