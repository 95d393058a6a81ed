//! Claims that are kept long enough are forgotten, row by row: those of ingest have no time of their own, so that no week
//! of them can be retired whole.
//!
//! A sweep goes through the claims of each table that has a retention in the order of their ids, a small batch at a time
//! with a pause after each, so that neither claims nor other tables' sweeps wait for it. Every instance sweeps; what one
//! has locked the others leave. A claim goes once it is older than its table's retention, by the clock that stamped it,
//! and settled: one that is in flight or in doubt is left to its lane.

use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::counter;

use super::{Shared, Target};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::event::{EventTime, Scope};
use crate::store::StoreError;
use crate::store::slots::Expire;

/// Looked at by one statement.
const BATCH: usize = 500;
/// After each batch.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two sweeps: a part of the shortest retention, within these bounds.
const PART: u32 = 8;
const OFTEN: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(3_600);

/// Sweeps for as long as somebody takes records.
pub(super) async fn keep(shared: Weak<Shared>) {
    loop {
        let pause = match shared.upgrade().and_then(|shared| pause(&shared)) {
            Some(pause) => pause,
            None => return,
        };
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = sweep(&shared).await {
            counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
            tracing::warn!(error = chain(&error), "claims whose time is over could not be swept, trying again later");
        }
    }
}

/// None: every table's claims are kept for ever.
fn pause(shared: &Shared) -> Option<Duration> {
    let shortest = shared.options.retention.values().flatten().min()?;
    Some((*shortest / PART).clamp(OFTEN, SELDOM))
}

async fn sweep(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let options = &shared.options;
    for scope in shared.store.scopes().await? {
        let Some((tenant, table)) = Target::of_scope(&options.scope, &scope) else { continue };
        let Some(Some(kept)) = options.retention.get(&tenant, &table) else { continue };
        let swept = sweep_table(shared, &scope, *kept).await?;
        if swept > 0 {
            counter!(names::EXPIRED).increment(swept);
            tracing::info!(%tenant, %table, swept, "forgot claims whose time was over");
        }
    }
    Ok(())
}

async fn sweep_table(shared: &Shared, scope: &Scope, kept: Duration) -> Result<u64, StoreError> {
    let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
    let seen_before = EventTime::from_micros(shared.clock.now().micros().saturating_sub(kept));
    let (mut swept, mut after) = (0, None);
    loop {
        let expire = Expire { scope, seen_before, after: after.as_ref(), claims_max: BATCH };
        let expired = shared.store.expire(&expire).await?;
        swept += expired.deleted;
        match expired.reached {
            Some(reached) => after = Some(reached),
            None => return Ok(swept),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
