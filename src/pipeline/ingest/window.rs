//! One window: reserve, publish, commit, and what becomes of it when one of them fails.
//!
//! The commit is the next reserve on the lane, or the flush that ends the request: here the lane only notes what is
//! committed. Everything that is published or may be is known by its position before this returns.

use std::time::Instant;

use metrics::{counter, histogram};

use super::lane::{Ended, Lane, LaneError};
use super::prepare::{Outcome, Prepared, Reason};
use super::request::Caller;
use super::{Shared, Target};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::pipeline::slots::Known;
use crate::protocol::event::{EventId, Week};
use crate::protocol::ingest::{Answer, Failed, K, Publish, Reserve, settle};
use crate::protocol::instance::Beyond;
use crate::protocol::lane::{LaneId, Position, StreamId};
use crate::protocol::slot::{Conflict, Mine, judge_conflict};
use crate::protocol::window::Questions;
use crate::sink::{Doubt, Published};
use crate::store::StoreError;
use crate::store::slots::{Reserved, SlotAsk};

/// So often is the store asked for the same window before what it cannot say counts as in flight.
const RESERVES_MAX: u32 = 4;

/// Why a window was not published whole.
pub(super) enum Failure {
    Answer(Answer),
    /// Nobody waits for it: nothing of it is published.
    CallerGone,
}

/// What is known of a record before it is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unfit,
    /// Of the same event as an earlier one of the window.
    Repeat,
    /// It goes out without a claim.
    Unclaimed,
    /// To be claimed.
    Fresh,
    Claimed(Position),
    Duplicate,
}

/// Runs one window on a lane. Answers what became of each record, in their order.
pub(super) async fn run(
    shared: &Shared,
    lane: &mut Lane,
    target: &Target,
    window: Vec<Prepared>,
    caller: &Caller,
) -> Result<Vec<Outcome>, Failure> {
    let mut states = states(lane, &window);
    let reserved = reserve(shared, lane, target, &window, &mut states, caller).await;
    if let Err(failure) = reserved {
        if lane.uncommitted > 0 {
            commit(shared, lane).await;
        }
        count_end(window.len(), "discarded");
        return Err(failure);
    }
    let published = publish(shared, lane, target, window, &states).await;
    published.map_err(Failure::Answer)?;
    let outcome = |state: &State| match state {
        State::Unfit => Outcome::Rejected(Reason::Unfit),
        State::Repeat | State::Duplicate => Outcome::Duplicate,
        State::Unclaimed | State::Fresh | State::Claimed(_) => Outcome::Published,
    };
    Ok(states.iter().map(outcome).collect())
}

/// Tells the store at once what is committed, where it does not know. A failure is told and counted, and mended later.
pub(super) async fn commit(shared: &Shared, lane: &mut Lane) {
    let records = lane.uncommitted;
    if let Err(error) = lane.mend(shared).await
        && records > 0
    {
        counter!(names::UNCOMMITTED).increment(records);
        lane.uncommitted = 0;
        tracing::error!(slot = %lane.slot, records, error = chain(&error), "the commit of published records failed");
    }
}

fn states(lane: &Lane, window: &[Prepared]) -> Vec<State> {
    let mut states: Vec<State> = window
        .iter()
        .map(|record| match &record.key {
            _ if lane.outlet.unfit(&record.outgoing).is_some() => State::Unfit,
            Some(_) => State::Fresh,
            None => State::Unclaimed,
        })
        .collect();
    let fresh: Vec<usize> = (0..states.len()).filter(|&n| states[n] == State::Fresh).collect();
    let keys: Vec<&EventId> = fresh.iter().filter_map(|&n| window[n].key.as_ref()).collect();
    let questions = Questions::of(&keys);
    for (n, &record) in fresh.iter().enumerate() {
        if questions.asker(n) != n {
            states[record] = State::Repeat;
        }
    }
    states
}

