//! Taking slots: a run's own at its start and after a fault, and others' whose leases are over.
//!
//! Every take is repeated as it is until it is answered. If a try of unknown outcome landed, the repeated one finds its
//! own token there; if it lands later, it finds a token that it was not sent to replace and changes nothing. Once
//! somebody else's token stands there, the row is read again and another take begins, with a new token and a new lane:
//! and without a word on what this run had there, since whoever took the slot has released that.
//!
//! [`in_kafka`] takes slots whose truth is in Kafka. What a run does about a store that fails is its own ([`Run`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use metrics::counter;

use crate::clock::SharedClock;
use crate::metrics as names;
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::Beyond;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::slots::{Former, Slot, SlotStore, TakeSlot, TakenSlot};
use crate::store::{Guard, LaneFor, StoreError};

pub(super) mod in_kafka;

use in_kafka::{InKafka, Round, Wanted};

/// What a run that takes slots does by itself.
#[async_trait]
pub(super) trait Run: Send {
    type Error: Send;

    /// Waits after a failed call that may be repeated as it is. False where the caller is to go on without it.
    async fn bear(&mut self, error: StoreError, backoff: &mut Backoff) -> Result<bool, Self::Error>;

    fn random(&self) -> Result<u64, Self::Error>;

    /// A token that may stand in the run's own slot from now on.
    fn has_drawn(&mut self, token: Token);

    /// Who stands in the run's own slot, before it is replaced: an error where it is another run of the same name.
    fn refuse_clash(&self, slot: &StreamId, owner: Option<Token>) -> Result<(), Self::Error>;
}

/// What taking slots works with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Slots {
    pub store: Arc<dyn SlotStore>,
    pub clock: SharedClock,
    pub lane_for: LaneFor,
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
    /// Drawn, and to be repeated as it is until it is answered: the new guard, and the owner that was seen.
    drawn: Option<(Guard, Option<Token>)>,
    /// For the log and the metrics.
    pub reason: &'static str,
}

impl ToTake {
    pub fn new(known: Option<Known>, reason: &'static str) -> ToTake {
        ToTake { known, drawn: None, reason }
    }
}

/// What became of the run's own slot.
#[derive(Debug)]
pub(super) enum Own {
    Taken {
        guard: Guard,
    },
    /// Of the slot's other run.
    Leased {
        left: Duration,
    },
    /// The store does not answer.
    NotYet,
}

/// What became of a slot that is not this run's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// Ask for the claims again.
    Again,
    /// Its lease runs, or it is of a kind that this run cannot take.
    Leased,
    /// It is this run's own, after all: somebody else has it.
    Own,
}

/// A call about another's slot failed, or the run ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeOverError<E> {
    /// What it was for is left for later.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the run ends")]
    End(E),
}

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

pub(super) const RETRY_FIRST: Duration = Duration::from_millis(20);
pub(super) const RETRY_LONGEST: Duration = Duration::from_secs(2);

impl Slots {
    /// Takes a slot of the run's own whose truth is in the store, with a new lane. `former`: under which it had the lane
    /// that is given up.
    pub async fn take_own<R: Run>(
        &self,
        run: &mut R,
        slot: &StreamId,
        former: Guard,
        to_take: &mut ToTake,
        lease: Duration,
    ) -> Result<Own, R::Error> {
        loop {
            let (guard, instead_of) = match to_take.drawn {
                Some(drawn) => drawn,
                None => {
                    let instead_of = match to_take.known {
                        Some(_) => Some(former.token),
                        None => match self.row(run, slot).await? {
                            Some(seen) => {
                                let owner = seen.map(|seen| seen.owner);
                                run.refuse_clash(slot, owner)?;
                                owner
                            }
                            None => return Ok(Own::NotYet),
                        },
                    };
                    *to_take.drawn.insert((draw_own(run)?, instead_of))
                }
            };
            let known = to_take.known.as_ref().map(|known| (former, known));
            match self.take(run, slot, guard, instead_of, known, lease).await? {
                Took::Taken { released } => {
                    counter!(names::DISCONTINUITIES, "reason" => to_take.reason).increment(1);
                    counter!(names::RELEASED).increment(released);
                    tracing::info!(slot = %slot, lane = %guard.lane, reason = to_take.reason, released, "opened a lane");
                    return Ok(Own::Taken { guard });
                }
                Took::Leased { left } => {
                    to_take.drawn = None;
                    return Ok(Own::Leased { left });
                }
                // Whoever wrote it has released what this run had there.
                Took::Overtaken => *to_take = ToTake::new(None, to_take.reason),
                Took::NotYet => return Ok(Own::NotYet),
            }
        }
    }

