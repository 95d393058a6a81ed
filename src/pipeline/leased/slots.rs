//! Taking slots, as a worker does it: it waits for its own, and pauses the source while the store is away.
//! [`crate::pipeline::slots`] says how they are taken.

use std::time::Duration;

use async_trait::async_trait;
use metrics::counter;

use super::worker::Worker;
use super::{LeasedError, Outlet};
use crate::config::policy::StoreAway;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::pipeline::slots::in_kafka::{Round, Wanted};
use crate::pipeline::slots::{self, Own, Run, Slots};
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::Standing;
use crate::protocol::lane::{LaneId, StreamId, Token};
use crate::store::{Guard, Recovery, StoreError};

pub(super) use crate::pipeline::slots::{Known, Other, RETRY_FIRST, RETRY_LONGEST, ToTake};

pub(super) type TakeOverError = slots::TakeOverError<LeasedError>;

/// So often is a call to the store repeated before the store counts as away.
pub(super) const TRIES: u32 = 3;
/// Between two looks at a lease that is waited for.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(500);

#[async_trait]
impl Run for Worker {
    type Error = LeasedError;

    async fn bear(&mut self, error: StoreError, backoff: &mut Backoff) -> Result<bool, LeasedError> {
        Worker::bear(self, error, backoff).await
    }

    fn random(&self) -> Result<u64, LeasedError> {
        Ok(self.machine.random()?)
    }

    fn has_drawn(&mut self, token: Token) {
        self.drawn.push(token);
    }

    /// Only of a slot that this run had.
    fn refuse_clash(&self, slot: &StreamId, owner: Option<Token>) -> Result<(), LeasedError> {
        let had_it = self.guard.token != Token(0);
        match owner {
            Some(owner) if had_it && owner.is_of_run() && !self.drawn.contains(&owner) => {
                let instance = slot.instance().unwrap_or_default().to_owned();
                Err(LeasedError::NameClash { slot: slot.clone(), instance })
            }
            _ => Ok(()),
        }
    }
}

impl Worker {
    /// The lane is not extended any more; [`Worker::take_own`] opens another.
    pub(super) fn give_up(&mut self, known: Option<Known>, reason: &'static str) {
        self.to_take = Some(ToTake::new(known, reason));
        self.owes_since = None;
    }

    fn slots(&self) -> Slots {
        let (store, clock, lane_for) = (self.store.clone(), self.clock.clone(), self.lane_for.clone());
        Slots { store, clock, lane_for }
    }

    /// The run's lane is open. What was drawn before cannot land any more.
    fn has_taken(&mut self, guard: Guard) {
        self.drawn = vec![guard.token];
        self.guard = guard;
        self.standing = Standing::new(guard.lane);
        self.to_take = None;
        self.status.set(None);
    }

    /// Takes the run's own slot with a new lane, if the one it had was given up. False where that has to wait: see
    /// [`Worker::bear`].
    pub(super) async fn take_own(&mut self) -> Result<bool, LeasedError> {
        let mut waits: Option<Duration> = None;
        if matches!(self.sink, Outlet::Kafka(_)) {
            return self.take_own_in_kafka().await;
        }
        while let Some(mut to_take) = self.to_take.clone() {
            let (slots, slot, lease) = (self.slots(), self.options.slot.clone(), self.options.lease);
            let former = self.guard;
            let took = slots.take_own(self, &slot, former, &mut to_take, lease).await;
            self.to_take = Some(to_take);
            match took? {
                Own::Taken { guard } => self.has_taken(guard),
                Own::Leased { left } => {
                    let left_ms = left.as_millis() as u64;
                    match waits.replace(left) {
                        None => tracing::info!(slot = %slot, left_ms, "waiting for the lease of the slot's other run"),
                        Some(before) if left > before => {
                            tracing::warn!(
                                slot = %slot,
                                left_ms,
                                "another process works under this instance name: give each its own (SEMEL_INSTANCE)"
                            );
                        }
                        Some(_) => {}
                    }
                    self.status.set(Some(format!("the lease of the slot's other run has {left_ms} ms left")));
                    self.hand_back_old().await?;
                    self.machine.sleep(left.clamp(WAIT_MIN, WAIT_MAX)).await;
                    if self.is_ending() {
                        return Ok(false);
                    }
                }
                Own::NotYet => return Ok(false),
            }
        }
        Ok(true)
    }

    async fn take_own_in_kafka(&mut self) -> Result<bool, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        while let Some(ToTake { reason, .. }) = self.to_take.clone() {
            let Outlet::Kafka(kafka) = &mut self.sink else { return Ok(true) };
            kafka.let_go();
            let (slot, lease) = (self.options.slot.clone(), self.options.lease);
            let wanted = Wanted { kafka: kafka.place(&slot), slot, own: true, lease };
            match self.slots().round(self, &wanted).await? {
                Round::Taken { guard, held } => {
                    self.has_taken(guard);
                    counter!(names::DISCONTINUITIES, "reason" => reason).increment(1);
                    tracing::info!(slot = %wanted.slot, lane = %guard.lane, reason, "opened a lane");
                    if let Outlet::Kafka(kafka) = &mut self.sink {
                        kafka.hold(*held);
                    }
                }
                Round::NotYet => return Ok(false),
                Round::Again(why) => {
                    if backoff.tries().is_multiple_of(5) {
                        tracing::warn!(slot = %wanted.slot, why, "the slot could not be taken yet, trying again");
                    }
                    self.status.set(Some(format!("the slot could not be taken yet: {why}")));
                    if self.is_ending() {
                        return Ok(false);
                    }
                    self.machine.sleep(backoff.next(self.spread())).await;
                }
                Round::Foreign(detail) => return Err(LeasedError::ForeignTruth { slot: wanted.slot, detail }),
                // No lease is waited for.
                Round::Leased => {}
            }
        }
        Ok(true)
    }

    /// See [`Slots::take_over`].
    pub(super) async fn take_over(&mut self, lane: LaneId) -> Result<Other, TakeOverError> {
        let own = self.options.slot.clone();
        let kafka = match &self.sink {
            Outlet::Kafka(kafka) => Some(kafka.place(&own)),
            Outlet::Plain(_) => None,
        };
        self.slots().take_over(self, lane, |slot| *slot == own, kafka).await
    }

    /// Waits after a failed call that may be repeated as it is. False where the caller is to go on without it: after a few
    /// tries, on the wish to end, or because the policy is to forward without a store that is away. Otherwise the source
    /// is paused after as many.
    pub(super) async fn bear(&mut self, error: StoreError, backoff: &mut Backoff) -> Result<bool, LeasedError> {
        let recovery = error.recovery();
        counter!(names::STORE_ERRORS, "recovery" => recovery.label()).increment(1);
        match recovery {
            Recovery::EnsureWeeks(week) => {
                if self.store.ensure_weeks(week, week).await.is_ok() {
                    return Ok(true);
                }
            }
            Recovery::ShutDown => return Err(LeasedError::Store(error)),
            Recovery::Retry | Recovery::Retake | Recovery::Rejoin => {}
        }
        let tries = backoff.tries();
        if tries.is_multiple_of(10) {
            tracing::warn!(error = chain(&error), tries, "the claim store does not do its part, trying again");
        }
        if tries >= TRIES {
            self.status.set(Some("the claim store is away".to_owned()));
            if self.is_ending() || self.options.policies.store_away == StoreAway::Forward {
                return Ok(false);
            }
            self.pause().await?;
        }
        self.machine.sleep(backoff.next(self.spread())).await;
        Ok(true)
    }
}
