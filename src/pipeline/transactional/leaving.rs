//! Where lanes were left, recorded in the store for whoever finds no offset.
//!
//! At a drain, because the offsets of a group that nobody uses expire. And where a topic is deleted, because Kafka
//! deletes the offsets of both groups with it: if it is made again under its name, nothing in Kafka tells which claims of
//! its old lanes were settled. The worker that holds them knows, as long as no commit of its own has an unknown outcome;
//! it is asked for it before it lets go. What it cannot record stays unknown, and the next start halts.

use std::time::Duration;

use crossbeam_channel::SendTimeoutError;

use super::PipelineError;
use super::control::lock;
use super::lanes::Held;
use super::reader::Reader;
use super::window::Job;
use crate::kafka::TopicPartition;

impl Reader {
    pub(super) fn held(&self) -> Vec<TopicPartition> {
        lock(&self.lanes).keys().copied().collect()
    }

    /// Whether a topic is gone, or has another id than it was subscribed with. No answer is no news: who needs to know
    /// asks again. One round trip.
    pub(super) fn is_made_anew(&self) -> bool {
        match self.source.topic_ids(Duration::from_secs(2)) {
            Ok(ids) => ids != *lock(&self.shared.topic_ids),
            Err(error) => error.is_unknown_topic(),
        }
    }

    /// Records where these lanes were left. Nothing of theirs is on its way any more: the reader is quiesced. Claims of
    /// discarded windows lie behind the recorded position and are freed by whoever goes on from it; a claim that may
    /// still land, or a commit that may have, leaves the lane unrecorded.
    pub(super) fn record_left(&self, places: &[TopicPartition]) {
        let lanes = lock(&self.lanes).clone();
        let known =
            lanes.iter().filter(|(place, held)| places.contains(place) && !held.in_doubt && !held.commit_in_doubt);
        known.for_each(|(_, held)| self.record(held));
    }

    fn record(&self, held: &Held) {
        let recorded = self.shared.store.record_drain(&held.stream, held.guard(), held.committed);
        if let Err(error) = self.shared.runtime.block_on(recorded) {
            tracing::warn!(stream = %held.stream, %error, "cannot record where the lane was left");
        }
    }

    /// Finishes what was read, records where it ended, and leaves the group.
    pub(super) fn drain(mut self) -> Result<(), PipelineError> {
        tracing::info!("draining");
        while let Some(window) = self.window.take() {
            match self.to_claimer.send_timeout(Job::Window(window), Duration::from_secs(1)) {
                Ok(()) => break,
                Err(SendTimeoutError::Timeout(Job::Window(window))) => {
                    if !self.control.is_alive(self.epoch) {
                        break;
                    }
                    self.window = Some(window);
                }
                Err(_) => return Err(PipelineError::Panicked),
            }
        }
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.to_claimer.send(Job::Barrier(answer)).map_err(|_| PipelineError::Panicked)?;
        answered.recv().map_err(|_| PipelineError::Panicked)?;
        let unharmed = self.control.is_alive(self.epoch) && self.troubles.is_empty();
        let lanes = std::mem::take(&mut *lock(&self.lanes));
        for (place, held) in lanes {
            if !unharmed || held.in_doubt || self.next.get(&place) != Some(&held.committed) {
                continue;
            }
            self.record(&held);
        }
        tracing::info!("drained");
        Ok(())
    }
}
