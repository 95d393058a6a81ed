//! The memory store, seen by one instance through a network: each statement may fail before it is carried out, after, or
//! be carried out at any later time.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use semel::protocol::event::{EventId, EventTime, Scope, Week};
use semel::protocol::lane::{Holder, LaneId, Position, StoreId, StreamId, Token};
use semel::protocol::slot::Conflicting;
use semel::protocol::verdict::Claimed;
use semel::store::memory::MemoryStore;
use semel::store::slots::{
    Expire, Expired, Former, OpenSlot, Reserve, Reserved, Slot, SlotAsk, SlotStore, StreamSeen, TakeSlot, TakenSlot,
};
use semel::store::{
    Claim, ClaimStore, ClaimWindow, Free, Guard, LaneFor, OpenLane, Refused, Room, StoreError, StreamState, Take,
    Taken, TryClaim,
};

use super::broken::Broken;
use super::machine::Simulated;
use super::world::{Event, Known};

/// A statement with all that it is made of.
#[derive(Debug, Clone)]
pub enum Statement {
    Reserve {
        guard: Guard,
        scope: Scope,
        committed: Position,
        lease: Duration,
        rows: Vec<SlotAsk>,
        origin: Arc<str>,
        partition: Option<i32>,
        first_seen_at: EventTime,
    },
    Release {
        guard: Guard,
        committed: Position,
        published: Vec<Position>,
        from: Position,
        to: Position,
    },
    Take {
        slot: StreamId,
        token: Token,
        lane: LaneId,
        instead_of: Option<Token>,
        former: Option<(Guard, Position, Vec<Position>, Vec<Position>)>,
        lane_for: LaneFor,
        lease: Duration,
        now: EventTime,
    },
    Sweep(LaneId),
}

#[derive(Debug)]
pub enum Answer {
    Reserved(Vec<Reserved>),
    Released(u64),
    Taken(TakenSlot),
    Swept(Option<u64>),
}

/// The memory store never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store waited"),
    }
}

impl Statement {
    /// Carries it out, now. `late`: nobody waits for the answer.
    pub fn carry_out(&self, store: &MemoryStore, known: &mut Known, late: bool) -> Result<Answer, StoreError> {
        match self {
            Statement::Reserve { guard, scope, committed, lease, rows, origin, partition, first_seen_at } => {
                let (guard, committed, lease, first_seen_at) = (*guard, *committed, *lease, *first_seen_at);
                let partition = *partition;
                let reserve = Reserve { guard, scope, committed, lease, rows, origin, partition, first_seen_at };
                let answers = now(store.reserve(&reserve))?;
                let inserted = rows.iter().zip(&answers).filter(|(_, answer)| **answer == Reserved::Inserted);
                inserted.for_each(|(row, _)| known.claimed(row.event_id.as_str().parse().expect("a number"), lease));
                Ok(Answer::Reserved(answers))
            }
            Statement::Release { guard, committed, published, from, to } => {
                now(store.release(*guard, *committed, published, *from, *to)).map(Answer::Released)
            }
            Statement::Take { slot, token, lane, instead_of, former, lane_for, lease, now: at } => {
                let former = former.as_ref().map(|(guard, committed, published, in_doubt)| Former {
                    guard: *guard,
                    committed: *committed,
                    published,
                    in_doubt,
                });
                let (token, lane, instead_of, lease) = (*token, *lane, *instead_of, *lease);
                let unsettled = unsettled(store, slot, known.events());
                let take = TakeSlot { slot, token, lane, instead_of, former, lane_for, lease, now: *at };
                let taken = now(store.take_slot(&take))?;
                if matches!(taken, TakenSlot::Taken { .. }) && former.is_none() {
                    known.taken_from(slot, &unsettled, !lease.is_zero() && !late);
                }
                Ok(Answer::Taken(taken))
            }
            Statement::Sweep(lane) => now(store.sweep(*lane)).map(Answer::Swept),
        }
    }
}

/// The events that the slot's open lane holds and that are not settled.
pub fn unsettled(store: &MemoryStore, slot: &StreamId, events: usize) -> Vec<Event> {
    let open = now(store.slot(slot)).expect("always there").and_then(|slot| slot.open);
    let Some(open) = open else { return Vec::new() };
    let held = |holder: Holder| holder.lane == Some(open.lane) && holder.position >= open.seen.settled;
    let is_unsettled = |event: &Event| {
        let id = EventId::encode(event.to_string().as_bytes()).expect("an id");
        now(store.find(None, &id)).expect("always there").iter().any(|claim| held(claim.holder))
    };
    (0..events).filter(is_unsettled).collect()
}

pub struct Connected {
    pub machine: Simulated,
    pub store: Arc<MemoryStore>,
    pub known: Arc<Mutex<Known>>,
    pub broken: Option<Broken>,
}

