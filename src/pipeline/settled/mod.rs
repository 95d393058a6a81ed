//! Kafka into sinks without transactions: never lost, a second copy only after a crash, an ungraceful handover, or a publish
//! in doubt.
//!
//! A worker is one member of the group with one connection to the sink. It has a lane for each of its partitions, and does
//! one window of one partition after the other:
//!
//! ```text
//! poll ─▶ name ─▶ reserve ─▶ publish, to each confirm ─▶ settle ─▶ commit the group's offset
//!                    ▲                                     │
//!                    └── rides on the next window's ◀──────┘ or is told at once, where none is at hand
//! ```
//!
//! *Invariants.* What is settled is published, or its event is: settled moves only over what the sink has confirmed, in the
//! order of the log. The group's offset follows what the store has answered to be settled; it only says where to start.
//! Claims and settled positions move only under the token that was written at this assignment, and it is written only
//! once nobody is at work on the partition any more: a lease runs while a window is under way, and is over when it is
//! settled. No publish is begun with less left of it than a publish may take. Nothing is claimed behind a message that waits
//! for somebody else's work, so that no two wait for one another.
//!
//! *At each failure.* Killed before the publish: the claims stand, whoever gets the partition finds them its own, and
//! publishes. Between publish and settle: the same, which is the second copy; it has to wait for the lease first. Between
//! settle and the group's offset: the start is not where settled is, a new lane is opened, and what was settled is foreign
//! from then on and stays dropped. Rebalanced: what is published is settled before the partition is let go. Refused by the
//! sink, or the sink away: tried again, with the claims kept. In doubt: published again, under the same key, and logged. Store
//! away: nothing is read, and nothing published. The store names another owner: the window is dropped, and the group
//! joined anew.
//!
//! *Not handled.* A process that stops between looking at its lease and sending publishes after another took over: its
//! window comes out twice, and no more than that, since it can neither settle nor claim. Of a topic made anew under its
//! name, a window of the old log that was under way is not waited for.
//!
//! | module | does |
//! | --- | --- |
//! | [`worker`], [`member`] | polls, drains; answers rebalances |
//! | [`takeover`], [`leaving`] | what happens between being given a partition and reading from it; at its letting go |
//! | [`lane`], [`item`], [`batch`] | a partition as its owner knows it; what was read; a window's messages as they go out |
//! | [`window`] | one window, step by step |
//! | [`store`], [`remedy`] | calls to the store, and what their failures mean; what an instance left that is gone |

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::SharedClock;
use crate::config::policy::Policies;
use crate::key::{Bounds, Extraction};
use crate::pipeline::leased::Status;
use crate::pipeline::transactional::WindowOptions;
use crate::protocol::event::Scope;
use crate::protocol::start::Reset;
use crate::shutdown::Shutdown;
use crate::sink::{Sink, SinkError};
use crate::source::kafka::{KafkaSourceOptions, SourceError};
use crate::store::StoreError;
use crate::store::slots::SlotStore;

mod batch;
mod item;
mod lane;
mod leaving;
mod member;
mod remedy;
mod store;
mod takeover;
mod window;
pub mod wiring;
mod worker;

/// Everything that a worker is told.
#[derive(Debug, Clone)]
pub struct Options {
    pub source: KafkaSourceOptions,
    pub scope: Scope,
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    /// The digest of a changed extraction that the operator has acknowledged.
    pub accept_recipe: Option<String>,
    pub reset: Reset,
    pub window: WindowOptions,
    /// How long others wait for a partition whose owner went with a window under way.
    pub lease: Duration,
    /// The longest that the sink takes for a window; no publish is begun with less than this left of the lease.
    pub publish_timeout: Duration,
    /// How often the topics' ids are looked at, so that a topic made anew is noticed.
    pub topic_check: Duration,
}

/// What a worker is given beside its options.
pub struct Parts {
    pub store: Arc<dyn SlotStore>,
    pub sink: Box<dyn Sink>,
    pub clock: SharedClock,
    pub runtime: Handle,
    pub shutdown: Shutdown,
    pub status: Arc<Status>,
}

/// Why a worker ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum SettledError {
    #[error("{origin}: stopped at a message by policy ({cause}: {detail})")]
    Stopped { origin: String, cause: &'static str, detail: String },
    #[error("{origin}: the sink does not take a message, not even as a dead letter ({detail})")]
    DeadLetterUnfit { origin: String, detail: String },
    #[error(
        "{topic}/{partition}: event ids are now extracted in another way than the claims of this scope were made; \
         old claims would not be recognised. set SEMEL_ACCEPT_RECIPE={digest} to go on, or use a new scope"
    )]
    RecipeChanged { topic: String, partition: i32, digest: String },
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

/// Why a worker has to do something other than go on.
#[derive(Debug)]
enum Trouble {
    /// The right to read is gone, or the position is: leave the group and join anew.
    Rejoin { why: String },
    /// The worker cannot go on.
    Leave(SettledError),
}

impl Trouble {
    fn rejoin(error: &(dyn std::error::Error + 'static)) -> Trouble {
        Trouble::Rejoin { why: crate::pipeline::chain(error) }
    }
}

/// Runs one worker on the calling thread until the wish to end, or an error. Blocks.
pub fn run(options: Options, parts: Parts) -> Result<(), SettledError> {
    worker::Worker::new(options, parts)?.run()
}