/// Claims what is fresh, all of it or nothing: a window with a key that is in flight holds no claim in the end.
async fn reserve(
    shared: &Shared,
    lane: &mut Lane,
    target: &Target,
    window: &[Prepared],
    states: &mut [State],
    caller: &Caller,
) -> Result<(), Failure> {
    let fresh: Vec<usize> = (0..states.len()).filter(|&n| states[n] == State::Fresh).collect();
    let keys: Vec<&EventId> = fresh.iter().filter_map(|&n| window[n].key.as_ref()).collect();
    // Without a claim to ask for, what is committed is told all the same.
    let asking = Questions::of(&keys).asking;
    if asking.is_empty() && !lane.owes() {
        return Ok(());
    }
    for _ in 0..RESERVES_MAX {
        if caller.is_gone() {
            return Err(Failure::CallerGone);
        }
        lane.take(shared).await.map_err(|error| unreserved(shared, &lane.slot, window.len(), &error))?;
        let first = lane.next;
        let row =
            |&n: &usize| SlotAsk { event_id: keys[n].clone(), week: Week::UNDATED, position: first + n as Position };
        let rows: Vec<SlotAsk> = asking.iter().map(row).collect();
        let answers = match lane.reserve(shared, Some(target), &rows, shared.options.lease).await {
            Ok(answers) => answers,
            // Another took the slot, and has released what was open there: it is to be taken back.
            Err(StoreError::NotOwner) => continue,
            Err(error) => return Err(unreserved(shared, &lane.slot, window.len(), &error.into())),
        };
        let mine = Mine { lane: lane.id(), committed: lane.settled() };
        let judged = answers.iter().map(|answer| match answer {
            Reserved::Inserted => None,
            Reserved::InTheWay(found) => Some(judge_conflict(*found, mine)),
        });
        let judged: Vec<Option<Conflict>> = judged.collect();
        let stays = |one: &Option<Conflict>| matches!(one, None | Some(Conflict::Duplicate));
        if judged.iter().all(stays) && !caller.is_gone() {
            for (row, conflict) in rows.iter().zip(&judged) {
                let record = fresh[(row.position - first) as usize];
                states[record] = if conflict.is_none() { State::Claimed(row.position) } else { State::Duplicate };
            }
            count_claims(shared, &judged);
            return begin(shared, lane, window.len(), judged.iter().any(Option::is_none)).await;
        }
        give_back(shared, lane, judged.iter().any(Option::is_none)).await;
        if caller.is_gone() {
            return Err(Failure::CallerGone);
        }
        let in_flight = judged.contains(&Some(Conflict::InFlight));
        if in_flight || !clear(shared, lane, window.len(), &judged).await? {
            break;
        }
    }
    Err(answer(shared, Failed::Reserve(Reserve::InFlight)))
}

/// The claims stand. Not begun where the store took so long that too little of the lease is left.
async fn begin(shared: &Shared, lane: &mut Lane, records: usize, claimed: bool) -> Result<(), Failure> {
    if !claimed || Instant::now() + shared.options.publish_timeout <= lane.leased_until {
        return Ok(());
    }
    tracing::error!(slot = %lane.slot, records, "the claim store took so long that too little of the lease is left");
    give_back(shared, lane, true).await;
    Err(answer(shared, Failed::Reserve(Reserve::Unavailable)))
}

async fn give_back(shared: &Shared, lane: &mut Lane, claimed: bool) {
    if !claimed {
        lane.nothing_open();
    } else if let Err(error) = lane.release(shared, Vec::new()).await {
        tracing::warn!(slot = %lane.slot, error = chain(&error), "claims are given back with the next lane");
    }
}

/// Does away with claims whose holders are gone. False: one of them is in use, after all.
async fn clear(shared: &Shared, lane: &mut Lane, records: usize, judged: &[Option<Conflict>]) -> Result<bool, Failure> {
    let mut seen = Vec::new();
    for conflict in judged.iter().flatten() {
        if seen.contains(conflict) {
            continue;
        }
        seen.push(*conflict);
        let cleared = match conflict {
            Conflict::LeftBehind(of) => sweep(shared, *of).await.map_err(LaneError::from),
            Conflict::TakeOver(of) => lane.take_over(shared, *of).await,
            Conflict::Gone | Conflict::Duplicate | Conflict::InFlight => Ok(true),
        };
        match cleared {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => return Err(unreserved(shared, &lane.slot, records, &error)),
        }
    }
    Ok(true)
}

/// Deletes what was left in doubt on a closed lane. False: its lease runs, after all.
async fn sweep(shared: &Shared, lane: LaneId) -> Result<bool, StoreError> {
    let swept = shared.store.sweep(lane).await?;
    if let Some(released) = swept {
        counter!(names::RELEASED).increment(released);
        tracing::debug!(%lane, released, "swept what was left in doubt");
    }
    Ok(swept.is_some())
}

fn unreserved(shared: &Shared, slot: &StreamId, records: usize, error: &LaneError) -> Failure {
    if let LaneError::Kafka(_) = error {
        tracing::warn!(%slot, records, error = chain(error), "a window could not be begun");
        return answer(shared, Failed::Publish { k: K { record: 0, claimed: false }, how: Publish::OutOfReach });
    }
    let how = if error.is_passing() { Reserve::Unavailable } else { Reserve::Otherwise };
    tracing::error!(%slot, records, error = chain(error), "the claim store failed to reserve a window");
    answer(shared, Failed::Reserve(how))
}

fn answer(shared: &Shared, failed: Failed) -> Failure {
    settle(failed, shared.options.lease).answer.map_or(Failure::CallerGone, Failure::Answer)
}

