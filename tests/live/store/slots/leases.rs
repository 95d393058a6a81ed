//! Leases: set by the store's clock, judged by it, and what may be done before and after they lapse.

use semel::protocol::slot::LaneSeen;
use semel::store::slots::{Former, Reserved};

use super::super::kit::{count, room};
use super::{
    LAPSED, LEFT_BEHIND, LEFT_BEHIND_LAPSED, LONG, OVER, RUNS, Run, SHORT, Subject, claims_of, leased, not_owner, taken,
};

const SEEN_LAPSED: LaneSeen = LaneSeen { settled: 0, open: true, lapsed: true };

/// From each reserve on, longer or shorter; a release does not renew it, nor does reading. A run whose lease has lapsed
/// and whose slot nobody took goes on.
pub async fn of_reserves(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", SHORT).await;
    assert!(run.open(store).await.lease_left <= SHORT);
    run.reserve(store, &[], 0, (0, LONG)).await.expect("a flush");
    let open = run.open(store).await;
    assert!(open.lease_left <= LONG && open.lease_left > LONG - SHORT * 500 && !open.seen.lapsed, "{open:?}");
    run.reserve(store, &["a"], 0, (0, SHORT)).await.expect("a reserve");
    assert!(run.open(store).await.lease_left <= SHORT);
    subject.lapse.of(SHORT).await;
    let open = run.open(store).await;
    assert_eq!((open.seen, open.lease_left), (SEEN_LAPSED, OVER));
    assert_eq!(store.sweep(run.lane).await.expect("an answer"), None, "it is open");
    store.release(run.guard(), 0, &[], 0, 0).await.expect("released");
    assert_eq!(run.open(store).await.seen, SEEN_LAPSED);
    let other = Run::start(store, "other", LONG).await;
    let answers = other.reserve(store, &["a"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(0, 0, LAPSED));
    run.reserve(store, &["b"], 1, (0, LONG)).await.expect("a reserve");
    let answers = other.reserve(store, &["a"], 1, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(0, 0, RUNS));
}

/// Another's slot only after the lapse. Then what was not settled is free, what was is foreign, and its run writes nothing
/// any more.
pub async fn of_others(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    run.claims(store, &["a", "b", "c"], 4).await;
    run.reserve(store, &[], 0, (5, LONG)).await.expect("a flush");
    let thief = run.next();
    leased(thief.take(store, Some(&run), None, OVER).await);
    assert_eq!((run.open(store).await.lane, claims_of(store, run.lane, 0).await), (run.lane, 3));
    assert_eq!(run.reserve(store, &["d"], 7, (5, SHORT)).await.expect("a reserve")["d"], Reserved::Inserted);
    subject.lapse.of(SHORT).await;
    assert_eq!(thief.take(store, Some(&run), None, OVER).await.expect("the slot"), taken(3));
    not_owner(run.reserve(store, &["e"], 8, (9, LONG)).await);
    not_owner(store.release(run.guard(), 9, &[], 0, 100).await);
    let open = thief.open(store).await;
    assert_eq!((open.lane, open.seen, open.lease_left), (thief.lane, SEEN_LAPSED, OVER));
    let other = Run::start(store, "other", LONG).await;
    let answers = other.reserve(store, &["a", "b", "c", "d"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(4, 5, LEFT_BEHIND_LAPSED));
    assert_eq!([answers["b"], answers["c"], answers["d"]], [Reserved::Inserted; 3]);
    // Its next run takes it from the thief, whose lane nobody extends.
    let next = run.next();
    assert_eq!(next.take(store, Some(&thief), Some(run.knows(6)), LONG).await.expect("the slot"), taken(0));
}

/// Its own slot at once, if it knows token and lane; what it knows to be published is settled by that.
pub async fn of_ones_own(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    run.claims(store, &["a", "b", "c"], 0).await;
    let next = run.next();
    let knows = run.knows(1);
    let wrong = [
        None,
        Some(Former { guard: next.guard(), ..knows }),
        Some(Former { guard: semel::store::Guard { token: next.token, ..run.guard() }, ..knows }),
        Some(Former { guard: semel::store::Guard { lane: next.lane, ..run.guard() }, ..knows }),
    ];
    for former in wrong {
        leased(next.take(store, Some(&run), former, LONG).await);
    }
    assert_eq!(run.open(store).await.seen, LaneSeen { settled: 0, open: true, lapsed: false });
    assert_eq!(next.take(store, Some(&run), Some(knows), LONG).await.expect("the slot"), taken(2));
    assert_eq!(next.open(store).await.seen, LaneSeen { settled: 0, open: true, lapsed: false });
    let answers = next.reserve(store, &["a", "b", "c"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(0, 1, LEFT_BEHIND));
    assert_eq!([answers["b"], answers["c"]], [Reserved::Inserted; 2]);
    not_owner(run.reserve(store, &[], 0, (2, LONG)).await);
}

/// A claim in doubt stays on the closed lane, whose lease stays as it was, and is deleted after the lapse, not before.
pub async fn left_in_doubt(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    for (name, lease) in [("runs", LONG), ("lapses", SHORT)] {
        let ids = ["a", "b", "c", "d"].map(|event_id| format!("{name}/{event_id}"));
        let ids = ids.each_ref().map(String::as_str);
        let run = Run::start(store, name, LONG).await;
        run.reserve(store, &ids, 0, (0, lease)).await.expect("a reserve");
        assert_eq!(store.sweep(run.lane).await.expect("an answer"), None, "it is open");
        let next = run.next();
        let former = Former { in_doubt: &[1, 3], ..run.knows(1) };
        assert_eq!(next.take(store, Some(&run), Some(former), LONG).await.expect("the slot"), taken(1));
        if lease == SHORT {
            subject.lapse.of(SHORT).await;
        }
        let stands = if lease == SHORT { LEFT_BEHIND_LAPSED } else { LEFT_BEHIND };
        let answers = next.reserve(store, &ids, 0, (0, LONG)).await.expect("a reserve");
        assert_eq!(answers[ids[0]], run.at(0, 1, stands));
        assert_eq!(answers[ids[2]], Reserved::Inserted);
        assert_eq!([answers[ids[1]], answers[ids[3]]], [1, 3].map(|position| run.at(position, 1, stands)));
        if lease == LONG {
            assert_eq!(store.sweep(run.lane).await.expect("an answer"), None, "its lease runs");
            assert_eq!(claims_of(store, run.lane, 0).await, 3);
            continue;
        }
        assert_eq!(store.sweep(next.lane).await.expect("an answer"), None, "it is open");
        assert_eq!(store.sweep(run.lane).await.expect("an answer"), Some(2));
        assert_eq!(store.sweep(run.lane).await.expect("an answer"), Some(0), "may be repeated");
        let answers = next.reserve(store, &ids, 4, (0, LONG)).await.expect("a reserve");
        assert_eq!(answers[ids[0]], run.at(0, 1, stands), "what was settled is not swept");
        assert_eq!([answers[ids[1]], answers[ids[3]]], [Reserved::Inserted; 2]);
    }
    assert_eq!(store.sweep(Run::of("nobody").lane).await.expect("an answer"), None);
    // Whoever takes another's lane has nothing in doubt there.
    let run = Run::start(store, "another", OVER).await;
    run.reserve(store, &["x"], 0, (0, OVER)).await.expect("a reserve");
    let stranger = Former { guard: Run::of("stranger").guard(), in_doubt: &[0], published: &[0], committed: 1 };
    assert_eq!(run.next().take(store, Some(&run), Some(stranger), OVER).await.expect("the slot"), taken(1));
    assert_eq!(count(store, "x").await, 0);
}

/// For a slot whose truth is in Kafka: the token alone, at once on the own slot, else after the lapse.
pub async fn of_tokens(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    run.claims(store, &["a", "b"], 0).await;
    let (thief, own) = (run.next(), run.next());
    leased(store.write_token(&run.slot, thief.token, Some(run.token), false).await);
    assert_eq!(store.slot(&run.slot).await.expect("an answer").expect("a slot").owner, run.token);
    let written = store.write_token(&run.slot, own.token, Some(run.token), true).await;
    assert_eq!(written.expect("the token"), taken(0));
    not_owner(run.reserve(store, &["c"], 2, (0, LONG)).await);
    assert_eq!((own.open(store).await.lane, claims_of(store, run.lane, 0).await), (run.lane, 2), "nothing else moved");
    // Whoever holds token and lane extends the lane, whether or not it opened it.
    let heir = Run { token: own.token, ..run.clone() };
    heir.reserve(store, &[], 0, (0, SHORT)).await.expect("a flush");
    subject.lapse.of(SHORT).await;
    let written = store.write_token(&run.slot, thief.token, Some(own.token), false).await;
    assert_eq!(written.expect("the token"), taken(0));
    not_owner(heir.reserve(store, &[], 0, (0, LONG)).await);
    // The token already stands: done, whatever its lease.
    let heir = Run { token: thief.token, ..run.clone() };
    heir.reserve(store, &[], 0, (0, LONG)).await.expect("a flush");
    let again = store.write_token(&run.slot, thief.token, Some(own.token), false).await;
    assert_eq!(again.expect("the token"), taken(0));
}
