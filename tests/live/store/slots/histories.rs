//! Random histories by seed, run against the store and against the memory store: every answer must be the same.
//!
//! Leases run for an hour or are over at once, so that both stores judge them alike.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use semel::protocol::lane::{Cut, LaneId, Position, StreamId, Token};
use semel::store::memory::MemoryStore;
use semel::store::slots::{Former, OpenSlot, Reserve, SlotAsk, SlotStore, TakeSlot, TakenSlot};
use semel::store::{ClaimStore, Free, Guard, StoreError};

use super::super::kit::{NOW, Writer, fresh, id, lane_for, room, scope, trying, week};
use super::{LONG, ORIGIN, OVER, Subject};
use crate::support::random::{Random, seed};

const IDS: u64 = 14;
const POSITIONS: u64 = 30;

/// What a run knows, owned.
#[derive(Debug, Clone)]
struct Known {
    guard: Guard,
    committed: Position,
    published: Vec<Position>,
    in_doubt: Vec<Position>,
}

#[derive(Debug, Clone)]
enum Call {
    Reserve {
        guard: Guard,
        committed: Position,
        lease: Duration,
        rows: Vec<SlotAsk>,
        partition: Option<i32>,
    },
    Drop {
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
        former: Option<Known>,
        lease: Duration,
    },
    Write {
        slot: StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    },
    Open {
        slot: StreamId,
        token: Token,
        lane: LaneId,
        cut: Option<Cut>,
        settled: Position,
        lease: Duration,
    },
    Standing(StreamId),
    Give {
        guard: Guard,
        rows: Vec<SlotAsk>,
    },
    Slot(StreamId),
    Whose(LaneId),
    Sweep(LaneId),
    Partition(i64),
    Try(String),
    Free(String),
    Find(String),
}

/// What was drawn so far, and what stands. Most calls draw from what stands, some from what once did.
struct History {
    random: Random,
    slots: Vec<StreamId>,
    tokens: Vec<Token>,
    lanes: Vec<LaneId>,
    stands: BTreeMap<StreamId, (Token, Option<LaneId>)>,
}

pub async fn one_after_another(subject: Subject) {
    let (store, model) = (&*subject.store, MemoryStore::new());
    let seed = seed();
    println!("seed {seed}");
    for both in [store, &model] {
        room(both).await;
    }
    let partition = Writer::open(store, "stream").await;
    let take = semel::store::Take { stream: &partition.stream, token: partition.token, instead_of: None };
    model.take(&take).await.expect("the stream");
    partition.open_lane(&model, None).await.expect("a lane");
    let slots = ["one", "two", "three"].map(|name| StreamId::slot("orders", name)).to_vec();
    let lanes = vec![partition.lane];
    let mut history = History { random: Random::new(seed), slots, tokens: vec![], lanes, stands: BTreeMap::new() };
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..2_000 {
        let call = history.draw();
        let (expected, got) = (perform(&model, &partition, &call).await, perform(store, &partition, &call).await);
        assert_eq!(got, expected, "seed {seed}, call {n}: {call:?}");
        let kind = format!("{call:?}").chars().take_while(|c| c.is_alphabetic()).collect::<String>();
        let outcome = expected.chars().take_while(|c| c.is_alphabetic()).collect::<String>();
        *answers.entry(format!("{kind} {outcome}")).or_default() += 1;
        for slot in &history.slots {
            if let Some(found) = model.slot(slot).await.expect("a slot") {
                history.stands.insert(slot.clone(), (found.owner, found.open.map(|open| open.lane)));
            }
        }
    }
    println!("{answers:?}");
    // A history in which every call is refused shows nothing.
    let often = ["Reserve Ok", "Reserve another", "Drop Ok", "Drop another", "Take Ok", "Take another", "Take leased"];
    let also = ["Write Ok", "Write another", "Write leased", "Open Ok", "Open another", "Sweep Ok", "Slot Ok"];
    let too = ["Give Ok", "Give another", "Standing Ok"];
    for kind in often.into_iter().chain(also).chain(too) {
        assert!(answers.get(kind).is_some_and(|&times| times >= 10), "seed {seed}: {kind}: {answers:?}");
    }
}

