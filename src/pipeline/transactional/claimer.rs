//! The second thread: asks for the window's claims and judges its messages.
//!
//! Reserving a window overlaps the publishing of the one before it. The hand-over to the publisher is a rendezvous, so
//! that at most one window is claimed whose predecessor's commit is not known.
//!
//! Every failure of the store is one of five kinds, and none of them lets a message pass that is not claimed, unless
//! the policy for an absent store says so. While the store is away this thread waits; the reader keeps the membership.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use metrics::{counter, histogram};

use super::control::{Control, Trouble, lock};
use super::keyer::Keyer;
use super::known::Known;
use super::lanes::{Lanes, draw_token};
use super::window::{Fate, Job, Judged, Name, Raw};
use super::{PipelineError, Shared};
use crate::config::policy::{Duplicates, StoreAway};
use crate::kafka::TopicPartition;
use crate::kafka::native::Record;
use crate::key::Key;
use crate::metrics as names;
use crate::pipeline::causes::Cause;
use crate::protocol::backoff::Backoff;
use crate::protocol::event::EventTime;
use crate::protocol::lane::{Coordinate, LaneId};
use crate::protocol::verdict::{Claimed, Verdict};
use crate::protocol::window::Questions;
use crate::store::{Ask, ClaimWindow, Guard, Recovery, Refused, StoreError, Take};

pub struct Claimer {
    pub shared: Arc<Shared>,
    pub control: Arc<Control>,
    pub lanes: Arc<Mutex<Lanes>>,
    pub known: Arc<Mutex<Known>>,
    pub keyer: Arc<Keyer>,
    /// Names of the topics, by their index.
    pub topics: Vec<Arc<str>>,
}

/// Where a name was.
const TAKEN: Name = Name::Fate(Fate::Drop);

/// A record that asks for a claim, or has one before it that does.
struct Keyed {
    /// Its place in the window.
    n: usize,
    key: Key,
    digest: u128,
}

/// The claims of a window were not made.
enum Unclaimed {
    /// The epoch ended meanwhile.
    Dead,
    /// The store is away and the policy is to go on without it.
    Away,
    Failed(Trouble),
}

impl Claimer {
    /// Until the reader hangs up.
    pub fn run(self, jobs: &Receiver<Job<Raw>>, publisher: &Sender<Job<Judged>>) {
        for job in jobs {
            let next = match job {
                Job::Barrier(answer) => Some(Job::Barrier(answer)),
                Job::NewLanes(lanes) => Some(Job::NewLanes(lanes)),
                Job::Window(raw) => {
                    let epoch = raw.epoch;
                    match self.window(raw) {
                        Ok(judged) => judged.map(Job::Window),
                        Err(trouble) => {
                            self.control.fail(epoch, trouble);
                            None
                        }
                    }
                }
            };
            if let Some(next) = next
                && publisher.send(next).is_err()
            {
                return;
            }
        }
    }

    /// None where the window is dead.
    fn window(&self, mut raw: Raw) -> Result<Option<Judged>, Trouble> {
        if !self.control.is_alive(raw.epoch) {
            return Ok(None);
        }
        histogram!(names::PHASE_SECONDS, "phase" => "gather").record(raw.opened.elapsed());
        let started = Instant::now();
        let now = self.shared.clock.now();
        // Whoever handed it over may not have: what is not in the order would be passed over.
        raw.seal();
        let mut fates = vec![Fate::Drop; raw.names.len()];
        let mut duplicates = 0;
        {
            let set = lock(&self.known);
            for (n, slot) in raw.names.iter_mut().enumerate() {
                let name = match slot {
                    Name::Key(key, digest) => match self.keyer.out_of_bounds(key, now) {
                        None if !set.has(*digest) => continue,
                        None => {
                            duplicates += 1;
                            Name::Fate(self.fate(Verdict::Duplicate))
                        }
                        Some(unclaimed) => unclaimed,
                    },
                    Name::Fate(_) | Name::Stop { .. } => std::mem::replace(slot, TAKEN),
                };
                match name {
                    Name::Fate(fate) => fates[n] = fate,
                    Name::Stop { cause, detail } => return Err(self.stopped(&raw.records[n], cause, detail)),
                    Name::Key(..) => continue,
                }
                *slot = TAKEN;
            }
        }
        let mut keyed: Vec<Keyed> = Vec::with_capacity(raw.order.len());
        let mut names = std::mem::take(&mut raw.names);
        for n in std::mem::take(&mut raw.order) {
            if let Name::Key(key, digest) = std::mem::replace(&mut names[n], TAKEN) {
                keyed.push(Keyed { n, key, digest });
            }
        }
        let lanes = self.lanes_of(&raw)?;
        // Only what this window owns: the claim of somebody else may yet be released where we would not see it.
        let mut known = Vec::with_capacity(keyed.len());
        match self.verdicts(&raw, &keyed, &lanes, now) {
            Ok(verdicts) => {
                for (keyed, verdict) in keyed.iter().zip(verdicts) {
                    if verdict.publishes() {
                        known.push(keyed.digest);
                    } else {
                        duplicates += 1;
                    }
                    fates[keyed.n] = self.fate(verdict);
                }
            }
            Err(Unclaimed::Dead) => return Ok(None),
            Err(Unclaimed::Failed(trouble)) => return Err(trouble),
            Err(Unclaimed::Away) => {
                for keyed in &keyed {
                    fates[keyed.n] = Fate::ForwardUnclaimed(Cause::StoreAway);
                }
            }
        }
        histogram!(names::PHASE_SECONDS, "phase" => "reserve").record(started.elapsed());
        let to_forget = self.to_forget(&raw, &fates, &lanes);
        Ok(Some(Judged { raw, fates, lanes, duplicates, known, to_forget }))
    }

