//! A partition as its owner knows it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::item::Item;
use crate::kafka::TopicPartition;
use crate::pipeline::transactional::WindowOptions;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::Guard;

const HOLD_FIRST: Duration = Duration::from_millis(50);
const HOLD_LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Lane {
    pub stream: StreamId,
    pub lane: LaneId,
    pub token: Token,
    /// A call under this token has an unknown outcome: before the next one it is replaced by this one.
    pub retoken: Option<Token>,
    /// Everything below is published, or its event is.
    pub done: Position,
    /// The store has answered that it knows as much.
    pub settled: Position,
    /// When the group's offset is committed once more: a commit that a rebalance came across is lost without a word.
    pub commit_again: Option<Instant>,
    /// Until when its claims are surely its own. None while nothing is under way.
    pub leased_until: Option<Instant>,
    /// What was read and is in no window yet, in its order.
    pub waiting: VecDeque<Item>,
    pub waiting_bytes: usize,
    /// The next position to read.
    pub next: Position,
    pub since: Option<Instant>,
    pub batch: Option<Batch>,
    /// Claims behind what waits may have been left by the owner before: it was taken over as it was.
    pub has_leftovers: bool,
    /// Its first message waits for somebody else's work.
    pub held: Option<(Instant, Backoff)>,
    pub paused: bool,
}

pub type Lanes = BTreeMap<TopicPartition, Lane>;

impl Lane {
    /// A lane that was just taken over, or opened.
    pub fn at(stream: StreamId, guard: Guard, position: Position) -> Lane {
        Lane {
            stream,
            lane: guard.lane,
            token: guard.token,
            retoken: None,
            done: position,
            settled: position,
            commit_again: None,
            leased_until: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next: position,
            since: None,
            batch: None,
            has_leftovers: false,
            held: None,
            paused: false,
        }
    }

    pub fn guard(&self) -> Guard {
        Guard { lane: self.lane, token: self.token }
    }

    pub fn push(&mut self, item: Item) {
        self.next = item.offset + 1;
        self.waiting_bytes += item.bytes;
        self.since.get_or_insert_with(Instant::now);
        self.waiting.push_back(item);
    }

    /// The front of what waits, for one window.
    pub fn take(&mut self, bounds: &WindowOptions) -> Vec<Item> {
        let mut bytes = 0;
        let fits = |item: &&Item| {
            bytes += item.bytes;
            bytes <= bounds.bytes_max || bytes == item.bytes
        };
        let count = self.waiting.iter().take(bounds.messages_max).take_while(fits).count();
        let taken: Vec<Item> = self.waiting.drain(..count).collect();
        self.waiting_bytes -= taken.iter().map(|item| item.bytes).sum::<usize>();
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        taken
    }

    /// Before all that waits.
    pub fn put_back(&mut self, items: Vec<Item>) {
        if !items.is_empty() {
            self.since.get_or_insert_with(Instant::now);
        }
        for item in items.into_iter().rev() {
            self.waiting_bytes += item.bytes;
            self.waiting.push_front(item);
        }
    }

    pub fn is_full(&self, bounds: &WindowOptions) -> bool {
        self.waiting.len() >= bounds.messages_max || self.waiting_bytes >= bounds.bytes_max
    }

    /// Its first message is asked for again after a while, longer each time.
    pub fn hold(&mut self, spread: u8) {
        let (_, mut backoff) = self.held.take().unwrap_or((Instant::now(), Backoff::new(HOLD_FIRST, HOLD_LONGEST)));
        self.held = Some((Instant::now() + backoff.next(spread), backoff));
    }

    pub fn is_held(&self) -> bool {
        self.held.as_ref().is_some_and(|(until, _)| *until > Instant::now())
    }

    /// The store is to be told of what is done.
    pub fn owes(&self) -> bool {
        self.done > self.settled || (self.batch.is_none() && self.leased_until.is_some())
    }
}