impl History {
    fn one<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.random.among(0..of.len() as u64) as usize].clone()) }
    }

    fn slot(&mut self) -> StreamId {
        let slots = self.slots.clone();
        self.one(&slots).expect("slots")
    }

    /// The owner's, or one that was drawn before, or a new one.
    fn token(&mut self, slot: &StreamId) -> Token {
        let recent = self.tokens[self.tokens.len().saturating_sub(6)..].to_vec();
        match (self.stands.get(slot).copied(), self.one(&recent)) {
            (Some((owner, _)), _) if self.random.percent(85) => owner,
            (_, Some(token)) if self.random.percent(80) => token,
            _ => self.new_token(),
        }
    }

    fn new_token(&mut self) -> Token {
        let token = Token(fresh());
        self.tokens.push(token);
        token
    }

    /// The open one, or one that was drawn before.
    fn lane(&mut self, slot: &StreamId) -> LaneId {
        let recent = self.lanes[self.lanes.len().saturating_sub(5)..].to_vec();
        match self.stands.get(slot) {
            Some((_, Some(open))) if self.random.percent(85) => *open,
            _ => self.one(&recent).expect("lanes"),
        }
    }

    fn new_lane(&mut self, slot: &StreamId) -> LaneId {
        if self.random.percent(10) {
            return self.lane(slot);
        }
        let lane = LaneId(fresh());
        self.lanes.push(lane);
        lane
    }

    fn guard(&mut self, slot: &StreamId) -> Guard {
        Guard { lane: self.lane(slot), token: self.token(slot) }
    }

    fn event(&mut self) -> String {
        format!("event {:02}", self.random.among(0..IDS))
    }

    fn position(&mut self) -> Position {
        self.random.among(0..POSITIONS) as Position
    }

    fn positions(&mut self) -> Vec<Position> {
        let mut positions: Vec<Position> = (0..self.random.among(0..4)).map(|_| self.position()).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    fn lease(&mut self) -> Duration {
        if self.random.percent(50) { LONG } else { OVER }
    }

    fn instead_of(&mut self, slot: &StreamId) -> Option<Token> {
        if self.stands.contains_key(slot) && self.random.percent(95) { Some(self.token(slot)) } else { None }
    }

    fn draw(&mut self) -> Call {
        let slot = self.slot();
        match self.random.among(0..100) {
            0..37 => {
                let (guard, committed, lease) = (self.guard(&slot), self.position() / 3, self.lease());
                let mut rows = BTreeMap::new();
                let mut position = self.position();
                for _ in 0..self.random.among(0..6) {
                    position = (position + 7) % POSITIONS as Position;
                    // Mostly weeks that have room.
                    let week = week().plus(if self.random.percent(97) { 0 } else { 9 });
                    let event_id = id(&self.event());
                    rows.insert((event_id.clone(), week), SlotAsk { event_id, week, position });
                }
                let partition = self.random.percent(30).then_some(3);
                Call::Reserve { guard, committed, lease, rows: rows.into_values().collect(), partition }
            }
            40..50 => {
                let (guard, committed, published) = (self.guard(&slot), self.position() / 3, self.positions());
                let from = self.position();
                Call::Drop { guard, committed, published, from, to: from + self.position() / 2 }
            }
            50..65 => {
                let token = if self.random.percent(90) { self.new_token() } else { self.token(&slot) };
                let former = self.random.percent(60).then(|| Known {
                    guard: self.guard(&slot),
                    committed: self.position(),
                    published: self.positions(),
                    in_doubt: self.positions(),
                });
                let (lane, instead_of, lease) = (self.new_lane(&slot), self.instead_of(&slot), self.lease());
                Call::Take { slot, token, lane, instead_of, former, lease }
            }
            65..72 => {
                let token = if self.random.percent(90) { self.new_token() } else { self.token(&slot) };
                let (instead_of, own) = (self.instead_of(&slot), self.random.percent(40));
                Call::Write { slot, token, instead_of, own }
            }
            72..80 => {
                let (token, lane, lease) = (self.token(&slot), self.new_lane(&slot), self.lease());
                let open = self.stands.get(&slot).is_some_and(|(_, open)| open.is_some());
                let cut =
                    (open != self.random.percent(10)).then(|| Cut { prev: self.lane(&slot), cut: self.position() });
                Call::Open { slot, token, lane, cut, settled: self.position() / 3, lease }
            }
            80..83 => Call::Slot(slot),
            83..85 => Call::Whose(self.lane(&slot)),
            85..91 => {
                let recent = self.lanes[self.lanes.len().saturating_sub(8)..].to_vec();
                Call::Sweep(self.one(&recent).expect("lanes"))
            }
            91 => Call::Partition(self.position()),
            92..94 => Call::Standing(slot),
            37..40 | 94..96 => {
                let (guard, event_id) = (self.guard(&slot), id(&self.event()));
                let row = SlotAsk { event_id, week: week(), position: self.position() };
                Call::Give { guard, rows: vec![row] }
            }
            96 => Call::Try(self.event()),
            97 => Call::Free(self.event()),
            _ => Call::Find(self.event()),
        }
    }
}

