//! One slot of the instance: its lane, its outlet, what it owes the store and what it has to give up.
//!
//! Every call to the store is made as if its outcome would stay unknown, and what a definite answer shows is taken back
//! after it. So a task that ends in the middle leaves a lane that says of itself that its slot is to be taken again.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use metrics::{counter, histogram};

use super::{Shared, Target};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::pipeline::leased::Outlet;
use crate::pipeline::slots::in_kafka::{Round, Wanted};
use crate::pipeline::slots::{Known, Other, Own, Run, TakeOverError, ToTake};
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::{Beyond, Standing};
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::sink::{Doubt, Outgoing, Published};
use crate::store::slots::{Reserve, Reserved, SlotAsk};
use crate::store::{Guard, StoreError};

pub(super) struct Lane {
    pub slot: StreamId,
    pub outlet: Outlet,
    guard: Guard,
    /// The next position. None is used twice.
    pub next: Position,
    /// Everything below is published, given back, or was never claimed.
    pub committed: Position,
    /// The store knows as much.
    settled: Position,
    /// Where the last window that was published ended.
    last_sent: Position,
    /// Published records that the store does not know to be.
    pub uncommitted: u64,
    /// Up to here its last claims are surely its own.
    pub leased_until: Instant,
    /// Some: it may not be extended any more.
    to_take: Option<ToTake>,
}

