//! Rules 3, 6 and 7: what happens between being given a partition and reading from it.
//!
//! 1. Write the owner token, new for every assignment, before anything is fetched. From here on nobody who owned the
//!    stream before can insert or release.
//! 2. Fetch the group's own offset, then the settled one, both stable: pending transactions are over.
//! 3. [`decide`]. At a discontinuity: choose a lane; commit start, lane and cut to both groups in a transaction without
//!    records; then, only if still the owner, release what the cut names and open the lane. Kafka before PostgreSQL:
//!    the other order doubles. A takeover that is interrupted anywhere is found by the next one in the metadata.
//! 4. The first time after an assignment, streams that simply go on are part of that transaction too, with the offsets
//!    that they have. It shows that the membership still counted after the token was written. An instance that was held
//!    up before step 1 may have written its token over that of the owner who came after it: it would go on to claim what
//!    is settled, or record an old position as it drains, and both lose or double in rare histories (`StartConfirmed`
//!    in the model).
//! 5. Only then assign.
//!
//! Every step is repeated while its failure is passing. While this waits, events that come are kept for later and
//! messages are dropped: all positions are about to be set anyway.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use metrics::counter;

use super::PipelineError;
use super::control::{Trouble, lock};
use super::lanes::{Held, Lanes, draw_lane, draw_token};
use super::reader::{ASK, Reader, membership, rejoin};
use super::window::{Job, NewLanes, NotCommitted};
use crate::kafka::TopicPartition;
use crate::kafka::native::Event;
use crate::metrics as names;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Cut, LaneId, Mark, Position, StreamId, Token};
use crate::protocol::start::{Row, Seen, Start, Why, decide};
use crate::source::kafka::{Offsets, SourceError};
use crate::store::{OpenLane, Recovery, StoreError, Take, former};

/// How often a takeover is decided anew before the membership is given up.
const DECISIONS_MAX: u32 = 8;

/// A stream whose token is ours.
struct Owned {
    stream: StreamId,
    token: Token,
    row: Option<Row>,
    in_doubt: bool,
    /// The open lane was opened under another scope or extraction.
    other_meaning: bool,
}

type Streams = BTreeMap<TopicPartition, Owned>;

