//! Taking a slot whose truth is in Kafka: the run's own at its start and after a fault, or another's whose lease is over.
//!
//! Five steps, in this order ([`crate::protocol::slot`] and the model of it say what each is for): the token, so that the
//! run before can claim nothing more; the slot's producer, so that it can publish nothing more and what it left open is
//! over; the slot's row again, since another may have overtaken this one meanwhile; the truth, and from it the cut; a
//! Kafka transaction that records lane and cut; the store's step under the guard of both. Whatever goes wrong on the way,
//! it begins again with a new token and a new lane: each step finds out whether the one before was overtaken.
//!
//! No lease of the own slot is waited for: the token and the producer's epoch stop a run that still lives.

use metrics::counter;

use super::LeasedError;
use super::outlet::{Held, Outlet, PATIENCE, drop_aside};
use super::slots::{Other, RETRY_FIRST, RETRY_LONGEST, TakeOverError, ToTake};
use super::worker::Worker;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Cut, LaneId, Mark, StreamId, Token};
use crate::protocol::slot::{SlotSeen, Truth, cut_of};
use crate::sink::kafka_slot::{SlotSink, SlotSinkOptions};
use crate::store::slots::{OpenSlot, Slot, TakenSlot};
use crate::store::{Guard, StoreError};

/// What became of one round of the five steps.
enum Round {
    Taken(Guard, Box<Held>),
    /// Overtaken, or something did not answer: begin again.
    Again(String),
    /// Its lease runs.
    Leased,
    /// The store does not answer.
    NotYet,
}

/// Which slot, and for how long its new lane is leased.
struct Wanted {
    slot: StreamId,
    own: bool,
    lease: std::time::Duration,
    options: SlotSinkOptions,
}

