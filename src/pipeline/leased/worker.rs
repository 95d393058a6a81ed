//! The loop around the windows: receives, holds what comes again later, settles what is idle, drains.
//!
//! *Why a drain lets the lease lapse at once.* When it is done, everything that this run claimed is published or given
//! back, the store has answered that it is settled, and under this token nothing more is asked: nothing of unknown
//! outcome is left either, since that is always followed by another token. So there is nothing that a lease would
//! protect: whoever takes the slot then releases nothing. A drain that does not get that far leaves the lease as it is.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};

use super::held::Holding;
use super::keyer::{Item, Keyer};
use super::slots::{RETRY_FIRST, RETRY_LONGEST, ToTake};
use super::{LeasedError, Machine, Options, Outlet, Parts, Status};
use crate::clock::SharedClock;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::Standing;
use crate::protocol::lane::{LaneId, Token};
use crate::shutdown::Shutdown;
use crate::sink::SinkError;
use crate::source::{Delivery, Gather, Received, Source, SourceError, Tag};
use crate::store::slots::SlotStore;
use crate::store::{Guard, LaneFor};

/// So long after a commit the store is told of it, if no reserve has by then: it is to know within a second.
pub(super) const FLUSH_AFTER: Duration = Duration::from_millis(700);
/// The longest wait for messages, so that the wish to end is heard.
const LISTEN: Duration = Duration::from_millis(200);
/// The longest that the source is let connect.
const CONNECT: Duration = Duration::from_secs(30);

pub struct Worker {
    pub(super) options: Options,
    pub(super) store: Arc<dyn SlotStore>,
    pub(super) source: Box<dyn Source>,
    pub(super) sink: Outlet,
    pub(super) clock: SharedClock,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) shutdown: Shutdown,
    pub(super) status: Arc<Status>,
    pub(super) keyer: Keyer,
    pub(super) lane_for: LaneFor,
    pub(super) guard: Guard,
    /// Tokens of its own that may stand in its slot.
    pub(super) drawn: Vec<Token>,
    pub(super) standing: Standing,
    /// Some: the run has no lane that it may extend.
    pub(super) to_take: Option<ToTake>,
    /// Up to here its claims are surely its own.
    pub(super) leased_until: Duration,
    /// Since when the store is to be told of what is committed.
    pub(super) owes_since: Option<Duration>,
    pub(super) holding: Holding,
    /// How often everything that was out was handed back at once.
    pub(super) pauses: u64,
    /// Everything is handed back until the store answers.
    is_paused: bool,
    /// Since when it does not answer.
    store_away: Option<Duration>,
    pub(super) sink_away: bool,
    source_ended: bool,
    leaving: bool,
}

impl Worker {
    /// None on the wish to end.
    pub async fn start(options: Options, parts: Parts) -> Result<Option<Worker>, LeasedError> {
        let Parts { store, source, sink, clock, machine, shutdown, status } = parts;
        let keyer = Keyer {
            extraction: options.extraction.clone(),
            bounds: options.bounds,
            policies: options.policies,
            scope: options.scope.clone(),
            origin: source.name().into(),
        };
        let mut worker = Worker {
            store,
            source,
            sink,
            clock,
            machine,
            shutdown,
            status,
            keyer,
            lane_for: LaneFor { scope: options.scope.clone(), recipe: options.extraction.digest() },
            guard: Guard { lane: LaneId(0), token: Token(0) },
            drawn: Vec::new(),
            standing: Standing::new(LaneId(0)),
            to_take: Some(ToTake::new(None, "start")),
            leased_until: Duration::ZERO,
            owes_since: None,
            holding: Holding::new(options.lease),
            pauses: 0,
            is_paused: false,
            store_away: None,
            sink_away: false,
            source_ended: false,
            leaving: false,
            options,
        };
        let started = worker.check_recipe().await? && worker.begin().await?;
        Ok(started.then_some(worker))
    }

    /// The first lane is waited for, whatever the policies say.
    async fn begin(&mut self) -> Result<bool, LeasedError> {
        while !self.take_own().await? {
            if self.is_ending() {
                return Ok(false);
            }
            self.machine.sleep(RETRY_LONGEST).await;
        }
        Ok(true)
    }

