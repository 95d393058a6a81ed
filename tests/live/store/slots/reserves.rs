//! Claiming on an instance's lane, and what is told of claims that are in the way.

use std::sync::Arc;

use semel::protocol::event::Week;
use semel::protocol::lane::{Holder, LaneId, Position, Token};
use semel::protocol::slot::{Conflict, Conflicting, LaneSeen, Mine, judge_conflict};
use semel::store::slots::{Former, Reserve, Reserved, SlotAsk, SlotStore};
use semel::store::{Claim, Guard, StoreError};

use super::super::kit::{NOW, Writer, count, fresh, id, room, scope, trying, week};
use super::{
    LAPSED, LEFT_BEHIND, LEFT_BEHIND_LAPSED, LONG, ORIGIN, OVER, RUNS, Run, SHORT, Subject, claims_of, not_owner, taken,
};

/// Each claim is at its position, with its origin and without a partition. Without rows only the lane's own row moves.
pub async fn reserves(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    assert!(!run.open(store).await.claimed_above);
    run.claims(store, &["b", "a"], 5).await;
    let made = Claim {
        scope: scope(),
        event_id: id("a"),
        week: week(),
        holder: Holder { lane: Some(run.lane), position: 6 },
        topic: ORIGIN.into(),
        partition: None,
        offset: None,
        first_seen_at: NOW,
        stream: Some(run.slot.clone()),
    };
    assert_eq!(store.find(Some(&scope()), &id("a")).await.expect("claims"), [made]);
    let open = run.open(store).await;
    assert_eq!((open.lane, open.seen.settled, open.claimed_above), (run.lane, 0, true));
    for (settled, above) in [(6, true), (7, false)] {
        assert!(run.reserve(store, &[], 0, (settled, LONG)).await.expect("a flush").is_empty());
        let open = run.open(store).await;
        assert_eq!((open.seen.settled, open.claimed_above), (settled, above));
    }
    assert_eq!(claims_of(store, run.lane, 0).await, 2, "a flush deletes nothing");
}

/// Whoever has not both the owner's token and the open lane writes nothing.
pub async fn guarded(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let before = Run::start(store, "mine", LONG).await;
    let mine = before.next();
    mine.take(store, Some(&before), Some(before.knows(0)), LONG).await.expect("the slot");
    let other = Run::start(store, "other", LONG).await;
    let partition = Writer::open(store, "stream").await;
    mine.claims(store, &["m"], 0).await;
    let cases = [
        ("another's token", Guard { token: other.token, ..mine.guard() }),
        ("the token before", Guard { token: before.token, ..mine.guard() }),
        ("a token of nobody's", Guard { token: Token(fresh()), ..mine.guard() }),
        ("a lane that was closed", before.guard()),
        ("a lane that was closed, under the new token", Guard { lane: before.lane, ..mine.guard() }),
        ("a lane of nobody's", Guard { lane: LaneId(fresh()), ..mine.guard() }),
        ("a partition's lane", partition.guard()),
    ];
    for (why, guard) in cases {
        println!("{why}");
        let bad = Run { lane: guard.lane, token: guard.token, ..mine.clone() };
        not_owner(bad.reserve(store, &["a"], 1, (9, OVER)).await);
        not_owner(bad.reserve(store, &[], 0, (9, OVER)).await);
        not_owner(store.release(guard, 9, &[0], 0, 100).await);
    }
    assert_eq!((count(store, "a").await, claims_of(store, mine.lane, 0).await), (0, 1));
    for run in [&mine, &other] {
        let open = run.open(store).await;
        assert_eq!(open.seen, LaneSeen { settled: 0, open: true, lapsed: false });
    }
    assert_eq!(mine.reserve(store, &["a"], 1, (0, LONG)).await.expect("a reserve")["a"], Reserved::Inserted);
}

