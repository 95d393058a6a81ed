//! Lanes of an instance, for sources whose messages have no offsets (RabbitMQ, NATS, HTTP).
//!
//! A *slot* is a pipeline's instance by its stable name. Each run of it draws a token, takes the slot, and opens a lane
//! of its own; positions on it are the run's own count and are never used twice. Everything below the lane's *settled*
//! position is done. With a sink without transactions the store's settled position is the truth; with Kafka the truth is
//! the offset that the window's own transaction committed, and the store's is a mirror that is never above it.
//!
//! Whether a claim that is in the way is done, is somebody's work, or is nobody's any more, is decided here, from the
//! claim and its lane as *one* read found them. Only what is surely done may be acknowledged: an event that another run
//! holds comes back later, and one whose holder is gone for good is taken over.

use super::lane::{Cut, Holder, LaneId, Position};

/// A lane of an instance, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneSeen {
    pub settled: Position,
    pub open: bool,
    /// Its lease has run out, by the store's clock.
    pub lapsed: bool,
}

/// A claim that was in the way, and its lane, as one statement read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conflicting {
    pub holder: Holder,
    /// None for a claim without a lane. Lane rows outlive their claims.
    pub lane: Option<LaneSeen>,
}

/// What this run knows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mine {
    pub lane: LaneId,
    /// Everything below is known to be done: by a commit in Kafka, or, with a sink without transactions, by a settled
    /// position that the store has answered.
    pub committed: Position,
}

/// What becomes of a message whose event is claimed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// Done: acknowledge.
    Duplicate,
    /// Somebody's work: not acknowledged, it comes back later.
    InFlight,
    /// The holder's run is over and its lane still open: take its slot, then reserve again.
    TakeOver(LaneId),
    /// Left in doubt on a closed lane whose lease is over: delete it under the lane's lock, then reserve again.
    LeftBehind(LaneId),
    /// Nobody holds it any more: reserve again. It is no duplicate: its holder released it without publishing.
    Gone,
}

/// `found`: none where the claim was gone by the time that it was read.
pub fn judge_conflict(found: Option<Conflicting>, mine: Mine) -> Conflict {
    let Some(Conflicting { holder, lane }) = found else { return Conflict::Gone };
    let (Some(id), Some(lane)) = (holder.lane, lane) else { return Conflict::Duplicate };
    if holder.position < lane.settled {
        return Conflict::Duplicate;
    }
    if id == mine.lane {
        return if holder.position < mine.committed { Conflict::Duplicate } else { Conflict::InFlight };
    }
    match (lane.open, lane.lapsed) {
        (_, false) => Conflict::InFlight,
        (true, true) => Conflict::TakeOver(id),
        (false, true) => Conflict::LeftBehind(id),
    }
}

/// What Kafka says of a slot, fetched stable after its producer was initialised: the offset of the slot's own group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Truth {
    pub lane: LaneId,
    pub settled: Position,
    pub cut: Option<Cut>,
}

/// What the store says of a slot, read after its producer was initialised and under this run's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotSeen {
    pub open: LaneId,
    /// The mirror of the open lane's settled position.
    pub mirror: Position,
    /// A claim lies at or above the mirror.
    pub claimed_above: bool,
}

/// Nothing says where the open lane left off: an operator's word is needed, since a guess would lose or double.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("nothing says how far lane {open} was published")]
pub struct Unknown {
    pub open: LaneId,
}

/// From where on the claims of the open lane are released, when its slot is taken over.
///
/// A run that committed its own lane in Kafka and died before the store heard of it has recorded where the lane before
/// it, which the store still has open, left off.
pub fn cut_of(slot: SlotSeen, truth: Option<Truth>) -> Result<Cut, Unknown> {
    let at = |cut| Ok(Cut { prev: slot.open, cut });
    match truth {
        Some(truth) if truth.lane == slot.open => at(truth.settled),
        Some(Truth { cut: Some(Cut { prev, cut }), .. }) if prev == slot.open => at(cut),
        None if !slot.claimed_above => at(slot.mirror),
        _ => Err(Unknown { open: slot.open }),
    }
}
