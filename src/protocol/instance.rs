//! A window of an instance's run into a sink without transactions: its next step, and what each answer means for it.
//!
//! The store's settled position is the truth ([`super::slot`]), so four things are kept apart: what is *claimed* here
//! (by this run, at a position), *published* (the sink has confirmed it), *committed* (everything below is published,
//! given back, or was never claimed), and *settled* (the store has answered that it knows as much). A message is done
//! when it is published, or when its event is: then it is acknowledged. Everything else stays unacknowledged.
//!
//! *Why nothing is lost.* A message that is not done is either this run's to publish, or it comes again later: because
//! somebody else holds its event, because its claim was given back, or because its own publish is in doubt. A repeat of
//! an event that this very window holds shares that event's fate and is never judged by the store.
//!
//! *Why a second copy is rare.* A claim that is surely not published is given back by its exact positions. One that may
//! be published is left on the lane, which is then closed: nobody gets it before the lane's lease is over. Before the
//! store is asked for more, all that was claimed is published or given back, so that a lease that is renewed is never
//! that of an older claim.

use super::lane::{LaneId, Position};
use super::slot::{Conflict, Conflicting, Mine, judge_conflict};
use super::window::Questions;

/// What a run knows of the lane that it extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    pub lane: LaneId,
    /// The next position. None is used twice.
    pub next: Position,
    /// Everything below is published, given back, or was never claimed.
    pub committed: Position,
    /// The store has answered that it knows as much.
    pub settled: Position,
}

impl Standing {
    pub fn new(lane: LaneId) -> Standing {
        Standing { lane, next: 0, committed: 0, settled: 0 }
    }

    /// The store is to be told within a second, so that nobody takes what is done for somebody's work.
    pub fn owes(&self) -> bool {
        self.committed > self.settled
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// To be claimed.
    Fresh,
    /// Of the same event as an earlier message of the window: whatever becomes of that.
    Repeat { of: usize },
    /// Claimed here, to be published.
    Mine(Position),
    /// To be published without a claim: a dead letter, what a policy lets pass, a duplicate that goes out as one.
    Unclaimed,
    /// Published with a claim, at this position, or without.
    Published(Option<Position>),
    /// May be published.
    InDoubt(Position),
    /// Its event is published.
    Duplicate,
    /// Its holder is gone.
    Orphan(Remedy),
    /// Not now: it is somebody's work, or was given back.
    Later,
}

impl State {
    /// It may be acknowledged.
    pub fn is_done(self) -> bool {
        matches!(self, State::Published(_) | State::Duplicate)
    }
}

/// How an event is had whose holder is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Take the slot of this lane.
    TakeOver(LaneId),
    /// Delete what was left in doubt on it.
    Sweep(LaneId),
}

/// The step to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// These, in this order.
    Publish(Vec<usize>),
    Remedy(Remedy),
    /// Claim what is fresh.
    Reserve,
    /// A publish is in doubt: take the own slot with a new lane, leaving the claim behind.
    Cut,
    /// What is not done comes again later.
    Done,
}

/// A row to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub item: usize,
    pub position: Position,
}

/// What the store says of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Inserted,
    /// None: the claim in the way was gone by the time that it was read.
    InTheWay(Option<Conflicting>),
}

/// How a publish ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stored,
    /// Surely not stored.
    NotStored,
    InDoubt,
}

/// What was published or may have been although it lies at or above the committed position. Ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beyond {
    pub published: Vec<Position>,
    pub in_doubt: Vec<Position>,
}

/// So often is the store asked for the same window before what it cannot say is left for later.
const RESERVES_MAX: u32 = 4;

#[derive(Debug, Clone)]
pub struct Window {
    states: Vec<State>,
    /// The first message of each event, ascending by key.
    asking: Vec<usize>,
    reserves: u32,
}

impl Window {
    /// `keys`: one per message, in the order in which they came; None for what goes out unclaimed.
    pub fn of<K: Ord>(keys: &[Option<K>]) -> Window {
        let keyed: Vec<usize> = (0..keys.len()).filter(|&n| keys[n].is_some()).collect();
        let names: Vec<&Option<K>> = keyed.iter().map(|&n| &keys[n]).collect();
        let questions = Questions::of(&names);
        let mut states = vec![State::Unclaimed; keys.len()];
        for (n, &item) in keyed.iter().enumerate() {
            let of = keyed[questions.asker(n)];
            states[item] = if of == item { State::Fresh } else { State::Repeat { of } };
        }
        let asking = questions.asking.iter().map(|&n| keyed[n]).collect();
        Window { states, asking, reserves: 0 }
    }

    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Each failure to publish comes before what is still to be published, and that before any new claim.
    pub fn next(&self) -> Next {
        let any = |is: fn(&State) -> bool| self.states.iter().any(is);
        if any(|state| matches!(state, State::InDoubt(_))) {
            return Next::Cut;
        }
        // What needs no claim goes with what has one, or last.
        let waits = any(|state| matches!(state, State::Fresh | State::Orphan(_)));
        if any(|state| matches!(state, State::Mine(_))) || !waits {
            let publish = self.those(|state| matches!(state, State::Mine(_) | State::Unclaimed)).collect::<Vec<_>>();
            return if publish.is_empty() { Next::Done } else { Next::Publish(publish) };
        }
        let remedy = self.states.iter().find_map(|state| match state {
            State::Orphan(remedy) => Some(*remedy),
            _ => None,
        });
        remedy.map_or(Next::Reserve, Next::Remedy)
    }

