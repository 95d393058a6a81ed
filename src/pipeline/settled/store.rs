//! Calls to the store, and what their failures mean.
//!
//! A call under a lane's token whose outcome is unknown may still be carried out. So the token is replaced before the next
//! one: what is late then changes nothing. What it did before that is no harm: claims recognise their own coordinate, and
//! a settled position that was told is right for ever.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::runtime::Handle;

use super::worker::Worker;
use super::{SettledError, Trouble};
use crate::kafka::TopicPartition;
use crate::kafka::native::Event;
use crate::metrics as names;
use crate::pipeline::chain;
use crate::pipeline::transactional::draw_token;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{LaneId, Position, Token};
use crate::source::kafka::KafkaSource;
use crate::store::slots::{Reserve, Reserved, SlotAsk};
use crate::store::{Recovery, StoreError};

/// Between two looks at the source while something else is waited for.
const ATTEND: Duration = Duration::from_millis(100);
const AWAY_FIRST: Duration = Duration::from_millis(20);
const AWAY_LONGEST: Duration = Duration::from_secs(2);
/// So often has something failed before it counts as away.
pub(super) const TRIES: u32 = 3;

/// The store, or the sink, and whether it is away.
#[derive(Debug)]
pub(super) struct Away {
    until: Option<Instant>,
    backoff: Backoff,
}

impl Default for Away {
    fn default() -> Away {
        Away { until: None, backoff: Backoff::new(AWAY_FIRST, AWAY_LONGEST) }
    }
}

impl Away {
    /// It is not to be asked yet.
    pub fn is_now(&self) -> bool {
        self.until.is_some_and(|until| until > Instant::now())
    }

    pub fn tries(&self) -> u32 {
        self.backoff.tries()
    }

    pub fn failed(&mut self, spread: u8) {
        self.until = Some(Instant::now() + self.backoff.next(spread));
    }

    pub fn back(&mut self) {
        self.until = None;
        self.backoff.reset();
    }
}

/// Waits for an answer, but keeps polling, since a member that does not poll is thrown out. What comes is kept for later.
pub(super) fn attend<T>(
    runtime: &Handle,
    source: &KafkaSource,
    events: &mut VecDeque<Event>,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = pin!(answer);
    loop {
        let answered = runtime.block_on(async { tokio::time::timeout(ATTEND, answer.as_mut()).await });
        if let Ok(answer) = answered {
            return answer;
        }
        events.extend(source.poll(Duration::ZERO));
    }
}

