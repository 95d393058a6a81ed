//! How far lanes are settled, by the settled offsets of their group.

use crate::config::source::SETTLED;
use crate::kafka::native::Committed;
use crate::protocol::lane::{LaneId, Mark, Position, StoreId};
use crate::protocol::start::Row;

/// The settled offsets of a group, on all its topics.
#[derive(Debug, Clone, Default)]
pub struct SettledOffsets(Vec<Settled>);

#[derive(Debug, Clone)]
struct Settled {
    topic: String,
    position: Position,
    mark: Mark,
}

/// The group that holds them.
pub fn settled_group(group: &str) -> String {
    format!("{group}{SETTLED}")
}

impl SettledOffsets {
    /// Leaves out what is not Semel's, or of another store.
    pub fn of(offsets: &[Committed], store: &StoreId) -> SettledOffsets {
        let ours = |one: &Committed| {
            let mark = Mark::decode(&one.metadata).filter(|mark| mark.store == *store)?;
            Some(Settled { topic: one.topic.clone(), position: one.offset?, mark })
        };
        SettledOffsets(offsets.iter().filter_map(ours).collect())
    }

    /// The topic whose name goes with an id, as the group has read it.
    pub fn topic_name(&self, id: &str) -> Option<&str> {
        self.0.iter().find(|one| *one.mark.topic.0 == *id).map(|one| one.topic.as_str())
    }

    /// The settled position of a lane that the store has open; None where nothing tells.
    ///
    /// A takeover that was interrupted between Kafka and the store has left its new lane in the metadata, and there the
    /// cut of the open one.
    pub fn position(&self, lane: LaneId) -> Option<Position> {
        let on_it = self.0.iter().find(|one| one.mark.lane == lane).map(|one| one.position);
        let cut = || self.0.iter().find_map(|one| one.mark.cut.filter(|cut| cut.prev == lane)).map(|cut| cut.cut);
        on_it.or_else(cut)
    }

    /// The same for a stream's open lane, whose drain the store may have recorded.
    pub fn position_of(&self, row: Row) -> Option<Position> {
        self.position(row.open).or(row.drained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::lane::{Cut, TopicId};

    fn committed(offset: Option<i64>, store: &str, lane: i64, cut: Option<(i64, i64)>) -> Committed {
        let cut = cut.map(|(prev, cut)| Cut { prev: LaneId(prev), cut });
        let mark = Mark { store: StoreId(store.into()), topic: TopicId("t".into()), lane: LaneId(lane), cut };
        Committed { topic: "orders".into(), partition: 0, offset, metadata: mark.encode() }
    }

    #[test]
    fn how_far_a_lane_is_settled() {
        let here = StoreId("here".into());
        let foreign = Committed { metadata: "somebody's".into(), ..committed(Some(9), "here", 1, None) };
        let row = |drained| Row { open: LaneId(1), drained };
        let cases = [
            (committed(Some(40), "here", 1, None), None, Some(40), "on this lane"),
            (committed(Some(40), "here", 2, Some((1, 30))), None, Some(30), "an interrupted takeover carries its cut"),
            (committed(Some(40), "here", 2, Some((3, 30))), None, None, "of other lanes"),
            (committed(Some(40), "there", 1, None), None, None, "of another store"),
            (committed(None, "here", 1, None), None, None, "no offset"),
            (foreign, None, None, "not Semel's"),
            (committed(None, "here", 1, None), Some(20), Some(20), "the drain recorded it"),
            (committed(Some(40), "here", 1, None), Some(20), Some(40), "Kafka's word counts more"),
        ];
        for (one, drained, right, why) in cases {
            assert_eq!(SettledOffsets::of(&[one], &here).position_of(row(drained)), right, "{why}");
        }
    }
}
