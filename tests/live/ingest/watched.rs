//! A store that writes down what it is asked, and fails where it is told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use semel::protocol::event::{EventId, EventTime, Scope, Week};
use semel::protocol::lane::{LaneId, Position, StoreId, StreamId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::slots::{
    Expire, Expired, OpenSlot, Reserve, Reserved, Slot, SlotAsk, SlotStore, StreamSeen, TakeSlot, TakenSlot,
};
use semel::store::{
    Claim, ClaimStore, ClaimWindow, Free, Guard, OpenLane, Refused, Room, StoreError, StreamState, Take, Taken,
    TryClaim,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// With so many rows.
    Reserve(usize),
    /// A reserve of nothing.
    Commit,
    Release,
    /// With so many in doubt.
    Take(usize),
    Sweep,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    NotOpen,
    Throttled,
    OutOfReach,
    Rejected,
    /// It is carried out, and nobody hears of it.
    LostAnswer,
    /// It is not carried out, and nobody hears of it.
    LostCall,
    /// It is answered late, by so many milliseconds.
    Slow(u64),
    /// It is out of reach, as it turns out so late.
    OutOfReachAfter(u64),
}

impl Fail {
    fn error(self) -> StoreError {
        match self {
            Fail::NotOpen => StoreError::Unavailable("not open".into()),
            Fail::Throttled => StoreError::Unavailable("throttled".into()),
            Fail::OutOfReach | Fail::OutOfReachAfter(_) => StoreError::Unavailable("out of reach".into()),
            Fail::Rejected => StoreError::Rejected("out of order".into()),
            Fail::LostAnswer | Fail::LostCall | Fail::Slow(_) => StoreError::Unknown("no answer".into()),
        }
    }
}

pub struct Watched {
    inner: Arc<dyn SlotStore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    /// What each reserve and commit said to be committed.
    committed: Vec<Position>,
    /// By their number from now on: of reserves, of commits.
    reserves: BTreeMap<usize, Fail>,
    commits: BTreeMap<usize, Fail>,
    releases: BTreeMap<usize, Fail>,
    away: bool,
}

impl Watched {
    pub fn new(inner: Arc<dyn SlotStore>) -> Arc<Watched> {
        Arc::new(Watched { inner, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// The n-th reserve (from 0) from now on.
    pub fn fail_reserve(&self, n: usize, fail: Fail) {
        let mut state = self.state();
        let asked = state.calls.iter().filter(|call| matches!(call, Call::Reserve(_))).count();
        state.reserves.insert(asked + n, fail);
    }

    pub fn fail_commit(&self, n: usize, fail: Fail) {
        let mut state = self.state();
        let asked = state.calls.iter().filter(|call| **call == Call::Commit).count();
        state.commits.insert(asked + n, fail);
    }

    pub fn fail_release(&self, n: usize, fail: Fail) {
        let mut state = self.state();
        let asked = state.calls.iter().filter(|call| **call == Call::Release).count();
        state.releases.insert(asked + n, fail);
    }

    /// Everything fails: it is out of reach.
    pub fn away(&self, away: bool) {
        self.state().away = away;
    }

    /// What was asked since the last time.
    pub fn calls(&self) -> Vec<Call> {
        let mut state = self.state();
        let calls = std::mem::take(&mut state.calls);
        state.reserves.clear();
        state.commits.clear();
        state.releases.clear();
        calls
    }

    /// How much more was told to be committed by each reserve and commit since the last time, than by the one before.
    pub fn committed(&self) -> Vec<Position> {
        let told = std::mem::take(&mut self.state().committed);
        told.windows(2).map(|two| two[1] - two[0]).collect()
    }

    /// Notes the call, and says how it fails.
    fn note(&self, call: Call) -> Option<Fail> {
        let mut state = self.state();
        let kind = |call: &Call| std::mem::discriminant(call);
        let n = state.calls.iter().filter(|other| kind(other) == kind(&call)).count();
        let fail = match &call {
            Call::Reserve(_) => state.reserves.remove(&n),
            Call::Commit => state.commits.remove(&n),
            Call::Release => state.releases.remove(&n),
            Call::Take(_) | Call::Sweep => None,
        };
        state.calls.push(call);
        if state.away { Some(Fail::OutOfReach) } else { fail }
    }
}

#[async_trait]
impl SlotStore for Watched {
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError> {
        self.state().committed.push(reserve.committed);
        let call = if reserve.rows.is_empty() { Call::Commit } else { Call::Reserve(reserve.rows.len()) };
        match self.note(call) {
            None => self.inner.reserve(reserve).await,
            Some(Fail::Slow(millis)) => {
                let answer = self.inner.reserve(reserve).await;
                tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
                answer
            }
            Some(fail) => {
                if let Fail::OutOfReachAfter(millis) = fail {
                    tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
                }
                if fail == Fail::LostAnswer {
                    self.inner.reserve(reserve).await?;
                }
                Err(fail.error())
            }
        }
    }

    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError> {
        match self.note(Call::Release) {
            None => self.inner.release(guard, committed, published, from, to).await,
            Some(fail) => {
                if fail == Fail::LostAnswer {
                    self.inner.release(guard, committed, published, from, to).await?;
                }
                Err(fail.error())
            }
        }
    }

    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError> {
        self.inner.give_back(guard, scope, claims).await
    }

    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError> {
        self.inner.standing(stream).await
    }

    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError> {
        self.inner.slot(slot).await
    }

    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError> {
        self.inner.slot_of(lane).await
    }

    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        let in_doubt = take.former.map_or(0, |former| former.in_doubt.len());
        match self.note(Call::Take(in_doubt)) {
            None => self.inner.take_slot(take).await,
            Some(fail) => Err(fail.error()),
        }
    }

    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        self.inner.write_token(slot, token, instead_of, own).await
    }

    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        self.inner.open_slot(open).await
    }

    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError> {
        match self.note(Call::Sweep) {
            None => self.inner.sweep(lane).await,
            Some(fail) => Err(fail.error()),
        }
    }

    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError> {
        self.inner.expire(expire).await
    }

    async fn scopes(&self) -> Result<Vec<Scope>, StoreError> {
        self.inner.scopes().await
    }
}

#[async_trait]
impl ClaimStore for Watched {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.inner.store_id().await
    }

    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        self.inner.take(take).await
    }

    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        self.inner.claim(window).await
    }

    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        self.inner.open_lane(open).await
    }

    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        now: EventTime,
    ) -> Result<u64, StoreError> {
        self.inner.close_lane(stream, guard, cut, now).await
    }

    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError> {
        self.inner.record_drain(stream, guard, settled).await
    }

    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError> {
        self.inner.forget_drain(stream, guard).await
    }

    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        self.inner.is_open(lane).await
    }

    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError> {
        self.inner.try_claim(rows, first_seen_at).await
    }

    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError> {
        self.inner.find(scope, event_id).await
    }

    async fn streams(&self) -> Result<Vec<StreamState>, StoreError> {
        self.inner.streams().await
    }

    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        self.inner.free(free, dry_run).await
    }

    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        self.inner.forget_refused(scope, refused).await
    }

    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        self.inner.ensure_weeks(first, last).await
    }

    async fn weeks(&self) -> Result<Vec<Week>, StoreError> {
        self.inner.weeks().await
    }

    async fn rooms(&self) -> Result<Vec<Room>, StoreError> {
        self.inner.rooms().await
    }

    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        self.inner.retire_weeks(first_kept).await
    }
}
