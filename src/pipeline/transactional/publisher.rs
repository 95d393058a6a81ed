//! The third thread: one Kafka transaction per window.
//!
//! Produce; commit the settled offsets of `<group>.settled`; then the group's own, with the membership that was
//! captured with the window; both the same. Output, group offset and settled position move as one. What happens at each
//! failure:
//!
//! | the transaction | then |
//! | --- | --- |
//! | requires an abort | it is aborted, nothing of it is visible; read again from the committed offsets |
//! | has an unknown outcome | a new producer takes the id over, which ends the old transaction one way or the other; read again from the committed offsets, never from memory |
//! | was fenced after it outlived its time | as above: the coordinator ended it |
//! | was fenced otherwise | another process uses the same instance name: leave, naming it |
//! | had a record refused | aborted; the window is read again with that record as a dead letter, or in smaller batches where it is not known which record was meant, see [`blame`](super::blame) |

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use metrics::{counter, gauge, histogram};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::control::{Control, Trouble, lock};
use super::known::Known;
use super::lanes::Lanes;
use super::window::{Fate, Job, Judged, NewLanes, NotCommitted, RefusedRecord};
use super::{PipelineError, Shared};
use crate::kafka::TopicPartition;
use crate::kafka::native::{Membership, NativeError, Outgoing, Record};
use crate::kafka::transaction::{Recovery, TransactionError};
use crate::metrics as names;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Mark, Position};
use crate::sink::Destination;
use crate::sink::kafka::{KafkaSink, KafkaSinkOptions, SinkError, Topics};

pub struct Publisher {
    pub shared: Arc<Shared>,
    pub control: Arc<Control>,
    pub lanes: Arc<Mutex<Lanes>>,
    pub known: Arc<Mutex<Known>>,
    pub refused: Arc<Mutex<Vec<RefusedRecord>>>,
    pub options: KafkaSinkOptions,
    pub topics: Topics,
    /// The partition of a forwarded message is that of its source.
    pub same_partition: bool,
    pub dead_letter_bytes_max: usize,
    /// Names of the source's topics, by their index.
    pub source_topics: Vec<Arc<str>>,
    pub settled_group: String,
    pub sink: Option<KafkaSink>,
}

