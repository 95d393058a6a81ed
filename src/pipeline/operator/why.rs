//! Who claimed an event, and what follows for its copies.

use std::collections::BTreeMap;

use super::settled::{SettledOffsets, settled_group};
use super::{ASK, Claims, OperatorError};
use crate::kafka::groups::Groups;
use crate::pipeline::chain;
use crate::protocol::event::{EventId, Scope, Week};
use crate::protocol::lane::{LaneId, Position};
use crate::protocol::start::Row;
use crate::store::Claim;

/// Whether the event of a claim is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Settled for ever: made without a lane.
    WithoutLane,
    /// Its lane is closed, and what a closed lane left unsettled is gone.
    LaneClosed,
    /// Below its lane's settled position.
    Settled { settled: Position },
    /// At or above it.
    Unsettled { settled: Position },
    /// Its lane is open, and how far it is settled is not known.
    Unknown { why: String },
}

impl State {
    /// Up to where the lane is settled, where that decided.
    pub const fn position(&self) -> Option<Position> {
        match self {
            State::Settled { settled } | State::Unsettled { settled } => Some(*settled),
            _ => None,
        }
    }

    /// For programs.
    pub const fn label(&self) -> &'static str {
        match self {
            State::WithoutLane | State::LaneClosed | State::Settled { .. } => "settled",
            State::Unsettled { .. } => "unsettled",
            State::Unknown { .. } => "unknown",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Found {
    pub claim: Claim,
    /// Of the lane's stream.
    pub group: Option<String>,
    pub state: State,
}

/// Every claim of an event, with its state as far as `groups` can tell it. A silent broker is no error here.
pub fn why(
    claims: &Claims,
    groups: Option<&Groups>,
    scope: Option<&Scope>,
    event_id: &EventId,
) -> Result<Vec<Found>, OperatorError> {
    let found = claims.ask(|store| async move { store.find(scope, event_id).await })?;
    let open = open_lanes(claims, &found)?;
    let mut settled = Settled { claims, groups, known: BTreeMap::new() };
    found
        .into_iter()
        .map(|claim| {
            let stream = claim.stream.as_ref().and_then(|stream| stream.as_kafka());
            let partition = claim.stream.as_ref().and_then(|stream| stream.as_partition());
            let group = stream.or(partition).map(|stream| stream.group.to_owned());
            let state = match (claim.holder.lane, claim.holder.lane.and_then(|lane| open.get(&lane))) {
                (None, _) => State::WithoutLane,
                (Some(_), None) => State::LaneClosed,
                (Some(_), Some(row)) => {
                    let of = stream.map(|stream| (stream.cluster, stream.group));
                    let told = claim.stream.as_ref().map(|stream| claims.settled(stream, *row)).transpose()?.flatten();
                    match told.map_or_else(|| settled.position(*row, of), |told| Ok(Ok(told)))? {
                        Ok(settled) if claim.holder.position < settled => State::Settled { settled },
                        Ok(settled) => State::Unsettled { settled },
                        Err(why) => State::Unknown { why },
                    }
                }
            };
            Ok(Found { claim, group, state })
        })
        .collect()
}

/// Those of the claims' lanes that are open.
fn open_lanes(claims: &Claims, found: &[Claim]) -> Result<BTreeMap<LaneId, Row>, OperatorError> {
    if found.iter().all(|claim| claim.holder.lane.is_none()) {
        return Ok(BTreeMap::new());
    }
    let streams = claims.ask(|store| async move { store.streams().await })?;
    Ok(streams.into_iter().filter_map(|state| state.row).map(|row| (row.open, row)).collect())
}

/// Asks each group once.
struct Settled<'a> {
    claims: &'a Claims,
    groups: Option<&'a Groups>,
    known: BTreeMap<String, Result<SettledOffsets, String>>,
}

impl Settled<'_> {
    fn position(&mut self, row: Row, of: Option<(&str, &str)>) -> Result<Result<Position, String>, OperatorError> {
        let Some((cluster, group)) = of else { return Ok(Err("its lane is no kafka group's".to_owned())) };
        if !self.known.contains_key(group) {
            let read = self.read(cluster, group)?;
            self.known.insert(group.to_owned(), read);
        }
        let nothing = || format!("group {} has no settled offset for its lane", settled_group(group));
        Ok(self.known[group].clone().and_then(|offsets| offsets.position_of(row).ok_or_else(nothing)))
    }

