//! Letting a partition go: what is published is settled, each message by itself where something before it is not; the lease
//! ends; the group's offset is committed. After a lost membership too: the store does not ask for one, and others wait for
//! the lease. Claims of what is not published stay: whoever gets the partition finds them its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;

use super::lane::Lane;
use super::store::attend;
use super::worker::Worker;
use crate::kafka::TopicPartition;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::Position;
use crate::store::StoreError;
use crate::store::slots::Reserve;

/// How long the store is tried to be told what a partition is left with.
const LET_GO: Duration = Duration::from_secs(3);

impl Worker {
    /// Settles what is published on these, ends their leases, and commits the group's offset. They are out of the table
    /// then.
    pub(super) fn let_go(&mut self, places: &[TopicPartition]) {
        let until = Instant::now() + LET_GO;
        for place in places {
            let Some(mut lane) = self.lanes.remove(place) else { continue };
            let judged = lane.batch.take().filter(|batch| batch.is_judged);
            let beyond = judged.as_ref().map(|batch| batch.beyond()).unwrap_or_default();
            lane.done = judged.map_or(lane.done, |batch| batch.done().max(lane.done));
            if !beyond.is_empty() || lane.done > lane.settled || lane.leased_until.is_some() {
                self.leave_lane(*place, &mut lane, &beyond, until);
            }
            self.settled.insert(*place, lane.settled);
        }
        self.commit(places, true);
        self.settled.clear();
    }

    fn leave_lane(&mut self, place: TopicPartition, lane: &mut Lane, beyond: &[Position], until: Instant) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        loop {
            let (guard, done) = (lane.guard(), lane.done);
            let store = Arc::clone(&self.store);
            let (scope, origin) = (self.options.scope.clone(), Arc::clone(&self.topics[usize::from(place.topic)]));
            let (partition, first_seen_at) = (Some(place.partition), self.clock.now());
            let told = async move {
                if !beyond.is_empty() {
                    store.release(guard, done, beyond, done, done).await?;
                }
                let (scope, origin, lease) = (&scope, &origin, Duration::ZERO);
                let reserve =
                    Reserve { guard, scope, committed: done, lease, rows: &[], origin, partition, first_seen_at };
                store.reserve(&reserve).await
            };
            match attend(&self.runtime, &self.source, &mut self.events, told) {
                Ok(_) => {
                    lane.settled = done;
                    return;
                }
                Err(error) if Instant::now() > until || matches!(error, StoreError::NotOwner) => {
                    let unsettled = done - lane.settled;
                    let error = chain(&error);
                    tracing::warn!(stream = %lane.stream, error, unsettled, "let a partition go unsettled");
                    return;
                }
                Err(error) => {
                    counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
                    std::thread::sleep(backoff.next(self.spread()));
                }
            }
        }
    }
}
