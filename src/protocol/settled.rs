//! Kafka into a sink without transactions (RabbitMQ, NATS, a file): the settled position is kept in the store.
//!
//! A lane belongs to a partition as it does with Kafka behind it, but nothing moves with the output. So the order is:
//! publish, to its confirm; settle, guarded by the owner's token; then commit the group's offset, which is only where
//! to start. The other order loses. An own claim that is not settled is published again, whether or not it was
//! published: a second copy comes only after a crash or a handover between publish and settle.

use super::lane::{Coordinate, Cut, LaneId, Position};

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

/// What a start at `start` releases: where it is not at the settled position, in whichever direction, somebody moved the
/// reader, the topic was made anew, or the group's commit is behind. Then a new lane goes on from `start`, not from the
/// larger of the two: a topic made anew would lose what it has below.
pub fn cut_at_start(open: LaneId, settled: Position, start: Position) -> Option<Cut> {
    (start != settled).then_some(Cut { prev: open, cut: settled })
}