impl Reader {
    /// Answers where to read each of `places`, with its lane in the table. `fresh`: they were just offered, and tokens
    /// are written; otherwise they are ours already and only the positions are found again.
    pub(super) fn take_over(
        &mut self,
        places: &[TopicPartition],
        fresh: bool,
    ) -> Result<Vec<(TopicPartition, Position)>, Trouble> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let streams = if fresh { self.take_tokens(places)? } else { self.own(places)? };
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            let lanes = self.position(&streams, fresh)?;
            match lanes {
                Ok(held) => {
                    let positions = held.iter().map(|(place, held)| (*place, held.committed)).collect();
                    lock(&self.lanes).extend(held);
                    return Ok(positions);
                }
                Err(NotCommitted::Again(why)) if backoff.tries() < DECISIONS_MAX => {
                    tracing::warn!(why, "the start did not commit, deciding anew");
                    self.wait(backoff.next(self.shared.spread()))?;
                }
                Err(NotCommitted::Again(why) | NotCommitted::NotAMember(why)) => return Err(Trouble::Rejoin { why }),
            }
        }
    }

    fn take_tokens(&mut self, places: &[TopicPartition]) -> Result<Streams, Trouble> {
        let cluster = self.ask("the cluster's id", |reader| reader.source.cluster_id(ASK))?;
        let mut streams = Streams::new();
        for place in places {
            let topic = self.shared.topic_id(place.topic);
            let stream = {
                let name = self.source.topic_name(place.topic);
                StreamId::kafka(&cluster, &self.options.source.group, (name, &topic), place.partition)
            };
            let token = draw_token().map_err(|error| Trouble::Leave(error.into()))?;
            let store = std::sync::Arc::clone(&self.shared.store);
            let take = Take { stream: &stream, token, instead_of: None };
            let taken = self.insist(|| store.take(&take))?;
            let other_meaning = match &taken.opened_for {
                Some(lane_for)
                    if lane_for.scope == self.shared.scope && lane_for.recipe != self.shared.lane_for.recipe =>
                {
                    self.check_recipe(*place)?;
                    true
                }
                Some(lane_for) => *lane_for != self.shared.lane_for,
                None => false,
            };
            streams.insert(*place, Owned { stream, token, row: taken.row, in_doubt: false, other_meaning });
        }
        Ok(streams)
    }

    fn check_recipe(&self, place: TopicPartition) -> Result<(), Trouble> {
        let digest = self.shared.lane_for.recipe.clone();
        if self.options.accept_recipe.as_ref() == Some(&digest) {
            return Ok(());
        }
        let topic = self.source.topic_name(place.topic).to_owned();
        Err(Trouble::Leave(PipelineError::RecipeChanged { topic, partition: place.partition, digest }))
    }

    /// What we hold, as a takeover sees it.
    fn own(&self, places: &[TopicPartition]) -> Result<Streams, Trouble> {
        let lanes = lock(&self.lanes);
        let own = |place: &TopicPartition| {
            let held = lanes.get(place)?;
            let row = Some(Row { open: held.lane, drained: None });
            let (stream, token, in_doubt) = (held.stream.clone(), held.token, held.in_doubt);
            Some((*place, Owned { stream, token, row, in_doubt, other_meaning: false }))
        };
        let streams: Option<Streams> = places.iter().map(own).collect();
        streams.ok_or_else(|| Trouble::Rejoin { why: "a partition is assigned without a lane".to_owned() })
    }

    /// Steps 2 to 4 for all streams at once, or the reason to take step 2 again.
    fn position(&mut self, streams: &Streams, fresh: bool) -> Result<Result<Lanes, NotCommitted>, Trouble> {
        let places: Vec<TopicPartition> = streams.keys().copied().collect();
        let mut offsets = self.ask("the offsets", |reader| reader.source.offsets(&places, ASK))?;
        let mut held = Lanes::new();
        let mut anew: Vec<(TopicPartition, Position, Option<Cut>, LaneId, Why)> = Vec::new();
        let mut starts: Vec<(TopicPartition, Position, Mark)> = Vec::new();
        for (place, owned) in streams {
            let Some(seen) = offsets.remove(place) else { continue };
            match self.decide(*place, owned, seen)? {
                Start::Continue { lane, position } => {
                    let (stream, token, in_doubt) = (owned.stream.clone(), owned.token, owned.in_doubt);
                    if fresh {
                        starts.push((*place, position, self.mark(*place, lane, None)));
                    }
                    let lane = Held { stream, lane, token, in_doubt, committed: position, commit_in_doubt: false };
                    if owned.row.is_some_and(|row| row.drained.is_some()) {
                        let store = std::sync::Arc::clone(&self.shared.store);
                        self.insist(|| store.forget_drain(&lane.stream, lane.guard()))?;
                    }
                    held.insert(*place, lane);
                }
                Start::NewLane { position, cut, why } => {
                    let lane = draw_lane().map_err(|error| Trouble::Leave(error.into()))?;
                    starts.push((*place, position, self.mark(*place, lane, cut)));
                    anew.push((*place, position, cut, lane, why));
                }
                Start::Halt(_) if self.is_made_anew() => {
                    return Err(Trouble::Rejoin { why: "a topic was made anew under its name".to_owned() });
                }
                Start::Halt(halt) => {
                    let topic = self.source.topic_name(place.topic).to_owned();
                    return Err(Trouble::Leave(PipelineError::Halted { topic, partition: place.partition, halt }));
                }
            }
        }
        if !starts.is_empty()
            && let Err(failure) = self.commit_starts(starts)?
        {
            return Ok(Err(failure));
        }
        for (place, position, cut, lane, why) in anew {
            let owned = &streams[&place];
            self.open_lane(place, owned, lane, cut, position, why)?;
            let (stream, token) = (owned.stream.clone(), owned.token);
            let held_now = Held { stream, lane, token, in_doubt: false, committed: position, commit_in_doubt: false };
            held.insert(place, held_now);
        }
        Ok(Ok(held))
    }

    fn decide(&mut self, place: TopicPartition, owned: &Owned, offsets: Offsets) -> Result<Start, Trouble> {
        let topic = self.shared.topic_id(place.topic);
        let other =
            offsets.settled.as_ref().and_then(|settled| settled.mark.as_ref()).filter(|mark| mark.topic != topic);
        let open_elsewhere = match other.map(|mark| mark.lane) {
            None => false,
            Some(lane) => {
                let store = std::sync::Arc::clone(&self.shared.store);
                self.insist(|| store.is_open(lane))?
            }
        };
        let former = match (&offsets.settled, owned.row) {
            (None, None) => {
                let store = std::sync::Arc::clone(&self.shared.store);
                let streams = self.insist(|| store.streams())?;
                former(streams.iter().map(|state| (&state.stream, state.row)), &owned.stream)
            }
            _ => None,
        };
        let nobody_knows = offsets.committed.is_none() && offsets.settled.is_none() && owned.row.is_none();
        let added_later = nobody_knows
            && self.options.reset == crate::protocol::start::Reset::Latest
            && self.ask("the group's offsets", |reader| reader.source.group_knows(place.topic, ASK))?;
        let start = decide(&Seen {
            committed: offsets.committed,
            settled: offsets.settled,
            row: owned.row,
            open_elsewhere,
            former,
            store: self.shared.store_id.clone(),
            topic,
            log_start: offsets.log_start,
            log_end: offsets.log_end,
            reset: self.options.reset,
            added_later,
        });
        Ok(match start {
            Start::Continue { lane, position } if owned.other_meaning => {
                Start::NewLane { position, cut: Some(Cut { prev: lane, cut: position }), why: Why::NewMeaning }
            }
            start => start,
        })
    }

    fn mark(&self, place: TopicPartition, lane: LaneId, cut: Option<Cut>) -> Mark {
        Mark { store: self.shared.store_id.clone(), topic: self.shared.topic_id(place.topic), lane, cut }
    }

    /// Rule 7 (b), carried out by the thread that owns the producer.
    fn commit_starts(
        &mut self,
        lanes: Vec<(TopicPartition, Position, Mark)>,
    ) -> Result<Result<(), NotCommitted>, Trouble> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        let job = NewLanes { membership: membership(&self.source)?, lanes, answer };
        let gone = || Trouble::Leave(PipelineError::Panicked);
        self.to_claimer.send(Job::NewLanes(job)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())
    }

    /// Rule 7 (c).
    fn open_lane(
        &mut self,
        place: TopicPartition,
        owned: &Owned,
        lane: LaneId,
        cut: Option<Cut>,
        position: Position,
        why: Why,
    ) -> Result<(), Trouble> {
        let shared = std::sync::Arc::clone(&self.shared);
        let now = shared.clock.now();
        let (stream, token, lane_for) = (&owned.stream, owned.token, &shared.lane_for);
        let open = OpenLane { stream, token, lane, cut, lane_for, now };
        let released = self.insist(|| shared.store.open_lane(&open))?;
        counter!(names::DISCONTINUITIES, "reason" => why.label()).increment(1);
        counter!(names::RELEASED).increment(released);
        let topic = self.source.topic_name(place.topic);
        let (partition, reason) = (place.partition, why.label());
        tracing::info!(topic, partition, position, lane = lane.0, reason, released, "opened a new lane");
        Ok(())
    }

    /// Asks the brokers until they answer.
    fn ask<T>(&mut self, what: &str, question: impl Fn(&Reader) -> Result<T, SourceError>) -> Result<T, Trouble> {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            match question(self) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    if backoff.tries().is_multiple_of(10) {
                        tracing::warn!(error = crate::pipeline::chain(&error), "no answer about {what}, trying again");
                    }
                    self.wait(backoff.next(self.shared.spread()))?;
                }
            }
        }
    }

    /// Repeats a call to the store until it is done. All calls made here may be repeated as they are after an unknown
    /// outcome: token and lane are chosen by us, and finding them there is success.
    fn insist<'a, T, F>(&mut self, call: impl Fn() -> F) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            let error = match self.shared.runtime.block_on(call()) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
            match error.recovery() {
                Recovery::Retry | Recovery::Retake | Recovery::EnsureWeeks(_) => {
                    self.shared.report_store(&error, backoff.tries());
                    self.wait(backoff.next(self.shared.spread()))?;
                }
                Recovery::Rejoin => return Err(rejoin(&error)),
                Recovery::ShutDown => return Err(Trouble::Leave(PipelineError::Store(error))),
            }
        }
    }

    /// Waits, but keeps polling, since a member that does not poll is thrown out.
    fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        if self.control.shutdown.is_requested() {
            return Err(Trouble::Rejoin { why: "draining".to_owned() });
        }
        let until = std::time::Instant::now() + time;
        while let Some(left) = until.checked_duration_since(std::time::Instant::now()) {
            match self.source.poll(left.min(Duration::from_millis(50))) {
                None | Some(Event::Message(_) | Event::End { .. }) => {}
                Some(event) => self.waiting.push_back(event),
            }
            if self.control.shutdown.is_requested() {
                break;
            }
        }
        Ok(())
    }
}
