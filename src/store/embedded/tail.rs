//! The last windows of each open lane, so that releasing its unsettled claims need not look at every claim there is.
//!
//! Claims lie in the order of their ids, which says nothing of lane and position. What is released at a cut was
//! claimed in the last few windows, though: so the keys of each window are written once more, as *one* record, into a
//! ring of [`PLACES`] places per lane. A window that falls out of the ring raises the lane's *floor*: every claim at or
//! above the floor is in the ring, whatever order positions came in. A cut below the floor is answered by a scan
//! (see [`super::release`]): always right, and slow only where it is rare.
//!
//! Of a slot's lane it is known what is settled, and nobody asks for claims below. There the window that falls out is
//! one that is settled, and where there is none the ring grows, up to [`PLACES_MAX`] places: an instance may have many
//! small windows under way at once.
//!
//! Cost: one more record per window and lane, of about 30 bytes a claim.

use std::collections::HashMap;

use super::code::{In, Out, Unreadable};
use crate::protocol::event::Week;
use crate::protocol::lane::{LaneId, Position};

/// Windows kept per lane. At most a few can be unsettled, since a lane's windows settle in order.
const PLACES: usize = 16;
/// That are not settled, of a slot's lane: their numbers are one byte.
const PLACES_MAX: usize = 256;
const FORMAT: u8 = 1;

/// One lane's ring, without the keys.
#[derive(Debug)]
pub(super) struct Tail {
    /// Number of the next window. Of a partition's lane it goes to place `next % PLACES`.
    next: u64,
    floor: Position,
    /// Highest position of the window in each place.
    highest: Vec<Option<Position>>,
}

impl Default for Tail {
    /// Of a lane that has no claims yet.
    fn default() -> Self {
        Tail { next: 0, floor: Position::MIN, highest: vec![None; PLACES] }
    }
}

/// The claims that a window adds to one lane, in the making.
#[derive(Debug, Default)]
pub(super) struct Added {
    entries: Out,
    highest: Option<Position>,
}

impl Added {
    pub fn push(&mut self, week: Week, position: Position, key: &[u8]) {
        self.entries.signed(i64::from(week.day_number())).signed(position).bytes(key);
        self.highest = self.highest.max(Some(position));
    }
}

/// A claim as the ring knows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub week: Week,
    pub position: Position,
    pub key: &'a [u8],
}

impl Tail {
    /// Puts a window into the ring: the place's key and its new record. None where the window added nothing.
    /// `settled`: of a slot's lane, what is settled once the record is written.
    pub fn put(&mut self, lane: LaneId, added: &Added, settled: Option<Position>) -> Option<([u8; 9], Vec<u8>)> {
        let highest = added.highest?;
        let place = match settled {
            None => (self.next % PLACES as u64) as usize,
            Some(settled) => self.place_above(settled),
        };
        if let Some(dropped) = self.highest[place].replace(highest) {
            self.floor = self.floor.max(dropped.saturating_add(1));
        }
        let mut record = Out::default();
        record.byte(FORMAT).number(self.next).signed(self.floor).signed(highest);
        record.0.extend_from_slice(&added.entries.0);
        self.next += 1;
        Some((key(lane, place), record.0))
    }

    /// A free place, one whose window is settled, a new one, or else the one whose loss raises the floor least.
    fn place_above(&mut self, settled: Position) -> usize {
        // None is the lowest.
        let lowest = self.highest.iter().enumerate().min_by_key(|(_, highest)| **highest);
        match lowest {
            Some((place, highest)) if highest.is_none_or(|highest| highest < settled) => place,
            Some((place, _)) if self.highest.len() >= PLACES_MAX => place,
            _ => {
                self.highest.push(None);
                self.highest.len() - 1
            }
        }
    }

    /// The places that hold every claim at or above `from`, or None where only a scan can tell.
    pub fn places(&self, lane: LaneId, from: Position) -> Option<Vec<[u8; 9]>> {
        let holds = |&place: &usize| self.highest[place].is_some_and(|highest| highest >= from);
        (from >= self.floor).then(|| (0..self.highest.len()).filter(holds).map(|place| key(lane, place)).collect())
    }

    /// The places in use.
    pub fn all_places(&self, lane: LaneId) -> impl Iterator<Item = [u8; 9]> {
        let used = self.highest.iter().enumerate().filter(|(_, highest)| highest.is_some());
        used.map(move |(place, _)| key(lane, place))
    }
}

fn key(lane: LaneId, place: usize) -> [u8; 9] {
    let mut key = [0; 9];
    key[..8].copy_from_slice(&lane.0.to_be_bytes());
    key[8] = place as u8;
    key
}