pub async fn settled_never_falls(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    for (committed, settled) in [(5, 5), (3, 5), (7, 7), (0, 7)] {
        run.reserve(store, &[], 0, (committed, LONG)).await.expect("a flush");
        assert_eq!(run.open(store).await.seen.settled, settled);
    }
    for (committed, settled) in [(2, 7), (9, 9)] {
        assert_eq!(store.release(run.guard(), committed, &[], 0, 0).await.expect("released"), 0);
        assert_eq!(run.open(store).await.seen.settled, settled);
    }
    run.claims(store, &["a"], 8).await;
    let next = run.next();
    assert_eq!(next.take(store, Some(&run), Some(run.knows(4)), LONG).await.expect("the slot"), taken(0));
    let answers = next.reserve(store, &["a"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(8, 9, LEFT_BEHIND), "settled for ever on the closed lane");
}

/// The claim and its lane, as both stand: a try claim's, this run's, another's while it settles and lapses.
pub async fn in_the_way(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let (mine, other) = (Run::start(store, "mine", LONG).await, Run::start(store, "other", LONG).await);
    store.try_claim(&[trying("t", week())], NOW).await.expect("a claim");
    other.claims(store, &["o", "p"], 3).await;
    mine.claims(store, &["m"], 0).await;
    let laneless = Reserved::InTheWay(Some(Conflicting { holder: Holder { lane: None, position: 77 }, lane: None }));
    let mut n = 1;
    for (settled, lease, stands) in [(0, LONG, RUNS), (4, LONG, RUNS), (4, OVER, LAPSED), (5, LONG, RUNS)] {
        other.reserve(store, &[], 0, (settled, lease)).await.expect("a flush");
        let new = format!("new {settled} {lease:?}");
        let ids = ["m", &new, "o", "p", "t"];
        let answers = mine.reserve(store, &ids, n, (0, LONG)).await.expect("a reserve");
        assert_eq!(answers[&new], Reserved::Inserted);
        assert_eq!(answers["t"], laneless);
        assert_eq!(answers["m"], mine.at(0, 0, RUNS));
        assert_eq!([answers["o"], answers["p"]], [3, 4].map(|position| other.at(position, settled, stands)));
        n += ids.len() as Position;
    }
}

/// Claims of a Kafka partition: in flight while its lane is open, since only Kafka knows what is settled there; those
/// that a closed one still has are settled.
pub async fn of_partitions(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let mut partition = Writer::open(store, "stream").await;
    let holder = Holder { lane: Some(partition.lane), position: 40 };
    partition.claim(store, &["k", "l"], 40).await.expect("a claim");
    let mine = Mine { lane: run.lane, committed: 0 };
    let answers = run.reserve(store, &["k"], 0, (0, OVER)).await.expect("a reserve");
    let lane = Some(LaneSeen { settled: 0, open: true, lapsed: false });
    assert_eq!(answers["k"], Reserved::InTheWay(Some(Conflicting { holder, lane })));
    assert_eq!(partition.discontinue(store, 41).await, 1);
    let answers = run.reserve(store, &["k", "l"], 1, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["l"], Reserved::Inserted);
    let Reserved::InTheWay(Some(found)) = answers["k"] else { panic!("{answers:?}") };
    assert_eq!(found.holder, holder);
    assert_eq!(judge_conflict(Some(found), mine), Conflict::Duplicate, "{found:?}");
    assert_eq!(store.sweep(holder.lane.expect("a lane")).await.expect("an answer"), None);
    assert_eq!(store.sweep(partition.lane).await.expect("an answer"), None);
    // Nor is its stream a slot to be taken.
    let taker = Run { slot: partition.stream.clone(), ..Run::of("taker") };
    let owner = Run { token: partition.token, ..taker.clone() };
    not_owner(taker.take(store, Some(&owner), None, LONG).await);
    assert!(store.is_open(partition.lane).await.expect("an answer"));
}

fn ask(event_id: &str, week: Week, position: Position) -> SlotAsk {
    SlotAsk { event_id: id(event_id), week, position }
}

async fn reserve(
    store: &dyn SlotStore,
    run: &Run,
    rows: &[SlotAsk],
    committed: Position,
) -> Result<Vec<Reserved>, StoreError> {
    let (scope, origin): (_, Arc<str>) = (scope(), ORIGIN.into());
    let (guard, lease, first_seen_at) = (run.guard(), OVER, NOW);
    let (scope, origin, partition) = (&scope, &origin, None);
    store.reserve(&Reserve { guard, scope, committed, lease, rows, origin, partition, first_seen_at }).await
}

/// One row without room: no row is written, and neither settled position nor lease moves.
pub async fn all_or_nothing(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let far = week().plus(40);
    let rows = [ask("a", week(), 1), ask("b", far, 2), ask("c", Week::UNDATED, 3)];
    let refused = reserve(store, &run, &rows, 1).await;
    assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == far), "{refused:?}");
    assert_eq!(run.open(store).await.seen, LaneSeen { settled: 0, open: true, lapsed: false });
    assert_eq!(claims_of(store, run.lane, 0).await, 0);
    not_owner(reserve(store, &run.next(), &rows, 1).await);
    store.ensure_weeks(far, far).await.expect("room");
    assert_eq!(reserve(store, &run, &rows, 1).await.expect("a reserve"), [Reserved::Inserted; 3]);
    // In another week it is another event.
    let rows = [ask("a", week(), 4), ask("a", week().plus(1), 5)];
    let answers = reserve(store, &run, &rows, 1).await.expect("a reserve");
    assert_eq!(answers, [run.at(1, 1, LAPSED), Reserved::Inserted]);
}