    fn stopped(&self, (place, record): &(TopicPartition, Record), cause: Cause, detail: String) -> Trouble {
        Trouble::Leave(PipelineError::Stopped {
            topic: self.topics[usize::from(place.topic)].to_string(),
            partition: place.partition,
            offset: record.offset(),
            cause: cause.label(),
            detail,
        })
    }

    fn fate(&self, verdict: Verdict) -> Fate {
        let policies = &self.keyer.policies;
        match verdict {
            Verdict::First | Verdict::Redelivered => Fate::Forward,
            Verdict::Duplicate if policies.observe => Fate::ForwardDuplicate,
            Verdict::Duplicate => match policies.duplicates {
                Duplicates::Drop => Fate::Drop,
                Duplicates::Route => Fate::RouteDuplicate,
                Duplicates::Mark => Fate::ForwardDuplicate,
            },
        }
    }

    /// The lanes of everything that the window commits.
    fn lanes_of(&self, raw: &Raw) -> Result<BTreeMap<TopicPartition, LaneId>, Trouble> {
        let lanes = lock(&self.lanes);
        raw.next
            .keys()
            .map(|place| {
                let held = lanes.get(place).ok_or_else(|| Trouble::Reread {
                    why: "a window outlived its assignment".to_owned(),
                    refused: Vec::new(),
                })?;
                Ok((*place, held.lane))
            })
            .collect()
    }