/// Why a slot is not had.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the lease of the slot's other run has {left:?} left")]
    Leased { left: Duration },
    #[error("no randomness for a token")]
    Random(#[from] getrandom::Error),
    #[error("the slot could not be taken in kafka yet: {0}")]
    Kafka(String),
    #[error("the offset in kafka that says how far the slot's last run had published is of no use ({0})")]
    ForeignTruth(&'static str),
}

impl LaneError {
    /// Waiting mends it.
    pub fn is_passing(&self) -> bool {
        match self {
            LaneError::Store(error) => matches!(error, StoreError::Unavailable(_) | StoreError::Unknown(_)),
            LaneError::Leased { .. } | LaneError::Kafka(_) => true,
            LaneError::Random(_) | LaneError::ForeignTruth(_) => false,
        }
    }
}

/// A request is not kept waiting for a store: what failed is taken up again with the same words.
struct AtOnce;

#[async_trait]
impl Run for AtOnce {
    type Error = LaneError;

    async fn bear(&mut self, error: StoreError, _: &mut Backoff) -> Result<bool, LaneError> {
        counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
        Err(error.into())
    }

    fn random(&self) -> Result<u64, LaneError> {
        Ok(getrandom::u64()?)
    }

    fn has_drawn(&mut self, _: Token) {}

    /// Two processes of one name take their slots from each other, request by request: slow, and right.
    fn refuse_clash(&self, _: &StreamId, _: Option<Token>) -> Result<(), LaneError> {
        Ok(())
    }
}

impl Lane {
    /// Its slot is to be taken.
    pub fn new(slot: StreamId, outlet: Outlet) -> Lane {
        Lane {
            slot,
            outlet,
            guard: Guard { lane: LaneId(0), token: Token(0) },
            next: 0,
            committed: 0,
            settled: 0,
            last_sent: 0,
            uncommitted: 0,
            leased_until: Instant::now(),
            to_take: Some(ToTake::new(None, "start")),
        }
    }

    pub fn id(&self) -> LaneId {
        self.guard.lane
    }

    /// What the store has answered to be settled.
    pub fn settled(&self) -> Position {
        self.settled
    }

    pub fn owes(&self) -> bool {
        self.committed > self.settled
    }

    /// It can be extended, and owes nothing.
    pub fn is_whole(&self) -> bool {
        self.to_take.is_none() && !self.owes()
    }

    pub fn is_given_up(&self) -> bool {
        self.to_take.is_some()
    }

    pub fn give_up(&mut self, known: Option<Known>, reason: &'static str) {
        self.to_take = Some(ToTake::new(known, reason));
    }

    /// After an answer that shows that nothing has to be given up.
    pub fn keep(&mut self) {
        self.to_take = None;
    }

    fn known(&self) -> Known {
        Known { committed: self.committed, beyond: Beyond::default() }
    }

    /// Raises settled and lease, and claims. Without rows it is the flush. One commit.
    pub async fn reserve(
        &mut self,
        shared: &Shared,
        of: Option<&Target>,
        rows: &[SlotAsk],
        lease: Duration,
    ) -> Result<Vec<Reserved>, StoreError> {
        self.give_up(Some(self.known()), "unknown_outcome");
        let origin = of.map_or_else(|| shared.options.pipeline.as_str().into(), |of| of.origin.clone());
        let reserve = Reserve {
            guard: self.guard,
            scope: of.map_or(&shared.options.scope, |of| &of.scope),
            committed: self.committed,
            lease,
            rows,
            origin: &origin,
            partition: None,
            first_seen_at: shared.clock.now(),
        };
        let began = Instant::now();
        let answer = shared.store.reserve(&reserve).await;
        let phase = if rows.is_empty() { "commit" } else { "reserve" };
        histogram!(names::PHASE_SECONDS, "phase" => phase).record(began.elapsed().as_secs_f64());
        match &answer {
            Ok(_) => {
                self.keep();
                self.settled = self.committed;
                self.uncommitted = 0;
                self.next += rows.len() as Position;
                self.leased_until = began + lease;
                counter!(names::STORE_COMMITS).increment(1);
            }
            Err(error) => self.failed(error),
        }
        answer
    }

    /// Gives back what lies at or above the committed position and is not published. One commit.
    pub async fn release(&mut self, shared: &Shared, published: Vec<Position>) -> Result<(), LaneError> {
        let (guard, committed, to) = (self.guard, self.committed, self.next);
        let beyond = Beyond { published: published.clone(), in_doubt: Vec::new() };
        self.give_up(Some(Known { committed, beyond }), "release_failed");
        match shared.store.release(guard, committed, &published, committed, to).await {
            Ok(released) => {
                self.keep();
                self.nothing_open();
                counter!(names::STORE_COMMITS).increment(1);
                tracing::debug!(slot = %self.slot, released, "gave claims back");
                Ok(())
            }
            Err(error) => {
                if matches!(error, StoreError::NotOwner) {
                    self.failed(&error);
                }
                tracing::warn!(slot = %self.slot, error = chain(&error), "claims were not given back yet");
                self.take(shared).await
            }
        }
    }

    /// Nothing that was claimed here is open any more, and what is published is settled.
    pub fn nothing_open(&mut self) {
        self.committed = self.next;
        self.settled = self.next;
        self.uncommitted = 0;
    }

    fn failed(&mut self, error: &StoreError) {
        counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
        match error {
            StoreError::Unknown(_) => {}
            StoreError::NotOwner => self.give_up(None, "overtaken"),
            StoreError::Unavailable(_) | StoreError::NoWeek(_) | StoreError::Rejected(_) => self.keep(),
        }
    }

    /// Has it extendable and owing nothing: takes the slot where it was given up, or tells the store what is committed.
    pub async fn mend(&mut self, shared: &Shared) -> Result<(), LaneError> {
        self.take(shared).await?;
        if self.owes() {
            self.reserve(shared, None, &[], shared.options.lease).await?;
        }
        Ok(())
    }

    /// Takes the slot with a new lane, if the one it had was given up: settles what is known to be published and
    /// releases what surely is not. Into Kafka its own offset there says which is which.
    pub async fn take(&mut self, shared: &Shared) -> Result<(), LaneError> {
        let Some(to_take) = &mut self.to_take else { return Ok(()) };
        let (slots, lease) = (&shared.slots, shared.options.lease);
        let guard = match &mut self.outlet {
            Outlet::Plain(_) => match slots.take_own(&mut AtOnce, &self.slot, self.guard, to_take, lease).await? {
                Own::Taken { guard } => guard,
                Own::Leased { left } => return Err(LaneError::Leased { left }),
                Own::NotYet => return Err(not_yet()),
            },
            Outlet::Kafka(kafka) => {
                kafka.let_go();
                let wanted = Wanted { kafka: kafka.place(&self.slot), slot: self.slot.clone(), own: true, lease };
                match slots.round(&mut AtOnce, &wanted).await? {
                    Round::Taken { guard, held } => {
                        let reason = to_take.reason;
                        counter!(names::DISCONTINUITIES, "reason" => reason).increment(1);
                        tracing::info!(slot = %self.slot, lane = %guard.lane, reason, "opened a lane");
                        kafka.hold(*held);
                        guard
                    }
                    Round::Again(why) => return Err(LaneError::Kafka(why)),
                    Round::Foreign(detail) => return Err(LaneError::ForeignTruth(detail)),
                    Round::Leased | Round::NotYet => return Err(not_yet()),
                }
            }
        };
        self.guard = guard;
        (self.next, self.committed, self.settled, self.last_sent, self.uncommitted) = (0, 0, 0, 0, 0);
        self.to_take = None;
        Ok(())
    }

    /// Takes the slot that another's `lane` is open on. False: it is in use, perhaps by this very process.
    pub async fn take_over(&mut self, shared: &Shared, lane: LaneId) -> Result<bool, LaneError> {
        let kafka = match &self.outlet {
            Outlet::Kafka(kafka) => Some(kafka.place(&self.slot)),
            Outlet::Plain(_) => None,
        };
        let is_own = |slot: &StreamId| shared.own.contains(slot);
        match shared.slots.take_over(&mut AtOnce, lane, is_own, kafka).await {
            Ok(other) => Ok(other == Other::Again),
            Err(TakeOverError::Store(error)) => Err(error.into()),
            Err(TakeOverError::End(error)) => Err(error),
        }
    }

    /// Publishes in this order. Into Kafka it is one transaction, whose outcome is found out where nothing tells it, by
    /// taking the slot anew: then every answer is the same, and only where it cannot be found out is it in doubt.
    ///
    /// Whatever ends this in the middle leaves all of it in doubt.
    pub async fn publish(&mut self, shared: &Shared, outgoing: Vec<Outgoing>, claimed: Vec<Position>) -> Ended {
        let beyond = Beyond { published: Vec::new(), in_doubt: claimed };
        self.give_up(Some(Known { committed: self.committed, beyond }), "in_doubt");
        if self.next == self.last_sent {
            // Nothing of it is claimed: the offset is to tell it from the window before all the same.
            self.next += 1;
        }
        self.last_sent = self.next;
        let (lane, next, count) = (self.guard.lane, self.next, outgoing.len());
        let standing = Standing { lane, next, committed: self.committed, settled: self.settled };
        let answers = match self.outlet.publish(outgoing, standing).await {
            Some((_, answers)) => answers,
            None => vec![Published::InDoubt(Doubt::answered("a thread panicked")); count],
        };
        if !self.outlet.is_lost() {
            self.keep();
            return Ended { answers, is_settled: false };
        }
        self.give_up(None, "outcome_in_kafka");
        let error = match self.take(shared).await {
            Err(error) => error,
            Ok(()) => match self.outlet.left_off() {
                Some(cut) if cut.prev == lane => {
                    let is_there = cut.cut >= next;
                    let of = if is_there { Published::Confirmed } else { Published::Refused(ABORTED.to_owned()) };
                    return Ended { answers: vec![of; count], is_settled: true };
                }
                _ => LaneError::Kafka("another had the slot meanwhile".to_owned()),
            },
        };
        tracing::warn!(slot = %self.slot, error = chain(&error), "the outcome of a transaction is not known");
        Ended { answers: vec![Published::InDoubt(Doubt::silent(chain(&error))); count], is_settled: true }
    }
}

const ABORTED: &str = "its transaction was aborted";

/// How a window's publish ended.
pub(super) struct Ended {
    pub answers: Vec<Published>,
    /// Nothing is left to be told to the store: the lane was given up, or is new.
    pub is_settled: bool,
}

fn not_yet() -> LaneError {
    StoreError::Unavailable("the slot could not be taken yet".into()).into()
}
