//! What happens between being given a partition and reading from it.
//!
//! 1. Wait until nobody is at work on it: its lane's lease is over. Whoever let it go has ended it; whoever went without a
//!    word had it for a window that was under way, and may still be publishing.
//! 2. Write the owner token, new for every assignment, in place of the one that was seen, and only while no lease runs. From
//!    here on nobody who owned the partition before can claim or settle.
//! 3. Read once more how far it is settled, fetch the group's offset, and decide ([`start`]). A topic made anew is known
//!    by the store under another id: what its old lane had not settled is released first.
//! 4. Where the start is not the settled position: in one transaction release what was not settled, close the lane, open
//!    one that begins at the start. Only then assign.
//!
//! An instance that was held up between 1 and 2 may write its token over that of the owner who came after it, while that is
//! idle. That owner then finds the foreign token, and joins anew; what the late one publishes it settles.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;

use super::lane::Lane;
use super::store::attend;
use super::worker::{ASK, Worker};
use super::{SettledError, Trouble};
use crate::kafka::TopicPartition;
use crate::kafka::native::Event;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Cut, Position, StreamId, Token};
use crate::protocol::settled::{Seen, Start, start};
use crate::protocol::start::{Reset, Why};
use crate::source::kafka::{KafkaSource, Offsets, SourceError};
use crate::store::slots::{OpenSlot, StreamSeen, TakenSlot};
use crate::store::{Guard, Recovery, StoreError};

/// Between two looks at a lease that is waited for.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A stream whose token is ours.
struct Owned {
    stream: StreamId,
    token: Token,
    seen: StreamSeen,
}