    fn verdicts(
        &self,
        raw: &Raw,
        keyed: &[Keyed],
        lanes: &BTreeMap<TopicPartition, LaneId>,
        now: EventTime,
    ) -> Result<Vec<Verdict>, Unclaimed> {
        if keyed.is_empty() {
            return Ok(Vec::new());
        }
        let at = |n: usize| {
            let (place, record) = &raw.records[keyed[n].n];
            Coordinate { lane: lanes[place], position: record.offset() }
        };
        let names: Vec<_> = keyed.iter().map(|keyed| (&keyed.key.event_id, keyed.key.week)).collect();
        let questions = Questions::of_sorted(&names);
        let rows: Vec<Ask> = questions
            .asking
            .iter()
            .map(|&n| {
                let Keyed { n, key, .. } = &keyed[n];
                let (place, record) = &raw.records[*n];
                Ask {
                    event_id: key.event_id.clone(),
                    week: key.week,
                    lane: lanes[place],
                    position: record.offset(),
                    topic: Arc::clone(&self.topics[usize::from(place.topic)]),
                    partition: place.partition,
                    offset: record.offset(),
                }
            })
            .collect();
        let places: Vec<TopicPartition> = {
            let mut places: Vec<_> = questions.asking.iter().map(|&n| raw.records[keyed[n].n].0).collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        let answers = self.claim(raw.epoch, &places, &rows, now)?;
        let verdicts = questions.verdicts(&answers, at);
        let inserted = answers.iter().filter(|answer| **answer == Claimed::Inserted).count();
        let redelivered = verdicts.iter().filter(|verdict| **verdict == Verdict::Redelivered).count();
        let scope = self.shared.scope.as_str().to_owned();
        counter!(names::CLAIMS, "consumer_scope_id" => scope, "outcome" => "claimed").increment(inserted as u64);
        counter!(names::REDELIVERED).increment(redelivered as u64);
        Ok(verdicts)
    }

    /// Claims until there is an answer, the epoch is over, or nothing more can be done.
    fn claim(
        &self,
        epoch: u64,
        places: &[TopicPartition],
        rows: &[Ask],
        now: EventTime,
    ) -> Result<Vec<Claimed>, Unclaimed> {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        loop {
            if !self.control.is_alive(epoch) {
                return Err(Unclaimed::Dead);
            }
            let error = match self.attempt(places, rows, now) {
                Ok(answers) => {
                    counter!(names::STORE_COMMITS).increment(1);
                    return Ok(answers);
                }
                Err(error) => error,
            };
            let recovery = error.recovery();
            counter!(names::STORE_ERRORS, "recovery" => recovery.label()).increment(1);
            match recovery {
                Recovery::Rejoin => {
                    return Err(Unclaimed::Failed(Trouble::Rejoin { why: error.to_string() }));
                }
                Recovery::ShutDown => {
                    return Err(Unclaimed::Failed(Trouble::Leave(PipelineError::Store(error))));
                }
                Recovery::EnsureWeeks(week) => {
                    let made = self.shared.runtime.block_on(self.shared.store.ensure_weeks(week, week));
                    if let Err(error) = made {
                        self.shared.report_store(&error, backoff.tries());
                        self.control.shutdown.sleep(backoff.next(self.shared.spread()));
                    }
                }
                Recovery::Retry | Recovery::Retake => {
                    if recovery == Recovery::Retake {
                        self.doubt(places);
                    }
                    self.shared.report_store(&error, backoff.tries());
                    if self.keyer.policies.store_away == StoreAway::Forward && backoff.tries() >= 3 {
                        return Err(Unclaimed::Away);
                    }
                    if self.control.shutdown.is_requested() && backoff.tries() >= 3 {
                        // Nothing of this window was published, and nothing behind it may be: whoever comes next reads
                        // it again.
                        let why = "the claim store is away during the drain".to_owned();
                        return Err(Unclaimed::Failed(Trouble::Reread { why, refused: Vec::new() }));
                    }
                    self.control.shutdown.sleep(backoff.next(self.shared.spread()));
                }
            }
        }
    }

    /// If the claim landed although its reply was lost, the repeated one finds its own coordinates. If it lands only
    /// later, it meets the new token and changes nothing.
    fn attempt(&self, places: &[TopicPartition], rows: &[Ask], now: EventTime) -> Result<Vec<Claimed>, StoreError> {
        let shared = &self.shared;
        for place in places {
            let Some(held) = lock(&self.lanes).get(place).filter(|held| held.in_doubt).cloned() else { continue };
            let token = draw_token().map_err(|error| StoreError::Unavailable(error.to_string().into()))?;
            let take = Take { stream: &held.stream, token, instead_of: Some(held.token) };
            // A reply that is lost here leaves either token: both are tried again under the newer one by rejoining.
            shared.runtime.block_on(shared.store.take(&take)).map_err(|error| match error {
                StoreError::Unknown(_) => StoreError::NotOwner,
                other => other,
            })?;
            if let Some(held) = lock(&self.lanes).get_mut(place) {
                held.token = token;
                held.in_doubt = false;
            }
        }
        let guards: Vec<Guard> = {
            let lanes = lock(&self.lanes);
            places.iter().filter_map(|place| lanes.get(place)).map(super::lanes::Held::guard).collect()
        };
        if guards.len() < places.len() {
            return Err(StoreError::NotOwner);
        }
        let window = ClaimWindow { scope: &shared.scope, guards: &guards, rows, first_seen_at: now };
        shared.runtime.block_on(shared.store.claim(&window))
    }

    fn doubt(&self, places: &[TopicPartition]) {
        let mut lanes = lock(&self.lanes);
        for place in places {
            if let Some(held) = lanes.get_mut(place) {
                held.in_doubt = true;
            }
        }
    }

    /// The claims that an earlier try of this window may have left: of records that the sink refused, or that this
    /// process takes for too large and the one before it did not. The key is found again from the record itself.
    fn to_forget(&self, raw: &Raw, fates: &[Fate], lanes: &BTreeMap<TopicPartition, LaneId>) -> Vec<Refused> {
        let refused =
            |fate: &Fate| matches!(fate, Fate::DeadLetter { cause: Cause::RefusedBySink | Cause::TooLarge, .. });
        raw.records
            .iter()
            .zip(fates)
            .filter(|(_, fate)| refused(fate))
            .filter_map(|((place, record), _)| {
                let key = self.keyer.key(record).ok()?;
                let (lane, position) = (lanes[place], record.offset());
                Some(Refused { event_id: key.event_id, week: key.week, lane, position })
            })
            .collect()
    }
}