/// Rebuilds one lane's ring from its records, in any order.
pub(super) fn load(tails: &mut HashMap<LaneId, Tail>, key: &[u8], record: &[u8]) -> Result<(), Unreadable> {
    let (lane, place) = key.split_at_checked(8).ok_or(Unreadable("a ring's key is too short"))?;
    let lane = LaneId(i64::from_be_bytes(lane.try_into().map_err(|_| Unreadable("a ring's key is too short"))?));
    let mut read = In(record);
    read.format(FORMAT)?;
    let (number, floor, highest) = (read.number()?, read.signed()?, read.signed()?);
    let tail = tails.entry(lane).or_default();
    let place = usize::from(*place.first().ok_or(Unreadable("a ring's key is too short"))?);
    if place >= tail.highest.len() {
        tail.highest.resize(place + 1, None);
    }
    tail.highest[place] = Some(highest);
    tail.next = tail.next.max(number + 1);
    tail.floor = tail.floor.max(floor);
    Ok(())
}

/// The claims in a place's record.
pub(super) fn entries(record: &[u8]) -> Result<Vec<Entry<'_>>, Unreadable> {
    let mut read = In(record);
    read.format(FORMAT)?;
    let _head = (read.number()?, read.signed()?, read.signed()?);
    let mut entries = Vec::new();
    while !read.is_empty() {
        let week = Week::from_day_number(read.small_signed()?).ok_or(Unreadable("a week is no Monday"))?;
        entries.push(Entry { week, position: read.signed()?, key: read.bytes()? });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(5);

    fn window(positions: &[Position]) -> Added {
        let mut added = Added::default();
        positions.iter().for_each(|&position| added.push(Week::UNDATED, position, b"key"));
        added
    }

    #[test]
    fn a_cut_is_answered_from_the_ring_exactly_where_the_ring_is_complete() {
        let (mut tail, mut records) = (Tail::default(), HashMap::new());
        // Windows of ten positions each, but for one that comes back to lower ones.
        for n in 0..40 {
            let first = if n == 30 { 5 } else { n * 10 };
            let positions: Vec<Position> = (first..first + 10).collect();
            records.extend(tail.put(LANE, &window(&positions), None));
            let mut again = HashMap::new();
            records.iter().for_each(|(key, record)| load(&mut again, key, record).expect("readable"));
            for from in [0, 14, n * 10 - 150, n * 10 - 20, n * 10, n * 10 + 10] {
                let (here, reread) = (tail.places(LANE, from), again[&LANE].places(LANE, from));
                assert_eq!(here, reread, "window {n}, from {from}");
                let Some(places) = here else { continue };
                let found = places.iter().flat_map(|place| entries(&records[place]).expect("readable"));
                let mut found: Vec<Position> = found.map(|entry| entry.position).filter(|&at| at >= from).collect();
                found.sort_unstable();
                let mut all: Vec<Position> = (0..=n).filter(|&n| n != 30).flat_map(|n| n * 10..n * 10 + 10).collect();
                all.extend((n >= 30).then_some(5..15).into_iter().flatten());
                all.retain(|&at| at >= from);
                all.sort_unstable();
                assert_eq!(found, all, "window {n}, from {from}");
            }
        }
        assert_eq!(tail.places(LANE, 100), None, "window 10 has left the ring");
        assert_eq!(tail.places(LANE, 240).map(|places| places.len()), Some(15), "all but the one of low positions");
    }

    #[test]
    fn a_slots_ring_keeps_what_is_not_settled() {
        let (mut tail, mut records) = (Tail::default(), HashMap::new());
        let mut put = |tail: &mut Tail, n: Position, settled| {
            records.extend(tail.put(LANE, &window(&[n]), Some(settled)));
            let mut again = HashMap::new();
            records.iter().for_each(|(key, record)| load(&mut again, key, record).expect("readable"));
            for from in [settled, n, n + 1] {
                assert_eq!(again[&LANE].places(LANE, from), tail.places(LANE, from), "window {n}, from {from}");
            }
            let found = tail.places(LANE, settled).map(|places| places.len() as Position);
            (found, tail.highest.len())
        };
        // As one window after another.
        for n in 0..100 {
            assert_eq!(put(&mut tail, n, n), (Some(1), PLACES), "window {n}");
        }
        // Many under way at once: all are there, and places stay when they are free again.
        for n in 100..300 {
            let (under_way, places) = put(&mut tail, n, 99);
            assert_eq!((under_way, places), (Some(n - 98), PLACES.max(n as usize - 98)), "window {n}");
        }
        assert_eq!(put(&mut tail, 300, 250), (Some(51), 201));
        for n in 301..506 {
            assert_eq!(put(&mut tail, n, 250).0, Some(n - 249), "window {n}");
        }
        // More than there is room for: the lowest goes, and only above it the ring knows all.
        assert_eq!(put(&mut tail, 506, 250), (None, PLACES_MAX));
        assert_eq!(tail.places(LANE, 251).map(|places| places.len()), Some(PLACES_MAX));
        assert_eq!(put(&mut tail, 507, 507), (Some(1), PLACES_MAX), "settled again");
    }
}
