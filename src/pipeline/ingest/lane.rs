//! One slot of the instance: its lane, its connection to the sink, what it owes the store and what it has to give up.
//!
//! Every call to the store is made as if its outcome would stay unknown, and what a definite answer shows is taken back
//! after it. So a task that ends in the middle leaves a lane that says of itself that its slot is to be taken again.

use std::time::{Duration, Instant};

use metrics::counter;

use super::{Shared, Target};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::sink::Sink;
use crate::store::slots::{Former, Reserve, Reserved, SlotAsk, TakeSlot, TakenSlot};
use crate::store::{Guard, StoreError};

pub(super) struct Lane {
    pub slot: StreamId,
    pub sink: Box<dyn Sink>,
    guard: Guard,
    /// The next position. None is used twice.
    pub next: Position,
    /// Everything below is published, given back, or was never claimed.
    pub committed: Position,
    /// The store knows as much.
    settled: Position,
    /// Published records that the store does not know to be.
    pub uncommitted: u64,
    /// Up to here its last claims are surely its own.
    pub leased_until: Instant,
    /// Some: it may not be extended any more.
    to_take: Option<ToTake>,
}

struct ToTake {
    /// None where another may have taken the slot.
    known: Option<Known>,
    /// Drawn, and to be repeated as it is until it is answered: the new guard, and the owner that was seen.
    drawn: Option<(Guard, Option<Token>)>,
    reason: &'static str,
}

/// What is known of the lane that is given up. Positions ascend.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub committed: Position,
    pub published: Vec<Position>,
    pub in_doubt: Vec<Position>,
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
}

impl LaneError {
    /// Waiting mends it.
    pub fn is_passing(&self) -> bool {
        match self {
            LaneError::Store(error) => matches!(error, StoreError::Unavailable(_) | StoreError::Unknown(_)),
            LaneError::Leased { .. } => true,
            LaneError::Random(_) => false,
        }
    }
}

impl Lane {
    /// Its slot is to be taken.
    pub fn new(slot: StreamId, sink: Box<dyn Sink>) -> Lane {
        Lane {
            slot,
            sink,
            guard: Guard { lane: LaneId(0), token: Token(0) },
            next: 0,
            committed: 0,
            settled: 0,
            uncommitted: 0,
            leased_until: Instant::now(),
            to_take: Some(ToTake { known: None, drawn: None, reason: "start" }),
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
        self.to_take = Some(ToTake { known, drawn: None, reason });
    }

    /// After an answer that shows that nothing has to be given up.
    pub fn keep(&mut self) {
        self.to_take = None;
    }

    fn known(&self) -> Known {
        Known { committed: self.committed, ..Known::default() }
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
        let known = Known { committed: self.committed, published, in_doubt: Vec::new() };
        let (guard, committed, to) = (self.guard, self.committed, self.next);
        self.give_up(Some(known.clone()), "release_failed");
        match shared.store.release(guard, committed, &known.published, committed, to).await {
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
    /// releases what surely is not.
    pub async fn take(&mut self, shared: &Shared) -> Result<(), LaneError> {
        while let Some(ToTake { known, drawn, reason }) = &mut self.to_take {
            let (guard, instead_of) = match drawn {
                Some(drawn) => *drawn,
                None => {
                    let instead_of = match known {
                        Some(_) => Some(self.guard.token),
                        None => shared.store.slot(&self.slot).await?.map(|slot| slot.owner),
                    };
                    *drawn.insert((draw()?, instead_of))
                }
            };
            let former = known.as_ref().map(|known| Former {
                guard: self.guard,
                committed: known.committed,
                published: &known.published,
                in_doubt: &known.in_doubt,
            });
            let Guard { lane, token } = guard;
            let take = TakeSlot {
                slot: &self.slot,
                token,
                lane,
                instead_of,
                former,
                lane_for: &shared.lane_for,
                lease: shared.options.lease,
                now: shared.clock.now(),
            };
            match shared.store.take_slot(&take).await {
                Ok(TakenSlot::Taken { released }) => {
                    counter!(names::DISCONTINUITIES, "reason" => *reason).increment(1);
                    counter!(names::RELEASED).increment(released);
                    tracing::info!(slot = %self.slot, %lane, reason, released, "opened a lane");
                    self.guard = guard;
                    (self.next, self.committed, self.settled, self.uncommitted) = (0, 0, 0, 0);
                    self.to_take = None;
                }
                Ok(TakenSlot::Leased { left }) => {
                    *drawn = None;
                    return Err(LaneError::Leased { left });
                }
                // Whoever wrote it has released what this run had there.
                Err(StoreError::NotOwner) => self.give_up(None, "overtaken"),
                Err(error) => {
                    counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// A token and a lane that nobody has.
pub(super) fn draw() -> Result<Guard, getrandom::Error> {
    let draw = || getrandom::u64().map(|random| ((random >> 1) as i64).max(1));
    Ok(Guard { token: Token(draw()?), lane: LaneId(draw()?) })
}
