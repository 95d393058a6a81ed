//! Taking a slot whose truth is in Kafka: the run's own at its start and after a fault, or another's whose lease is over.
//!
//! Five steps, in this order ([`crate::protocol::slot`] and the model of it say what each is for): the token, so that the
//! run before can claim nothing more; the slot's producer, so that it can publish nothing more and what it left open is
//! over; the slot's row again, since another may have overtaken this one meanwhile; the truth, and from it the cut; a
//! Kafka transaction that records lane and cut; the store's step under the guard of both. Whatever goes wrong on the way,
//! it begins again with a new token and a new lane: each step finds out whether the one before was overtaken.
//!
//! No lease of the own slot is waited for: the token and the producer's epoch stop a run that still lives.

use std::time::Duration;

use metrics::counter;

use super::{RETRY_FIRST, RETRY_LONGEST, Run, Slots, draw_other, draw_own};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::pipeline::leased::outlet::{Held, KafkaOutlet, drop_aside};
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Cut, LaneId, Mark, StoreId, StreamId, Token};
use crate::protocol::slot::{SlotSeen, Truth, cut_of};
use crate::sink::kafka::SinkError;
use crate::sink::kafka_slot::{Settled, SlotSink, SlotSinkOptions};
use crate::store::slots::{OpenSlot, Slot, TakenSlot};
use crate::store::{Guard, StoreError};

/// What became of one round of the five steps.
pub(in crate::pipeline) enum Round {
    Taken {
        guard: Guard,
        held: Box<Held>,
    },
    /// Overtaken, or something did not answer: begin again.
    Again(String),
    /// Its lease runs.
    Leased,
    /// The store does not answer.
    NotYet,
    /// What Kafka says of the slot is of no use, for this reason.
    Foreign(&'static str),
}

/// Where slots of a run's kind have their truth.
#[derive(Debug, Clone)]
pub(in crate::pipeline) struct InKafka {
    /// Of the run's own slot.
    pub slot: StreamId,
    pub options: SlotSinkOptions,
    pub store_id: StoreId,
    /// How long a slot's producer, its topic and its truth are waited for, each.
    pub patience: Duration,
}

impl InKafka {
    /// For another's slot of the same cluster; None for a slot of another kind.
    pub fn of(self, other: &StreamId) -> Option<InKafka> {
        let options = KafkaOutlet::options_of(&self.options, &self.slot, other)?;
        Some(InKafka { options, ..self })
    }
}

/// Which slot, and for how long its new lane is leased.
pub(in crate::pipeline) struct Wanted {
    pub slot: StreamId,
    pub own: bool,
    pub lease: Duration,
    pub kafka: InKafka,
}

impl Slots {
    pub async fn round<R: Run>(&self, run: &mut R, wanted: &Wanted) -> Result<Round, R::Error> {
        let Wanted { slot, own, kafka, .. } = wanted;
        let Some(seen) = self.row(run, slot).await? else { return Ok(Round::NotYet) };
        if *own {
            run.refuse_clash(slot, seen.map(|seen| seen.owner))?;
        }
        let guard = if *own { draw_own(run)? } else { draw_other(run)? };
        if let Some(stop) = self.write_token(run, slot, guard.token, seen.map(|seen| seen.owner), *own).await? {
            return Ok(stop);
        }
        let (options, patience) = (kafka.options.clone(), kafka.patience);
        let made = tokio::task::spawn_blocking(move || {
            let sink = SlotSink::new(&options, patience)?;
            Ok((sink.truth(patience), sink))
        });
        let (truth, sink) = match made.await {
            Ok(Ok(made)) => made,
            Ok(Err::<_, SinkError>(error)) => return Ok(Round::Again(chain(&error))),
            Err(_) => return Ok(Round::Again("the thread of kafka's client panicked".to_owned())),
        };
        let truth = match truth {
            Ok(truth) => truth,
            Err(error) => return Ok(Round::Again(format!("the slot's truth: {error}"))),
        };
        let Some(Some(seen)) = self.row(run, slot).await? else { return Ok(Round::NotYet) };
        if seen.owner != guard.token {
            return Ok(Round::Again("another run was quicker".to_owned()));
        }
        let cut = match cut(&seen, truth, &kafka.store_id) {
            Ok(cut) => cut,
            Err(detail) => return Ok(Round::Foreign(detail)),
        };
        match record(sink, guard.lane, cut, &kafka.store_id).await {
            Ok(sink) => self.open(run, wanted, guard, cut, sink).await,
            Err(why) => Ok(Round::Again(why)),
        }
    }

    /// Some: it was not written.
    async fn write_token<R: Run>(
        &self,
        run: &mut R,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<Option<Round>, R::Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.store.write_token(slot, token, instead_of, own).await {
                Ok(TakenSlot::Taken { .. }) => return Ok(None),
                Ok(TakenSlot::Leased { .. }) => return Ok(Some(Round::Leased)),
                Err(StoreError::NotOwner) => return Ok(Some(Round::Again("another run was quicker".to_owned()))),
                Err(error) => {
                    if !run.bear(error, &mut backoff).await? {
                        return Ok(Some(Round::NotYet));
                    }
                }
            }
        }
    }

    async fn open<R: Run>(
        &self,
        run: &mut R,
        wanted: &Wanted,
        guard: Guard,
        cut: Option<Cut>,
        sink: SlotSink,
    ) -> Result<Round, R::Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let (Guard { lane, token }, now) = (guard, self.clock.now());
            let Wanted { slot, lease, .. } = wanted;
            let open = OpenSlot { slot, token, lane, cut, settled: 0, lane_for: &self.lane_for, lease: *lease, now };
            match self.store.open_slot(&open).await {
                Ok(released) => {
                    counter!(names::RELEASED).increment(released);
                    return Ok(Round::Taken { guard, held: Box::new(Held { sink, cut }) });
                }
                Err(StoreError::NotOwner) => {
                    drop_aside(sink);
                    return Ok(Round::Again("another run was quicker".to_owned()));
                }
                Err(error) => {
                    if !run.bear(error, &mut backoff).await? {
                        drop_aside(sink);
                        return Ok(Round::NotYet);
                    }
                }
            }
        }
    }
}

/// None where the slot never had a lane. Err: why what Kafka says is of no use.
fn cut(seen: &Slot, truth: Option<Settled>, store: &StoreId) -> Result<Option<Cut>, &'static str> {
    let truth = match truth {
        None => None,
        Some(settled) => {
            let mark = settled.mark.ok_or("something other than semel committed it")?;
            if mark.store != *store {
                return Err("it speaks of claims in another store");
            }
            Some(Truth { lane: mark.lane, settled: settled.position, cut: mark.cut })
        }
    };
    let Some(open) = seen.open else { return Ok(None) };
    let slot_seen = SlotSeen { open: open.lane, mirror: open.seen.settled, claimed_above: open.claimed_above };
    cut_of(slot_seen, truth).map(Some).map_err(|_| "it says nothing of the lane that the store has open")
}

/// Kafka's step: which lane is next, and where the one before left off.
async fn record(mut sink: SlotSink, lane: LaneId, cut: Option<Cut>, store: &StoreId) -> Result<SlotSink, String> {
    let mark = Mark { store: store.clone(), topic: sink.topic_id().clone(), lane, cut };
    let task = tokio::task::spawn_blocking(move || (sink.commit(&[], 0, &mark), sink));
    match task.await {
        Ok((Ok(()), sink)) => Ok(sink),
        Ok((Err(error), sink)) => {
            drop_aside(sink);
            Err(chain(&error))
        }
        Err(_) => Err("the thread of kafka's client panicked".to_owned()),
    }
}
