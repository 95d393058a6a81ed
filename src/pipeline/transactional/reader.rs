//! The first thread: reads, names what it read, fills windows, answers rebalances. It owns the consumer and starts every
//! epoch.
//!
//! Windows adapt: everything at hand up to the bounds; with nothing at hand a short linger; while the claimer is busy
//! the window goes on growing. A full window that nobody takes pauses the fetching, but the polling goes on, since a
//! member that does not poll is thrown out.
//!
//! Whatever moves the reader (an offer, a revocation, a failed window) is the same three steps: end the epoch, send a
//! barrier through the other threads and wait for it, take the positions anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendTimeoutError, Sender};
use metrics::{counter, gauge};
use tokio::runtime::Handle;

use super::control::{Control, Trouble, lock};
use super::keyer::Keyer;
use super::known::Known;
use super::lanes::Lanes;
use super::window::{Job, Raw, RefusedRecord};
use super::{Options, PipelineError, Shared, Status};
use crate::kafka::TopicPartition;
use crate::kafka::native::{Event, Membership, Record};
use crate::metrics as names;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Position, StoreId};
use crate::shutdown::Shutdown;
use crate::source::kafka::KafkaSource;
use crate::store::{ClaimStore, Recovery, StoreError};

/// How long a full window waits for the claimer before the fetching is paused.
const STALL: Duration = Duration::from_secs(1);
/// What a record takes in memory beside its own bytes, roughly: it counts for a window's bound.
const RECORD_BYTES: usize = 256;
pub(super) const ASK: Duration = Duration::from_secs(10);

pub struct Reader {
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) control: Arc<Control>,
    pub(super) lanes: Arc<Mutex<Lanes>>,
    known: Arc<Mutex<Known>>,
    refused: Arc<Mutex<Vec<RefusedRecord>>>,
    keyer: Arc<Keyer>,
    pub(super) to_claimer: Sender<Job<Raw>>,
    pub(super) troubles: Receiver<Trouble>,
    status: Arc<Status>,
    pub(super) source: KafkaSource,
    /// Events that came while the reader was waiting for something else.
    pub(super) waiting: VecDeque<Event>,
    pub(super) epoch: u64,
    pub(super) window: Option<Raw>,
    /// Captured before the first poll of the window that is open or comes next, and after every rebalance.
    membership: Option<Arc<Membership>>,
    /// Per assigned partition the next position to read. What is below has been read in this epoch.
    pub(super) next: BTreeMap<TopicPartition, Position>,
    full_since: Option<Instant>,
    paused: bool,
    rereads: Backoff,
    last_keeping: Instant,
    last_topic_check: Instant,
    last_commit: BTreeMap<TopicPartition, (Position, Instant)>,
}

impl Reader {
    #[expect(clippy::too_many_arguments, reason = "called once, by the function that makes them all")]
    pub fn new(
        options: Options,
        shared: Arc<Shared>,
        control: Arc<Control>,
        lanes: Arc<Mutex<Lanes>>,
        known: Arc<Mutex<Known>>,
        refused: Arc<Mutex<Vec<RefusedRecord>>>,
        keyer: Arc<Keyer>,
        to_claimer: Sender<Job<Raw>>,
        troubles: Receiver<Trouble>,
        status: Arc<Status>,
    ) -> Result<Reader, PipelineError> {
        let source = KafkaSource::new(&options.source).map_err(PipelineError::Source)?;
        let now = Instant::now();
        Ok(Reader {
            options,
            shared,
            control,
            lanes,
            known,
            refused,
            keyer,
            to_claimer,
            troubles,
            status,
            source,
            waiting: VecDeque::new(),
            epoch: 1,
            window: None,
            membership: None,
            next: BTreeMap::new(),
            full_since: None,
            paused: false,
            rereads: Backoff::new(Duration::from_millis(10), Duration::from_secs(2)),
            last_keeping: now,
            last_topic_check: now,
            last_commit: BTreeMap::new(),
        })
    }

    pub fn run(mut self) -> Result<(), PipelineError> {
        let mut joined = self.subscribe();
        loop {
            if let Err(trouble) = joined {
                if self.control.shutdown.is_requested() && !matches!(trouble, Trouble::Leave(_)) {
                    return self.drain();
                }
                joined = self.recover(trouble);
                if let Err(Trouble::Leave(error)) = joined {
                    return Err(error);
                }
                continue;
            }
            if self.control.shutdown.is_requested() {
                return self.drain();
            }
            joined = self.step();
        }
    }

