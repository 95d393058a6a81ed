//! What a slot's lane has beside a Kafka partition's: a settled position, and a lease.
//!
//! The settled position is a record of its own, one a lane, kept for ever: lanes outlive their claims. **Leases are not
//! written down: they end with the process that opened the folder.** Nobody else can hold one, since nobody else can
//! have the folder open; so a start after a crash finds every lane lapsed and waits for none. While the process lives
//! its leases run by a clock that nobody can set back, and that stands still while the machine sleeps, as the holder
//! does.

use std::time::{Duration, Instant};

use fjall::OwnedWriteBatch;

use super::code::{In, Out, Unreadable};
use super::inner::{Inner, SLOT_LANE};
use crate::protocol::lane::{Holder, LaneId, Position};
use crate::protocol::slot::{Conflicting, LaneSeen};
use crate::store::slots::lane_seen;

#[derive(Debug, Clone, Copy)]
pub(super) struct SlotLane {
    pub settled: Position,
    /// Claims may lie at or above `settled`: so while the lane is open, and after it where some were left in doubt.
    pub unsettled: bool,
    lease: Option<Lease>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    since: Instant,
    length: Duration,
}

impl SlotLane {
    const FORMAT: u8 = 1;

    pub fn opened(settled: Position, lease: Duration) -> SlotLane {
        SlotLane { settled, unsettled: true, lease: Some(Lease::from_now(lease)) }
    }

    pub fn raised(self, committed: Position) -> SlotLane {
        SlotLane { settled: self.settled.max(committed), ..self }
    }

    pub fn renewed(self, lease: Duration) -> SlotLane {
        SlotLane { lease: Some(Lease::from_now(lease)), ..self }
    }

    pub fn closed(self, left_in_doubt: bool) -> SlotLane {
        SlotLane { unsettled: left_in_doubt, ..self }
    }

    /// Zero where it has lapsed.
    pub fn lease_left(&self) -> Duration {
        self.lease.map_or(Duration::ZERO, |lease| lease.length.saturating_sub(lease.since.elapsed()))
    }

    pub fn seen(&self, open: bool) -> LaneSeen {
        lane_seen(Some(self.settled), open, Some(self.lease_left()))
    }

    fn write(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.byte(Self::FORMAT).signed(self.settled).byte(u8::from(self.unsettled));
        out.0
    }

    /// Its lease was an earlier process's, and is over.
    pub fn read(record: &[u8]) -> Result<SlotLane, Unreadable> {
        let mut read = In(record);
        read.format(Self::FORMAT)?;
        Ok(SlotLane { settled: read.signed()?, unsettled: read.byte()? != 0, lease: None })
    }
}

impl Lease {
    fn from_now(length: Duration) -> Lease {
        Lease { since: Instant::now(), length }
    }
}

impl Inner {
    pub fn put_slot_lane(&self, batch: &mut OwnedWriteBatch, lane: LaneId, of_slot: &SlotLane) {
        self.put(batch, SLOT_LANE, &lane.0.to_be_bytes(), of_slot.write());
    }

    /// Adds to `batch` that a lane, if it is a slot's, is closed with nothing left at or above `cut`. The caller takes
    /// the answer over when that is committed.
    pub fn put_cut(&self, batch: &mut OwnedWriteBatch, lane: LaneId, cut: Position) -> Option<(LaneId, SlotLane)> {
        let of_slot = self.slot_lanes.get(&lane)?.raised(cut).closed(false);
        self.put_slot_lane(batch, lane, &of_slot);
        Some((lane, of_slot))
    }

    /// None for a lane that the store does not know.
    pub fn lane_seen(&self, lane: LaneId) -> Option<LaneSeen> {
        let open = self.streams.get(self.lanes.get(&lane)?).is_some_and(|row| row.open == Some(lane));
        Some(self.slot_lanes.get(&lane).map_or_else(|| lane_seen(None, open, None), |of_slot| of_slot.seen(open)))
    }

    pub fn conflicting(&self, holder: Holder) -> Conflicting {
        Conflicting { holder, lane: holder.lane.and_then(|lane| self.lane_seen(lane)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_lease_comes_back() {
        let long = Duration::from_secs(3600);
        for (lane, unsettled) in
            [(SlotLane::opened(0, long).raised(7), true), (SlotLane::opened(0, long).raised(-3), false)]
        {
            let lane = lane.closed(unsettled);
            assert!(lane.lease_left() > long / 2 && !lane.seen(true).lapsed);
            let record = lane.write();
            let read = SlotLane::read(&record).expect("readable");
            assert_eq!((read.settled, read.unsettled), (lane.settled, lane.unsettled));
            assert_eq!(read.seen(true), LaneSeen { settled: lane.settled, open: true, lapsed: true });
            assert!((0..record.len()).all(|end| SlotLane::read(&record[..end]).is_err()), "cut short");
        }
    }

    #[test]
    fn settled_never_falls_and_a_lease_of_any_length_is_one() {
        let lane = SlotLane::opened(0, Duration::ZERO).raised(5).raised(3);
        assert_eq!((lane.settled, lane.seen(true).lapsed), (5, true));
        assert!(!lane.renewed(Duration::MAX).seen(true).lapsed);
        assert!(lane.renewed(Duration::MAX).renewed(Duration::ZERO).seen(true).lapsed, "the last one counts");
    }
}