    fn those(&self, is: impl Fn(State) -> bool) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(move |&n| is(self.states[n]))
    }

    /// What to ask for: distinct keys, ascending, positions in the order in which the messages came. Asked again they
    /// are the same, for as long as there was no answer.
    pub fn rows(&self, standing: &Standing) -> Vec<Row> {
        let fresh: Vec<usize> = self.those(|state| state == State::Fresh).collect();
        let position = |item: &usize| fresh.binary_search(item).ok().map(|n| standing.next + n as Position);
        self.asking.iter().filter_map(|item| Some(Row { item: *item, position: position(item)? })).collect()
    }

    /// The answers to a reserve of these rows, one per row, which told the store what is committed.
    pub fn reserved(&mut self, standing: &mut Standing, rows: &[Row], answers: &[Answer]) {
        assert_eq!(rows.len(), answers.len(), "one answer per row");
        standing.settled = standing.committed;
        standing.next += rows.len() as Position;
        self.reserves += 1;
        let again = if self.reserves < RESERVES_MAX { State::Fresh } else { State::Later };
        let mine = Mine { lane: standing.lane, committed: standing.settled };
        for (row, answer) in rows.iter().zip(answers) {
            self.states[row.item] = match answer {
                Answer::Inserted => State::Mine(row.position),
                Answer::InTheWay(found) => match judge_conflict(*found, mine) {
                    Conflict::Duplicate => State::Duplicate,
                    Conflict::InFlight => State::Later,
                    Conflict::Gone => again,
                    _ if again == State::Later => State::Later,
                    Conflict::TakeOver(lane) => State::Orphan(Remedy::TakeOver(lane)),
                    Conflict::LeftBehind(lane) => State::Orphan(Remedy::Sweep(lane)),
                },
            };
        }
        self.settle(standing);
    }

    /// The remedy was applied (`again`: its events are asked for again), or cannot be now.
    pub fn remedied(&mut self, remedy: Remedy, again: bool) {
        let state = if again { State::Fresh } else { State::Later };
        self.states.iter_mut().filter(|one| **one == State::Orphan(remedy)).for_each(|one| *one = state);
        self.follow();
    }

    /// This one goes out all the same: a duplicate by policy, or what cannot be claimed while the store is away.
    pub fn unclaimed(&mut self, item: usize) {
        if matches!(self.states[item], State::Fresh | State::Repeat { .. } | State::Duplicate) {
            self.states[item] = State::Unclaimed;
        }
    }

    /// The ends of a publish of these messages.
    pub fn published(&mut self, standing: &mut Standing, items: &[usize], ends: &[End]) {
        assert_eq!(items.len(), ends.len(), "one end per message");
        for (&item, end) in items.iter().zip(ends) {
            self.states[item] = match (self.states[item], end) {
                (State::Mine(position), End::Stored) => State::Published(Some(position)),
                (State::Mine(position), End::InDoubt) => State::InDoubt(position),
                (State::Unclaimed, End::Stored) => State::Published(None),
                // Without a claim there is nothing to leave behind: it goes out again.
                (state, _) => state,
            };
        }
        self.settle(standing);
    }

    fn settle(&mut self, standing: &mut Standing) {
        let open = self.states.iter().filter_map(|state| match state {
            State::Mine(position) | State::InDoubt(position) => Some(*position),
            _ => None,
        });
        standing.committed = open.min().unwrap_or(standing.next);
        self.follow();
    }

    /// Repeats, once it is known what became of the first.
    fn follow(&mut self) {
        for n in 0..self.states.len() {
            let State::Repeat { of } = self.states[n] else { continue };
            match self.states[of] {
                State::Published(_) | State::Duplicate => self.states[n] = State::Duplicate,
                State::Later => self.states[n] = State::Later,
                _ => {}
            }
        }
    }

    /// For the bounded release, and for the cut.
    pub fn beyond(&self, standing: &Standing) -> Beyond {
        let mut beyond = Beyond::default();
        for state in &self.states {
            match state {
                State::Published(Some(position)) if *position >= standing.committed => beyond.published.push(*position),
                State::InDoubt(position) => beyond.in_doubt.push(*position),
                _ => {}
            }
        }
        beyond.published.sort_unstable();
        beyond.in_doubt.sort_unstable();
        beyond
    }

    /// Every claim of the window that is not published was given back, or the lane was given up: what is not done comes
    /// again later.
    pub fn given_back(&mut self, standing: &mut Standing) {
        self.states.iter_mut().filter(|state| !state.is_done()).for_each(|state| *state = State::Later);
        standing.committed = standing.next;
    }
}