async fn perform(store: &dyn SlotStore, partition: &Writer, call: &Call) -> String {
    let (scope, lane_for, now) = (scope(), lane_for(), NOW);
    match call.clone() {
        Call::Reserve { guard, committed, lease, rows, partition } => {
            let (origin, rows): (Arc<str>, _) = (ORIGIN.into(), &rows[..]);
            let reserve = Reserve {
                guard,
                scope: &scope,
                committed,
                lease,
                rows,
                origin: &origin,
                partition,
                first_seen_at: now,
            };
            shown(store.reserve(&reserve).await)
        }
        Call::Drop { guard, committed, published, from, to } => {
            shown(store.release(guard, committed, &published, from, to).await)
        }
        Call::Take { slot, token, lane, instead_of, former, lease } => {
            let former = former.as_ref().map(|known| Former {
                guard: known.guard,
                committed: known.committed,
                published: &known.published,
                in_doubt: &known.in_doubt,
            });
            let take = TakeSlot { slot: &slot, token, lane, instead_of, former, lane_for: &lane_for, lease, now };
            taken(store.take_slot(&take).await)
        }
        Call::Write { slot, token, instead_of, own } => taken(store.write_token(&slot, token, instead_of, own).await),
        Call::Open { slot, token, lane, cut, settled, lease } => {
            let open = OpenSlot { slot: &slot, token, lane, cut, settled, lane_for: &lane_for, lease, now };
            shown(store.open_slot(&open).await)
        }
        Call::Slot(slot) => {
            let slot = store.slot(&slot).await.map(|slot| {
                let open = |open: semel::store::slots::OpenSlotLane| {
                    (open.lane, open.seen, open.lease_left.is_zero(), open.claimed_above)
                };
                slot.map(|slot| (slot.owner, slot.open.map(open)))
            });
            shown(slot)
        }
        Call::Standing(stream) => {
            let seen = store.standing(&stream).await.map(|seen| {
                let open =
                    |open: semel::store::slots::LaneStanding| (open.lane, open.settled, open.lease_left.is_zero());
                seen.map(|seen| (seen.owner, seen.open.map(open), seen.opened_for))
            });
            shown(seen)
        }
        Call::Give { guard, rows } => shown(store.give_back(guard, &scope, &rows).await),
        Call::Whose(lane) => shown(store.slot_of(lane).await),
        Call::Sweep(lane) => shown(store.sweep(lane).await),
        Call::Partition(position) => {
            let event_id = format!("event {:02}", position % IDS as i64);
            shown(partition.claim(store, &[&event_id], position).await.map(|answers| answers.len()))
        }
        Call::Try(event) => shown(store.try_claim(&[trying(&event, week())], now).await),
        Call::Free(event) => shown(store.free(&Free::Event { scope, event_id: id(&event), week: None }, false).await),
        Call::Find(event) => shown(store.find(None, &id(&event)).await),
    }
}

fn taken(answer: Result<TakenSlot, StoreError>) -> String {
    match answer {
        Ok(TakenSlot::Leased { left }) if !left.is_zero() => "leased".into(),
        other => shown(other),
    }
}

/// An answer in the form in which two stores' are compared.
fn shown<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("Ok {answer:?}"),
        Err(error @ (StoreError::NotOwner | StoreError::NoWeek(_))) => error.to_string(),
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}
