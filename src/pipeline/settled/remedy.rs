//! What an instance left behind that is gone, and that a partition's message waits for.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;

use super::Trouble;
use super::store::attend;
use super::worker::Worker;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::event::EventTime;
use crate::protocol::instance::Remedy;
use crate::protocol::lane::{LaneId, StreamId};
use crate::store::slots::{SlotStore, TakeSlot, TakenSlot};
use crate::store::{Guard, LaneFor, StoreError};

impl Worker {
    /// Takes from an instance that is gone what it left behind. What fails is tried again with the message that waits.
    pub(super) fn remedy(&mut self, remedy: Remedy) -> Result<(), Trouble> {
        let store = Arc::clone(&self.store);
        let (lane_for, now) = (self.lane_for.clone(), self.clock.now());
        let guard = Guard { lane: self.draw_lane()?, token: self.draw_token()? };
        let applied = async move {
            match remedy {
                Remedy::Sweep(lane) => store.sweep(lane).await,
                Remedy::TakeOver(lane) => take_over(&*store, lane, (guard, &lane_for, now)).await,
            }
        };
        match attend(&self.runtime, &self.source, &mut self.events, applied) {
            Ok(None) => {}
            Ok(Some(released)) => {
                counter!(names::RELEASED).increment(released);
                tracing::warn!(?remedy, released, "released the claims of an instance that is gone");
            }
            Err(error) => {
                counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
                tracing::warn!(error = chain(&error), "a claim whose holder is gone could not be had yet");
            }
        }
        Ok(())
    }
}

/// Takes the slot that `lane` is open on, if its lease is over. None where it is not to be had: its lease runs, or what is
/// settled there the store does not know.
async fn take_over(
    store: &dyn SlotStore,
    lane: LaneId,
    (guard, lane_for, now): (Guard, &LaneFor, EventTime),
) -> Result<Option<u64>, StoreError> {
    let Some(slot) = store.slot_of(lane).await?.filter(StreamId::is_slot) else {
        return Ok(None);
    };
    let Some(seen) = store.standing(&slot).await? else { return Ok(None) };
    if seen.open.is_none_or(|open| open.lane != lane || !open.lease_left.is_zero()) {
        return Ok(None);
    }
    let take = TakeSlot {
        slot: &slot,
        token: guard.token,
        lane: guard.lane,
        instead_of: Some(seen.owner),
        former: None,
        lane_for,
        // Nobody extends it: the slot's next run opens one of its own.
        lease: Duration::ZERO,
        now,
    };
    match store.take_slot(&take).await {
        Ok(TakenSlot::Taken { released }) => Ok(Some(released)),
        Ok(TakenSlot::Leased { .. }) | Err(StoreError::NotOwner) => Ok(None),
        Err(error) => Err(error),
    }
}