impl Publisher {
    /// Until the claimer hangs up.
    pub fn run(mut self, jobs: &Receiver<Job<Judged>>) {
        loop {
            match jobs.recv_timeout(Duration::from_millis(200)) {
                // A reader that does not wait any more does not need the answer.
                Ok(Job::Barrier(answer)) => drop(answer.send(())),
                Ok(Job::NewLanes(lanes)) => {
                    let outcome = self.new_lanes(&lanes);
                    drop(lanes.answer.send(outcome));
                }
                Ok(Job::Window(window)) => {
                    gauge!(names::IN_FLIGHT).set(1.0);
                    self.window(window);
                    gauge!(names::IN_FLIGHT).set(0.0);
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                    if let Some(sink) = &self.sink {
                        sink.poll();
                    }
                }
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn window(&mut self, mut window: Judged) {
        let epoch = window.raw.epoch;
        if !self.control.is_alive(epoch) {
            return;
        }
        match self.publish(&mut window) {
            Ok(true) => self.committed(window),
            Ok(false) => {}
            Err(error) => {
                lock(&self.known).forget_all();
                counter!(names::WINDOWS, "end" => "discarded").increment(1);
                let trouble = self.settle_failure(&window, error);
                self.control.fail(epoch, trouble);
            }
        }
    }

    /// True once the window is known to have committed; false if its epoch ended first and it was aborted.
    fn publish(&mut self, window: &mut Judged) -> Result<bool, SinkError> {
        let epoch = window.raw.epoch;
        let started = Instant::now();
        self.sink()?.begin()?;
        self.produce(window)?;
        self.sink()?.flush()?;
        histogram!(names::PHASE_SECONDS, "phase" => "publish").record(started.elapsed());
        if !self.control.is_alive(epoch) {
            self.sink()?.abort()?;
            return Ok(false);
        }
        let started = Instant::now();
        let offsets = window.raw.next.iter().map(|(place, next)| {
            let mark = self.mark(*place, window.lanes[place]);
            (*place, *next, mark)
        });
        let offsets: Vec<_> = offsets.collect();
        self.commit(&offsets, &window.raw.membership)?;
        histogram!(names::PHASE_SECONDS, "phase" => "commit").record(started.elapsed());
        Ok(true)
    }

    fn mark(&self, place: TopicPartition, lane: crate::protocol::lane::LaneId) -> Mark {
        let topic = self.shared.topic_id(place.topic);
        Mark { store: self.shared.store_id.clone(), topic, lane, cut: None }
    }

    fn commit(
        &mut self,
        offsets: &[(TopicPartition, Position, Mark)],
        membership: &Membership,
    ) -> Result<(), SinkError> {
        let mut settled = TopicPartitionList::with_capacity(offsets.len());
        let mut own = TopicPartitionList::with_capacity(offsets.len());
        for (place, next, mark) in offsets {
            let topic = &self.source_topics[usize::from(place.topic)];
            let added = own.add_partition_offset(topic, place.partition, Offset::Offset(*next));
            if let Err(error) = added {
                tracing::error!(topic = %topic, partition = place.partition, %error, "an offset was refused by the client");
            }
            let mut element = settled.add_partition(topic, place.partition);
            element.set_metadata(mark.encode());
            if let Err(error) = element.set_offset(Offset::Offset(*next)) {
                tracing::error!(topic = %topic, partition = place.partition, %error, "an offset was refused by the client");
            }
        }
        let group = Membership::without_members(&self.settled_group).ok_or(SinkError::NoTopic)?;
        let sink = self.sink()?;
        sink.send_offsets(&settled, &group)?;
        sink.send_offsets(&own, membership)?;
        sink.commit()
    }

    fn produce(&mut self, window: &mut Judged) -> Result<(), SinkError> {
        let scope = self.shared.scope.clone();
        let same_partition = self.same_partition;
        let sink = self.sink.as_ref().ok_or(SinkError::NoTopic)?;
        for (number, ((place, record), fate)) in window.raw.records.iter_mut().zip(&window.fates).enumerate() {
            let topic = &self.source_topics[usize::from(place.topic)];
            let origin = || format!("{topic}/{}/{}", record.partition(), record.offset());
            let mut added: Vec<(&'static str, String)> = Vec::new();
            let destination = match fate {
                Fate::Drop => continue,
                Fate::Forward => Destination::Forward,
                Fate::ForwardDuplicate => {
                    added.push(("semel-verdict", "duplicate".to_owned()));
                    Destination::Forward
                }
                Fate::RouteDuplicate => {
                    added.push(("semel-verdict", "duplicate".to_owned()));
                    added.push(("semel-origin", origin()));
                    Destination::Duplicates
                }
                Fate::ForwardUnclaimed(cause) => {
                    added.push(("semel-unclaimed", cause.label().to_owned()));
                    Destination::Forward
                }
                Fate::DeadLetter { cause, detail } => {
                    added.push(("semel-cause", cause.label().to_owned()));
                    added.push(("semel-detail", detail.clone()));
                    added.push(("semel-origin", origin()));
                    added.push(("semel-scope", scope.as_str().to_owned()));
                    Destination::DeadLetter
                }
            };
            let without_value = destination == Destination::DeadLetter && self.goes_without_value(*place, record);
            if without_value {
                added.push(("semel-value-bytes", record.value().map_or(0, <[u8]>::len).to_string()));
            }
            let partition = (same_partition && destination == Destination::Forward).then(|| record.partition());
            sink.send(destination, &mut Outgoing { record, partition, added: &added, without_value, number })?;
        }
        Ok(())
    }

    /// What follows a known commit.
    fn committed(&mut self, window: Judged) {
        let Judged { raw, fates, duplicates, known, to_forget, .. } = window;
        {
            let mut lanes = lock(&self.lanes);
            for (place, next) in &raw.next {
                if let Some(held) = lanes.get_mut(place) {
                    held.committed = *next;
                }
            }
        }
        lock(&self.known).learn(&known);
        count(&self.shared, &raw.records, &fates, duplicates);
        if !to_forget.is_empty() {
            self.forget(&to_forget);
            lock(&self.refused).retain(|refused| !raw.records.iter().any(|(place, record)| refused.is(*place, record)));
        }
    }

    /// Only after the commit: deleted earlier, a late claim could land behind the deletion. If it fails, the claim
    /// stays, and re-sending the dead letter has to free it first.
    fn forget(&self, refused: &[crate::store::Refused]) {
        let shared = &self.shared;
        let forgotten = shared.runtime.block_on(shared.store.forget_refused(&shared.scope, refused));
        match forgotten {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "freed the claims of records that the sink refused"),
            Err(error) => {
                let hint = "free them with `semel release` before the dead letters are sent again";
                tracing::error!(
                    error = crate::pipeline::chain(&error),
                    count = refused.len(),
                    hint,
                    "claims of refused records stay"
                );
            }
        }
    }

    /// Leaves the sink with no open transaction, or without a producer that could be in doubt, and says what is next.
    fn settle_failure(&mut self, window: &Judged, error: SinkError) -> Trouble {
        let why = crate::pipeline::chain(&error);
        match error {
            SinkError::Refused(records) => self.refused(window, &records, why),
            SinkError::Transaction(error) => match error.recovery() {
                Recovery::AbortAndReread => match self.abort() {
                    Ok(()) => Trouble::Reread { why, refused: Vec::new() },
                    Err(trouble) => trouble,
                },
                Recovery::RebuildAndReread => self.rebuild(why),
                Recovery::RebuildOrLeave => self.fenced(why),
            },
            error @ (SinkError::Client(_) | SinkError::Topic { .. } | SinkError::NoTopic) => {
                Trouble::Leave(PipelineError::Sink(error))
            }
        }
    }

    pub(super) fn abort(&mut self) -> Result<(), Trouble> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        match sink.abort() {
            Ok(()) => Ok(()),
            Err(SinkError::Transaction(error @ TransactionError::Fenced(_))) => {
                Err(self.fenced(crate::pipeline::chain(&error)))
            }
            Err(error) => Err(self.rebuild(crate::pipeline::chain(&error))),
        }
    }

    fn fenced(&mut self, why: String) -> Trouble {
        if self.sink.as_ref().is_some_and(KafkaSink::outlived_its_time) {
            return self.rebuild(why);
        }
        // Without a flush and a close that would only meet the fence again.
        self.sink = None;
        Trouble::Leave(PipelineError::NameClash { transactional_id: self.options.transactional_id.clone() })
    }

    fn rebuild(&mut self, why: String) -> Trouble {
        lock(&self.lanes).values_mut().for_each(|held| held.commit_in_doubt = true);
        self.sink = None;
        match self.sink() {
            Ok(_) => Trouble::Reread { why, refused: Vec::new() },
            Err(error) => Trouble::Leave(PipelineError::Sink(error)),
        }
    }

    /// The producer, made anew where there is none; waits for the broker as long as it takes.
    fn sink(&mut self) -> Result<&mut KafkaSink, SinkError> {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        while self.sink.is_none() {
            match KafkaSink::new(&self.options, &self.topics, Duration::from_secs(30)) {
                Ok(sink) => self.sink = Some(sink),
                Err(SinkError::Transaction(error)) if !self.control.shutdown.is_requested() => {
                    let error = crate::pipeline::chain(&error);
                    tracing::warn!(
                        transactional_id = self.options.transactional_id,
                        error,
                        "cannot initialise the producer, trying again"
                    );
                    self.control.shutdown.sleep(backoff.next(self.shared.spread()));
                }
                Err(error) => return Err(error),
            }
        }
        self.sink.as_mut().ok_or(SinkError::NoTopic)
    }

    /// Rule 7 (b): one transaction without records. The store is told only after it is known to have committed.
    fn new_lanes(&mut self, lanes: &NewLanes) -> Result<(), NotCommitted> {
        lock(&self.known).forget_all();
        let begun = self.sink().and_then(KafkaSink::begin);
        let Err(error) = begun.and_then(|()| self.commit(&lanes.lanes, &lanes.membership)) else { return Ok(()) };
        let why = crate::pipeline::chain(&error);
        let not_a_member =
            matches!(&error, SinkError::Transaction(TransactionError::Abort(error)) if is_about_membership(error));
        let trouble = match error {
            SinkError::Transaction(error) => match error.recovery() {
                Recovery::AbortAndReread => self.abort().err(),
                Recovery::RebuildAndReread => Some(self.rebuild(why.clone())),
                Recovery::RebuildOrLeave => Some(self.fenced(why.clone())),
            },
            error => Some(Trouble::Leave(PipelineError::Sink(error))),
        };
        if let Some(trouble @ Trouble::Leave(_)) = trouble {
            self.control.fail(u64::MAX, trouble);
        }
        Err(if not_a_member { NotCommitted::NotAMember(why) } else { NotCommitted::Again(why) })
    }
}

fn is_about_membership(error: &NativeError) -> bool {
    use RDKafkaErrorCode::{
        FencedInstanceId, FencedMemberEpoch, IllegalGeneration, RebalanceInProgress, StaleMemberEpoch, UnknownMemberId,
    };
    matches!(
        error.code,
        IllegalGeneration
            | UnknownMemberId
            | RebalanceInProgress
            | FencedInstanceId
            | FencedMemberEpoch
            | StaleMemberEpoch
    )
}

fn count(shared: &Shared, records: &[(TopicPartition, Record)], fates: &[Fate], duplicates: usize) {
    let scope = shared.scope.as_str().to_owned();
    counter!(names::CLAIMS, "consumer_scope_id" => scope, "outcome" => "duplicate").increment(duplicates as u64);
    counter!(names::READ).increment(records.len() as u64);
    counter!(names::WINDOWS, "end" => "committed").increment(1);
    histogram!(names::WINDOW_MESSAGES).record(records.len() as f64);
    let forwarded =
        fates.iter().filter(|fate| matches!(fate, Fate::Forward | Fate::ForwardDuplicate | Fate::ForwardUnclaimed(_)));
    counter!(names::FORWARDED).increment(forwarded.count() as u64);
    for fate in fates {
        match fate {
            Fate::ForwardUnclaimed(cause) => counter!(names::UNCLAIMED, "cause" => cause.label()).increment(1),
            Fate::DeadLetter { cause, .. } => counter!(names::DEAD_LETTERS, "cause" => cause.label()).increment(1),
            _ => {}
        }
    }
}