    /// One round: events and messages at hand, then the hand-over of the window.
    fn step(&mut self) -> Result<(), Trouble> {
        if let Ok(trouble) = self.troubles.try_recv() {
            return Err(trouble);
        }
        self.keep_house()?;
        if self.window.is_none() {
            self.membership = self.source.membership().map(Arc::new);
        }
        let mut wait = if self.window.is_none() { Duration::from_millis(50) } else { Duration::from_millis(1) };
        if self.is_full() {
            wait = Duration::ZERO;
        }
        loop {
            if self.is_full() && !self.paused {
                break;
            }
            let event = self.waiting.pop_front().or_else(|| self.source.poll(wait));
            wait = Duration::ZERO;
            match event {
                None => break,
                Some(Event::Message(record)) => self.take(record)?,
                Some(event @ (Event::Assigned(_) | Event::Revoked(_))) => return self.serve(event),
                Some(event) => self.serve(event)?,
            }
        }
        self.hand_over()
    }

    fn is_full(&self) -> bool {
        let bounds = &self.options.window;
        self.window
            .as_ref()
            .is_some_and(|window| window.records.len() >= bounds.messages_max || window.bytes >= bounds.bytes_max)
    }

    fn take(&mut self, record: Record) -> Result<(), Trouble> {
        let Some(place) = self.source.place(record.topic(), record.partition()) else { return Ok(()) };
        // A client that comes back from a pause may hand over again what it handed over already, and what is not
        // assigned any more is not read.
        if self.next.get(&place).is_none_or(|next| record.offset() < *next) {
            return Ok(());
        }
        // A record that cannot be taken must not be passed over either.
        if self.open().is_none() {
            return Err(Trouble::Reread { why: "the membership is gone".to_owned(), refused: Vec::new() });
        }
        let Some(window) = &mut self.window else { return Ok(()) };
        let size = record.size();
        window.names.push(self.keyer.name(place, &record, size, &lock(&self.refused)));
        window.bytes += size + RECORD_BYTES;
        let next = record.offset() + 1;
        window.next.insert(place, next);
        window.records.push((place, record));
        self.next.insert(place, next);
        Ok(())
    }

    /// Positions that hold no message (a transaction's own records) are committed too, so that the lag reaches zero.
    fn end_of_log(&mut self, place: TopicPartition, end: Position) {
        if self.next.get(&place).is_none_or(|next| end <= *next) {
            return;
        }
        if let Some(window) = self.open() {
            window.next.insert(place, end);
            self.next.insert(place, end);
        }
    }

    /// The window that is open, or a new one. None without a membership.
    fn open(&mut self) -> Option<&mut Raw> {
        if self.window.is_none() {
            let membership = self.membership.clone()?;
            self.window = Some(Raw {
                epoch: self.epoch,
                membership,
                records: Vec::new(),
                names: Vec::new(),
                order: Vec::new(),
                sealed: 0,
                bytes: 0,
                next: BTreeMap::new(),
                opened: Instant::now(),
            });
        }
        self.window.as_mut()
    }

