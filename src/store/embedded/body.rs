//! What a claim says beside its key: who made it, from where, when. 14 bytes for most.

use std::sync::Arc;

use super::code::{In, Out, Unreadable};
use super::names::{Numbers, Origin};
use crate::protocol::event::EventTime;
use crate::protocol::lane::{Holder, Position};

/// The format is the high half of the first byte, the kind the low half.
const NUMBERED: u8 = 0x10;
const NUMBERED_WITH_OFFSET: u8 = 0x11;
const SPELT_OUT: u8 = 0x12;

/// A claim's origin as it is written.
#[derive(Debug)]
pub(super) enum Whence<'a> {
    /// By number: for claims of which many have the same origin.
    Numbered { origin: u32, position: Position, offset: Option<i64> },
    /// A claim without a lane, whose topic the caller made up.
    SpeltOut { topic: &'a str, partition: Option<i32>, offset: Option<i64> },
}

/// Writes the record into `out`, whose former content is dropped.
pub(super) fn write(out: &mut Out, from: &Whence<'_>, first_seen_at: EventTime) {
    let whole = |out: &mut Out, number| {
        out.signed(number);
    };
    out.0.clear();
    match *from {
        Whence::Numbered { origin, position, offset } if offset == Some(position) => {
            out.byte(NUMBERED).number(u64::from(origin)).signed(position);
        }
        Whence::Numbered { origin, position, offset } => {
            out.byte(NUMBERED_WITH_OFFSET).number(u64::from(origin)).signed(position).maybe(offset, whole);
        }
        Whence::SpeltOut { topic, partition, offset } => {
            out.byte(SPELT_OUT).bytes(topic.as_bytes()).maybe(partition.map(i64::from), whole).maybe(offset, whole);
        }
    }
    out.signed(first_seen_at.micros());
}

/// A claim's record, read whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub holder: Holder,
    pub topic: Arc<str>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    pub first_seen_at: EventTime,
}

pub(super) fn read(record: &[u8], origins: &Numbers<Origin>) -> Result<Body, Unreadable> {
    let mut read = In(record);
    let kind = read.byte()?;
    let (holder, topic, partition, offset) = match kind {
        NUMBERED | NUMBERED_WITH_OFFSET => {
            let origin = origins.name(read.small()?)?;
            let position = read.signed()?;
            let offset = if kind == NUMBERED { Some(position) } else { read.maybe(In::signed)? };
            (Holder { lane: origin.lane, position }, origin.topic.clone(), origin.partition, offset)
        }
        SPELT_OUT => {
            let topic = read.text()?.into();
            let partition = read.maybe(In::small_signed)?;
            let offset = read.maybe(In::signed)?;
            (unlaned(offset), topic, partition, offset)
        }
        _ => return Err(Unreadable("its format is not known")),
    };
    Ok(Body { holder, topic, partition, offset, first_seen_at: EventTime::from_micros(read.signed()?) })
}

/// Only who holds it: what a conflict asks for.
pub(super) fn holder(record: &[u8], origins: &Numbers<Origin>) -> Result<Holder, Unreadable> {
    let mut read = In(record);
    match read.byte()? {
        NUMBERED | NUMBERED_WITH_OFFSET => {
            let lane = origins.name(read.small()?)?.lane;
            Ok(Holder { lane, position: read.signed()? })
        }
        _ => Ok(self::read(record, origins)?.holder),
    }
}

/// The holder of a claim without a lane.
pub(super) fn unlaned(offset: Option<i64>) -> Holder {
    Holder { lane: None, position: offset.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::lane::LaneId;

    #[test]
    fn claims_come_back_and_the_common_one_is_short() {
        let origin = Origin { lane: Some(LaneId(7)), topic: "orders".into(), partition: Some(3) };
        let origins = Numbers::new(vec![origin]);
        let now = EventTime::from_micros(1_764_547_200_000_000);
        let laned = |position| Holder { lane: Some(LaneId(7)), position };
        let numbered = |position, offset| Whence::Numbered { origin: 0, position, offset };
        let spelt_out = |partition, offset| Whence::SpeltOut { topic: "api", partition, offset };
        for (from, holder_is, topic, partition, offset) in [
            (numbered(400_000, Some(400_000)), laned(400_000), "orders", Some(3), Some(400_000)),
            (numbered(-1, Some(9)), laned(-1), "orders", Some(3), Some(9)),
            (numbered(5, None), laned(5), "orders", Some(3), None),
            (spelt_out(None, None), unlaned(None), "api", None, None),
            (spelt_out(Some(-2), Some(4)), unlaned(Some(4)), "api", Some(-2), Some(4)),
        ] {
            let mut out = Out::default();
            write(&mut out, &from, now);
            let topic = topic.into();
            let body = Body { holder: holder_is, topic, partition, offset, first_seen_at: now };
            assert_eq!(holder(&out.0, &origins), Ok(holder_is), "{from:?}");
            assert_eq!(read(&out.0, &origins), Ok(body), "{from:?}");
            for end in 0..out.0.len() {
                assert!(read(&out.0[..end], &origins).is_err(), "{from:?} cut at {end}");
            }
        }
        let mut out = Out::default();
        write(&mut out, &numbered(400_000, Some(400_000)), now);
        assert!(out.0.len() <= 14, "{} bytes", out.0.len());
    }
}
