//! Claims that are in the way and whose holders are gone.

use metrics::counter;

use super::Shared;
use super::lane::{LaneError, draw};
use crate::metrics as names;
use crate::protocol::lane::LaneId;
use crate::store::StoreError;
use crate::store::slots::{TakeSlot, TakenSlot};
use std::time::Duration;

/// Deletes what was left in doubt on a closed lane. False: its lease runs, after all.
pub(super) async fn sweep(shared: &Shared, lane: LaneId) -> Result<bool, StoreError> {
    let swept = shared.store.sweep(lane).await?;
    if let Some(released) = swept {
        counter!(names::RELEASED).increment(released);
        tracing::debug!(%lane, released, "swept what was left in doubt");
    }
    Ok(swept.is_some())
}

/// Takes the slot that `lane` is open on, so that its claims are anybody's again. Nobody extends the lane that is opened
/// there: the slot's next run opens one of its own. False: it is in use, perhaps by this very process.
pub(super) async fn take_over(shared: &Shared, lane: LaneId) -> Result<bool, LaneError> {
    let Some(slot) = shared.store.slot_of(lane).await? else { return Ok(true) };
    if shared.slots.contains(&slot) {
        return Ok(false);
    }
    let Some(seen) = shared.store.slot(&slot).await? else { return Ok(true) };
    let Some(open) = seen.open.filter(|open| open.lane == lane) else { return Ok(true) };
    if !open.lease_left.is_zero() {
        return Ok(false);
    }
    let guard = draw()?;
    let take = TakeSlot {
        slot: &slot,
        token: guard.token.of_takeover(),
        lane: guard.lane,
        instead_of: Some(seen.owner),
        former: None,
        lane_for: &shared.lane_for,
        lease: Duration::ZERO,
        now: shared.clock.now(),
    };
    match shared.store.take_slot(&take).await {
        Ok(TakenSlot::Taken { released }) => {
            counter!(names::DISCONTINUITIES, "reason" => "takeover").increment(1);
            counter!(names::RELEASED).increment(released);
            tracing::warn!(slot = %slot, %lane, released, "took over a slot whose lease was over");
            Ok(true)
        }
        Ok(TakenSlot::Leased { .. }) => Ok(false),
        // Somebody else was quicker: what the claim is now is for the next reserve to find.
        Err(StoreError::NotOwner) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
