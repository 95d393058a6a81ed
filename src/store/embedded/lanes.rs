//! Streams, their owners and their lanes.

use fjall::OwnedWriteBatch;

use super::Trouble;
use super::code::{In, Out, Unreadable};
use super::inner::{Inner, LANE, STREAM};
use super::tail::Tail;
use crate::protocol::event::Scope;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::protocol::start::Row;
use crate::store::{Guard, LaneFor, OpenLane, StreamState, Take, Taken};

#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub owner: Token,
    pub open: Option<LaneId>,
    pub drained: Option<Position>,
    pub opened_for: Option<LaneFor>,
}

impl Stream {
    const FORMAT: u8 = 1;

    pub fn owned_by(owner: Token) -> Stream {
        Stream { owner, open: None, drained: None, opened_for: None }
    }

    pub fn row(&self) -> Option<Row> {
        self.open.map(|open| Row { open, drained: self.drained })
    }

    fn write(&self) -> Vec<u8> {
        let whole = |out: &mut Out, number| {
            out.signed(number);
        };
        let mut out = Out::default();
        out.byte(Self::FORMAT)
            .signed(self.owner.0)
            .maybe(self.open.map(|lane| lane.0), whole)
            .maybe(self.drained, whole)
            .maybe(self.opened_for.as_ref(), |out, lane_for| {
                out.bytes(lane_for.scope.as_str().as_bytes()).bytes(lane_for.recipe.as_bytes());
            });
        out.0
    }

    pub fn read(record: &[u8]) -> Result<Stream, Unreadable> {
        let lane_for = |read: &mut In<'_>| {
            let scope = Scope::new(read.text()?).map_err(|_| Unreadable("a scope is not one"))?;
            Ok(LaneFor { scope, recipe: read.text()?.into() })
        };
        let mut read = In(record);
        read.format(Self::FORMAT)?;
        Ok(Stream {
            owner: Token(read.signed()?),
            open: read.maybe(In::signed)?.map(LaneId),
            drained: read.maybe(In::signed)?,
            opened_for: read.maybe(lane_for)?,
        })
    }
}

impl Inner {
    pub fn take(&mut self, take: &Take<'_>) -> Result<Taken, Trouble> {
        let known = self.streams.get(take.stream);
        if let Some(old) = take.instead_of {
            // The new token already stands there where an earlier try has landed.
            if !known.is_some_and(|stream| stream.owner == old || stream.owner == take.token) {
                return Err(Trouble::NotOwner);
            }
        }
        let known = known.cloned().unwrap_or_else(|| Stream::owned_by(take.token));
        let stream = Stream { owner: take.token, ..known };
        let taken = Taken { row: stream.row(), opened_for: stream.opened_for.clone() };
        self.write_stream(take.stream, stream)?;
        Ok(taken)
    }

    /// Refuses a guard that does not hold.
    pub fn check_guard(&self, guard: Guard) -> Result<(), Trouble> {
        let holds = |stream: &StreamId| {
            self.streams.get(stream).is_some_and(|row| row.open == Some(guard.lane) && row.owner == guard.token)
        };
        if self.lanes.get(&guard.lane).is_some_and(holds) { Ok(()) } else { Err(Trouble::NotOwner) }
    }

    pub fn open_lane(&mut self, open: &OpenLane<'_>) -> Result<u64, Trouble> {
        let known = self.streams.get(open.stream).filter(|row| row.owner == open.token).ok_or(Trouble::NotOwner)?;
        if known.open == Some(open.lane) {
            return Ok(0);
        }
        if self.lanes.contains_key(&open.lane) {
            // A straggler: this lane was open once and another has followed it.
            return Err(Trouble::NotOwner);
        }
        let mut changed = vec![];
        let mut closed: Vec<LaneId> = known.open.into_iter().collect();
        let mut batch = self.batch();
        let mut released = 0;
        if let Some(cut) = open.cut {
            (batch, released) = self.release(batch, cut.prev, cut.cut)?;
            let elsewhere = self.streams.iter().filter(|(_, row)| row.open == Some(cut.prev));
            changed.extend(elsewhere.map(|(stream, _)| (stream.clone(), Stream::owned_by(open.token))));
            closed.push(cut.prev);
        }
        let opened =
            Stream { open: Some(open.lane), opened_for: Some(open.lane_for.clone()), ..Stream::owned_by(open.token) };
        changed.retain(|(stream, _)| stream != open.stream);
        changed.push((open.stream.clone(), opened));

        changed.iter().for_each(|(stream, row)| self.put_stream(&mut batch, stream, row));
        let name = open.stream.as_str().as_bytes();
        self.put(&mut batch, LANE, &open.lane.0.to_be_bytes(), name.to_vec());
        closed.iter().for_each(|lane| self.remove_tail(&mut batch, *lane));
        batch.commit().map_err(Trouble::Write)?;

        self.streams.extend(changed);
        self.lanes.insert(open.lane, open.stream.clone());
        for lane in &closed {
            self.tails.remove(lane);
        }
        self.tails.insert(open.lane, Tail::default());
        Ok(released)
    }