impl Worker {
    /// Answers where to read each of `places`, with its lane in the table.
    pub(super) fn take_over(&mut self, places: &[TopicPartition]) -> Result<Vec<(TopicPartition, Position)>, Trouble> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let cluster = self.ask("the cluster's id", |source| source.cluster_id(ASK))?;
        let mut owned = BTreeMap::new();
        for &place in places {
            let topic = (self.source.topic_name(place.topic), &self.topic_ids[usize::from(place.topic)]);
            let stream = StreamId::partition(&cluster, &self.options.source.group, topic, place.partition);
            owned.insert(place, self.own(stream)?);
        }
        let mut offsets = self.ask("the offsets", |source| source.offsets(places, ASK))?;
        let mut positions = Vec::new();
        for (place, owned) in owned {
            let Some(found) = offsets.remove(&place) else { continue };
            let decided = self.decide(place, &owned, &found)?;
            let lane = self.open(place, owned, decided)?;
            positions.push((place, lane.done));
            self.lanes.insert(place, lane);
        }
        Ok(positions)
    }

    /// Steps 1 and 2.
    fn own(&mut self, stream: StreamId) -> Result<Owned, Trouble> {
        let (token, mut waits) = (self.draw_token()?, false);
        loop {
            let store = Arc::clone(&self.store);
            let seen = self.insist(|| store.standing(&stream))?;
            let left = seen.as_ref().and_then(|seen| seen.open).map_or(Duration::ZERO, |open| open.lease_left);
            let mut wait = left;
            if left.is_zero() {
                let owner = seen.map(|seen| seen.owner);
                match self.insist_or_not(|| store.write_token(&stream, token, owner, false))? {
                    Some(TakenSlot::Taken { .. }) => break,
                    Some(TakenSlot::Leased { left }) => wait = left,
                    // Another was quicker: it is told by the group whose it is.
                    None => wait = WAIT_MAX,
                }
            }
            let left_ms = wait.as_millis() as u64;
            if !std::mem::replace(&mut waits, true) {
                tracing::info!(stream = %stream, left_ms, "waiting for the lease of the partition's owner before");
            }
            self.status.set(Some(format!("the lease of a partition's owner before has {left_ms} ms left")));
            self.wait(wait.clamp(WAIT_MIN, WAIT_MAX))?;
        }
        let store = Arc::clone(&self.store);
        let seen = self.insist(|| store.standing(&stream))?.filter(|seen| seen.owner == token);
        let seen = seen.ok_or_else(|| Trouble::rejoin(&StoreError::NotOwner))?;
        Ok(Owned { stream, token, seen })
    }

    fn decide(&mut self, place: TopicPartition, owned: &Owned, offsets: &Offsets) -> Result<Start, Trouble> {
        let nobody_knows = offsets.committed.is_none() && owned.seen.open.is_none();
        let added_later = nobody_knows
            && self.options.reset == Reset::Latest
            && self.ask("the group's offsets", |source| source.group_knows(place.topic, ASK))?;
        let made_anew = owned.seen.open.is_none() && self.release_former(&owned.stream)?;
        let decided = start(&Seen {
            committed: offsets.committed,
            open: owned.seen.open.map(|open| (open.lane, open.settled)),
            log_start: offsets.log_start,
            log_end: offsets.log_end,
            reset: self.options.reset,
            added_later,
            made_anew,
        });
        Ok(match (decided, &owned.seen.opened_for) {
            (Start::Continue { lane, position }, Some(before)) if *before != self.lane_for => {
                if before.scope == self.lane_for.scope {
                    self.check_recipe(place)?;
                }
                Start::NewLane { position, cut: Some(Cut { prev: lane, cut: position }), why: Why::NewMeaning }
            }
            (decided, Some(before)) if before.scope == self.lane_for.scope && *before != self.lane_for => {
                self.check_recipe(place)?;
                decided
            }
            (decided, _) => decided,
        })
    }

    fn check_recipe(&self, place: TopicPartition) -> Result<(), Trouble> {
        let digest = self.lane_for.recipe.clone();
        if self.options.accept_recipe.as_ref() == Some(&digest) {
            return Ok(());
        }
        let topic = self.source.topic_name(place.topic).to_owned();
        Err(Trouble::Leave(SettledError::RecipeChanged { topic, partition: place.partition, digest }))
    }

    /// Whether the topic had another id before. What its lanes of then had not settled is released.
    fn release_former(&mut self, stream: &StreamId) -> Result<bool, Trouble> {
        let store = Arc::clone(&self.store);
        let streams = self.insist(|| store.streams())?;
        let Some(now) = stream.as_partition() else { return Ok(false) };
        let is_former = |stream: &StreamId| stream.as_partition().is_some_and(|of| of.is_former_of(&now));
        let former: Vec<_> = streams.into_iter().filter(|state| is_former(&state.stream)).collect();
        for state in former.iter().filter(|state| state.row.is_some()) {
            let owned = self.own(state.stream.clone())?;
            let Some(open) = owned.seen.open else { continue };
            let (guard, at) = (Guard { lane: open.lane, token: owned.token }, self.clock.now());
            let released = self.insist(|| store.close_lane(&owned.stream, guard, open.settled, at))?;
            counter!(names::RELEASED).increment(released);
            tracing::info!(stream = %owned.stream, released, "closed the lane of a topic that was made anew");
        }
        Ok(!former.is_empty())
    }

    /// Step 4.
    fn open(&mut self, place: TopicPartition, owned: Owned, decided: Start) -> Result<Lane, Trouble> {
        let Owned { stream, token, .. } = owned;
        let (position, cut, why) = match decided {
            Start::Continue { lane, position } => {
                let lane = Lane::at(stream, Guard { lane, token }, position);
                return Ok(Lane { has_leftovers: true, ..lane });
            }
            Start::NewLane { position, cut, why } => (position, cut, why),
        };
        let (lane, lane_for, now) = (self.draw_lane()?, self.lane_for.clone(), self.clock.now());
        let (slot, lane_for, lease) = (&stream, &lane_for, Duration::ZERO);
        let open = OpenSlot { slot, token, lane, cut, settled: position, lane_for, lease, now };
        let store = Arc::clone(&self.store);
        let released = self.insist(|| store.open_slot(&open))?;
        counter!(names::DISCONTINUITIES, "reason" => why.label()).increment(1);
        counter!(names::RELEASED).increment(released);
        let (topic, partition, reason) = (self.source.topic_name(place.topic), place.partition, why.label());
        tracing::info!(topic, partition, position, lane = lane.0, reason, released, "opened a new lane");
        Ok(Lane::at(stream, Guard { lane, token }, position))
    }

    /// Asks the brokers until they answer.
    fn ask<T>(&mut self, what: &str, question: impl Fn(&KafkaSource) -> Result<T, SourceError>) -> Result<T, Trouble> {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            match question(&self.source) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    if backoff.tries().is_multiple_of(10) {
                        tracing::warn!(error = chain(&error), "no answer about {what}, trying again");
                    }
                    self.wait(backoff.next(self.spread()))?;
                }
            }
        }
    }

    /// Repeats a call to the store until it is done, or another owns the stream. All calls made here may be repeated as
    /// they are after an unknown outcome: token and lane are chosen by us, and finding them there is success.
    fn insist<'a, T, F>(&mut self, call: impl Fn() -> F) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        self.insist_or_not(call)?.ok_or_else(|| Trouble::rejoin(&StoreError::NotOwner))
    }

    /// None: another owns the stream.
    fn insist_or_not<'a, T, F>(&mut self, call: impl Fn() -> F) -> Result<Option<T>, Trouble>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        loop {
            let answer = attend(&self.runtime, &self.source, &mut self.events, call());
            match answer {
                Ok(answer) => {
                    self.store_away.back();
                    return Ok(Some(answer));
                }
                Err(error) if error.recovery() == Recovery::Rejoin => return Ok(None),
                Err(error) => {
                    self.store_failed(error)?;
                    while self.store_away.is_now() {
                        self.wait(WAIT_MIN)?;
                    }
                }
            }
        }
    }

    /// Waits, but keeps polling. Rebalances that come are answered later.
    fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        let until = Instant::now() + time;
        loop {
            if self.shutdown.is_requested() {
                return Err(Trouble::Rejoin { why: "draining".to_owned() });
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { return Ok(()) };
            match self.source.poll(left.min(Duration::from_millis(50))) {
                None => {}
                Some(Event::Message(record)) => self.take(&record)?,
                Some(event) => self.events.push_back(event),
            }
        }
    }
}
