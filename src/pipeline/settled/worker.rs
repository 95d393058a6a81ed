//! The loop around the windows: polls, keeps house, drains.
//!
//! Each round takes what is at hand, does as much as can be done of each partition's window, and tells the store what is
//! idle. A partition whose window cannot go on, or waits for somebody else's work, is paused, so that no more of it is read
//! than two windows; the polling goes on, since a member that does not poll is thrown out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, gauge};
use tokio::runtime::Handle;

use super::item::Item;
use super::lane::{Lane, Lanes};
use super::store::{Away, TRIES};
use super::{Options, Parts, SettledError, Trouble};
use crate::clock::SharedClock;
use crate::kafka::TopicPartition;
use crate::kafka::native::{Event, Record};
use crate::metrics as names;
use crate::pipeline::leased::Status;
use crate::pipeline::leased::keyer::Keyer;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Position, TopicId};
use crate::shutdown::Shutdown;
use crate::sink::Sink;
use crate::source::kafka::KafkaSource;
use crate::store::LaneFor;
use crate::store::slots::SlotStore;

pub(super) const ASK: Duration = Duration::from_secs(10);
/// The longest wait for messages.
const LISTEN: Duration = Duration::from_millis(50);
/// Between two rounds in which nothing could go on.
const REST: Duration = Duration::from_millis(5);

pub struct Worker {
    pub(super) options: Options,
    pub(super) store: Arc<dyn SlotStore>,
    pub(super) sink: Box<dyn Sink>,
    pub(super) clock: SharedClock,
    pub(super) runtime: Handle,
    pub(super) shutdown: Shutdown,
    pub(super) status: Arc<Status>,
    pub(super) source: KafkaSource,
    pub(super) keyer: Keyer,
    pub(super) lane_for: LaneFor,
    pub(super) topics: Vec<Arc<str>>,
    /// As they were when the topics were subscribed to.
    pub(super) topic_ids: Vec<TopicId>,
    pub(super) lanes: Lanes,
    /// Of partitions that are being let go.
    pub(super) settled: BTreeMap<TopicPartition, Position>,
    /// Events that came while something else was waited for.
    pub(super) events: VecDeque<Event>,
    pub(super) store_away: Away,
    pub(super) sink_away: Away,
    pub(super) rejoins: Backoff,
    last_keeping: Instant,
    last_topic_check: Instant,
}

impl Worker {
    pub fn new(options: Options, parts: Parts) -> Result<Worker, SettledError> {
        let source = KafkaSource::without_settled(&options.source).map_err(SettledError::Source)?;
        let Parts { store, sink, clock, runtime, shutdown, status } = parts;
        let keyer = Keyer {
            extraction: options.extraction.clone(),
            bounds: options.bounds,
            policies: options.policies,
            scope: options.scope.clone(),
            origin: options.source.topics.join(",").into(),
        };
        status.set(Some("the group has not answered".to_owned()));
        let now = Instant::now();
        Ok(Worker {
            lane_for: LaneFor { scope: options.scope.clone(), recipe: options.extraction.digest() },
            topics: options.source.topics.iter().map(|topic| topic.as_str().into()).collect(),
            topic_ids: Vec::new(),
            lanes: Lanes::new(),
            settled: BTreeMap::new(),
            events: VecDeque::new(),
            store_away: Away::default(),
            sink_away: Away::default(),
            rejoins: Backoff::new(Duration::from_millis(10), Duration::from_secs(2)),
            last_keeping: now,
            last_topic_check: now,
            options,
            store,
            sink,
            clock,
            runtime,
            shutdown,
            status,
            source,
            keyer,
        })
    }

    pub fn run(mut self) -> Result<(), SettledError> {
        let mut ended = self.subscribe();
        while !self.shutdown.is_requested() {
            if let Err(trouble) = ended {
                ended = self.recover(trouble);
                if let Err(Trouble::Leave(error)) = ended {
                    self.let_go_of_all();
                    return Err(error);
                }
                continue;
            }
            ended = self.round();
        }
        if let Err(Trouble::Leave(error)) = ended {
            self.let_go_of_all();
            return Err(error);
        }
        self.drain()
    }

    fn round(&mut self) -> Result<(), Trouble> {
        self.keep_house()?;
        self.gather()?;
        let began = Instant::now();
        let places: Vec<TopicPartition> = self.lanes.keys().copied().collect();
        for &place in &places {
            self.step(place)?;
            self.settle_idle(place)?;
        }
        self.keep_room()?;
        if began.elapsed() < REST && self.lanes.values().any(|lane| lane.batch.is_some()) {
            std::thread::sleep(REST);
        }
        Ok(())
    }