pub async fn refuses_bad_windows(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let cases = [
        ("not ascending", [ask("b", week(), 1), ask("a", week(), 2)]),
        ("not distinct", [ask("a", week(), 1), ask("a", week(), 2)]),
        ("weeks not ascending", [ask("a", week(), 1), ask("a", Week::UNDATED, 2)]),
    ];
    for (why, rows) in cases {
        let refused = reserve(store, &run, &rows, 1).await;
        assert!(matches!(refused, Err(StoreError::Rejected(_))), "{why}: {refused:?}");
    }
    assert_eq!((run.open(store).await.seen.settled, claims_of(store, run.lane, 0).await), (0, 0));
}

/// Every third one is somebody else's, at positions that are in no order of the keys.
pub async fn windows_of_any_size(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let (run, other) = (Run::start(store, "one", LONG).await, Run::start(store, "other", LONG).await);
    for size in [1, 256, 5_000] {
        let ids: Vec<String> = (0..size).map(|n| format!("{size}/{}", n * 7_919 % size)).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let thirds: Vec<&str> = ids.iter().copied().step_by(3).collect();
        other.claims(store, &thirds, size).await;
        let answers = run.reserve(store, &ids, size, (size, LONG)).await.expect("a reserve");
        for (n, event_id) in ids.iter().enumerate() {
            let right = match n % 3 {
                0 => other.at(size + n as Position / 3, 0, RUNS),
                _ => Reserved::Inserted,
            };
            assert_eq!(answers[*event_id], right, "{event_id}");
        }
        assert_eq!(claims_of(store, run.lane, size).await, size as u64 - thirds.len() as u64);
    }
}