    fn read(&self, cluster: &str, group: &str) -> Result<Result<SettledOffsets, String>, OperatorError> {
        let Some(groups) = self.groups else {
            return Ok(Err("SEMEL_SOURCE is not set, so the settled offsets are not looked at".to_owned()));
        };
        let store = self.claims.ask(|store| async move { store.store_id().await })?;
        let offsets = groups.cluster(ASK).and_then(|(here, _)| match here == cluster {
            true => groups.offsets(&settled_group(group), ASK).map(Some),
            false => Ok(None),
        });
        Ok(match offsets {
            Ok(Some(offsets)) => Ok(SettledOffsets::of(&offsets, &store)),
            Ok(None) => Err(format!("it was made on another kafka cluster ({cluster})")),
            Err(error) => Err(chain(&error)),
        })
    }
}

impl Found {
    /// Where the line begins that `semel pipe` claimed it for: its claims have neither lane nor partition.
    pub fn line(&self) -> Option<i64> {
        self.claim.offset.filter(|_| self.claim.holder.lane.is_none() && self.claim.partition.is_none())
    }

    /// `topic/partition/offset`, as far as they are known; of a line its input and place.
    pub fn origin(&self) -> String {
        if let Some(position) = self.line() {
            return format!("{}, byte {position}", self.claim.topic);
        }
        let part = |number: Option<String>| number.unwrap_or_else(|| "?".to_owned());
        match (self.claim.partition, self.claim.offset) {
            (None, None) => self.claim.topic.clone(),
            (partition, offset) => {
                let [partition, offset] = [part(partition.map(|n| n.to_string())), part(offset.map(|n| n.to_string()))];
                format!("{}/{partition}/{offset}", self.claim.topic)
            }
        }
    }

    /// The store knows what is settled: the sink has no transactions.
    fn is_told_by_store(&self) -> bool {
        self.claim.stream.as_ref().is_some_and(|stream| stream.as_partition().is_some() || stream.is_slot())
    }

    /// What the claim means for the event and its copies, as a sentence or two.
    pub fn meaning(&self) -> String {
        let origin = self.origin();
        let week = match self.claim.week {
            Week::UNDATED => "any other copy".to_owned(),
            week => format!("any other copy with a time in the week of {week}"),
        };
        let position = self.claim.holder.position;
        match &self.state {
            State::WithoutLane if self.line().is_some() => format!(
                "settled for ever: `semel pipe` forwarded the line that begins there. {week} is a duplicate of it and is \
                 dropped"
            ),
            State::WithoutLane => format!(
                "settled for ever: it was imported, or the guard before Semel made it. {week} is a duplicate of it and is \
                 dropped"
            ),
            State::LaneClosed => format!(
                "settled: its lane is closed, and closing a lane frees what it had not settled. {week} is a duplicate of \
                 {origin} and is dropped. (only after `semel recover` may such a claim be of a window that was lost)"
            ),
            State::Settled { settled } if self.is_told_by_store() => format!(
                "settled: {origin} was published (position {position}, settled up to {settled}). {week} is a duplicate of it \
                 and is dropped"
            ),
            State::Unsettled { settled } if self.is_told_by_store() => format!(
                "not settled: {origin} was claimed (position {position}, settled up to {settled}) and may be published or not. \
                 whoever reads on there publishes it, perhaps once more. {week} waits until then"
            ),
            State::Settled { settled } => format!(
                "settled: {origin} was dealt with in a kafka transaction that committed (position {position}, settled up to \
                 {settled}). {week} is a duplicate of it and is dropped"
            ),
            State::Unsettled { settled } => format!(
                "not settled: {origin} was claimed (position {position}, settled up to {settled}) and its transaction is \
                 not known to have committed. whoever reads the partition now, or next, reads it again and forwards it. \
                 {week} is a duplicate of it and is dropped already now"
            ),
            State::Unknown { why } => format!(
                "claimed by {origin}, on a lane that is open; whether it is settled is not known: {why}. {week} is a \
                 duplicate of it and is dropped"
            ),
        }
    }
}