impl Connected {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("one thread")
    }

    /// A call that may not get there.
    async fn reach(&self) -> Result<(), StoreError> {
        self.machine.others().await;
        let chance = self.known().faults.store;
        let away = self.known().is_store_away();
        if away || self.machine.percent(chance) {
            return Err(StoreError::Unavailable("away".into()));
        }
        Ok(())
    }

    async fn ask(&self, mut statement: Statement) -> Result<Answer, StoreError> {
        if let Some(broken) = self.broken {
            broken.change(&mut statement, &self.store);
        }
        self.reach().await?;
        let chance = self.known().faults.store;
        if !self.machine.percent(chance) {
            let answer = statement.carry_out(&self.store, &mut self.known(), false);
            self.machine.others().await;
            return answer;
        }
        match self.machine.among(0..3) {
            0 => drop(statement.carry_out(&self.store, &mut self.known(), false)),
            1 => {}
            _ => {
                let at = self.machine.time() + self.machine.millis(0..10_000);
                self.known().late.push((at, statement));
            }
        }
        self.machine.wait(self.machine.millis(0..200)).await;
        match self.broken {
            Some(Broken::UnknownIsNothing) => Err(StoreError::Unavailable("no answer".into())),
            _ => Err(StoreError::Unknown("no answer".into())),
        }
    }

    /// The second statement of a reserve is a moment later: what was in the way may be gone.
    async fn look_again(&self, row: &SlotAsk, answer: Reserved) -> Reserved {
        let Reserved::InTheWay(found) = answer else { return answer };
        if self.machine.percent(10) {
            self.machine.wait(self.machine.millis(0..3_000)).await;
        }
        let held_by = found.map(|found| found.holder);
        let claims = now(self.store.find(None, &row.event_id)).expect("always there");
        let stands = claims.iter().any(|claim| Some(claim.holder) == held_by);
        let found = found.filter(|_| stands);
        Reserved::InTheWay(match (self.broken, found) {
            (Some(Broken::GoneIsDuplicate), None) | (Some(Broken::InFlightIsDuplicate), _) => {
                Some(Conflicting { holder: Holder { lane: None, position: 0 }, lane: None })
            }
            _ => found,
        })
    }
}

#[async_trait]
impl SlotStore for Connected {
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError> {
        let Reserve { guard, scope, committed, lease, rows, origin, partition, first_seen_at } = reserve.clone();
        let (scope, rows, origin) = (scope.clone(), rows.to_vec(), Arc::clone(origin));
        let asked = Statement::Reserve { guard, scope, committed, lease, rows, origin, partition, first_seen_at };
        let Answer::Reserved(answers) = self.ask(asked).await? else { unreachable!("a reserve") };
        let mut again = Vec::with_capacity(answers.len());
        for (row, answer) in reserve.rows.iter().zip(answers) {
            again.push(self.look_again(row, answer).await);
        }
        Ok(again)
    }

    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError> {
        let asked = Statement::Release { guard, committed, published: published.to_vec(), from, to };
        let Answer::Released(count) = self.ask(asked).await? else { unreachable!("a release") };
        Ok(count)
    }

    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError> {
        self.store.give_back(guard, scope, claims).await
    }

    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError> {
        self.store.standing(stream).await
    }

    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError> {
        self.reach().await?;
        self.store.slot(slot).await
    }

    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError> {
        self.reach().await?;
        self.store.slot_of(lane).await
    }

    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        let TakeSlot { slot, token, lane, instead_of, former, lane_for, lease, now } = take.clone();
        let former = former.map(|of| (of.guard, of.committed, of.published.to_vec(), of.in_doubt.to_vec()));
        let (slot, lane_for) = (slot.clone(), lane_for.clone());
        let asked = Statement::Take { slot, token, lane, instead_of, former, lane_for, lease, now };
        let Answer::Taken(taken) = self.ask(asked).await? else { unreachable!("a take") };
        Ok(taken)
    }

    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError> {
        let Answer::Swept(swept) = self.ask(Statement::Sweep(lane)).await? else { unreachable!("a sweep") };
        Ok(swept)
    }

    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        self.store.write_token(slot, token, instead_of, own).await
    }

    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        self.store.open_slot(open).await
    }

    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError> {
        self.store.expire(expire).await
    }

    async fn scopes(&self) -> Result<Vec<Scope>, StoreError> {
        self.store.scopes().await
    }
}

/// Nothing here is used but for a start's look at the streams: handed on.
#[async_trait]
impl ClaimStore for Connected {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.store.store_id().await
    }

    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        self.store.take(take).await
    }

    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        self.store.claim(window).await
    }

    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        self.store.open_lane(open).await
    }

    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        now: EventTime,
    ) -> Result<u64, StoreError> {
        self.store.close_lane(stream, guard, cut, now).await
    }

    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError> {
        self.store.record_drain(stream, guard, settled).await
    }

    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError> {
        self.store.forget_drain(stream, guard).await
    }

    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        self.store.is_open(lane).await
    }

    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError> {
        self.store.try_claim(rows, first_seen_at).await
    }

    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError> {
        self.store.find(scope, event_id).await
    }

    async fn streams(&self) -> Result<Vec<StreamState>, StoreError> {
        self.reach().await?;
        self.store.streams().await
    }

    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        self.store.free(free, dry_run).await
    }

    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        self.store.forget_refused(scope, refused).await
    }

    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        self.store.ensure_weeks(first, last).await
    }

    async fn weeks(&self) -> Result<Vec<Week>, StoreError> {
        self.store.weeks().await
    }

    async fn rooms(&self) -> Result<Vec<Room>, StoreError> {
        self.store.rooms().await
    }

    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        self.store.retire_weeks(first_kept).await
    }
}
