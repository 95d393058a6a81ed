//! Random histories by seed, run against the store and against the memory store: every answer must be the same.

use std::collections::BTreeMap;
use std::fmt::Debug;

use semel::protocol::event::Week;
use semel::protocol::lane::{Cut, LaneId, StreamId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::memory::MemoryStore;
use semel::store::{
    Ask, ClaimStore, ClaimWindow, Free, Guard, OpenLane, Refused, StoreError, StreamState, Take, TryClaim,
};

use super::kit::{NOW, Writer, claim, fresh, id, lane_for, scope, trying, week};
use super::{Shared, Subject};
use crate::support::random::{Random, seed};

const IDS: u64 = 12;

/// What was drawn so far, and what stands. Most calls draw from what stands, some from what once did: stale tokens and
/// closed lanes are met often enough, and so are good ones.
struct History {
    random: Random,
    streams: Vec<StreamId>,
    tokens: Vec<Token>,
    lanes: Vec<LaneId>,
    owners: BTreeMap<StreamId, Token>,
    open: BTreeMap<StreamId, LaneId>,
}

#[derive(Debug, Clone)]
enum Call {
    Take { stream: StreamId, token: Token, instead_of: Option<Token> },
    Claim { guards: Vec<Guard>, rows: Vec<Ask> },
    Open { stream: StreamId, token: Token, lane: LaneId, cut: Option<Cut> },
    Drain { stream: StreamId, guard: Guard, settled: Option<i64> },
    Close { stream: StreamId, guard: Guard, cut: i64 },
    IsOpen(LaneId),
    Try(Vec<TryClaim>),
    Find(String),
    Streams,
    Free(Free, bool),
    Refused(Vec<Refused>),
    Ensure(Week, Week),
    Weeks,
    Retire(Week),
}

/// One call after the other.
pub async fn one_after_another(subject: Subject) {
    let (store, model) = (&*subject.store, MemoryStore::new());
    let seed = seed();
    println!("seed {seed}");
    let mut history = History::new(seed);
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..1_500 {
        let call = history.draw();
        let (expected, got) = (perform(&model, &call).await, perform(store, &call).await);
        assert_eq!(got, expected, "seed {seed}, call {n}: {call:?}");
        let kind = format!("{call:?}").chars().take_while(|c| c.is_alphabetic()).collect::<String>();
        let outcome = if expected.starts_with("Ok") { "ok" } else { "refused" };
        history.observe(&model.streams().await.expect("streams"));
        *answers.entry(format!("{kind} {outcome}")).or_default() += 1;
    }
    // A history in which every call is refused shows nothing.
    for kind in ["Claim ok", "Claim refused", "Open ok", "Open refused", "Take ok", "Take refused", "Drain ok"] {
        assert!(answers.get(kind).is_some_and(|&times| times >= 10), "seed {seed}: {answers:?}");
    }
}

impl History {
    fn new(seed: u64) -> History {
        let streams = ["one", "two", "three"].map(StreamId::from_stored).to_vec();
        let (owners, open) = Default::default();
        History { random: Random::new(seed), streams, tokens: vec![], lanes: vec![], owners, open }
    }

    fn observe(&mut self, streams: &[StreamState]) {
        let owner = |state: &StreamState| Some((state.stream.clone(), state.owner?));
        let open = |state: &StreamState| Some((state.stream.clone(), state.row?.open));
        self.owners = streams.iter().filter_map(owner).collect();
        self.open = streams.iter().filter_map(open).collect();
    }

    fn one<T: Clone>(random: &mut Random, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[random.among(0..of.len() as u64) as usize].clone()) }
    }

    /// Its owner's, or one that was drawn before, or a new one.
    fn token(&mut self, stream: &StreamId) -> Token {
        let known = self.tokens[self.tokens.len().saturating_sub(6)..].to_vec();
        match (self.owners.get(stream), History::one(&mut self.random, &known)) {
            (Some(owner), _) if self.random.percent(75) => *owner,
            (_, Some(token)) if self.random.percent(80) => token,
            _ => Token(fresh()),
        }
    }

    /// The one that is open on the stream, or one that was drawn before.
    fn lane(&mut self, stream: &StreamId) -> LaneId {
        let known = self.lanes[self.lanes.len().saturating_sub(5)..].to_vec();
        match self.open.get(stream) {
            Some(open) if self.random.percent(75) => *open,
            _ => History::one(&mut self.random, &known).unwrap_or_else(|| LaneId(fresh())),
        }
    }

    fn stream(&mut self) -> StreamId {
        History::one(&mut self.random, &self.streams).expect("streams")
    }

    fn guard(&mut self, stream: &StreamId) -> Guard {
        Guard { lane: self.lane(stream), token: self.token(stream) }
    }

    fn event(&mut self) -> String {
        format!("event {}", self.random.among(0..IDS))
    }

    /// Mostly weeks that have room.
    fn week(&mut self) -> Week {
        match self.random.among(0..10) {
            0 => Week::UNDATED,
            n => week().plus((n % 4) as i32),
        }
    }

    fn position(&mut self) -> i64 {
        self.random.among(0..30) as i64
    }

    fn draw(&mut self) -> Call {
        let stream = self.stream();
        match self.random.among(0..100) {
            0..10 => {
                let instead_of = if self.random.percent(60) { Some(self.token(&stream)) } else { None };
                let token = Token(fresh());
                self.tokens.push(token);
                Call::Take { stream, token, instead_of }
            }
            10..40 => self.draw_claim(),
            40..60 => {
                let cut = if self.random.percent(70) {
                    let on = if self.random.percent(80) { stream.clone() } else { self.stream() };
                    Some(Cut { prev: self.lane(&on), cut: self.position() })
                } else {
                    None
                };
                let token = self.token(&stream);
                let lane = if self.random.percent(80) { LaneId(fresh()) } else { self.lane(&stream) };
                self.lanes.push(lane);
                Call::Open { stream, token, lane, cut }
            }
            60..67 => {
                let settled = if self.random.percent(60) { Some(self.position()) } else { None };
                Call::Drain { guard: self.guard(&stream), stream, settled }
            }
            67 => Call::Close { guard: self.guard(&stream), stream, cut: self.position() },
            68..70 => Call::IsOpen(self.lane(&stream)),
            70..80 => {
                let count = self.random.among(0..5);
                let row = |history: &mut History| {
                    let offset = if history.random.percent(80) { Some(history.position()) } else { None };
                    TryClaim { offset, ..trying(&history.event(), history.week()) }
                };
                Call::Try((0..count).map(|_| row(self)).collect())
            }
            80..85 => Call::Find(self.event()),
            85..87 => Call::Streams,
            87..91 => {
                let week = if self.random.percent(50) { Some(self.week()) } else { None };
                let event_id = id(&self.event());
                let free = if self.random.percent(60) {
                    Free::Event { scope: scope(), event_id, week }
                } else {
                    Free::Unsettled { lane: self.lane(&stream), from: self.position() }
                };
                Call::Free(free, self.random.percent(40))
            }
            91..95 => {
                let one = |history: &mut History| Refused {
                    event_id: id(&history.event()),
                    week: history.week(),
                    lane: history.lane(&stream),
                    position: history.position(),
                };
                Call::Refused((0..self.random.among(1..30)).map(|_| one(self)).collect())
            }
            95..98 => {
                let first = self.random.among(0..4) as i32;
                Call::Ensure(week().plus(first), week().plus(first + self.random.among(0..4) as i32))
            }
            98 => Call::Weeks,
            _ => Call::Retire(week().plus(self.random.among(0..3) as i32)),
        }
    }

    fn draw_claim(&mut self) -> Call {
        let (stream, other) = (self.stream(), self.stream());
        let mut guards = vec![self.guard(&stream)];
        if self.random.percent(25) {
            let second = self.guard(&other);
            if second.lane != guards[0].lane {
                guards.push(second);
            }
        }
        let mut rows = BTreeMap::new();
        // Positions are distinct on a lane, in no order of the keys.
        let mut position = self.position();
        for _ in 0..self.random.among(1..7) {
            let guard = History::one(&mut self.random, &guards).expect("a guard");
            position = (position + 7) % 60;
            let (event_id, week) = (id(&self.event()), self.week());
            let ask = Ask {
                event_id: event_id.clone(),
                week,
                lane: guard.lane,
                position,
                topic: "orders".into(),
                partition: 1,
                offset: position,
            };
            rows.insert((event_id, week), ask);
        }
        Call::Claim { guards, rows: rows.into_values().collect() }
    }
}

