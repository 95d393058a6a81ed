//! Ingest: records that a caller hands over, each published once, and answered for.
//!
//! The records of one request go in windows, one after another. Each window is reserved (one call to the store for all
//! its keys), published in the order of the records, and committed. What becomes of it on a failure is one table,
//! [`crate::protocol::ingest`]; here it is carried out.
//!
//! ```text
//! prepare ─▶ window full ─▶ reserve ─▶ publish, to each confirm ─▶ next window, whose reserve commits this one
//!                                                              └─▶ end: a commit of its own, then the answer
//! ```
//!
//! *Lanes.* An instance has several slots, and on each one lane with a connection of its own to the sink. A window has a
//! lane to itself, because a lane's settled position is a prefix: windows that shared one would hold each other's up. A
//! request keeps its lane as long as its next window is at hand, so that the commit of one rides on the reserve of the
//! next; otherwise it commits and gives the lane back. So a lane that is free owes the store nothing, and what one
//! request was told is published, every other one finds to be a duplicate.
//!
//! *Invariants.* A claim is published only while its lease runs. A lease is never renewed over an older claim: before a
//! lane reserves, all that it claimed before is published, given back, or left on a lane that was closed. A request that
//! is told of success has its claims settled in the store, or is counted as one whose commit failed. What a failed
//! request has claimed is settled where it is published, and given back or left to lapse where it is not.
//!
//! *At each failure.* A kill before the publish: the claims lapse with their lease, a retry is answered "in flight" until
//! then. Between publish and commit: the same, and the retry publishes again, under the same idempotency key. A call to
//! the store of unknown outcome: the lane is given up and its slot taken with a new one, which settles what is known to
//! be published and releases the rest. The caller goes away: a window that is not published yet is dropped, one that is
//! being published is brought to its end.
//!
//! *Into Kafka* a window is one transaction, with the slot's own offset in it: it is published whole or not at all, and
//! what the offset says decides whatever is not known ([`crate::pipeline::slots`]). A transaction that is known to have
//! been aborted leaves nothing behind, and one of unknown outcome is resolved before the request is answered: the slot is
//! taken anew, and the offset tells whether the window is there. A run that was killed is followed at once, without a
//! wait for its lease, since its producer is fenced.
//!
//! *Not handled.* A process that is stopped between looking at its lease and sending, into a sink without transactions.
//! A record without an id has no claim: sent again, it is published again.
//!
//! | module | does |
//! | --- | --- |
//! | [`prepare`] | from a record to what is published and under which key |
//! | [`request`] | the windows of one request, and its answer |
//! | [`window`] | reserve, publish, commit; carries out the failure table |
//! | [`lane`] | one slot: what it owes, what it gives up, taking it again |
//! | [`lanes`] | lends lanes to windows, and mends those that need it |
//! | [`target`], [`tables`] | whose records they are, and what is set for them |
//! | [`schema`] | what a table's records have to be like |
//! | [`expiry`] | forgets claims whose time is over |

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::clock::SharedClock;
use crate::key::Extraction;
use crate::pipeline::leased::Outlet;
use crate::pipeline::slots::Slots;
use crate::protocol::event::Scope;
use crate::protocol::lane::StreamId;
use crate::store::slots::SlotStore;
use crate::store::{LaneFor, StoreError};

mod expiry;
mod lane;
mod lanes;
pub mod prepare;
pub mod request;
mod schema;
mod tables;
mod target;
mod window;
pub mod wiring;

pub use prepare::{Outcome, Prepared, Reason};
pub use request::{Outcomes, Request, Stopped};
pub use schema::{Misfit, Schema, Schemas};
pub use tables::{Retention, Tables, Undeduped};
pub use target::{BadTarget, NAME_BYTES_MAX, Target, check_scope};

use lane::{Lane, LaneError};
use lanes::Lanes;