    /// Refuses a changed extraction that nobody has acknowledged. False on the wish to end.
    async fn check_recipe(&mut self) -> Result<bool, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        let streams = loop {
            match self.store.streams().await {
                Ok(streams) => break streams,
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? && self.is_ending() {
                        return Ok(false);
                    }
                }
            }
        };
        let own = streams.into_iter().find(|state| state.stream == self.options.slot);
        let before = own.and_then(|state| state.opened_for).filter(|before| before.scope == self.lane_for.scope);
        let digest = self.lane_for.recipe.clone();
        let changed = before.is_some_and(|before| before.recipe != digest);
        if changed && self.options.accept_recipe.as_ref() != Some(&digest) {
            return Err(LeasedError::RecipeChanged { slot: self.options.slot.clone(), digest });
        }
        Ok(true)
    }

    /// Until the wish to end, the end of the source, or an error.
    pub async fn work(&mut self) -> Result<(), LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        while !self.is_ending() {
            // With the policy to forward without the store, a lane is no condition.
            self.take_own().await?;
            if self.store_away.is_some() || self.is_flush_due() {
                self.flush(self.options.lease).await?;
            }
            self.hand_back_old().await?;
            if self.sink_away && !self.is_sink_back(&mut backoff).await? {
                continue;
            }
            let mut items = self.holding.take_due(self.machine.now(), self.options.window.messages_max);
            let room = self.options.window.messages_max - items.len();
            if room > 0 {
                items.extend(self.receive(room, !items.is_empty(), &mut backoff).await?);
            }
            if !items.is_empty() {
                self.window(items).await?;
            } else if self.source_ended && self.holding.is_empty() {
                return Ok(());
            }
            gauge!(names::HELD).set(self.holding.len() as f64);
        }
        Ok(())
    }

    /// Hands back what is held, settles, and lets the lease lapse.
    pub async fn leave(&mut self) {
        self.leaving = true;
        let held: Vec<Tag> = self.holding.clear().iter().map(|item| item.tag).collect();
        if !held.is_empty()
            && let Err(error) = self.source.hand_back(&held).await
        {
            tracing::debug!(error = chain(&error), "what was held comes back when the connection is closed");
        }
        gauge!(names::HELD).set(0.0);
        let whole = self.to_take.is_none() && self.standing.committed == self.standing.next;
        if !whole {
            return;
        }
        match self.flush(Duration::ZERO).await {
            Ok(true) => tracing::info!(slot = %self.options.slot, "left the slot with everything settled"),
            Ok(false) => tracing::warn!(slot = %self.options.slot, "left the slot without the store's answer"),
            Err(error) => tracing::warn!(slot = %self.options.slot, error = chain(&error), "left the slot"),
        }
    }

    /// What is at hand, waited for unless there is something to do already.
    async fn receive(&mut self, room: usize, busy: bool, backoff: &mut Backoff) -> Result<Vec<Item>, LeasedError> {
        let now = self.machine.now();
        let flush = self.owes_since.map(|since| (since + FLUSH_AFTER).saturating_sub(now));
        let wait = [flush, self.holding.due().map(|due| due.saturating_sub(now)), Some(LISTEN)];
        let wait = if busy { Duration::ZERO } else { wait.into_iter().flatten().min().unwrap_or(LISTEN) };
        if self.source_ended {
            self.machine.sleep(wait).await;
            return Ok(Vec::new());
        }
        let (messages_max, bytes_max, linger) = (room, self.options.window.bytes_max, self.options.window.linger);
        let gather = Gather { messages_max, bytes_max, wait, linger };
        // What a dropped call took is handed out by the next.
        let received = tokio::select! {
            biased;
            received = self.source.receive(gather) => received,
            () = self.machine.sleep(flush.unwrap_or(CONNECT)) => Ok(Received::Deliveries(Vec::new())),
        };
        match received {
            Ok(Received::Deliveries(deliveries)) => {
                if !deliveries.is_empty() {
                    backoff.reset();
                }
                Ok(self.take_in(deliveries))
            }
            Ok(Received::End) => {
                self.source_ended = true;
                Ok(Vec::new())
            }
            Err(SourceError::Lost(cause)) => {
                counter!(names::BROKER_ERRORS, "client" => "source").increment(1);
                if backoff.tries().is_multiple_of(10) {
                    tracing::warn!(error = chain(&*cause), tries = backoff.tries(), "the source is out of reach");
                }
                self.status.set(Some("the source is out of reach".to_owned()));
                drop(self.holding.clear());
                self.machine.sleep(backoff.next(self.spread()).min(flush.unwrap_or(RETRY_LONGEST))).await;
                Ok(Vec::new())
            }
            Err(error) => Err(LeasedError::Source(error)),
        }
    }

    fn take_in(&mut self, deliveries: Vec<Delivery>) -> Vec<Item> {
        self.status.set(None);
        let Some(connection) = deliveries.iter().map(|delivery| delivery.tag.connection).max() else {
            return Vec::new();
        };
        self.holding.keep_connection(connection);
        counter!(names::READ).increment(deliveries.len() as u64);
        let received = self.machine.now();
        let item = |Delivery { tag, message }| {
            let (name, headers) = (self.keyer.name(&message), message.headers.len());
            Item { tag, message, headers, name, received, backoff: None }
        };
        deliveries.into_iter().map(item).collect()
    }

    /// Before a limit of the source's own hits them.
    pub(super) async fn hand_back_old(&mut self) -> Result<(), LeasedError> {
        let old = self.holding.take_older(self.machine.now().saturating_sub(self.options.hold));
        if old.is_empty() {
            return Ok(());
        }
        tracing::warn!(count = old.len(), "handed back messages that were held for long");
        let tags: Vec<Tag> = old.iter().map(|item| item.tag).collect();
        let handed_back = self.source.hand_back(&tags).await;
        self.passing(handed_back)
    }

    /// Nothing more is received until the store answers. What is out is handed back, once, when the source has waited
    /// for as long as it can: whoever hands back sooner has a delivery counted for each time that the store is away.
    pub(super) async fn pause(&mut self) -> Result<(), LeasedError> {
        let now = self.machine.now();
        let since = match self.store_away {
            Some(since) => since,
            None => {
                tracing::warn!("nothing more is received until the claim store answers");
                now
            }
        };
        self.store_away = Some(since);
        if self.is_paused || now < since + self.source.patience() {
            return Ok(());
        }
        tracing::warn!("handed back what was out until the claim store answers");
        self.is_paused = true;
        self.pauses += 1;
        drop(self.holding.clear());
        let paused = self.source.pause().await;
        self.passing(paused)
    }

    pub(super) fn store_answers(&mut self) {
        if let Some(since) = self.store_away.take() {
            let away_ms = (self.machine.now() - since).as_millis() as u64;
            tracing::info!(away_ms, "the claim store answers again");
        }
        self.is_paused = false;
    }

    async fn is_sink_back(&mut self, backoff: &mut Backoff) -> Result<bool, LeasedError> {
        match self.sink.check().await {
            Ok(()) => {
                self.sink_away = false;
                backoff.reset();
                Ok(true)
            }
            Err(SinkError::Lost(cause)) => {
                counter!(names::BROKER_ERRORS, "client" => "sink").increment(1);
                if backoff.tries().is_multiple_of(10) {
                    tracing::warn!(error = chain(&*cause), tries = backoff.tries(), "the sink is out of reach");
                }
                self.status.set(Some("the sink is out of reach".to_owned()));
                self.machine.sleep(backoff.next(self.spread()).min(FLUSH_AFTER)).await;
                Ok(false)
            }
            Err(error) => Err(LeasedError::Sink(error)),
        }
    }

    /// A lost connection has voided what was out; there is nothing more to be done about it.
    pub(super) fn passing(&self, ended: Result<(), SourceError>) -> Result<(), LeasedError> {
        match ended {
            Ok(()) => Ok(()),
            Err(SourceError::Lost(cause)) => {
                tracing::debug!(error = chain(&*cause), "the source is out of reach");
                Ok(())
            }
            Err(error) => Err(LeasedError::Source(error)),
        }
    }

    /// Nothing new is waited for.
    pub(super) fn is_ending(&self) -> bool {
        self.leaving || self.shutdown.is_requested()
    }

    pub(super) fn spread(&self) -> u8 {
        self.machine.random().map_or(128, |random| random as u8)
    }
}