async fn perform(store: &dyn ClaimStore, call: &Call) -> String {
    match call.clone() {
        Call::Take { stream, token, instead_of } => {
            shown(store.take(&Take { stream: &stream, token, instead_of }).await)
        }
        Call::Claim { guards, rows } => {
            let scope = scope();
            let window = ClaimWindow { scope: &scope, guards: &guards, rows: &rows, first_seen_at: NOW };
            shown(store.claim(&window).await)
        }
        Call::Open { stream, token, lane, cut } => {
            let lane_for = lane_for();
            let open = OpenLane { stream: &stream, token, lane, cut, lane_for: &lane_for, now: NOW };
            shown(store.open_lane(&open).await)
        }
        Call::Drain { stream, guard, settled: Some(settled) } => {
            shown(store.record_drain(&stream, guard, settled).await)
        }
        Call::Drain { stream, guard, settled: None } => shown(store.forget_drain(&stream, guard).await),
        Call::Close { stream, guard, cut } => shown(store.close_lane(&stream, guard, cut, NOW).await),
        Call::IsOpen(lane) => shown(store.is_open(lane).await),
        Call::Try(rows) => shown(store.try_claim(&rows, NOW).await),
        Call::Find(event) => shown(store.find(None, &id(&event)).await),
        Call::Streams => shown(store.streams().await),
        Call::Free(free, dry_run) => shown(store.free(&free, dry_run).await),
        Call::Refused(refused) => shown(store.forget_refused(&scope(), &refused).await),
        Call::Ensure(first, last) => shown(store.ensure_weeks(first, last).await),
        Call::Weeks => shown(store.weeks().await),
        Call::Retire(first_kept) => shown(store.retire_weeks(first_kept).await),
    }
}

