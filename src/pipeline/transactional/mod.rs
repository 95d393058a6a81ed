//! Kafka to Kafka, exactly once for a read_committed reader.
//!
//! A worker is one member of the group, one transactional producer and three threads that hand windows on:
//!
//! ```text
//! reader ── window ──▶ claimer ── judged window ──▶ publisher
//!   ▲  assignment, offsets,     one store commit       one Kafka transaction: records,
//!   │  new lanes                a window               settled offsets, group offsets
//!   └──────────────────────── trouble ◀────────────────────┘
//! ```
//!
//! *Invariants.* Only the position that owns an event publishes it. A claim is made only under a token that was written
//! at this assignment, before any fetch. A window commits only under the membership that was captured before it was
//! polled. Output, group offset and settled position move in one transaction. A window that fails takes with it every
//! window read after it ([`control`]), and what is read again is read from the committed offsets.
//!
//! *At each failure.* Killed before the claim: nothing happened. Between claim and commit: the settled offset is
//! behind, the window is read again, finds its own claims, publishes. After the commit: the offsets say so. Store away:
//! the claimer waits. Broker away: the publisher's outcome is unknown, see [`publisher`]. Paused beyond its session: the
//! claim meets a foreign token, the commit a foreign generation.
//!
//! *Not handled.* A store that loses commits (asynchronous failover) makes duplicates. Records with the timestamp 0 are
//! forwarded with the present time, since the client library takes 0 for "none".

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::SharedClock;
use crate::config::policy::Policies;
use crate::key::{Bounds, Extraction};
use crate::protocol::event::Scope;
use crate::protocol::lane::{StoreId, TopicId};
use crate::protocol::start::{Halt, Reset};
use crate::shutdown::Shutdown;
use crate::sink::kafka::{KafkaSinkOptions, SinkError, Topics};
use crate::source::kafka::{KafkaSourceOptions, SourceError};
use crate::store::{ClaimStore, LaneFor, StoreError};

mod blame;
mod claimer;
mod control;
mod keyer;
mod known;
mod lanes;
mod leaving;
mod publisher;
mod reader;
mod takeover;
mod window;
pub mod wiring;

use control::{Control, lock};
use keyer::Keyer;
pub use lanes::{draw_lane, draw_token};

/// Everything that a worker is told.
#[derive(Clone)]
pub struct Options {
    pub source: KafkaSourceOptions,
    pub sink: KafkaSinkOptions,
    pub topics: Topics,
    pub same_partition: bool,
    pub scope: Scope,
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    /// The digest of a changed extraction that the operator has acknowledged.
    pub accept_recipe: Option<String>,
    pub reset: Reset,
    pub window: WindowOptions,
    pub forward_bytes_max: usize,
    pub dead_letter_bytes_max: usize,
    /// Ids remembered in memory, so that a known duplicate needs no query.
    pub known_ids: usize,
    /// How often the settled offset of an idle partition is committed again, so that it does not expire.
    pub refresh: Duration,
    /// How often the topics' ids are looked at, so that a topic made anew is noticed.
    pub topic_check: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct WindowOptions {
    pub messages_max: usize,
    pub bytes_max: usize,
    /// How long a window that is not full waits for more, once nothing is at hand.
    pub linger: Duration,
}

/// Why a worker ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error("{topic}/{partition}: {}", halted(.halt))]
    Halted { topic: String, partition: i32, halt: Halt },
    #[error(
        "{topic}/{partition}: event ids are now extracted in another way than the claims of this scope were made; \
         old claims would not be recognised. set SEMEL_ACCEPT_RECIPE={digest} to go on, or use a new scope"
    )]
    RecipeChanged { topic: String, partition: i32, digest: String },
    #[error(
        "another process uses the transactional id {transactional_id}: give each instance a name of its own (SEMEL_INSTANCE)"
    )]
    NameClash { transactional_id: String },
    #[error("{topic}/{partition}/{offset}: stopped at a message by policy ({cause}: {detail})")]
    Stopped { topic: String, partition: i32, offset: i64, cause: &'static str, detail: String },
    #[error(
        "{topic}/{partition}/{offset}: the dead-letter topic {dead_letter} refuses its record even without a value \
         ({code:?}): raise that topic's max.message.bytes, then start again"
    )]
    DeadLetterRefused {
        topic: String,
        partition: i32,
        offset: i64,
        dead_letter: String,
        code: rdkafka::types::RDKafkaErrorCode,
    },
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