impl Worker {
    /// As [`Worker::take_own`].
    pub(super) async fn take_own_in_kafka(&mut self) -> Result<bool, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        while let Some(ToTake { reason, .. }) = self.to_take.clone() {
            let Outlet::Kafka(kafka) = &mut self.sink else { return Ok(true) };
            kafka.let_go();
            let (slot, lease, options) = (self.options.slot.clone(), self.options.lease, kafka.options.clone());
            let wanted = Wanted { slot, own: true, lease, options };
            match self.round(&wanted).await? {
                Round::Taken(guard, held) => {
                    self.opened(guard);
                    counter!(names::DISCONTINUITIES, "reason" => reason).increment(1);
                    tracing::info!(slot = %wanted.slot, lane = %guard.lane, reason, "opened a lane");
                    if let Outlet::Kafka(kafka) = &mut self.sink {
                        kafka.hold(*held);
                    }
                }
                Round::NotYet => return Ok(false),
                Round::Again(why) => {
                    if backoff.tries().is_multiple_of(5) {
                        tracing::warn!(slot = %wanted.slot, why, "the slot could not be taken yet, trying again");
                    }
                    self.status.set(Some(format!("the slot could not be taken yet: {why}")));
                    if self.is_ending() {
                        return Ok(false);
                    }
                    self.machine.sleep(backoff.next(self.spread())).await;
                }
                // No lease is waited for.
                Round::Leased => {}
            }
        }
        Ok(true)
    }

    /// As [`Worker::take_over`], of a slot in the same cluster.
    pub(super) async fn take_over_in_kafka(
        &mut self,
        slot: StreamId,
        options: SlotSinkOptions,
    ) -> Result<Other, TakeOverError> {
        let wanted = Wanted { slot, own: false, lease: std::time::Duration::ZERO, options };
        let round = match self.round(&wanted).await {
            Err(error @ LeasedError::ForeignTruth { .. }) => Round::Again(error.to_string()),
            round => round?,
        };
        match round {
            Round::Taken(_, held) => {
                drop_aside(held.sink);
                counter!(names::DISCONTINUITIES, "reason" => "takeover").increment(1);
                tracing::warn!(slot = %wanted.slot, "took over a slot whose lease was over");
                Ok(Other::Again)
            }
            Round::Again(why) => {
                tracing::warn!(slot = %wanted.slot, why, "a slot whose lease was over could not be taken yet");
                Ok(Other::Leased)
            }
            Round::Leased | Round::NotYet => Ok(Other::Leased),
        }
    }

    async fn round(&mut self, wanted: &Wanted) -> Result<Round, LeasedError> {
        let Wanted { slot, own, .. } = wanted;
        let Some(seen) = self.slot_row(slot).await? else { return Ok(Round::NotYet) };
        if *own {
            self.refuse_clash(seen.map(|seen| seen.owner))?;
        }
        let guard = if *own { self.draw_own()? } else { self.draw_other()? };
        if let Some(stop) = self.write_token(slot, guard.token, seen.map(|seen| seen.owner), *own).await? {
            return Ok(stop);
        }
        let options = wanted.options.clone();
        let made = tokio::task::spawn_blocking(move || {
            let sink = SlotSink::new(&options, PATIENCE)?;
            Ok((sink.truth(PATIENCE), sink))
        });
        let (truth, sink) = match made.await {
            Ok(Ok(made)) => made,
            Ok(Err::<_, crate::sink::kafka::SinkError>(error)) => return Ok(Round::Again(chain(&error))),
            Err(_) => return Ok(Round::Again("the thread of kafka's client panicked".to_owned())),
        };
        let truth = match truth {
            Ok(truth) => truth,
            Err(error) => return Ok(Round::Again(format!("the slot's truth: {error}"))),
        };
        let Some(Some(seen)) = self.slot_row(slot).await? else { return Ok(Round::NotYet) };
        if seen.owner != guard.token {
            return Ok(Round::Again("another run was quicker".to_owned()));
        }
        let cut = self.cut_in_kafka(slot, &seen, truth)?;
        let (sink, recorded) = self.record(sink, guard.lane, cut).await;
        let Some(sink) = sink else { return Ok(Round::Again(recorded)) };
        self.open_in_kafka(wanted, guard, cut, sink).await
    }

    /// Outer None where the store does not answer.
    async fn slot_row(&mut self, slot: &StreamId) -> Result<Option<Option<Slot>>, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.store.slot(slot).await {
                Ok(seen) => return Ok(Some(seen)),
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Some: it was not written.
    async fn write_token(
        &mut self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<Option<Round>, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.store.write_token(slot, token, instead_of, own).await {
                Ok(TakenSlot::Taken { .. }) => return Ok(None),
                Ok(TakenSlot::Leased { .. }) => return Ok(Some(Round::Leased)),
                Err(StoreError::NotOwner) => return Ok(Some(Round::Again("another run was quicker".to_owned()))),
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return Ok(Some(Round::NotYet));
                    }
                }
            }
        }
    }

    /// None where the slot never had a lane.
    fn cut_in_kafka(
        &self,
        slot: &StreamId,
        seen: &Slot,
        truth: Option<crate::sink::kafka_slot::Settled>,
    ) -> Result<Option<Cut>, LeasedError> {
        let Outlet::Kafka(kafka) = &self.sink else { return Ok(None) };
        let foreign = |detail: &'static str| LeasedError::ForeignTruth { slot: slot.clone(), detail };
        let truth = match truth {
            None => None,
            Some(settled) => {
                let mark = settled.mark.ok_or(foreign("something other than semel committed it"))?;
                if mark.store != kafka.store_id {
                    return Err(foreign("it speaks of claims in another store"));
                }
                Some(Truth { lane: mark.lane, settled: settled.position, cut: mark.cut })
            }
        };
        let Some(open) = seen.open else { return Ok(None) };
        let slot_seen = SlotSeen { open: open.lane, mirror: open.seen.settled, claimed_above: open.claimed_above };
        cut_of(slot_seen, truth).map(Some).map_err(|_| foreign("it says nothing of the lane that the store has open"))
    }

    /// Kafka's step: which lane is next, and where the one before left off.
    async fn record(&mut self, mut sink: SlotSink, lane: LaneId, cut: Option<Cut>) -> (Option<SlotSink>, String) {
        let Outlet::Kafka(kafka) = &self.sink else { return (None, String::new()) };
        let mark = Mark { store: kafka.store_id.clone(), topic: sink.topic_id().clone(), lane, cut };
        let task = tokio::task::spawn_blocking(move || (sink.commit(&[], 0, &mark), sink));
        match task.await {
            Ok((Ok(()), sink)) => (Some(sink), String::new()),
            Ok((Err(error), sink)) => {
                drop_aside(sink);
                (None, chain(&error))
            }
            Err(_) => (None, "the thread of kafka's client panicked".to_owned()),
        }
    }

    async fn open_in_kafka(
        &mut self,
        wanted: &Wanted,
        guard: Guard,
        cut: Option<Cut>,
        sink: SlotSink,
    ) -> Result<Round, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        let lane_for = self.lane_for.clone();
        loop {
            let (Guard { lane, token }, now) = (guard, self.clock.now());
            let Wanted { slot, lease, .. } = wanted;
            let open = OpenSlot { slot, token, lane, cut, settled: 0, lane_for: &lane_for, lease: *lease, now };
            match self.store.open_slot(&open).await {
                Ok(released) => {
                    counter!(names::RELEASED).increment(released);
                    return Ok(Round::Taken(guard, Box::new(Held { sink, cut })));
                }
                Err(StoreError::NotOwner) => return Ok(Round::Again("another run was quicker".to_owned())),
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return Ok(Round::NotYet);
                    }
                }
            }
        }
    }
}
