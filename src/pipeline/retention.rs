//! Makes weeks ahead of their first claim, and retires those that are no longer kept.
//!
//! A week without room fails the claims of its events, so making comes first and is repeated until it is done; retiring
//! can wait. The store lets one instance at a time do the work, and neither blocks claims in other weeks.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::SharedClock;
use crate::key::Bounds;
use crate::pipeline::chain;
use crate::store::{ClaimStore, StoreError};

const PAUSE: Duration = Duration::from_secs(600);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Makes the weeks of `bounds`, as of now. For the start, before the first claim.
pub async fn make_room(store: &dyn ClaimStore, bounds: Bounds, clock: &SharedClock) -> Result<(), StoreError> {
    let (first, last) = bounds.weeks(clock.now());
    store.ensure_weeks(first, last).await
}

/// Keeps weeks made and retired, for ever.
pub async fn keep(store: Arc<dyn ClaimStore>, bounds: Bounds, clock: SharedClock) {
    loop {
        let pause = match tend(&*store, bounds, &clock).await {
            Ok(()) => PAUSE,
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot tend the weeks of the claim store, trying again");
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn tend(store: &dyn ClaimStore, bounds: Bounds, clock: &SharedClock) -> Result<(), StoreError> {
    make_room(store, bounds, clock).await?;
    let (first_kept, _) = bounds.weeks(clock.now());
    for week in store.retire_weeks(first_kept).await? {
        tracing::info!(%week, "retired a week of claims");
    }
    Ok(())
}