fn halted(halt: &Halt) -> String {
    match halt {
        Halt::SettledMissing { open } => format!(
            "the settled offset is gone and lane {open} was not closed by a drain, so what was in doubt cannot be known. \
             `semel recover` opens a new lane; it may lose the window that was in doubt and never doubles"
        ),
        Halt::SettledForeign => {
            "the settled offset was committed by something other than semel. `semel recover` opens a new lane"
                .to_owned()
        }
        Halt::OtherStore => {
            "the settled offset belongs to claims in another store: SEMEL_STORE names a wrong or a new \
             database. with the claims gone for good, `semel recover` starts over in this one"
                .to_owned()
        }
    }
}

/// What all threads of a worker know.
pub(crate) struct Shared {
    pub runtime: Handle,
    pub store: Arc<dyn ClaimStore>,
    pub store_id: StoreId,
    pub scope: Scope,
    pub lane_for: LaneFor,
    pub clock: SharedClock,
    topic_ids: Mutex<Vec<TopicId>>,
}

impl Shared {
    fn topic_id(&self, topic: u16) -> TopicId {
        lock(&self.topic_ids)[usize::from(topic)].clone()
    }

    /// For [`crate::protocol::backoff::Backoff`].
    fn spread(&self) -> u8 {
        getrandom::u32().map_or(128, |random| random as u8)
    }

    /// The first failure of a series, and then every tenth.
    fn report_store(&self, error: &StoreError, tries: u32) {
        if tries.is_multiple_of(10) {
            let error = crate::pipeline::chain(error);
            tracing::warn!(error, tries, "the claim store does not do its part, trying again");
        }
    }
}

/// What a worker is doing, for `/readyz` and the metrics.
#[derive(Debug, Default)]
pub struct Status {
    assigned: std::sync::atomic::AtomicBool,
}

impl Status {
    /// The group has given this worker an answer, whether or not it has partitions to read.
    pub fn is_assigned(&self) -> bool {
        self.assigned.load(std::sync::atomic::Ordering::Acquire)
    }

    fn set(&self, assigned: bool) {
        self.assigned.store(assigned, std::sync::atomic::Ordering::Release);
    }
}

/// Runs one worker on the calling thread and two more until the wish to end, or an error. Blocks.
pub fn run(
    options: Options,
    store: Arc<dyn ClaimStore>,
    clock: SharedClock,
    runtime: Handle,
    shutdown: Shutdown,
    status: Arc<Status>,
) -> Result<(), PipelineError> {
    let store_id = reader::store_id(&*store, &runtime, &shutdown).map_err(PipelineError::Store)?;
    let Some(store_id) = store_id else { return Ok(()) };
    let lane_for = LaneFor { scope: options.scope.clone(), recipe: options.extraction.digest() };
    let scope = options.scope.clone();
    let shared = Arc::new(Shared { runtime, store, store_id, scope, lane_for, clock, topic_ids: Mutex::default() });
    let (control, troubles) = Control::new(shutdown);
    let (to_claimer, raw) = crossbeam_channel::bounded(0);
    let (to_publisher, judged) = crossbeam_channel::bounded(0);
    let lanes = Arc::new(Mutex::new(lanes::Lanes::new()));
    let known = Arc::new(Mutex::new(known::Known::new(options.known_ids)));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let topics: Vec<Arc<str>> = options.source.topics.iter().map(|topic| topic.as_str().into()).collect();
    let keyer = Arc::new(Keyer {
        extraction: options.extraction.clone(),
        bounds: options.bounds,
        policies: options.policies,
        record_bytes_max: options.forward_bytes_max,
        digester: known::Digester::default(),
    });
    let claimer = claimer::Claimer {
        shared: Arc::clone(&shared),
        control: Arc::clone(&control),
        lanes: Arc::clone(&lanes),
        known: Arc::clone(&known),
        keyer: Arc::clone(&keyer),
        topics: topics.clone(),
    };
    let publisher = publisher::Publisher {
        shared: Arc::clone(&shared),
        control: Arc::clone(&control),
        lanes: Arc::clone(&lanes),
        known: Arc::clone(&known),
        refused: Arc::clone(&refused),
        options: options.sink.clone(),
        topics: options.topics.clone(),
        same_partition: options.same_partition,
        dead_letter_bytes_max: options.dead_letter_bytes_max,
        source_topics: topics,
        settled_group: options.source.settled_group(),
        sink: None,
    };
    let reader =
        reader::Reader::new(options, shared, control, lanes, known, refused, keyer, to_claimer, troubles, status)?;
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|_| PipelineError::Panicked)
    };
    let claiming = spawn("claimer", Box::new(move || claimer.run(&raw, &to_publisher)))?;
    let publishing = spawn("publisher", Box::new(move || publisher.run(&judged)))?;
    let ended = reader.run();
    // The reader has hung up: the others follow.
    let joined = claiming.join().and_then(|()| publishing.join());
    ended.and(joined.map_err(|_| PipelineError::Panicked))
}