/// Owner, lane, settled position and claims are there for the next process, also those that were left in doubt. (Leases
/// may have ended with the process, where there can be no other.)
pub async fn survives(subject: Subject) {
    let Subject { store, reopen: Some(reopen), lapse, keep } = subject else { return };
    room(&*store).await;
    let (run, left) = (Run::start(&*store, "one", LONG).await, Run::start(&*store, "left", LONG).await);
    run.claims(&*store, &["a", "b"], 1).await;
    run.reserve(&*store, &["c"], 3, (2, SHORT)).await.expect("a reserve");
    left.reserve(&*store, &["l", "m", "n"], 5, (6, SHORT)).await.expect("a reserve");
    let former = Former { in_doubt: &[6], ..left.knows(6) };
    let next = left.next();
    assert_eq!(next.take(&*store, Some(&left), Some(former), LONG).await.expect("the slot"), taken(1));
    let store = reopen(store).await;
    let open = run.open(&*store).await;
    assert_eq!((open.lane, open.seen.settled, open.claimed_above), (run.lane, 2, true));
    assert_eq!(next.open(&*store).await.lane, next.lane);
    assert_eq!(store.slot_of(left.lane).await.expect("an answer"), Some(left.slot.clone()));
    lapse.of(SHORT).await;
    let answers = next.reserve(&*store, &["a", "l", "m", "n"], 9, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(1, 2, LAPSED));
    assert_eq!([answers["l"], answers["m"]], [5, 6].map(|position| left.at(position, 6, LEFT_BEHIND_LAPSED)));
    assert_eq!(answers["n"], Reserved::Inserted);
    assert_eq!(store.sweep(left.lane).await.expect("an answer"), Some(1));
    let answers = run.reserve(&*store, &["m", "z"], 9, (2, LONG)).await.expect("whoever owns a slot goes on");
    assert_eq!([answers["m"], answers["z"]], [Reserved::Inserted; 2]);
    drop(keep);
}

/// Of a partition's lane each claim keeps the partition, and its position as its offset.
pub async fn offsets(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let (scope, origin): (_, Arc<str>) = (scope(), "orders".into());
    let (guard, rows) = (run.guard(), [SlotAsk { event_id: id("a"), week: week(), position: 41 }]);
    let (scope, origin) = (&scope, &origin);
    let reserve = Reserve {
        guard,
        scope,
        committed: 40,
        lease: LONG,
        rows: &rows,
        origin,
        partition: Some(3),
        first_seen_at: NOW,
    };
    assert_eq!(store.reserve(&reserve).await.expect("a reserve"), [Reserved::Inserted]);
    let [claim] = &store.find(Some(scope), &id("a")).await.expect("claims")[..] else { panic!("one claim") };
    assert_eq!((claim.topic.as_str(), claim.partition, claim.offset), ("orders", Some(3), Some(41)));
    assert_eq!(claim.holder, Holder { lane: Some(run.lane), position: 41 });
    assert_eq!(run.reserve(store, &["a"], 50, (0, LONG)).await.expect("a reserve")["a"], run.at(41, 40, RUNS));
}

/// Only under the guard, only of its lane, each at exactly its position; what is given back is anybody's, and repeating it
/// changes nothing.
pub async fn given_back(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let (run, other) = (Run::start(store, "one", LONG).await, Run::start(store, "other", LONG).await);
    run.claims(store, &["a", "b", "c"], 5).await;
    other.claims(store, &["o"], 5).await;
    let scope = scope();
    let ask = |event_id: &str, position| SlotAsk { event_id: id(event_id), week: week(), position };
    let claims = [ask("a", 5), ask("b", 7), ask("c", 7), ask("o", 5), ask("nobody's", 5)];
    for guard in [Guard { token: other.token, ..run.guard() }, Guard { lane: other.lane, ..run.guard() }] {
        not_owner(store.give_back(guard, &scope, &claims).await);
    }
    assert_eq!(claims_of(store, run.lane, 0).await, 3);
    for count in [2, 0] {
        assert_eq!(store.give_back(run.guard(), &scope, &claims).await.expect("an answer"), count);
    }
    assert_eq!(store.give_back(run.guard(), &scope, &[]).await.expect("an answer"), 0);
    let answers = other.reserve(store, &["a", "b", "c"], 10, (0, LONG)).await.expect("a reserve");
    assert_eq!([answers["a"], answers["c"]], [Reserved::Inserted; 2]);
    assert_eq!(answers["b"], run.at(6, 0, RUNS), "at another position than was said");
    assert_eq!(claims_of(store, other.lane, 0).await, 3, "another's stays");
    let open = run.open(store).await;
    assert_eq!((open.seen.settled, open.claimed_above), (0, true));
}
