//! Sources without offsets into sinks without transactions: never lost, a second copy only where a publish was in doubt.
//!
//! A worker is one run of a *slot* with one connection to the source and one to the sink. It does one window after the
//! other, in one task:
//!
//! ```text
//! receive ─▶ name ─▶ reserve ─▶ publish, to each confirm ─▶ acknowledge
//!    ▲                  │ settles the window before            │
//!    └── what is held ◀─┴── in flight elsewhere, given back ◀──┘
//! ```
//!
//! *Invariants.* Only what is published, or whose event is, is acknowledged. A claim is published only while its lease
//! runs, as far as this process can tell. The store is asked for new claims only when all earlier ones are published or
//! given back, so a lease is never renewed under an older claim, and never without the settled position. What the store
//! may have done without saying so is done under a token that is then replaced.
//!
//! *At each failure.* Killed before the publish: the claim's lease lapses, the next run (or whoever meets the claim)
//! takes the slot, the message comes back and is claimed again. Between publish and settle: the same, and it is
//! published again, if a copy of it comes. A publish refused: it is tried again while the lease allows, then given back
//! and held. In doubt: the lane is closed with that claim left on it; the message is held, and when that lane's lease is
//! over it is claimed and published again, under the same idempotency key. The store answers nothing, or names another
//! owner: everything is void, and a new lane is opened. Source lost: what was out comes back; what of it was published
//! meets its own settled claim. Store away: nothing more is received, and what is out is kept for as long as the source
//! can wait, then handed back, once, so that no limit of the broker's runs out. No queue for a message: in doubt, as
//! above, so that it is tried at the pace of leases while others pass.
//!
//! *The drain* settles, hands back what is held and lets the lease lapse at once ([`worker`]), so that the next run does
//! not wait.
//!
//! *Not handled.* A process that stops between looking at its lease and sending may publish after the lapse. The time of
//! [`Machine::now`] must not stand still while the store's goes on (a machine that sleeps): that too outlives a lease.
//!
//! *Overtaken*, a run asks by whom. One whose claims were taken over after its lease goes on with a new lane. One that
//! finds the token of another run of its own slot there leaves, naming the instance: two processes of one name would
//! take the slot from each other for ever. The run that was first leaves, as into Kafka the older producer does.
//!
//! | module | does |
//! | --- | --- |
//! | [`worker`] | receives, holds, drains |
//! | [`flush`] | tells the store what is committed where no window does |
//! | [`window`], [`open`] | one window, step by step as [`crate::protocol::instance`] says, and its messages |
//! | [`slots`] | takes its own slot and those of others |
//! | [`outlet`] | where messages go: a sink that confirms each, or Kafka in transactions |
//! | [`keyer`] | what a message is called, and what of it goes out |
//! | [`counts`] | what a window came to, for the metrics |
//! | [`held`] | what comes again later |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::clock::SharedClock;
use crate::config::policy::Policies;
use crate::key::{Bounds, Extraction};
use crate::protocol::event::Scope;
use crate::protocol::lane::StreamId;
use crate::shutdown::Shutdown;
use crate::sink::SinkError;
use crate::source::{Source, SourceError};
use crate::store::StoreError;
use crate::store::slots::SlotStore;

pub(crate) mod counts;
mod flush;
mod held;
pub(crate) mod keyer;
mod open;
pub(crate) mod outlet;
mod slots;
pub(crate) mod window;
pub mod wiring;
mod worker;

pub use crate::pipeline::transactional::WindowOptions;
pub use outlet::{KafkaOutlet, Outlet};

/// Everything that a worker is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of the pipeline, the instance and the worker: stable over restarts, different between live processes.
    pub slot: StreamId,
    pub scope: Scope,
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    /// The digest of a changed extraction that the operator has acknowledged.
    pub accept_recipe: Option<String>,
    pub window: WindowOptions,
    /// How long a claim may be unsettled before others take it for abandoned.
    pub lease: Duration,
    /// The longest that the sink takes for a window; no publish is begun with less than this left of the lease.
    pub publish_timeout: Duration,
    /// The longest that a message is kept unacknowledged here before it is handed back: less than the source's own limit.
    pub hold: Duration,
}