/// Everything that ingest is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Without a slash.
    pub pipeline: String,
    /// Stable over restarts, different between live processes.
    pub instance: String,
    /// How many windows are under way at a time.
    pub lanes: usize,
    /// Each tenant's table has a scope of its own within it.
    pub scope: Scope,
    pub extraction: Extraction,
    /// The digest of a changed extraction that the operator has acknowledged.
    pub accept_recipe: Option<String>,
    /// Tables whose records are published without dedupe.
    pub undeduped: Undeduped,
    /// What the records of tables have to be like.
    pub schemas: Schemas,
    /// Of claims; of tables that it does not name, for ever.
    pub retention: Retention,
    pub window_records_max: usize,
    pub window_bytes_max: usize,
    pub record_bytes_max: usize,
    /// How long a claim may be unsettled before others take it for abandoned.
    pub lease: Duration,
    /// The longest that the sink takes for a window; no publish is begun with less than this left of the lease.
    pub publish_timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("a lease of {lease:?} leaves no time for a publish of up to {publish:?}")]
    ShortLease { lease: Duration, publish: Duration },
    #[error(
        "{slot}: event ids are now extracted in another way than the claims of this scope were made; \
         old claims would not be recognised. set SEMEL_ACCEPT_RECIPE={digest} to go on, or use a new scope"
    )]
    RecipeChanged { slot: StreamId, digest: String },
    #[error(
        "{slot}: the offset in kafka that says how far its last run had published is of no use ({detail}), and a guess \
         would lose or double. go on under another SEMEL_INSTANCE; events that the last run claimed stay held until each \
         is freed with `semel release`"
    )]
    ForeignTruth { slot: StreamId, detail: &'static str },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What every lane works with.
struct Shared {
    options: Options,
    store: Arc<dyn SlotStore>,
    clock: SharedClock,
    slots: Slots,
    /// Those of this process.
    own: Vec<StreamId>,
}

/// Takes requests. Cheap to clone.
#[derive(Clone)]
pub struct Ingest {
    shared: Arc<Shared>,
    lanes: Arc<Lanes>,
}

impl Ingest {
    /// Takes the slots that can be had at once; the others are taken when the leases of their last runs are over. Must be
    /// called within a runtime, which mends lanes in the background from then on. `outlet`: of the slot of this name, with
    /// what it is called in the store.
    pub async fn start(
        options: Options,
        store: Arc<dyn SlotStore>,
        clock: SharedClock,
        outlet: impl Fn(&str) -> (Outlet, StreamId),
    ) -> Result<Ingest, IngestError> {
        let (lease, publish) = (options.lease, options.publish_timeout);
        if publish >= lease {
            return Err(IngestError::ShortLease { lease, publish });
        }
        let (outlets, own): (Vec<Outlet>, Vec<StreamId>) =
            (0..options.lanes.max(1)).map(|lane| outlet(&format!("{}/{lane}", options.instance))).unzip();
        let lane_for = LaneFor { scope: options.scope.clone(), recipe: options.extraction.digest() };
        let slots = Slots { store: store.clone(), clock: clock.clone(), lane_for };
        let shared = Shared { options, store, clock, slots, own };
        shared.check_recipe().await?;
        let lanes = shared.own.iter().zip(outlets).map(|(slot, outlet)| Lane::new(slot.clone(), outlet));
        // What stands in the way is told, and gone once its lease is over.
        let began = join_all(lanes.map(|mut lane| async {
            let mended = lane.mend(&shared).await;
            (lane, mended)
        }))
        .await;
        let mut lanes = Vec::with_capacity(began.len());
        for (lane, mended) in began {
            if let Err(LaneError::ForeignTruth(detail)) = mended {
                return Err(IngestError::ForeignTruth { slot: lane.slot, detail });
            }
            lanes.push(lane);
        }
        let shared = Arc::new(shared);
        tokio::spawn(expiry::keep(Arc::downgrade(&shared)));
        Ok(Ingest { lanes: Lanes::start(lanes, Arc::clone(&shared)), shared })
    }

    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Lanes that can take a window now or when the one that they have is done.
    pub fn lanes_ready(&self) -> usize {
        self.lanes.ready()
    }

    /// Waits until no window is under way and lets the leases lapse, so that the next run need not wait. Lanes with
    /// something left to settle keep theirs.
    pub async fn leave(&self) {
        self.lanes.leave(&self.shared).await;
    }
}

impl Shared {
    /// Claims that were made in another way would not be recognised.
    async fn check_recipe(&self) -> Result<(), IngestError> {
        let digest = self.slots.lane_for.recipe.clone();
        if self.options.accept_recipe.as_ref() == Some(&digest) {
            return Ok(());
        }
        let before = self.store.streams().await?.into_iter().filter(|state| self.own.contains(&state.stream));
        let changed = before.into_iter().find(|state| {
            state
                .opened_for
                .as_ref()
                .is_some_and(|for_| for_.scope == self.slots.lane_for.scope && for_.recipe != digest)
        });
        changed.map_or(Ok(()), |state| Err(IngestError::RecipeChanged { slot: state.stream, digest }))
    }
}
