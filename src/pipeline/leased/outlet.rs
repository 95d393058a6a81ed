//! Where a worker's messages go: a sink that confirms one by one, or Kafka, where a window is one transaction.
//!
//! Into Kafka a window is published as a whole or not at all, and the slot's truth moves with it
//! ([`crate::sink::kafka_slot`]): a known abort is definite, and what is of unknown outcome is told by the truth once
//! the slot is taken anew. So nothing is ever in doubt there: an outlet that does not know asks for the cut
//! ([`Outlet::is_lost`]), the messages come again, and those that were published meet claims below the cut.

use std::time::Duration;

use crate::pipeline::slots::in_kafka::InKafka;
use crate::protocol::instance::Standing;
use crate::protocol::lane::{Cut, Mark, StoreId, StreamId};
use crate::sink::kafka::SinkError as KafkaError;
use crate::sink::kafka_slot::{SlotSink, SlotSinkOptions};
use crate::sink::{Outgoing, Published, Sink, SinkError};

pub enum Outlet {
    Plain(Box<dyn Sink>),
    Kafka(Box<KafkaOutlet>),
}

pub struct KafkaOutlet {
    pub options: SlotSinkOptions,
    pub store_id: StoreId,
    /// How long a slot's producer, its topic and its truth are waited for, each.
    pub patience: Duration,
    /// None until the slot is taken, and once it has to be taken anew.
    held: Option<Held>,
}

/// A slot that was taken: its producer, and what its truth goes on saying of the lane before.
pub struct Held {
    pub sink: SlotSink,
    pub cut: Option<Cut>,
}

impl Held {
    pub(in crate::pipeline) fn drop_aside(self) {
        drop_aside(self.sink);
    }
}

impl KafkaOutlet {
    pub fn new(options: SlotSinkOptions, store_id: StoreId) -> KafkaOutlet {
        KafkaOutlet { options, store_id, patience: PATIENCE, held: None }
    }

    /// For another's slot of the same cluster; None for a slot of another kind.
    pub(in crate::pipeline) fn options_of(
        options: &SlotSinkOptions,
        own: &StreamId,
        other: &StreamId,
    ) -> Option<SlotSinkOptions> {
        let (cluster, ..) = own.as_slot_in_kafka()?;
        let (_, pipeline, instance) = other.as_slot_in_kafka().filter(|(of, ..)| *of == cluster)?;
        let mut options = options.clone();
        options.kafka.transactional_id = transactional_id(pipeline, instance);
        options.group = settled_group(pipeline, instance);
        Some(options)
    }

    /// Where this slot has its truth.
    pub(in crate::pipeline) fn place(&self, slot: &StreamId) -> InKafka {
        let (options, store_id) = (self.options.clone(), self.store_id.clone());
        InKafka { slot: slot.clone(), options, store_id, patience: self.patience }
    }

    pub(in crate::pipeline) fn hold(&mut self, held: Held) {
        self.held = Some(held);
    }

    /// Its producer is dropped: whoever takes the slot makes one of its own.
    pub(in crate::pipeline) fn let_go(&mut self) {
        self.held = None;
    }

    /// One transaction. Not knowing how it ended, it lets the slot go.
    async fn publish(
        &mut self,
        messages: Vec<Outgoing>,
        standing: Standing,
    ) -> Option<(Vec<Outgoing>, Vec<Published>)> {
        let count = messages.len();
        let all = |published: Published| vec![published; count];
        let Some(Held { mut sink, cut }) = self.held.take() else { return Some((messages, all(Published::NotSent))) };
        let mark = Mark { store: self.store_id.clone(), topic: sink.topic_id().clone(), lane: standing.lane, cut };
        let task = tokio::task::spawn_blocking(move || {
            let ended = commit(&mut sink, &messages, &standing, &mark);
            (sink, messages, ended)
        });
        let (sink, messages, ended) = task.await.ok()?;
        let answers = match ended {
            Ok(()) => {
                self.held = Some(Held { sink, cut });
                all(Published::Confirmed)
            }
            Err(Failed::Aborted(error)) => {
                self.held = Some(Held { sink, cut });
                all(Published::Refused(crate::pipeline::chain(&error)))
            }
            Err(Failed::Unknown(error)) => {
                tracing::warn!(error = crate::pipeline::chain(&error), "the slot's producer is given up");
                drop_aside(sink);
                all(Published::NotSent)
            }
        };
        Some((messages, answers))
    }
}

enum Failed {
    Aborted(KafkaError),
    /// It may have committed, or another has the slot.
    Unknown(KafkaError),
}

fn commit(sink: &mut SlotSink, messages: &[Outgoing], standing: &Standing, mark: &Mark) -> Result<(), Failed> {
    use crate::kafka::transaction::Recovery;
    let Err(error) = sink.commit(messages, standing.next, mark) else { return Ok(()) };
    let is_definite = match &error {
        KafkaError::Transaction(error) => error.recovery() == Recovery::AbortAndReread,
        _ => true,
    };
    if is_definite && sink.abort().is_ok() { Err(Failed::Aborted(error)) } else { Err(Failed::Unknown(error)) }
}

/// Ending a client may take a while.
pub(in crate::pipeline) fn drop_aside(sink: SlotSink) {
    tokio::task::spawn_blocking(move || drop(sink));
}

impl Outlet {
    /// The messages come back with one answer each. None where a thread panicked, and they are gone with it.
    pub(in crate::pipeline) async fn publish(
        &mut self,
        messages: Vec<Outgoing>,
        standing: Standing,
    ) -> Option<(Vec<Outgoing>, Vec<Published>)> {
        match self {
            Outlet::Plain(sink) => {
                let answers = sink.publish(&messages).await;
                Some((messages, answers))
            }
            Outlet::Kafka(kafka) => kafka.publish(messages, standing).await,
        }
    }

    /// The slot has to be taken anew before anything more is published.
    pub(in crate::pipeline) fn is_lost(&self) -> bool {
        matches!(self, Outlet::Kafka(kafka) if kafka.held.is_none())
    }

    /// Where the lane before the present one left off. None where the sink has no word on it.
    pub(in crate::pipeline) fn left_off(&self) -> Option<Cut> {
        match self {
            Outlet::Plain(_) => None,
            Outlet::Kafka(kafka) => kafka.held.as_ref()?.cut,
        }
    }

    pub(in crate::pipeline) fn unfit(&self, outgoing: &Outgoing) -> Option<String> {
        match self {
            Outlet::Plain(sink) => sink.unfit(outgoing),
            Outlet::Kafka(kafka) => {
                let (size, most) = (SlotSink::size(outgoing), kafka.options.kafka.record_bytes_max);
                (size > most).then(|| format!("{size} bytes with headers, the sink's topic takes {most}"))
            }
        }
    }

    pub(in crate::pipeline) async fn check(&mut self) -> Result<(), SinkError> {
        match self {
            Outlet::Plain(sink) => sink.check().await,
            // Kafka's is asked by taking the slot.
            Outlet::Kafka(_) => Ok(()),
        }
    }
}

/// Of a slot: stable over the runs of its instance, and known to whoever takes it over.
pub fn transactional_id(pipeline: &str, instance: &str) -> String {
    format!("semel.{pipeline}.{instance}")
}

/// The group that holds a slot's truth.
pub fn settled_group(pipeline: &str, instance: &str) -> String {
    format!("{pipeline}.{instance}.settled")
}

const PATIENCE: Duration = Duration::from_secs(30);
