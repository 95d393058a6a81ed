//! The rules, one to drop at a time, and what an instance does without it.
//!
//! Each rule stands for a sentence of protocol.md. Where a rule is a call that is left out or made in another order,
//! the place where it is left out asks [`Setup::drops`]; what is more than that is here.

use semel::protocol::lane::Position;
use semel::protocol::start::{Seen, Start, decide as decide_by_table};

use super::instance::{Instance, Reading, Stage};
use super::postgres::{Claim, Postgres};
use super::world::{PARTITIONS, Setup};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A fetch of offsets waits for the end of pending transactions.
    StableFetch,
    /// The group's metadata is captured before a window is polled, not taken when its offsets are sent.
    MetadataCaptured,
    /// After an abort the reader goes back to the window's start.
    SeekAfterAbort,
    /// A transaction of unknown outcome is resolved before anything is read again; it is not taken for aborted.
    UnknownResolved,
    /// The broker refuses offsets of an older generation.
    GenerationFence,
    /// Lanes; instead a watermark in PostgreSQL, raised with each window and at each assignment.
    LanesNotWatermark,
    /// Lanes; instead the settled offset alone says which own claims are done.
    LanesNotSettledAlone,
    /// An owner token guards claims and openings.
    OwnerToken,
    /// At a discontinuity the Kafka step comes before the release in PostgreSQL.
    KafkaStepFirst,
    /// The settled group's offsets are sent before the group's own.
    SettledSentFirst,
    /// The group's own offsets are fetched before the settled ones.
    GroupFetchedFirst,
    /// The first start after an assignment is confirmed by a transaction under its generation, whatever it finds.
    StartConfirmed,
    /// A discontinuity releases the claims that were not settled.
    Release,
    /// Where the settled offset's lane never came to be open, what it was to release is carried on.
    CutCarriedOn,
    /// An abort discards the windows that were claimed after the aborted one, too.
    LaterWindowsDiscarded,
    /// A revoke discards every window.
    RevokeDiscards,
    /// Ids learned at their claim are forgotten on an abort, a refusal and an unknown outcome.
    KnownEmptiedOnAbort,
    /// Ids learned at their claim are forgotten on a revoke and on a discontinuity.
    KnownEmptiedOnRelease,
    /// The claim of a refused record is deleted only after its dead letter has committed.
    RefusedForgottenLast,
    /// Before a claim of unknown outcome is repeated, a new token is written.
    NewTokenBeforeRepeat,
    /// A missing settled offset halts where nothing says where the open lane left off.
    SettledMissingHalts,
    /// A recorded drain is forgotten by the first claim that follows it.
    DrainForgotten,
    /// Settled's metadata carries the store's identity.
    StoreNamed,
    /// The topic's id is in the lane's identity.
    TopicNamed,
    /// Where both offsets went with a deleted topic, the lane of its former id tells what was in doubt.
    FormerLaneKnown,
    /// Where the group's own offset is missing, reading goes on from settled, not by the reset policy.
    OwnMissingFromSettled,
}

/// The start table; without a row of it, what the neighbouring row would say.
pub fn decide(setup: &Setup, mut seen: Seen) -> Start {
    if without_lanes(setup) {
        let lane = seen.row.expect("these begin with open lanes").open;
        let position = seen.committed.expect("and with an offset").max(seen.log_start);
        return Start::Continue { lane, position };
    }
    if setup.drops(Rule::SettledMissingHalts) && seen.settled.is_none() {
        seen.row = None;
    }
    if setup.drops(Rule::FormerLaneKnown) {
        seen.former = None;
    }
    if setup.drops(Rule::OwnMissingFromSettled) && seen.committed.is_none() {
        seen.committed = Some(seen.log_end);
    }
    if let Some(mark) = seen.settled.as_mut().and_then(|settled| settled.mark.as_mut()) {
        if setup.drops(Rule::CutCarriedOn) {
            mark.cut = None;
        }
        if setup.drops(Rule::StoreNamed) {
            mark.store = seen.store.clone();
        }
        if setup.drops(Rule::TopicNamed) {
            mark.topic = seen.topic.clone();
        }
    }
    decide_by_table(&seen)
}

pub fn without_lanes(setup: &Setup) -> bool {
    setup.drops(Rule::LanesNotWatermark) || setup.drops(Rule::LanesNotSettledAlone)
}

/// Below which position of each partition an own claim is taken to be done. With lanes: nowhere.
pub fn done(setup: &Setup, postgres: &mut Postgres, claim: &Claim) -> [Position; PARTITIONS] {
    if setup.drops(Rule::LanesNotWatermark) {
        for (watermark, done) in postgres.watermark.iter_mut().zip(claim.done) {
            *watermark = done.max(*watermark);
        }
        return postgres.watermark;
    }
    claim.done
}

/// What an instance takes to be done when it starts, in place of lanes: the stable offset it found.
pub fn done_at_start(setup: &Setup, reading: &Reading) -> Position {
    if setup.drops(Rule::LanesNotWatermark) {
        reading.committed.unwrap_or(0)
    } else if setup.drops(Rule::LanesNotSettledAlone) {
        reading.settled.as_ref().map_or(0, |settled| settled.position)
    } else {
        0
    }
}

/// The same after a window that ends at `to` has committed.
pub fn done_after(setup: &Setup, done: Position, to: Position) -> Position {
    if without_lanes(setup) { done.max(to) } else { 0 }
}

/// Whether the windows of an instance outlive an assignment that takes partitions away.
pub fn keeps_windows(setup: &Setup, instance: &Instance, mine: &[Option<Reading>; PARTITIONS]) -> bool {
    setup.drops(Rule::RevokeDiscards)
        && instance.stage == Stage::Reading
        && instance.transaction.is_none()
        && !instance.windows.is_empty()
        && (0..PARTITIONS).all(|p| mine[p].is_none() || instance.reads[p].is_some())
}

/// What becomes of the windows when the first of them has aborted.
pub fn discard(setup: &Setup, instance: &mut Instance) {
    if setup.drops(Rule::SeekAfterAbort) {
        instance.windows.clear();
    } else if setup.drops(Rule::LaterWindowsDiscarded) && instance.windows.len() > 1 {
        let kept = instance.windows.split_off(1);
        instance.discard_windows();
        instance.windows = kept;
    } else {
        instance.discard_windows();
    }
}

/// The stream's identity in PostgreSQL.
pub fn stream(setup: &Setup, topic: usize) -> usize {
    if setup.drops(Rule::TopicNamed) { 0 } else { topic }
}
