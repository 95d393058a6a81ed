//! What goes with a settled offset, and who holds a claim.

use proptest::prelude::*;
use semel::protocol::lane::{Coordinate, Cut, Holder, LaneId, Mark, StoreId, StreamId, TopicId};

/// Kafka's bound for an offset's metadata, and the mark's own.
const MARK_BYTES_MAX: usize = 160;

fn mark(cut: Option<Cut>) -> Mark {
    Mark { store: StoreId("s1".into()), topic: TopicId("t1".into()), lane: LaneId(7), cut }
}

#[test]
fn a_mark_is_one_readable_line() {
    assert_eq!(mark(None).encode(), "semel1 store=s1 topic=t1 lane=7");
    let cut = Some(Cut { prev: LaneId(6), cut: 41 });
    assert_eq!(mark(cut).encode(), "semel1 store=s1 topic=t1 lane=7 prev=6 cut=41");
}

#[test]
fn what_is_not_semels_is_no_mark() {
    let cases = [
        ("", "an offset that a tool committed"),
        ("semel1", "nothing after the format"),
        ("semel2 store=s1 topic=t1 lane=7", "a format that is not known yet"),
        ("semel1 store=s1 topic=t1 lane=x", "the lane is no number"),
        ("semel1 store=s1 topic=t1 lane=07", "not as it was written"),
        ("semel1 store=s1 topic=t1 lane=+7", "not as it was written"),
        ("semel1 topic=t1 store=s1 lane=7", "another order"),
        ("semel1 store=s1 topic=t1 lane=7 ", "something after the end"),
        ("semel1 store=s1 topic=t1 lane=7 prev=6", "half a cut"),
        ("semel1 store=s1 topic=t1 lane=7 prev=6 cut=41 more=1", "more than there is"),
        ("semel1  store=s1 topic=t1 lane=7", "two spaces"),
        ("semel1 store=s1 topic=t1 lane=9223372036854775808", "beyond a lane's numbers"),
    ];
    for (text, why) in cases {
        assert_eq!(Mark::decode(text), None, "{why}");
    }
}

proptest! {
    #[test]
    fn a_mark_comes_back_as_it_was_written(
        store in "[0-9a-f-]{1,36}", topic in "[A-Za-z0-9_-]{22}", lane: i64, cut: Option<(i64, i64)>,
    ) {
        let cut = cut.map(|(prev, cut)| Cut { prev: LaneId(prev), cut });
        let mark = Mark { store: StoreId(store.into()), topic: TopicId(topic.into()), lane: LaneId(lane), cut };
        let text = mark.encode();
        prop_assert!(text.is_ascii() && text.len() <= MARK_BYTES_MAX + 2, "{} bytes", text.len());
        prop_assert_eq!(Mark::decode(&text), Some(mark));
    }

    #[test]
    fn a_mark_that_was_changed_is_no_mark_or_another(at in 0usize..46, byte in 0x20u8..0x7f) {
        let right = mark(Some(Cut { prev: LaneId(6), cut: 41 }));
        let mut text = right.encode().into_bytes();
        let at = at.min(text.len() - 1);
        prop_assume!(text[at] != byte);
        text[at] = byte;
        prop_assert_ne!(Mark::decode(std::str::from_utf8(&text).unwrap()), Some(right));
    }

    #[test]
    fn streams_of_other_partitions_differ(
        one in ("[a/]{1,3}", "[a-b]{1,2}", 0i32..3), other in ("[a/]{1,3}", "[a-b]{1,2}", 0i32..3),
    ) {
        let stream = |(group, topic, partition): &(String, String, i32)| {
            StreamId::kafka("c", group, ("orders", &TopicId(topic.as_str().into())), *partition)
        };
        prop_assert_eq!(stream(&one) == stream(&other), one == other);
    }
}

#[test]
fn a_holder_is_the_one_at_lane_and_position() {
    let me = Coordinate { lane: LaneId(7), position: 41 };
    let cases = [
        (Some(7), 41, true, "itself"),
        (Some(7), 42, false, "another position of its lane"),
        (Some(8), 41, false, "the same position of another lane"),
        (None, 41, false, "no lane: a try claim, settled for ever"),
    ];
    for (lane, position, right, why) in cases {
        assert_eq!(Holder { lane: lane.map(LaneId), position }.is(me), right, "{why}");
    }
}
