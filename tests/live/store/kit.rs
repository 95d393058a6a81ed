//! Short words for what the suite says over and over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use semel::protocol::event::{EventId, EventTime, Scope, Week};
use semel::protocol::lane::{Cut, Holder, LaneId, Position, StreamId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::{Ask, ClaimStore, ClaimWindow, Guard, LaneFor, OpenLane, StoreError, Take, TryClaim};

/// Thursday 2026-01-01, in the week of Monday 2025-12-29.
pub const NOW: EventTime = EventTime::from_millis(1_767_225_600_000);

pub fn week() -> Week {
    Week::of(NOW)
}

pub fn scope() -> Scope {
    Scope::new("billing").expect("a scope")
}

pub fn id(text: &str) -> EventId {
    EventId::encode(text.as_bytes()).expect("an event id")
}

/// A number that no other lane or token of this run has.
pub fn fresh() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

pub fn lane_for() -> LaneFor {
    LaneFor { scope: scope(), recipe: "header:id".into() }
}

/// Somebody who owns a stream and has a lane open on it.
#[derive(Debug, Clone)]
pub struct Writer {
    pub stream: StreamId,
    pub lane: LaneId,
    pub token: Token,
}

/// What a window answered, by key.
pub type Answers = BTreeMap<(EventId, Week), Claimed>;

impl Writer {
    /// Takes the stream of this name and opens a lane on it.
    pub async fn open(store: &dyn ClaimStore, name: &str) -> Writer {
        let mut writer = Writer { stream: StreamId::from_stored(name), lane: LaneId(fresh()), token: Token(fresh()) };
        writer.take(store).await;
        writer.open_lane(store, None).await.expect("a lane");
        writer
    }

    /// Writes a new token, as an assignment does.
    pub async fn take(&mut self, store: &dyn ClaimStore) {
        self.token = Token(fresh());
        let take = Take { stream: &self.stream, token: self.token, instead_of: None };
        store.take(&take).await.expect("the stream");
    }

    pub async fn open_lane(&self, store: &dyn ClaimStore, cut: Option<Cut>) -> Result<u64, StoreError> {
        let lane_for = lane_for();
        let open =
            OpenLane { stream: &self.stream, token: self.token, lane: self.lane, cut, lane_for: &lane_for, now: NOW };
        store.open_lane(&open).await
    }

    /// Opens another lane, with this cut on the one before.
    pub async fn discontinue(&mut self, store: &dyn ClaimStore, cut: Position) -> u64 {
        let cut = Cut { prev: self.lane, cut };
        self.lane = LaneId(fresh());
        self.open_lane(store, Some(cut)).await.expect("a lane")
    }

    pub fn guard(&self) -> Guard {
        Guard { lane: self.lane, token: self.token }
    }

    pub fn at(&self, position: Position) -> Claimed {
        Claimed::Held(Holder { lane: Some(self.lane), position })
    }

    pub fn ask(&self, event_id: &str, position: Position) -> Ask {
        self.ask_in(week(), id(event_id), position)
    }

    pub fn ask_in(&self, week: Week, event_id: EventId, position: Position) -> Ask {
        let topic: Arc<str> = "orders".into();
        Ask { event_id, week, lane: self.lane, position, topic, partition: 3, offset: position }
    }

    /// Claims these ids from `position` on, each at the next one.
    pub async fn claim(&self, store: &dyn ClaimStore, ids: &[&str], from: Position) -> Result<Answers, StoreError> {
        let asks = ids.iter().zip(from..).map(|(event_id, position)| self.ask(event_id, position)).collect();
        claim(store, &[self.guard()], asks).await
    }
}

/// Claims a window, its rows brought in order.
pub async fn claim(store: &dyn ClaimStore, guards: &[Guard], mut rows: Vec<Ask>) -> Result<Answers, StoreError> {
    rows.sort_by(|a, b| (&a.event_id, a.week).cmp(&(&b.event_id, b.week)));
    let scope = scope();
    let window = ClaimWindow { scope: &scope, guards, rows: &rows, first_seen_at: NOW };
    let answers = store.claim(&window).await?;
    assert_eq!(answers.len(), rows.len(), "one answer a row");
    Ok(rows.into_iter().map(|row| (row.event_id, row.week)).zip(answers).collect())
}

/// The answer to the id in the usual week.
pub fn of(answers: &Answers, event_id: &str) -> Claimed {
    answers[&(id(event_id), week())]
}

pub fn inserted(answers: &Answers) -> usize {
    answers.values().filter(|answer| **answer == Claimed::Inserted).count()
}

pub fn trying(event_id: &str, week: Week) -> TryClaim {
    TryClaim {
        scope: scope(),
        event_id: id(event_id),
        week,
        topic: "orders".into(),
        partition: Some(3),
        offset: Some(77),
    }
}

/// Makes room for the usual week and those beside it.
pub async fn room(store: &dyn ClaimStore) {
    store.ensure_weeks(week().plus(-1), week().plus(1)).await.expect("room");
}

/// How many claims an id has, in all weeks of the usual scope.
pub async fn count(store: &dyn ClaimStore, event_id: &str) -> usize {
    store.find(Some(&scope()), &id(event_id)).await.expect("an answer").len()
}