    fn serve(&mut self, event: Event) -> Result<(), Trouble> {
        match event {
            Event::Message(_) => Ok(()),
            Event::End { topic, partition, next } => {
                if let Some(place) = self.source.place(&topic, partition) {
                    self.end_of_log(place, next);
                }
                Ok(())
            }
            Event::Assigned(partitions) => {
                counter!(names::REBALANCES, "kind" => "assigned").increment(1);
                let places = self.source.places(&partitions);
                self.assigned(&places)
            }
            Event::Revoked(partitions) => {
                counter!(names::REBALANCES, "kind" => "revoked").increment(1);
                let places = self.source.places(&partitions);
                self.revoked(&places)
            }
            Event::Error { code, text, fatal, topic } => {
                use rdkafka::types::RDKafkaErrorCode as Code;
                let place = topic.map(|(topic, partition)| format!("{topic}/{partition}")).unwrap_or_default();
                if fatal {
                    return Err(Trouble::Rejoin { why: format!("{place} {text}") });
                }
                if matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange) {
                    // Retention overtook the position: rule 7 finds out.
                    return Err(Trouble::Reread { why: format!("{place} {text}"), refused: Vec::new() });
                }
                counter!(names::BROKER_ERRORS, "client" => "source").increment(1);
                tracing::warn!(place, ?code, "kafka source reports: {text}");
                Ok(())
            }
        }
    }

    /// While positions are taken, messages are dropped: nothing is assigned or sought before all of them are known.
    fn assigned(&mut self, places: &[TopicPartition]) -> Result<(), Trouble> {
        self.quiesce()?;
        self.unpause()?;
        let retained: Vec<_> = self.next.keys().copied().collect();
        let positions = self.take_over(places, true)?;
        let kept = self.take_over(&retained, false)?;
        self.source.assign(&positions).map_err(|error| rejoin(&error))?;
        self.next.extend(positions);
        tracing::info!(partitions = places.len(), retained = retained.len(), "partitions were assigned");
        self.status.set(true);
        self.seek(kept)
    }

    fn revoked(&mut self, places: &[TopicPartition]) -> Result<(), Trouble> {
        self.quiesce()?;
        self.unpause()?;
        if self.is_made_anew() {
            // Whoever gets them next finds no offset.
            self.record_left(places);
        }
        for place in places {
            self.next.remove(place);
            lock(&self.lanes).remove(place);
            self.last_commit.remove(place);
        }
        self.source.unassign(places).map_err(|error| rejoin(&error))?;
        tracing::info!(partitions = places.len(), retained = self.next.len(), "partitions were revoked");
        self.read_again()
    }

    /// Fetches the positions of everything that is assigned, and seeks there: the windows were discarded.
    fn read_again(&mut self) -> Result<(), Trouble> {
        let places: Vec<_> = self.next.keys().copied().collect();
        let positions = self.take_over(&places, false)?;
        self.seek(positions)
    }

    fn seek(&mut self, positions: Vec<(TopicPartition, Position)>) -> Result<(), Trouble> {
        if positions.is_empty() {
            return Ok(());
        }
        self.source.seek(&positions, ASK).map_err(|error| rejoin(&error))?;
        self.next.extend(positions);
        self.unpause()
    }

    /// The client remembers a pause beyond the assignment: who lets a partition go while it is paused and is given it
    /// again would never read from it.
    fn unpause(&mut self) -> Result<(), Trouble> {
        if self.paused {
            let places: Vec<_> = self.next.keys().copied().collect();
            self.source.resume(&places).map_err(|error| rejoin(&error))?;
            self.paused = false;
        }
        Ok(())
    }

    /// Ends the epoch and waits until nothing of it is on its way. A commit that was sent is waited for.
    pub(super) fn quiesce(&mut self) -> Result<(), Trouble> {
        self.control.end(self.epoch);
        self.epoch += 1;
        self.window = None;
        self.membership = None;
        self.full_since = None;
        self.waiting.retain(|event| !matches!(event, Event::Message(_) | Event::End { .. }));
        let (answer, answered) = crossbeam_channel::bounded(1);
        let gone = |_| Trouble::Leave(PipelineError::Panicked);
        self.to_claimer.send(Job::Barrier(answer)).map_err(|_| gone(()))?;
        answered.recv().map_err(|_| gone(()))?;
        lock(&self.known).forget_all();
        // What went wrong in an epoch that is over does not matter any more, except for what has to be remembered.
        while let Ok(trouble) = self.troubles.try_recv() {
            match trouble {
                Trouble::Reread { refused, .. } => lock(&self.refused).extend(refused),
                Trouble::Rejoin { .. } => {}
                Trouble::Leave(error) => return Err(Trouble::Leave(error)),
            }
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), Trouble> {
        let full = self.is_full();
        let Some(mut window) = self.window.take() else { return Ok(()) };
        if !full && window.opened.elapsed() < self.options.window.linger {
            self.window = Some(window);
            return Ok(());
        }
        window.seal();
        let patience = if full && !self.paused { Duration::from_millis(50) } else { Duration::ZERO };
        match self.to_claimer.send_timeout(Job::Window(window), patience) {
            Ok(()) => {
                self.full_since = None;
                if self.paused {
                    return self.seek(self.next.iter().map(|(place, next)| (*place, *next)).collect());
                }
                Ok(())
            }
            Err(SendTimeoutError::Timeout(Job::Window(window))) => {
                self.window = Some(window);
                if full && self.full_since.get_or_insert_with(Instant::now).elapsed() > STALL && !self.paused {
                    let places: Vec<_> = self.next.keys().copied().collect();
                    self.source.pause(&places).map_err(|error| rejoin(&error))?;
                    self.paused = true;
                }
                if self.paused {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            }
            Err(_) => Err(Trouble::Leave(PipelineError::Panicked)),
        }
    }

    fn recover(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        match trouble {
            Trouble::Leave(error) => Err(Trouble::Leave(error)),
            Trouble::Reread { why, refused } => {
                tracing::warn!(
                    why,
                    refused = refused.len(),
                    "a window was discarded, reading again from the committed offsets"
                );
                lock(&self.refused).extend(refused);
                self.quiesce()?;
                self.control.shutdown.sleep(self.rereads.next(self.shared.spread()));
                if self.is_made_anew() {
                    self.record_left(&self.held());
                    return self.join();
                }
                self.read_again()
            }
            Trouble::Rejoin { why } => {
                tracing::warn!(why, "leaving the group and joining anew");
                self.quiesce()?;
                if self.is_made_anew() {
                    self.record_left(&self.held());
                }
                self.control.shutdown.sleep(self.rereads.next(self.shared.spread()));
                self.join()
            }
        }
    }

    /// Makes the consumer anew and subscribes. The old one leaves its group while it is dropped.
    fn join(&mut self) -> Result<(), Trouble> {
        self.status.set(false);
        self.next.clear();
        self.last_commit.clear();
        self.waiting.clear();
        self.paused = false;
        lock(&self.lanes).clear();
        lock(&self.refused).clear();
        self.source =
            KafkaSource::new(&self.options.source).map_err(|error| Trouble::Leave(PipelineError::Source(error)))?;
        self.subscribe()
    }

    fn subscribe(&mut self) -> Result<(), Trouble> {
        let ids = loop {
            if self.control.shutdown.is_requested() {
                return Ok(());
            }
            match self.source.topic_ids(ASK) {
                Ok(ids) => break ids,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the topics' ids, trying again");
                    self.control.shutdown.sleep(self.rereads.next(self.shared.spread()));
                }
            }
        };
        *lock(&self.shared.topic_ids) = ids;
        self.source.subscribe().map_err(|error| Trouble::Leave(PipelineError::Source(error)))
    }

    /// What is due now and then: callbacks of the second client, gauges, the topics' ids, offsets that would expire.
    fn keep_house(&mut self) -> Result<(), Trouble> {
        if self.last_keeping.elapsed() < Duration::from_millis(500) {
            return Ok(());
        }
        self.last_keeping = Instant::now();
        self.source.poll_settled();
        let committed: Vec<_> = lock(&self.lanes).iter().map(|(place, held)| (*place, held.committed)).collect();
        for (place, position) in committed {
            let labels =
                [("topic", self.source.topic_name(place.topic).to_owned()), ("partition", place.partition.to_string())];
            gauge!(names::POSITION, &labels).set(position as f64);
            if let Some(end) = self.source.known_end(place) {
                gauge!(names::LAG, &labels).set(end.saturating_sub(position).max(0) as f64);
            }
            let (last, since) = *self.last_commit.entry(place).or_insert((position, Instant::now()));
            if last != position {
                self.rereads.reset();
                self.last_commit.insert(place, (position, Instant::now()));
            } else if since.elapsed() > self.options.refresh
                && self.next.get(&place) == Some(&position)
                && let Some(window) = self.open()
            {
                window.next.insert(place, position);
                self.last_commit.insert(place, (position, Instant::now()));
            }
        }
        if self.last_topic_check.elapsed() > self.options.topic_check {
            self.last_topic_check = Instant::now();
            if self.is_made_anew() {
                return Err(Trouble::Rejoin { why: "a topic was made anew under its name".to_owned() });
            }
        }
        Ok(())
    }
}

pub(super) fn rejoin(error: &(dyn std::error::Error + 'static)) -> Trouble {
    Trouble::Rejoin { why: crate::pipeline::chain(error) }
}

/// The store's id, waited for; none on the wish to end.
pub fn store_id(store: &dyn ClaimStore, runtime: &Handle, shutdown: &Shutdown) -> Result<Option<StoreId>, StoreError> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));
    while !shutdown.is_requested() {
        match runtime.block_on(store.store_id()) {
            Ok(id) => return Ok(Some(id)),
            Err(error) if matches!(error.recovery(), Recovery::Retry | Recovery::Retake) => {
                if backoff.tries().is_multiple_of(10) {
                    tracing::warn!(
                        error = crate::pipeline::chain(&error),
                        "the claim store does not answer, trying again"
                    );
                }
                shutdown.sleep(backoff.next(128));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

// Whoever passes a membership on got it from here, so that it is always one that was captured before the poll.
pub(super) fn membership(source: &KafkaSource) -> Result<Arc<Membership>, Trouble> {
    source.membership().map(Arc::new).ok_or_else(|| Trouble::Rejoin { why: "the membership is gone".to_owned() })
}
