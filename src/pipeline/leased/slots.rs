//! Taking slots: the run's own at its start and after a fault, and others' whose leases are over.
//!
//! Every take is repeated as it is until it is answered. If a try of unknown outcome landed, the repeated one finds its
//! own token there; if it lands later, it finds a token that it was not sent to replace and changes nothing. Once
//! somebody else's token stands there, the row is read again and another take begins, with a new token and a new lane:
//! and without a word on what this run had there, since whoever took the slot has released that.

use std::time::Duration;

use metrics::counter;

use super::worker::Worker;
use super::{LeasedError, Outlet};
use crate::config::policy::StoreAway;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::{Beyond, Standing};
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::slots::{Former, TakeSlot, TakenSlot};
use crate::store::{Guard, Recovery, StoreError};

/// How a slot was had, or not.
enum Took {
    Taken {
        released: u64,
    },
    Leased {
        left: Duration,
    },
    /// Another's token stands there.
    Overtaken,
    /// The store does not answer.
    NotYet,
}

/// What a run knows of the lane that it gives up.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub committed: Position,
    pub beyond: Beyond,
}

/// The run has no lane that it may extend.
#[derive(Debug, Clone)]
pub(super) struct ToTake {
    /// None at a start, and where another may have taken the slot.
    pub known: Option<Known>,
    /// For the log and the metrics.
    pub reason: &'static str,
}

/// So often is a call to the store repeated before the store counts as away.
pub(super) const TRIES: u32 = 3;
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(20);
pub(super) const RETRY_LONGEST: Duration = Duration::from_secs(2);
/// Between two looks at a lease that is waited for.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// What became of a slot that is not this run's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// Ask for the claims again.
    Again,
    /// Its lease runs.
    Leased,
    /// It is this run's own, after all: somebody else has it.
    Own,
}

impl Worker {
    fn draw(&self) -> Result<i64, LeasedError> {
        Ok(((self.machine.random()? >> 1) as i64).max(1))
    }

    /// For a lane of this run on its own slot. Whether it lands is not always known.
    pub(super) fn draw_own(&mut self) -> Result<Guard, LeasedError> {
        let guard = Guard { token: Token(self.draw()?).of_run(), lane: LaneId(self.draw()?) };
        self.drawn.push(guard.token);
        Ok(guard)
    }

    /// For another's slot.
    pub(super) fn draw_other(&self) -> Result<Guard, LeasedError> {
        Ok(Guard { token: Token(self.draw()?).of_takeover(), lane: LaneId(self.draw()?) })
    }

    /// The run's lane is open. What was drawn before cannot land any more.
    pub(super) fn opened(&mut self, guard: Guard) {
        self.drawn = vec![guard.token];
        self.guard = guard;
        self.standing = Standing::new(guard.lane);
        self.to_take = None;
        self.status.set(None);
    }

    /// An error where another run has the slot that this one had.
    pub(super) fn refuse_clash(&self, owner: Option<Token>) -> Result<(), LeasedError> {
        let had_it = self.guard.token != Token(0);
        match owner {
            Some(owner) if had_it && owner.is_of_run() && !self.drawn.contains(&owner) => {
                let slot = self.options.slot.clone();
                let instance = slot.instance().unwrap_or_default().to_owned();
                Err(LeasedError::NameClash { slot, instance })
            }
            _ => Ok(()),
        }
    }

    /// The lane is not extended any more; [`Worker::take_own`] opens another.
    pub(super) fn give_up(&mut self, known: Option<Known>, reason: &'static str) {
        self.to_take = Some(ToTake { known, reason });
        self.owes_since = None;
    }

