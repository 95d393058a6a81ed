//! What becomes of claims of a slot's lane when some of them are released, or the lane is given up: one batch.
//!
//! A claim that is published although the settled position cannot cover it is written anew without its lane, and keeps
//! everything else: settled for ever.

use fjall::{OwnedWriteBatch, UserKey};

use super::Trouble;
use super::body::{self, Body, Whence};
use super::code::Out;
use super::inner::Inner;
use super::names::Origin;
use crate::protocol::event::Week;
use crate::protocol::lane::{LaneId, Position};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Deleted,
    /// Without its lane.
    SettledForEver,
    LeftInDoubt,
    Untouched,
}

/// A change in the making.
pub(super) struct Change {
    pub batch: OwnedWriteBatch,
    pub deleted: u64,
    settled_for_ever: Vec<(Week, UserKey, Body)>,
    pub left_in_doubt: bool,
}

impl Change {
    pub fn new(batch: OwnedWriteBatch) -> Change {
        Change { batch, deleted: 0, settled_for_ever: Vec::new(), left_in_doubt: false }
    }
}

impl Inner {
    /// Decides about each claim of a lane at or above `from`.
    pub fn change(&self, lane: LaneId, from: Position, fate: impl Fn(Position) -> Fate) -> Result<Change, Trouble> {
        let mut change = Change::new(self.batch());
        for found in self.claims_from(lane, from)? {
            let found = found?;
            match fate(found.position) {
                Fate::Untouched => {}
                Fate::LeftInDoubt => change.left_in_doubt = true,
                Fate::SettledForEver => {
                    let body = body::read(&found.record, &self.origins)?;
                    change.settled_for_ever.push((found.week, found.key, body));
                }
                Fate::Deleted => {
                    self.delete(&mut change.batch, found)?;
                    change.deleted += 1;
                }
            }
        }
        Ok(change)
    }

    /// Answers how many claims were deleted.
    pub fn commit_change(&mut self, mut change: Change) -> Result<u64, Trouble> {
        let mut value = Out::default();
        for (week, key, body) in change.settled_for_ever {
            let origin = Origin { lane: None, topic: body.topic, partition: body.partition };
            let origin = self.origins.get_or_draw(&origin);
            let whence = Whence::Numbered { origin, position: body.holder.position, offset: body.offset };
            body::write(&mut value, &whence, body.first_seen_at);
            change.batch.insert(&self.weeks[&week], key, value.0.as_slice());
        }
        self.put_new_names(&mut change.batch);
        change.batch.commit().map_err(Trouble::Write)?;
        self.keep_new_names();
        Ok(change.deleted)
    }
}
