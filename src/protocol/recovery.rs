//! What the operator's word makes of a halt: `semel recover`.
//!
//! A halted partition has no cut: nothing tells which claims of its lane were settled. So none of them is released. The
//! partition goes on at the group's own offset on a new lane, on which every earlier claim is foreign: what was
//! forwarded stays a duplicate, and so does what was claimed and not forwarded. That window may be lost, and nothing
//! doubles, as long as the claims are those of this store.

use super::lane::Position;
use super::start::{Halt, Seen, Start, bounded, decide};

/// Where a halted partition goes on, on a lane without a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    pub halt: Halt,
    pub position: Position,
    /// The group's own offset is missing, or cannot be read from: it is set too. Otherwise it is left alone.
    pub moves_own: bool,
}

/// None where the start is no halt: nothing is to be recovered. Pure.
pub fn recovered(seen: &Seen) -> Option<Recovered> {
    let Start::Halt(halt) = decide(seen) else { return None };
    let readable = |position| bounded(position, seen).0;
    // A settled offset of Semel's own counts, whatever store it speaks of; one that somebody else wrote does not.
    let mark = seen.settled.as_ref().and_then(|settled| Some((settled.position, settled.mark.as_ref()?)));
    let position = match (mark, seen.committed) {
        // The lane is that of a log that is gone.
        _ if seen.row.is_none() && seen.former.is_some() => seen.log_start,
        // Both offsets speak of a log that is gone.
        (Some((_, mark)), _) if mark.topic != seen.topic => seen.log_start,
        (_, Some(committed)) => readable(committed),
        (Some((settled, _)), None) => readable(settled),
        // Nothing says where the group was: its claims tell what of the whole log it has seen.
        (None, None) => seen.log_start,
    };
    Some(Recovered { halt, position, moves_own: seen.committed != Some(position) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::lane::{LaneId, Mark, StoreId, TopicId};
    use crate::protocol::start::{Reset, Row, Settled};

    fn mark(store: &str, topic: &str) -> Option<Mark> {
        Some(Mark { store: StoreId(store.into()), topic: TopicId(topic.into()), lane: LaneId(7), cut: None })
    }

    /// A log from 10 to 100, read by a group whose lane 7 is open.
    fn seen(committed: Option<Position>, settled: Option<(Position, Option<Mark>)>) -> Seen {
        Seen {
            committed,
            settled: settled.map(|(position, mark)| Settled { position, mark }),
            row: Some(Row { open: LaneId(7), drained: None }),
            open_elsewhere: false,
            former: None,
            store: StoreId("here".into()),
            topic: TopicId("t".into()),
            log_start: 10,
            log_end: 100,
            reset: Reset::Earliest,
            added_later: false,
        }
    }

    #[test]
    fn where_a_halted_partition_goes_on() {
        let (missing, foreign, other) =
            (Halt::SettledMissing { open: LaneId(7) }, Halt::SettledForeign, Halt::OtherStore);
        let cases = [
            (seen(Some(50), None), Some((missing, 50, false)), "settled is gone: from the group's own offset"),
            (seen(Some(5), None), Some((missing, 10, true)), "retention overtook the group"),
            (seen(Some(200), None), Some((missing, 10, true)), "the log lost its tail"),
            (seen(None, None), Some((missing, 10, true)), "both are gone: the claims tell what was seen"),
            (seen(Some(50), Some((40, None))), Some((foreign, 50, false)), "somebody's settled offset is not believed"),
            (seen(None, Some((40, None))), Some((foreign, 10, true)), "not even where it stands alone"),
            (seen(Some(50), Some((50, mark("there", "t")))), Some((other, 50, false)), "claims in another store"),
            (seen(Some(30), Some((50, mark("there", "t")))), Some((other, 30, false)), "the operator moved it too"),
            (seen(None, Some((50, mark("there", "t")))), Some((other, 50, true)), "settled moved with the output"),
            (seen(Some(50), Some((50, mark("there", "u")))), Some((other, 10, true)), "offsets of a log that is gone"),
            (seen(Some(50), Some((50, mark("here", "t")))), None, "it goes on by itself"),
            (seen(Some(30), Some((50, mark("here", "t")))), None, "a rewind is a discontinuity, not a halt"),
            (Seen { row: None, ..seen(Some(50), None) }, None, "adoption"),
            (
                Seen { row: None, former: Some(Row { open: LaneId(7), drained: None }), ..seen(Some(50), None) },
                Some((missing, 10, true)),
                "the topic was made anew after a crash: its new log is read whole",
            ),
            (
                Seen { row: Some(Row { open: LaneId(7), drained: Some(50) }), ..seen(None, None) },
                None,
                "the drain recorded where it was",
            ),
        ];
        for (seen, right, why) in cases {
            let found = recovered(&seen).map(|found| (found.halt, found.position, found.moves_own));
            assert_eq!(found, right, "{why}");
        }
    }
}