impl Worker {
    /// Settles what is done, and claims. With a lease of zero nothing is under way any more. None where the store has to be
    /// asked again later.
    pub(super) fn reserve(
        &mut self,
        place: TopicPartition,
        rows: &[SlotAsk],
        lease: Duration,
    ) -> Result<Option<Vec<Reserved>>, Trouble> {
        if !self.renew_token(place)? {
            return Ok(None);
        }
        let Some(lane) = self.lanes.get(&place) else { return Ok(None) };
        let committed = lane.batch.as_ref().filter(|batch| batch.is_judged).map_or(lane.done, |batch| batch.done());
        let began = Instant::now();
        let reserve = Reserve {
            guard: lane.guard(),
            scope: &self.options.scope,
            committed,
            lease,
            rows,
            origin: &self.topics[usize::from(place.topic)],
            partition: Some(place.partition),
            first_seen_at: self.clock.now(),
        };
        let answer = attend(&self.runtime, &self.source, &mut self.events, self.store.reserve(&reserve));
        match answer {
            Ok(answers) => {
                counter!(names::STORE_COMMITS).increment(1);
                self.store_away.back();
                let Some(lane) = self.lanes.get_mut(&place) else { return Ok(None) };
                let moved = committed > lane.settled;
                (lane.done, lane.settled) = (lane.done.max(committed), lane.settled.max(committed));
                lane.leased_until = (!lease.is_zero()).then(|| began + lease);
                if moved {
                    self.commit(&[place], false);
                }
                Ok(Some(answers))
            }
            Err(error) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.doubt(place)?;
                }
                self.store_failed(error).map(|()| None)
            }
        }
    }

    /// The claims of messages behind the one that waits at `from` are anybody's again. Once after a takeover all that the
    /// lane has there are, since the owner before may have gone before it gave back its own. False where the store has to be asked again.
    pub(super) fn give_back(
        &mut self,
        place: TopicPartition,
        claims: &[SlotAsk],
        from: Position,
    ) -> Result<bool, Trouble> {
        if !self.renew_token(place)? {
            return Ok(false);
        }
        let Some(lane) = self.lanes.get(&place) else { return Ok(true) };
        let (guard, settled) = (lane.guard(), lane.settled);
        let answer = if lane.has_leftovers {
            let call = self.store.release(guard, settled, &[], from, Position::MAX);
            attend(&self.runtime, &self.source, &mut self.events, call)
        } else if claims.is_empty() {
            return Ok(true);
        } else {
            let call = self.store.give_back(guard, &self.options.scope, claims);
            attend(&self.runtime, &self.source, &mut self.events, call)
        };
        match answer {
            Ok(count) => {
                self.lanes.entry(place).and_modify(|lane| lane.has_leftovers = false);
                counter!(names::RELEASED).increment(count);
                self.store_away.back();
                Ok(true)
            }
            Err(error) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.doubt(place)?;
                }
                self.store_failed(error).map(|()| false)
            }
        }
    }

    fn doubt(&mut self, place: TopicPartition) -> Result<(), Trouble> {
        if let Some(lane) = self.lanes.get_mut(&place) {
            lane.retoken = Some(draw_token().map_err(|error| Trouble::Leave(error.into()))?);
        }
        Ok(())
    }

    /// The same new token until it is known to stand: if an earlier try has landed, it is found there.
    fn renew_token(&mut self, place: TopicPartition) -> Result<bool, Trouble> {
        let Some(lane) = self.lanes.get(&place) else { return Ok(false) };
        let Some(token) = lane.retoken else { return Ok(true) };
        let call = self.store.write_token(&lane.stream, token, Some(lane.token), true);
        match attend(&self.runtime, &self.source, &mut self.events, call) {
            Ok(_) => {
                if let Some(lane) = self.lanes.get_mut(&place) {
                    (lane.token, lane.retoken) = (token, None);
                }
                Ok(true)
            }
            Err(error) => self.store_failed(error).map(|()| false),
        }
    }

    /// What is done about it: it is asked again later, the group is joined anew, or the worker ends.
    pub(super) fn store_failed(&mut self, error: StoreError) -> Result<(), Trouble> {
        let recovery = error.recovery();
        counter!(names::STORE_ERRORS, "recovery" => recovery.label()).increment(1);
        match recovery {
            Recovery::Rejoin => return Err(Trouble::rejoin(&error)),
            Recovery::ShutDown => return Err(Trouble::Leave(SettledError::Store(error))),
            Recovery::EnsureWeeks(week) => {
                let made = self.store.ensure_weeks(week, week);
                if attend(&self.runtime, &self.source, &mut self.events, made).is_ok() {
                    return Ok(());
                }
            }
            Recovery::Retry | Recovery::Retake => {}
        }
        let tries = self.store_away.tries();
        if tries.is_multiple_of(10) {
            tracing::warn!(error = chain(&error), tries, "the claim store does not do its part, trying again");
        }
        if tries >= TRIES {
            self.status.set(Some("the claim store is away".to_owned()));
        }
        let spread = self.spread();
        self.store_away.failed(spread);
        Ok(())
    }

    pub(super) fn draw_token(&self) -> Result<Token, Trouble> {
        draw_token().map_err(|error| Trouble::Leave(error.into()))
    }

    pub(super) fn draw_lane(&self) -> Result<LaneId, Trouble> {
        crate::pipeline::transactional::draw_lane().map_err(|error| Trouble::Leave(error.into()))
    }
}
