//! Kafka into a sink without transactions (RabbitMQ, NATS, a file): the settled position is kept in the store.
//!
//! A lane belongs to a partition as it does with Kafka behind it, but nothing moves with the output. So the order is:
//! publish, to its confirm; settle, guarded by the owner's token; then commit the group's offset, which is only where
//! to start. The other order loses. An own claim that is not settled is published again, whether or not it was
//! published: a second copy comes only after a crash or a handover between publish and settle.
//!
//! A window goes as far as its first message whose event is somebody's work in flight: nothing behind that is settled
//! before it is, or it would be passed over. And nothing behind it stays claimed: its holder may wait for just that, and
//! neither would ever settle.

use super::instance::{Answer, Remedy};
use super::lane::{Coordinate, Cut, LaneId, Position};
use super::slot::{Conflict, Mine, judge_conflict};
use super::start::{Reset, Why, within_log};

/// A claim that was in the way, and its lane's settled position, as one statement read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    pub by: Coordinate,
    pub settled: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settling {
    /// Claimed just now, or claimed here before and not settled.
    Publish,
    /// Settled: drop.
    Duplicate,
    /// Somebody's work that is not settled: nothing behind it may be settled before it is.
    InFlight,
}

/// `held`: none where the claim was made just now.
pub fn judge_settling(held: Option<Held>, me: Coordinate) -> Settling {
    match held {
        None => Settling::Publish,
        Some(Held { by, settled }) if by.position < settled => Settling::Duplicate,
        Some(Held { by, .. }) if by == me => Settling::Publish,
        Some(_) => Settling::InFlight,
    }
}

/// What a message whose event is in flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// That its holder settles it, or is gone for good.
    Holder,
    /// Nothing: the claim was gone by the time that it was read. Ask again.
    Gone,
    /// That what an instance left behind is taken from it.
    Remedy(Remedy),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judged {
    /// `again`: its own claim stood already.
    Publish {
        again: bool,
    },
    Duplicate,
    InFlight(Wait),
}

/// What an answer of the store means for the message at `me`, which asked.
pub fn judge_answer(answer: Answer, me: Coordinate) -> Judged {
    let found = match answer {
        Answer::Inserted => return Judged::Publish { again: false },
        Answer::InTheWay(None) => return Judged::InFlight(Wait::Gone),
        Answer::InTheWay(Some(found)) => found,
    };
    // A claim without a lane is settled for ever.
    let (Some(lane), Some(seen)) = (found.holder.lane, found.lane) else { return Judged::Duplicate };
    let by = Coordinate { lane, position: found.holder.position };
    match judge_settling(Some(Held { by, settled: seen.settled }), me) {
        Settling::Publish => Judged::Publish { again: true },
        Settling::Duplicate => Judged::Duplicate,
        Settling::InFlight => {
            Judged::InFlight(match judge_conflict(Some(found), Mine { lane: me.lane, committed: Position::MIN }) {
                Conflict::TakeOver(lane) => Wait::Remedy(Remedy::TakeOver(lane)),
                Conflict::LeftBehind(lane) => Wait::Remedy(Remedy::Sweep(lane)),
                Conflict::Duplicate | Conflict::InFlight | Conflict::Gone => Wait::Holder,
            })
        }
    }
}

/// How far a window goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// So many messages may be published and settled.
    pub length: usize,
    /// What the next one waits for; none where the window goes on to its end.
    pub wait: Option<Wait>,
    /// Messages behind it whose claims are given back.
    pub give_back: Vec<usize>,
}

/// `judged`: of each message in the order of the log; none for one that needs no claim, or shares that of an earlier one.
pub fn front(judged: &[Option<Judged>]) -> Front {
    let in_flight = judged.iter().enumerate().find_map(|(n, judged)| match judged {
        Some(Judged::InFlight(wait)) => Some((n, *wait)),
        _ => None,
    });
    let Some((length, wait)) = in_flight else {
        return Front { length: judged.len(), wait: None, give_back: Vec::new() };
    };
    let claimed = |n: &usize| matches!(judged[*n], Some(Judged::Publish { .. }));
    Front { length, wait: Some(wait), give_back: (length..judged.len()).filter(claimed).collect() }
}

/// What a start at `start` releases: where it is not at the settled position, in whichever direction, somebody moved the
/// reader, the topic was made anew, or the group's commit is behind. Then a new lane goes on from `start`, not from the
/// larger of the two: a topic made anew would lose what it has below.
pub fn cut_at_start(open: LaneId, settled: Position, start: Position) -> Option<Cut> {
    (start != settled).then_some(Cut { prev: open, cut: settled })
}

/// What is seen of a partition at an assignment, once its token is written: from then on nobody else settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The group's offset, fetched stable.
    pub committed: Option<Position>,
    /// The stream's open lane and how far it is settled.
    pub open: Option<(LaneId, Position)>,
    /// First offset and next offset of the partition's log.
    pub log_start: Position,
    pub log_end: Position,
    pub reset: Reset,
    /// Another partition of the topic was read by this group before: this one was added later.
    pub added_later: bool,
    /// The store knows this partition by another id of its topic, and not by this one: its offsets speak of another log.
    pub made_anew: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// Read on at `position` on the open lane.
    Continue { lane: LaneId, position: Position },
    /// Release what the cut names, and open a lane that begins, settled, at `position`.
    NewLane { position: Position, cut: Option<Cut>, why: Why },
}

/// Where to read on. Pure.
pub fn start(seen: &Seen) -> Start {
    let log = (seen.log_start, seen.log_end);
    let Some((open, settled)) = seen.open else {
        let latest = seen.reset == Reset::Latest && !seen.added_later;
        let (position, why) = match seen.committed {
            _ if seen.made_anew => (seen.log_start, Why::TopicMadeAnew),
            Some(committed) => (within_log(committed, log).0, Why::Adoption),
            None => (if latest { seen.log_end } else { seen.log_start }, Why::FirstStart),
        };
        return Start::NewLane { position, cut: None, why };
    };
    // The group's offset was deleted or expired: go on from settled.
    let (position, moved) = within_log(seen.committed.unwrap_or(settled), log);
    match cut_at_start(open, settled, position) {
        None => Start::Continue { lane: open, position },
        cut => {
            let why = if position < settled { Why::Rewind } else { Why::Skip };
            Start::NewLane { position, cut, why: moved.unwrap_or(why) }
        }
    }
}

#[cfg(test)]
#[path = "settled_tests.rs"]
mod tests;