/// Publishes in the order of the records. Whatever ends this in the middle leaves all of it in doubt.
async fn publish(
    shared: &Shared,
    lane: &mut Lane,
    target: &Target,
    window: Vec<Prepared>,
    states: &[State],
) -> Result<(), Answer> {
    let position = |state: &State| match state {
        State::Claimed(position) => Some(*position),
        _ => None,
    };
    let goes = |state: &State| matches!(state, State::Claimed(_) | State::Unclaimed);
    let records = window.len();
    let unclaimed = states.iter().filter(|state| **state == State::Unclaimed).count() as u64;
    let positions: Vec<Option<Position>> = states.iter().filter(|state| goes(state)).map(position).collect();
    let going = window.into_iter().zip(states).filter(|(_, state)| goes(state));
    let outgoing: Vec<_> = going.map(|(record, _)| record.outgoing).collect();
    let sent = outgoing.len() as u64;
    let mut is_settled = false;
    if !outgoing.is_empty() {
        let claimed: Vec<Position> = positions.iter().copied().flatten().collect();
        let (began, leased_until, has_claims) = (Instant::now(), lane.leased_until, !claimed.is_empty());
        let ended = lane.publish(shared, outgoing, claimed).await;
        histogram!(names::PHASE_SECONDS, "phase" => "publish").record(began.elapsed().as_secs_f64());
        if Instant::now() > leased_until && has_claims {
            counter!(names::LEASES_OUTLIVED).increment(1);
            tracing::warn!(slot = %lane.slot, records, "a publish ended after its lease");
        }
        if let Some(k) = ended.answers.iter().position(|answer| !answer.is_stored()) {
            count_end(records, "failed");
            return Err(failed(shared, lane, &positions, &ended, k).await);
        }
        is_settled = ended.is_settled;
    }
    match positions.iter().flatten().count() as u64 {
        _ if is_settled => {}
        0 => lane.nothing_open(),
        published => {
            lane.committed = lane.next;
            lane.uncommitted += published;
        }
    }
    let cause = if target.dedupes { "missing_id" } else { "dedupe_off" };
    counter!(names::UNCLAIMED, "cause" => cause).increment(unclaimed);
    counter!(names::FORWARDED).increment(sent);
    count_end(records, "committed");
    Ok(())
}

/// The publish failed at `k`, an index among those that went out.
async fn failed(shared: &Shared, lane: &mut Lane, positions: &[Option<Position>], ended: &Ended, k: usize) -> Answer {
    let answers = &ended.answers;
    let (how, detail) = how(&answers[k]);
    let k_failed = Failed::Publish { k: K { record: k, claimed: positions[k].is_some() }, how };
    let settlement = settle(k_failed, shared.options.lease);
    tracing::warn!(slot = %lane.slot, record = k, of = positions.len(), detail, "a record was not published");
    let otherwise = Answer { status: 500, error: "publish failed", retry_after_s: None };
    let in_doubt = |answer: &&Published| matches!(answer, Published::InDoubt(_));
    counter!(names::IN_DOUBT).increment(answers.iter().filter(in_doubt).count() as u64);
    if ended.is_settled {
        return settlement.answer.unwrap_or(otherwise);
    }
    // Of the records that are not committed: some were out already when k failed, and may be published all the same.
    let beyond = |is: &dyn Fn(usize) -> bool| -> Vec<Position> {
        (k..positions.len()).filter(|&n| is(n)).filter_map(|n| positions[n]).collect()
    };
    let published = beyond(&|n| answers[n].is_stored());
    let in_doubt = beyond(&|n| matches!(answers[n], Published::InDoubt(_)) || settlement.left == Some(n));
    lane.committed = positions[k..].iter().copied().flatten().next().unwrap_or(lane.next);
    let below = positions[..k].iter().flatten().count() as u64;
    lane.uncommitted += below;
    counter!(names::FORWARDED)
        .increment(k as u64 + answers[k..].iter().filter(|answer| answer.is_stored()).count() as u64);
    if !in_doubt.is_empty() {
        let beyond = Beyond { published, in_doubt };
        lane.give_up(Some(Known { committed: lane.committed, beyond }), "in_doubt");
    } else if lane.committed < lane.next {
        // A failure has given the lane up, and is told below.
        let _ = lane.release(shared, published).await;
    }
    commit(shared, lane).await;
    // A publish that fails always has an answer.
    settlement.answer.unwrap_or(otherwise)
}

fn how(published: &Published) -> (Publish, &str) {
    match published {
        Published::Refused(why) => (Publish::Refused, why),
        Published::InDoubt(Doubt { why, answered: true }) => (Publish::Otherwise, why),
        Published::InDoubt(Doubt { why, answered: false }) => (Publish::OutOfReach, why),
        Published::NotSent => (Publish::OutOfReach, "it was not sent"),
        Published::Confirmed | Published::Deduplicated => (Publish::Otherwise, ""),
    }
}

fn count_claims(shared: &Shared, judged: &[Option<Conflict>]) {
    let claimed = judged.iter().filter(|conflict| conflict.is_none()).count() as u64;
    let scope = || shared.options.scope.as_str().to_owned();
    counter!(names::CLAIMS, "consumer_scope_id" => scope(), "outcome" => "claimed").increment(claimed);
    counter!(names::CLAIMS, "consumer_scope_id" => scope(), "outcome" => "duplicate")
        .increment(judged.len() as u64 - claimed);
}

fn count_end(records: usize, end: &'static str) {
    counter!(names::WINDOWS, "end" => end).increment(1);
    histogram!(names::WINDOW_MESSAGES).record(records as f64);
}