    pub fn close_lane(&mut self, stream: &StreamId, guard: Guard, cut: Position) -> Result<u64, Trouble> {
        let known = self.streams.get(stream).filter(|row| row.owner == guard.token).ok_or(Trouble::NotOwner)?;
        match known.open {
            None => return Ok(0),
            Some(open) if open != guard.lane => return Err(Trouble::NotOwner),
            Some(_) => {}
        }
        let (mut batch, released) = self.release(self.batch(), guard.lane, cut)?;
        let of_slot = self.put_cut(&mut batch, guard.lane, cut);
        let row = Stream::owned_by(guard.token);
        self.put_stream(&mut batch, stream, &row);
        self.remove_tail(&mut batch, guard.lane);
        batch.commit().map_err(Trouble::Write)?;
        self.streams.insert(stream.clone(), row);
        self.slot_lanes.extend(of_slot);
        self.tails.remove(&guard.lane);
        Ok(released)
    }

    pub fn remove_tail(&self, batch: &mut OwnedWriteBatch, lane: LaneId) {
        for place in self.tails.get(&lane).into_iter().flat_map(|tail| tail.all_places(lane)) {
            batch.remove(&self.tails_space, place);
        }
    }

    pub fn set_drained(&mut self, stream: &StreamId, guard: Guard, drained: Option<Position>) -> Result<(), Trouble> {
        let guarded = |row: &&Stream| row.owner == guard.token && row.open == Some(guard.lane);
        let known = self.streams.get(stream).filter(guarded).ok_or(Trouble::NotOwner)?;
        if known.drained == drained {
            return Ok(());
        }
        let row = Stream { drained, ..known.clone() };
        self.write_stream(stream, row)
    }

    pub fn is_open(&self, lane: LaneId) -> bool {
        let open = |stream: &StreamId| self.streams.get(stream).is_some_and(|row| row.open == Some(lane));
        self.lanes.get(&lane).is_some_and(open)
    }

    pub fn stream_states(&self) -> Vec<StreamState> {
        let state = |(stream, row): (&StreamId, &Stream)| StreamState {
            stream: stream.clone(),
            owner: Some(row.owner),
            row: row.row(),
            opened_for: row.opened_for.clone(),
        };
        self.streams.iter().map(state).collect()
    }

    pub fn write_stream(&mut self, stream: &StreamId, row: Stream) -> Result<(), Trouble> {
        let mut batch = self.batch();
        self.put_stream(&mut batch, stream, &row);
        batch.commit().map_err(Trouble::Write)?;
        self.streams.insert(stream.clone(), row);
        Ok(())
    }

    pub fn put_stream(&self, batch: &mut OwnedWriteBatch, stream: &StreamId, row: &Stream) {
        self.put(batch, STREAM, stream.as_str().as_bytes(), row.write());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_come_back() {
        let scope = Scope::new("billing").expect("a scope");
        for stream in [
            Stream::owned_by(Token(1)),
            Stream {
                owner: Token(i64::MAX),
                open: Some(LaneId(3)),
                drained: Some(-4),
                opened_for: Some(LaneFor { scope, recipe: "header:id".into() }),
            },
        ] {
            let record = stream.write();
            let read = Stream::read(&record).expect("readable");
            assert_eq!((read.owner, read.row()), (stream.owner, stream.row()));
            assert_eq!(read.opened_for, stream.opened_for);
            assert!((0..record.len()).all(|end| Stream::read(&record[..end]).is_err()), "cut short");
        }
    }
}
