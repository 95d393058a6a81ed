//! Which messages of a window ask, and what becomes of each.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use semel::protocol::lane::{Coordinate, Holder, LaneId};
use semel::protocol::verdict::{Claimed, Verdict, judge};
use semel::protocol::window::Questions;

const fn at(lane: i64, position: i64) -> Coordinate {
    Coordinate { lane: LaneId(lane), position }
}

const fn held(lane: i64, position: i64) -> Claimed {
    Claimed::Held(Holder { lane: Some(LaneId(lane)), position })
}

#[test]
fn verdicts() {
    use Verdict::{Duplicate, First, Redelivered};
    let me = at(7, 41);
    let cases = [
        (Claimed::Inserted, me, First, "claimed just now"),
        (Claimed::Inserted, at(7, 40), Duplicate, "claimed just now by an earlier message of the window"),
        (held(7, 41), me, Redelivered, "a redelivery, or a commit whose answer was lost: publish"),
        (held(7, 41), at(7, 40), Redelivered, "it asked through another message, and it is the owner all the same"),
        (held(7, 40), at(7, 40), Duplicate, "an earlier message of the window owns it"),
        (held(7, 12), me, Duplicate, "another position of its lane owns it"),
        (held(8, 41), me, Duplicate, "another lane owns it: a rewind, or a copy elsewhere"),
        (Claimed::Held(Holder { lane: None, position: 41 }), me, Duplicate, "a try claim is settled for ever"),
    ];
    for (claimed, asked, right, why) in cases {
        assert_eq!(judge(claimed, asked, me), right, "{why}");
    }
    assert!(First.publishes() && Redelivered.publishes() && !Duplicate.publishes());
}

#[test]
fn repeats_inside_a_window() {
    use Verdict::{Duplicate, First, Redelivered};
    let keys = ["a", "b", "a", "c"];
    let questions = Questions::of(&keys);
    assert_eq!(questions.asking, [0, 1, 3], "each key asks once, by its first message");
    let cases = [
        ([Claimed::Inserted; 3], [First, First, Duplicate, First], "an empty store"),
        ([held(1, 0), held(1, 1), held(1, 3)], [Redelivered, Redelivered, Duplicate, Redelivered], "read again"),
        (
            [held(1, 2), Claimed::Inserted, Claimed::Inserted],
            [Duplicate, First, Redelivered, First],
            "the first copy was not in the window that claimed: the owner is the second",
        ),
        ([held(1, 9), held(2, 1), Claimed::Inserted], [Duplicate, Duplicate, Duplicate, First], "owned elsewhere"),
    ];
    for (answers, right, why) in cases {
        assert_eq!(questions.verdicts(&answers, |n| at(1, n as i64)), right, "{why}");
    }
}

#[test]
fn an_empty_window_asks_nothing() {
    let questions = Questions::of::<&str>(&[]);
    assert!(questions.asking.is_empty());
    assert!(questions.verdicts(&[], |_| at(1, 0)).is_empty());
}

proptest! {
    #[test]
    fn every_key_asks_once_in_the_order_of_the_keys(keys in vec(0u8..12, 0..40)) {
        let questions = Questions::of(&keys);
        let asked: Vec<u8> = questions.asking.iter().map(|&n| keys[n]).collect();
        let distinct: Vec<u8> = keys.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        prop_assert_eq!(asked, distinct);
        for &n in &questions.asking {
            prop_assert!(!keys[..n].contains(&keys[n]), "an earlier message has the key of the one that asks");
        }
    }

    /// Windows of any sizes over one lane and a second one, read any number of times in any order: the position that
    /// inserted an event publishes it each time that it is read, and no other position ever does.
    #[test]
    fn an_event_is_published_by_its_owner_alone(
        log in vec(0u8..6, 1..16), reads in vec((1i64..3, 0usize..16, 1usize..16), 1..12),
    ) {
        let mut store: BTreeMap<u8, Holder> = BTreeMap::new();
        let mut published: HashMap<u8, HashSet<Coordinate>> = HashMap::new();
        for (lane, from, length) in reads {
            let from = from % log.len();
            let keys = &log[from..(from + length).min(log.len())];
            let coordinate = |n: usize| at(lane, (from + n) as i64);
            let questions = Questions::of(keys);
            let claim = |&n: &usize| {
                let here = Holder { lane: Some(LaneId(lane)), position: (from + n) as i64 };
                match store.get(&keys[n]) {
                    Some(&holder) => Claimed::Held(holder),
                    None => {
                        store.insert(keys[n], here);
                        Claimed::Inserted
                    }
                }
            };
            let answers: Vec<Claimed> = questions.asking.iter().map(claim).collect();
            let verdicts = questions.verdicts(&answers, coordinate);
            prop_assert_eq!(verdicts.len(), keys.len());
            for (n, verdict) in verdicts.into_iter().enumerate() {
                let owns = store[&keys[n]].is(coordinate(n));
                prop_assert_eq!(verdict.publishes(), owns, "{:?} at {:?}", verdict, coordinate(n));
                if verdict.publishes() {
                    published.entry(keys[n]).or_default().insert(coordinate(n));
                }
            }
        }
        for event in store.keys() {
            prop_assert_eq!(published[event].len(), 1, "event {}", event);
        }
    }
}