/// An answer in the form in which two stores' are compared.
fn shown<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("Ok {answer:?}"),
        Err(StoreError::Rejected(_)) => "rejected".into(),
        Err(error @ (StoreError::NotOwner | StoreError::NoWeek(_))) => error.to_string(),
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// Windows and try claims of several callers at once, over few keys. Whatever the order was, each key has one inserter,
/// everybody else was told that one, and the claims at the end are those that were answered. Between the rounds lanes
/// are cut, which frees the same number in both stores.
pub async fn at_once(subject: Subject) {
    let (store, model) = (subject.store, MemoryStore::new());
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut writers = Vec::new();
    for n in 0..4 {
        let name = format!("stream {n}");
        let writer = Writer::open(&*store, &name).await;
        let take = Take { stream: &writer.stream, token: writer.token, instead_of: None };
        model.take(&take).await.expect("the stream");
        writer.open_lane(&model, None).await.expect("a lane");
        writers.push(writer);
    }
    for both in [&*store, &model] {
        both.ensure_weeks(week(), week().plus(1)).await.expect("room");
    }
    for round in 0..15 {
        let calls: Vec<_> = writers
            .iter()
            .map(|writer| tokio::spawn(windows(store.clone(), writer.clone(), random.next(), round * 1_000)))
            .collect();
        let mut held = Vec::new();
        for call in calls {
            for (row, answer) in call.await.expect("no panic") {
                match answer {
                    Claimed::Held(holder) => held.push((row, holder)),
                    Claimed::Inserted => {
                        let writer = writers.iter().find(|writer| writer.lane == row.lane).expect("a writer");
                        let key = (row.event_id.clone(), row.week);
                        let answers = claim(&model, &[writer.guard()], vec![row]).await.expect("a claim");
                        assert_eq!(answers[&key], Claimed::Inserted, "seed {seed}, round {round}: {key:?} twice");
                    }
                }
            }
        }
        for (row, holder) in held {
            let there = model.find(Some(&scope()), &row.event_id).await.expect("claims");
            let there = there.iter().find(|claim| claim.week == row.week).map(|claim| claim.holder);
            assert_eq!(there, Some(holder), "seed {seed}, round {round}: {row:?}");
        }
        for n in 0..40 {
            let event_id = id(&format!("event {n}"));
            let (expected, got) = (model.find(None, &event_id).await, store.find(None, &event_id).await);
            assert_eq!(got.expect("claims"), expected.expect("claims"), "seed {seed}, round {round}");
        }
        let writer = &mut writers[random.among(0..4) as usize];
        let cut = random.among(0..1_000 * (round as u64 + 1)) as i64;
        let before = writer.clone();
        let freed = writer.discontinue(&*store, cut).await;
        let cut = Some(Cut { prev: before.lane, cut });
        assert_eq!(writer.open_lane(&model, cut).await.expect("a lane"), freed, "seed {seed}, round {round}");
    }
}

async fn windows(store: Shared, writer: Writer, seed: u64, from: i64) -> Vec<(Ask, Claimed)> {
    let mut random = Random::new(seed);
    let mut told = Vec::new();
    for n in 0..12 {
        let mut rows = BTreeMap::new();
        for k in 0..random.among(1..16) as i64 {
            let event_id = id(&format!("event {}", random.among(0..40)));
            let week = week().plus(random.among(0..2) as i32);
            rows.insert((event_id.clone(), week), writer.ask_in(week, event_id, from + n * 20 + k));
        }
        let rows: Vec<Ask> = rows.into_values().collect();
        let answers = claim(&*store, &[writer.guard()], rows.clone()).await.expect("a claim");
        told.extend(rows.into_iter().map(|row| {
            let answer = answers[&(row.event_id.clone(), row.week)];
            (row, answer)
        }));
    }
    told
}
