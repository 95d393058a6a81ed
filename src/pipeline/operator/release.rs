//! Frees claims: those of one event, or those that a retired group left unsettled.
//!
//! **A group's** claims below its settled offsets are of events that were forwarded; freeing them would double. Those at
//! or above are of events that were claimed and not forwarded, and hold up every other copy for ever once nobody reads
//! the group's partitions any more. The group is without members; then, for each open lane: write a token (who owned
//! the stream can claim nothing more), look at the members again, read the settled offset stably, and close the lane with
//! that cut, as owner. A member that joins in between writes its token, and the close is refused. One that claimed
//! before cannot publish after: its transaction carries a membership that is gone.
//!
//! Of a group whose sink has no transactions the store itself knows how far each lane is settled. An instance that was not
//! stopped can neither claim nor settle any more, but may finish the publish that it is at.
//!
//! A lane whose settled offset is gone is left alone: nothing tells which of its claims were forwarded.
//!
//! **An event's** claims are freed whatever they are; that is for the operator to judge.

use super::settled::{SettledOffsets, settled_group};
use super::why::{Found, why};
use super::{ASK, Claims, OperatorError, SETTLE, refuse_members};
use crate::kafka::groups::Groups;
use crate::pipeline::transactional::draw_token;
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Position, StreamId};
use crate::protocol::start::Row;
use crate::store::{Free, Guard, Take};

/// The claims of an event in one week or in all.
pub fn of_event(
    claims: &Claims,
    groups: Option<&Groups>,
    scope: &Scope,
    event_id: &EventId,
    week: Option<Week>,
) -> Result<Vec<Found>, OperatorError> {
    let mut found = why(claims, groups, Some(scope), event_id)?;
    found.retain(|found| week.is_none_or(|week| found.claim.week == week));
    Ok(found)
}

/// Answers how many were freed.
pub fn free_event(
    claims: &Claims,
    scope: &Scope,
    event_id: &EventId,
    week: Option<Week>,
) -> Result<u64, OperatorError> {
    let free = &Free::Event { scope: scope.clone(), event_id: event_id.clone(), week };
    claims.ask(|store| async move { store.free(free, false).await })
}

/// An open lane of a retired group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub stream: StreamId,
    pub row: Row,
    /// The topic's name.
    pub topic: String,
    pub partition: i32,
    /// None: nothing tells where it left off, and it is left alone.
    pub settled: Option<Position>,
    /// At or above settled: to be freed, or freed.
    pub claims: u64,
}

/// The group's open lanes, and what they hold. Changes nothing. Refuses a group that has members.
pub fn of_group(claims: &Claims, groups: &Groups, group: &str) -> Result<Vec<Lane>, OperatorError> {
    let (cluster, _) = groups.cluster(ASK)?;
    refuse_members(groups, group)?;
    let settled = read_settled(claims, groups, group)?;
    let streams = claims.ask(|store| async move { store.streams().await })?;
    let mut lanes = Vec::new();
    for state in streams {
        let Some(row) = state.row else { continue };
        let of = state.stream.as_kafka().or(state.stream.as_partition());
        let of = of.filter(|of| of.cluster == cluster && of.group == group);
        let Some(of) = of else { continue };
        let topic = settled.topic_name(of.topic).unwrap_or(of.name).to_owned();
        let position = claims.settled(&state.stream, row)?.or(settled.position_of(row));
        let claims = match position {
            None => 0,
            Some(from) => {
                claims.ask(|store| async move { store.free(&Free::Unsettled { lane: row.open, from }, true).await })?
            }
        };
        let partition = of.partition;
        lanes.push(Lane { stream: state.stream, row, topic, partition, settled: position, claims });
    }
    Ok(lanes)
}

/// Closes the lanes of `planned` whose settled position is known, and frees what they hold above it. Answers them as
/// they were when they were closed.
pub fn free_group(
    claims: &Claims,
    groups: &Groups,
    group: &str,
    planned: &[Lane],
    now: EventTime,
) -> Result<Vec<Lane>, OperatorError> {
    let mut taken = Vec::new();
    for lane in planned.iter().filter(|lane| lane.settled.is_some()) {
        let (stream, token) = (&lane.stream, draw_token()?);
        let row = claims.ask(|store| async move { store.take(&Take { stream, token, instead_of: None }).await })?.row;
        taken.extend(row.map(|row| (lane, token, row)));
    }
    refuse_members(groups, group)?;
    let settled = read_settled(claims, groups, group)?;
    let mut freed = Vec::new();
    for (lane, token, row) in taken {
        let Some(cut) = claims.settled(&lane.stream, row)?.or(settled.position_of(row)) else { continue };
        let (stream, guard) = (&lane.stream, Guard { lane: row.open, token });
        let count = claims.ask(|store| async move { store.close_lane(stream, guard, cut, now).await })?;
        freed.push(Lane { row, settled: Some(cut), claims: count, ..lane.clone() });
    }
    Ok(freed)
}

fn read_settled(claims: &Claims, groups: &Groups, group: &str) -> Result<SettledOffsets, OperatorError> {
    let store = claims.ask(|store| async move { store.store_id().await })?;
    Ok(SettledOffsets::of(&groups.stable_offsets(&settled_group(group), SETTLE)?, &store))
}