    /// Takes the run's own slot with a new lane, if the one it had was given up. False where that has to wait: see
    /// [`Worker::bear`].
    pub(super) async fn take_own(&mut self) -> Result<bool, LeasedError> {
        let mut waits: Option<Duration> = None;
        if matches!(self.sink, Outlet::Kafka(_)) {
            return self.take_own_in_kafka().await;
        }
        while let Some(ToTake { known, reason }) = self.to_take.clone() {
            let instead_of = match known {
                Some(_) => Some(self.guard.token),
                None => match self.read_owner().await? {
                    Some(owner) => {
                        self.refuse_clash(owner)?;
                        owner
                    }
                    None => return Ok(false),
                },
            };
            let guard = self.draw_own()?;
            let slot = self.options.slot.clone();
            match self.take(&slot, guard, instead_of, known.as_ref(), self.options.lease).await? {
                Took::Taken { released } => {
                    self.opened(guard);
                    counter!(names::DISCONTINUITIES, "reason" => reason).increment(1);
                    counter!(names::RELEASED).increment(released);
                    tracing::info!(slot = %slot, lane = %guard.lane, reason, released, "opened a lane");
                }
                Took::Leased { left } => {
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
                // Whoever wrote it has released what this run had there.
                Took::Overtaken => self.give_up(None, reason),
                Took::NotYet => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Outer None where the store does not answer; inner where the slot was never taken.
    async fn read_owner(&mut self) -> Result<Option<Option<Token>>, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.store.slot(&self.options.slot).await {
                Ok(slot) => return Ok(Some(slot.map(|slot| slot.owner))),
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// One take, repeated until it is answered.
    async fn take(
        &mut self,
        slot: &StreamId,
        guard: Guard,
        instead_of: Option<Token>,
        known: Option<&Known>,
        lease: Duration,
    ) -> Result<Took, LeasedError> {
        let guard_of_former = self.guard;
        let former = known.map(|Known { committed, beyond: Beyond { published, in_doubt } }| Former {
            guard: guard_of_former,
            committed: *committed,
            published,
            in_doubt,
        });
        let lane_for = self.lane_for.clone();
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let (Guard { lane, token }, now) = (guard, self.clock.now());
            let take = TakeSlot { slot, token, lane, instead_of, former, lane_for: &lane_for, lease, now };
            match self.store.take_slot(&take).await {
                Ok(TakenSlot::Taken { released }) => return Ok(Took::Taken { released }),
                Ok(TakenSlot::Leased { left }) => return Ok(Took::Leased { left }),
                Err(StoreError::NotOwner) => return Ok(Took::Overtaken),
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return Ok(Took::NotYet);
                    }
                }
            }
        }
    }

    /// Takes the slot that `lane` is open on, so that its claims are anybody's again. Nobody extends the lane that is
    /// opened there: the slot's next run opens one of its own.
    pub(super) async fn take_over(&mut self, lane: LaneId) -> Result<Other, TakeOverError> {
        let Some(slot) = self.store.slot_of(lane).await? else { return Ok(Other::Again) };
        if slot == self.options.slot {
            return Ok(Other::Own);
        }
        if let Outlet::Kafka(kafka) = &self.sink {
            return match kafka.options_of(&self.options.slot, &slot) {
                Some(options) => self.take_over_in_kafka(slot, options).await,
                None => Ok(Other::Leased),
            };
        }
        if !slot.is_slot() {
            // What is settled there the store does not know: only a run of its own kind can take it.
            return Ok(Other::Leased);
        }
        let Some(seen) = self.store.slot(&slot).await? else { return Ok(Other::Again) };
        let Some(open) = seen.open.filter(|open| open.lane == lane) else { return Ok(Other::Again) };
        if !open.lease_left.is_zero() {
            return Ok(Other::Leased);
        }
        let guard = self.draw_other()?;
        match self.take(&slot, guard, Some(seen.owner), None, Duration::ZERO).await? {
            Took::Taken { released } => {
                counter!(names::DISCONTINUITIES, "reason" => "takeover").increment(1);
                counter!(names::RELEASED).increment(released);
                tracing::warn!(slot = %slot, lane = %lane, released, "took over a slot whose lease was over");
                Ok(Other::Again)
            }
            Took::Leased { .. } => Ok(Other::Leased),
            Took::Overtaken => Ok(Other::Again),
            Took::NotYet => Ok(Other::Leased),
        }
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

/// A call about another's slot failed, or the run ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeOverError {
    /// What it was for is left for later.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    End(#[from] LeasedError),
}
