//! What to do with a message whose event id is claimed by a known position.
//!
//! Only the position that owns an event publishes it, as often as that position is read: the transaction that
//! carries the publish also carries the offset, so that it is read again only if the publish did not commit. Any
//! other position that holds the same event drops it, whether or not the owner has published yet, because the owner
//! is going to.

use super::lane::{Coordinate, Holder};

/// What a store says of one asked claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// This call wrote the row.
    Inserted,
    /// A row was there, by this holder.
    Held(Holder),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Claimed just now: publish.
    First,
    /// Claimed earlier by the same position, not known to be published: publish.
    Redelivered,
    /// Owned by another position, or settled for ever: drop.
    Duplicate,
}

impl Verdict {
    pub const fn publishes(self) -> bool {
        !matches!(self, Verdict::Duplicate)
    }
}

/// The verdict for the message at `me`, where `asked` is the position that asked for the claim on behalf of every
/// message of the window with this event id.
///
/// A holder without a lane is settled for ever and never this message, whatever its position says.
pub fn judge(claimed: Claimed, asked: Coordinate, me: Coordinate) -> Verdict {
    match claimed {
        Claimed::Inserted if asked == me => Verdict::First,
        Claimed::Inserted => Verdict::Duplicate,
        Claimed::Held(holder) if holder.is(me) => Verdict::Redelivered,
        Claimed::Held(_) => Verdict::Duplicate,
    }
}