    /// Takes what is at hand: until nothing is, and the oldest has waited for long enough, or there is a window's fill.
    fn gather(&mut self) -> Result<(), Trouble> {
        let bounds = self.options.window;
        loop {
            let ready = |lane: &&Lane| lane.batch.is_none() && !lane.is_held();
            let waiting = || self.lanes.values().filter(ready);
            let bytes: usize = waiting().map(|lane| lane.waiting_bytes).sum();
            if bytes >= bounds.bytes_max || waiting().any(|lane| lane.is_full(&bounds)) {
                return self.serve_waiting();
            }
            let since = waiting().filter_map(|lane| lane.since).min();
            let left = since.map(|since| bounds.linger.saturating_sub(since.elapsed()));
            let rests = self.lanes.values().any(|lane| lane.batch.is_some() || lane.owes());
            let wait = left.unwrap_or(if rests { REST } else { LISTEN });
            match self.events.pop_front().or_else(|| self.source.poll(wait)) {
                None if left.is_some_and(|left| !left.is_zero()) => {}
                None => return Ok(()),
                Some(Event::Message(record)) => self.take(&record)?,
                Some(event) => self.serve(event)?,
            }
        }
    }

    /// What came while something else was waited for; messages are not polled.
    fn serve_waiting(&mut self) -> Result<(), Trouble> {
        while let Some(event) = self.events.pop_front() {
            match event {
                Event::Message(record) => self.take(&record)?,
                event => self.serve(event)?,
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, record: &Record) -> Result<(), Trouble> {
        let Some(place) = self.source.place(record.topic(), record.partition()) else { return Ok(()) };
        let bounds = self.options.window;
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(()) };
        // A client that comes back from a pause may hand over again what it handed over already.
        if record.offset() < lane.next {
            return Ok(());
        }
        lane.push(Item::of(record, &self.keyer));
        counter!(names::READ).increment(1);
        let is_over = lane.waiting.len() >= 2 * bounds.messages_max || lane.waiting_bytes >= 2 * bounds.bytes_max;
        if is_over && !lane.paused {
            lane.paused = true;
            self.source.pause(&[place]).map_err(|error| Trouble::rejoin(&error))?;
        }
        Ok(())
    }

    /// Finishes the windows that are under way, settles them, and leaves the group.
    fn drain(mut self) -> Result<(), SettledError> {
        tracing::info!("draining");
        let (mut ended, places) = (Ok(()), self.lanes.keys().copied().collect::<Vec<TopicPartition>>());
        while ended.is_ok() && self.lanes.values().any(|lane| lane.batch.is_some()) {
            if self.store_away.tries() > TRIES || self.sink_away.tries() > TRIES {
                tracing::warn!("left windows unfinished: whoever gets their partitions finishes them");
                break;
            }
            let under_way: Vec<TopicPartition> =
                places.iter().copied().filter(|place| self.lanes[place].batch.is_some()).collect();
            ended = under_way.into_iter().try_for_each(|place| self.step(place));
            std::thread::sleep(REST);
        }
        self.let_go_of_all();
        if let Err(Trouble::Leave(error)) = ended {
            return Err(error);
        }
        tracing::info!("drained");
        Ok(())
    }

    /// What is due now and then: gauges, the topics' ids.
    fn keep_house(&mut self) -> Result<(), Trouble> {
        if self.last_keeping.elapsed() < Duration::from_millis(500) {
            return Ok(());
        }
        self.last_keeping = Instant::now();
        let mut held = 0;
        for (place, lane) in &self.lanes {
            held += if lane.is_held() || lane.batch.is_some() { lane.waiting.len() } else { 0 };
            let topic = self.source.topic_name(place.topic).to_owned();
            let labels = [("topic", topic), ("partition", place.partition.to_string())];
            gauge!(names::POSITION, &labels).set(lane.settled as f64);
            if let Some(end) = self.source.known_end(*place) {
                gauge!(names::LAG, &labels).set(end.saturating_sub(lane.settled).max(0) as f64);
            }
        }
        gauge!(names::HELD).set(held as f64);
        self.commit_again();
        if !self.lanes.is_empty() && self.store_away.tries() == 0 && self.sink_away.tries() == 0 {
            self.status.set(None);
        }
        if self.last_topic_check.elapsed() > self.options.topic_check {
            self.last_topic_check = Instant::now();
            // No answer is no news.
            let is_anew = match self.source.topic_ids(Duration::from_secs(2)) {
                Ok(ids) => ids != self.topic_ids,
                Err(error) => error.is_unknown_topic(),
            };
            if is_anew {
                return Err(Trouble::Rejoin { why: "a topic was made anew under its name".to_owned() });
            }
        }
        Ok(())
    }

    /// `topic/partition`.
    pub(super) fn name_of(&self, place: TopicPartition) -> String {
        format!("{}/{}", self.topics[usize::from(place.topic)], place.partition)
    }

    /// For [`Backoff`].
    pub(super) fn spread(&self) -> u8 {
        getrandom::u32().map_or(128, |random| random as u8)
    }
}
