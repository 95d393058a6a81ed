//! The worker as a member of its group: what rebalances and errors ask of it, what it pauses, and what it commits.

use std::time::{Duration, Instant};

use metrics::counter;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::lane::Lane;
use super::worker::{ASK, Worker};
use super::{SettledError, Trouble};
use crate::kafka::TopicPartition;
use crate::kafka::native::Event;
use crate::metrics as names;
use crate::protocol::lane::Position;
use crate::source::kafka::KafkaSource;

/// A partition that is idle has its offset committed once more after this.
const COMMIT_AGAIN: Duration = Duration::from_secs(2);

impl Worker {
    pub(super) fn serve(&mut self, event: Event) -> Result<(), Trouble> {
        match event {
            Event::Message(_) => Ok(()),
            Event::End { topic, partition, next } => {
                let place = self.source.place(&topic, partition);
                if let Some(lane) = place.and_then(|place| self.lanes.get_mut(&place)) {
                    lane.next = lane.next.max(next);
                }
                Ok(())
            }
            Event::Assigned(partitions) => {
                counter!(names::REBALANCES, "kind" => "assigned").increment(1);
                let places = self.source.places(&partitions);
                let retained = self.lanes.len();
                let positions = self.take_over(&places)?;
                self.source.assign(&positions).map_err(|error| Trouble::rejoin(&error))?;
                tracing::info!(partitions = places.len(), retained, "partitions were assigned");
                self.status.set(None);
                self.rejoins.reset();
                Ok(())
            }
            Event::Revoked(partitions) => {
                counter!(names::REBALANCES, "kind" => "revoked").increment(1);
                let places = self.source.places(&partitions);
                // The client remembers a pause beyond the assignment: whoever is given the partition again would never
                // read from it.
                let paused = |place: &&TopicPartition| self.lanes.get(place).is_some_and(|lane| lane.paused);
                let paused: Vec<TopicPartition> = places.iter().filter(paused).copied().collect();
                self.let_go(&places);
                self.source.resume(&paused).map_err(|error| Trouble::rejoin(&error))?;
                self.source.unassign(&places).map_err(|error| Trouble::rejoin(&error))?;
                tracing::info!(partitions = places.len(), retained = self.lanes.len(), "partitions were revoked");
                Ok(())
            }
            Event::Error { code, text, fatal, topic } => {
                let place = topic.map(|(topic, partition)| format!("{topic}/{partition}")).unwrap_or_default();
                // Where retention overtook the position, the takeover finds out where to read on.
                if fatal || matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange) {
                    return Err(Trouble::Rejoin { why: format!("{place} {text}") });
                }
                counter!(names::BROKER_ERRORS, "client" => "source").increment(1);
                tracing::warn!(place, ?code, "kafka source reports: {text}");
                Ok(())
            }
        }
    }

    /// Pauses partitions that cannot go on, and has those read on that can.
    pub(super) fn keep_room(&mut self) -> Result<(), Trouble> {
        let bounds = self.options.window;
        let stops = |lane: &Lane| lane.batch.is_some() || lane.is_held() || lane.is_full(&bounds);
        let of = |wanted: fn(bool, bool) -> bool| -> Vec<TopicPartition> {
            let lanes = self.lanes.iter().filter(|(_, lane)| wanted(stops(lane), lane.paused));
            lanes.map(|(place, _)| *place).collect()
        };
        let (pause, resume) = (of(|stops, paused| stops && !paused), of(|stops, paused| !stops && paused));
        if !pause.is_empty() {
            self.source.pause(&pause).map_err(|error| Trouble::rejoin(&error))?;
            for place in &pause {
                self.lanes.entry(*place).and_modify(|lane| lane.paused = true);
            }
        }
        self.unpause(&resume)
    }

    /// After a pause the client goes on where it likes.
    fn unpause(&mut self, places: &[TopicPartition]) -> Result<(), Trouble> {
        let mut positions = Vec::new();
        for place in places {
            let Some(lane) = self.lanes.get_mut(place).filter(|lane| lane.paused) else { continue };
            lane.paused = false;
            positions.push((*place, lane.next));
        }
        if positions.is_empty() {
            return Ok(());
        }
        self.source.seek(&positions, ASK).map_err(|error| Trouble::rejoin(&error))?;
        let places: Vec<TopicPartition> = positions.into_iter().map(|(place, _)| place).collect();
        self.source.resume(&places).map_err(|error| Trouble::rejoin(&error))
    }

    /// The group's offsets follow what is settled; they only say where to start.
    pub(super) fn commit(&mut self, places: &[TopicPartition], waits: bool) {
        let of = |place: &TopicPartition| {
            let settled = self.lanes.get(place).map(|lane| lane.settled).or(self.settled.get(place).copied());
            Some((*place, settled?))
        };
        let positions: Vec<(TopicPartition, Position)> = places.iter().filter_map(of).collect();
        // Outside of the group a commit would be checked by nobody.
        if positions.is_empty() || self.source.membership().is_none() {
            return;
        }
        for (place, _) in &positions {
            let again = Some(Instant::now() + COMMIT_AGAIN);
            self.lanes.entry(*place).and_modify(|lane| lane.commit_again = again);
        }
        if let Err(error) = self.source.commit(&positions, waits) {
            // Whoever starts behind settled opens a new lane, and drops what it reads again.
            tracing::warn!(error = crate::pipeline::chain(&error), "the group's offsets were not committed");
        }
    }

    /// What may have been lost.
    pub(super) fn commit_again(&mut self) {
        let is_due = |lane: &Lane| lane.commit_again.is_some_and(|at| at <= Instant::now());
        let due: Vec<TopicPartition> =
            self.lanes.iter().filter(|(_, lane)| is_due(lane)).map(|(place, _)| *place).collect();
        self.commit(&due, false);
        for place in due {
            self.lanes.entry(place).and_modify(|lane| lane.commit_again = None);
        }
    }

    pub(super) fn recover(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        let Trouble::Rejoin { why } = trouble else { return Err(trouble) };
        tracing::warn!(why, "leaving the group and joining anew");
        self.let_go_of_all();
        self.status.set(Some("the group is joined anew".to_owned()));
        self.shutdown.sleep(self.rejoins.next(self.spread()));
        self.events.clear();
        self.source = KafkaSource::without_settled(&self.options.source)
            .map_err(|error| Trouble::Leave(SettledError::Source(error)))?;
        self.subscribe()
    }

    pub(super) fn let_go_of_all(&mut self) {
        let places: Vec<TopicPartition> = self.lanes.keys().copied().collect();
        self.let_go(&places);
    }

    pub(super) fn subscribe(&mut self) -> Result<(), Trouble> {
        self.topic_ids = loop {
            if self.shutdown.is_requested() {
                return Ok(());
            }
            match self.source.topic_ids(ASK) {
                Ok(ids) => break ids,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the topics' ids, trying again");
                    self.shutdown.sleep(self.rejoins.next(self.spread()));
                }
            }
        };
        self.source.subscribe().map_err(|error| Trouble::Leave(SettledError::Source(error)))
    }
}