    /// Takes the slot that `lane` is open on, so that its claims are anybody's again. Nobody extends the lane that is
    /// opened there: the slot's next run opens one of its own. `kafka`: where slots of this run's kind have their truth.
    pub async fn take_over<R: Run>(
        &self,
        run: &mut R,
        lane: LaneId,
        is_own: impl Fn(&StreamId) -> bool + Send,
        kafka: Option<InKafka>,
    ) -> Result<Other, TakeOverError<R::Error>> {
        let Some(slot) = self.store.slot_of(lane).await? else { return Ok(Other::Again) };
        if is_own(&slot) {
            return Ok(Other::Own);
        }
        if !slot.is_slot() {
            // What is settled there the store does not know: only a run of its own kind can take it.
            let Some(kafka) = kafka.and_then(|kafka| kafka.of(&slot)) else { return Ok(Other::Leased) };
            let wanted = Wanted { slot, own: false, lease: Duration::ZERO, kafka };
            let round = self.round(run, &wanted).await.map_err(TakeOverError::End)?;
            return Ok(match round {
                Round::Taken { held, .. } => {
                    held.drop_aside();
                    counter!(names::DISCONTINUITIES, "reason" => "takeover").increment(1);
                    tracing::warn!(slot = %wanted.slot, "took over a slot whose lease was over");
                    Other::Again
                }
                Round::Again(why) => {
                    tracing::warn!(slot = %wanted.slot, why, "a slot whose lease was over could not be taken yet");
                    Other::Leased
                }
                Round::Foreign(detail) => {
                    tracing::warn!(slot = %wanted.slot, detail, "a slot's offset in kafka is of no use");
                    Other::Leased
                }
                Round::Leased | Round::NotYet => Other::Leased,
            });
        }
        let Some(seen) = self.store.slot(&slot).await? else { return Ok(Other::Again) };
        let Some(open) = seen.open.filter(|open| open.lane == lane) else { return Ok(Other::Again) };
        if !open.lease_left.is_zero() {
            return Ok(Other::Leased);
        }
        let guard = draw_other(run).map_err(TakeOverError::End)?;
        let took = self.take(run, &slot, guard, Some(seen.owner), None, Duration::ZERO).await;
        match took.map_err(TakeOverError::End)? {
            Took::Taken { released } => {
                counter!(names::DISCONTINUITIES, "reason" => "takeover").increment(1);
                counter!(names::RELEASED).increment(released);
                tracing::warn!(slot = %slot, lane = %lane, released, "took over a slot whose lease was over");
                Ok(Other::Again)
            }
            Took::Leased { .. } | Took::NotYet => Ok(Other::Leased),
            // Somebody else was quicker: what the claim is now is for the next reserve to find.
            Took::Overtaken => Ok(Other::Again),
        }
    }

    /// One take, repeated until it is answered.
    async fn take<R: Run>(
        &self,
        run: &mut R,
        slot: &StreamId,
        guard: Guard,
        instead_of: Option<Token>,
        known: Option<(Guard, &Known)>,
        lease: Duration,
    ) -> Result<Took, R::Error> {
        let former = known.map(|(guard, Known { committed, beyond: Beyond { published, in_doubt } })| Former {
            guard,
            committed: *committed,
            published,
            in_doubt,
        });
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let (Guard { lane, token }, now) = (guard, self.clock.now());
            let take = TakeSlot { slot, token, lane, instead_of, former, lane_for: &self.lane_for, lease, now };
            match self.store.take_slot(&take).await {
                Ok(TakenSlot::Taken { released }) => return Ok(Took::Taken { released }),
                Ok(TakenSlot::Leased { left }) => return Ok(Took::Leased { left }),
                Err(StoreError::NotOwner) => return Ok(Took::Overtaken),
                Err(error) => {
                    if !run.bear(error, &mut backoff).await? {
                        return Ok(Took::NotYet);
                    }
                }
            }
        }
    }

    /// Outer None where the store does not answer; inner where the slot was never taken.
    async fn row<R: Run>(&self, run: &mut R, slot: &StreamId) -> Result<Option<Option<Slot>>, R::Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.store.slot(slot).await {
                Ok(seen) => return Ok(Some(seen)),
                Err(error) => {
                    if !run.bear(error, &mut backoff).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

/// For a lane of this run on its own slot. Whether it lands is not always known.
fn draw_own<R: Run>(run: &mut R) -> Result<Guard, R::Error> {
    let drawn = draw(run)?;
    let guard = Guard { token: drawn.token.of_run(), ..drawn };
    run.has_drawn(guard.token);
    Ok(guard)
}

/// For another's slot.
fn draw_other<R: Run>(run: &R) -> Result<Guard, R::Error> {
    let drawn = draw(run)?;
    Ok(Guard { token: drawn.token.of_takeover(), ..drawn })
}

/// A token and a lane that nobody has.
fn draw<R: Run>(run: &R) -> Result<Guard, R::Error> {
    let number = || run.random().map(|random| ((random >> 1) as i64).max(1));
    Ok(Guard { token: Token(number()?), lane: LaneId(number()?) })
}