/// Why a worker ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum LeasedError {
    #[error("{origin}: stopped at a message by policy ({cause}: {detail})")]
    Stopped { origin: String, cause: &'static str, detail: String },
    #[error("{origin}: the sink does not take a message, not even as a dead letter ({detail})")]
    DeadLetterUnfit { origin: String, detail: String },
    #[error(
        "{slot}: event ids are now extracted in another way than the claims of this scope were made; \
         old claims would not be recognised. set SEMEL_ACCEPT_RECIPE={digest} to go on, or use a new scope"
    )]
    RecipeChanged { slot: StreamId, digest: String },
    #[error(
        "another process runs under the instance name {instance} ({slot}): give each a name of its own (SEMEL_INSTANCE)"
    )]
    NameClash { slot: StreamId, instance: String },
    #[error("a lease of {lease:?} leaves no time for a publish of up to {publish:?}")]
    ShortLease { lease: Duration, publish: Duration },
    #[error(
        "{slot}: the offset in kafka that says how far its last run had published is of no use ({detail}), and a guess \
         would lose or double. go on under another SEMEL_INSTANCE; events that the last run claimed stay held until each \
         is freed with `semel release`"
    )]
    ForeignTruth { slot: StreamId, detail: &'static str },
    #[error("the claim store refuses to go on")]
    Store(#[source] StoreError),
    #[error("the source refuses to go on")]
    Source(#[source] SourceError),
    #[error("the sink refuses to go on")]
    Sink(#[source] SinkError),
    #[error("a thread of the worker panicked")]
    Panicked,
    #[error("no randomness for a token")]
    Random(#[from] getrandom::Error),
}

/// What a worker asks of the machine that it runs on. A simulation puts its own in the place of [`System`].
#[async_trait]
pub trait Machine: Send + Sync {
    /// Since some moment of the past; never goes back.
    fn now(&self) -> Duration;

    async fn sleep(&self, time: Duration);

    fn random(&self) -> Result<u64, getrandom::Error>;
}

/// The machine itself.
#[derive(Debug, Clone, Copy)]
pub struct System {
    since: Instant,
}

impl Default for System {
    fn default() -> System {
        System { since: Instant::now() }
    }
}

#[async_trait]
impl Machine for System {
    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn random(&self) -> Result<u64, getrandom::Error> {
        getrandom::u64()
    }
}

/// What a worker waits for, for `/readyz`.
#[derive(Debug)]
pub struct Status {
    missing: Mutex<Option<String>>,
}

impl Default for Status {
    fn default() -> Status {
        Status { missing: Mutex::new(Some("has not begun".to_owned())) }
    }
}

impl Status {
    /// None where it works.
    pub fn missing(&self) -> Option<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, missing: Option<String>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }
}

/// What a worker is given beside its options.
pub struct Parts {
    pub store: Arc<dyn SlotStore>,
    pub source: Box<dyn Source>,
    pub sink: Outlet,
    pub clock: SharedClock,
    pub machine: Arc<dyn Machine>,
    pub shutdown: Shutdown,
    pub status: Arc<Status>,
}

/// Runs one worker until the wish to end, the end of the source, or an error.
///
/// Cancel safety: a dropped call is a run that was killed.
pub async fn run(options: Options, parts: Parts) -> Result<(), LeasedError> {
    let (lease, publish) = (options.lease, options.publish_timeout);
    if publish >= lease {
        return Err(LeasedError::ShortLease { lease, publish });
    }
    let Some(mut worker) = worker::Worker::start(options, parts).await? else { return Ok(()) };
    let ended = worker.work().await;
    worker.leave().await;
    ended
}
