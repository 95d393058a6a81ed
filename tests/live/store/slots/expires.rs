//! Forgetting undated claims whose time is over, some at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use semel::protocol::event::{EventTime, Scope, Week};
use semel::store::TryClaim;
use semel::store::slots::{Cursor, Expire, Reserve, SlotAsk, SlotStore};

use super::super::kit::{NOW, id, room, trying};
use super::{LONG, ORIGIN, Run, Subject};

fn scoped(text: &str) -> Scope {
    Scope::new(text).expect("a scope")
}

/// So many microseconds after [`NOW`].
fn at(micros: i64) -> EventTime {
    EventTime::from_micros(NOW.micros() + micros)
}

/// Claims these ids in the undated week from `position` on, first seen then.
async fn undated(store: &dyn SlotStore, run: &Run, scope: &str, ids: &[&str], position: i64, seen: i64) {
    let scope = scoped(scope);
    let mut rows: Vec<SlotAsk> = ids
        .iter()
        .zip(position..)
        .map(|(event_id, position)| SlotAsk { event_id: id(event_id), week: Week::UNDATED, position })
        .collect();
    rows.sort_by(|a, b| a.event_id.cmp(&b.event_id));
    let origin: Arc<str> = ORIGIN.into();
    let (guard, first_seen_at) = (run.guard(), at(seen));
    let reserve = Reserve {
        guard,
        scope: &scope,
        committed: 0,
        lease: LONG,
        rows: &rows,
        origin: &origin,
        partition: None,
        first_seen_at,
    };
    store.reserve(&reserve).await.expect("a reserve");
}

async fn settle(store: &dyn SlotStore, run: &Run, committed: i64) {
    store.release(run.guard(), committed, &[], committed, committed).await.expect("settled");
}

/// One sweep, in batches: what went, and how many looks it took.
async fn sweep(store: &dyn SlotStore, scope: &str, before: i64, claims_max: usize) -> (u64, usize) {
    let scope = scoped(scope);
    let (mut deleted, mut looks, mut after): (u64, usize, Option<Cursor>) = (0, 0, None);
    loop {
        let expire = Expire { scope: &scope, seen_before: at(before), after: after.as_ref(), claims_max };
        let expired = store.expire(&expire).await.expect("an answer");
        assert!(expired.deleted <= claims_max as u64, "{expired:?}");
        deleted += expired.deleted;
        match expired.reached {
            None => return (deleted, looks),
            Some(reached) => {
                assert_ne!(Some(&reached), after.as_ref(), "it comes forward");
                after = Some(reached);
                looks += 1;
            }
        }
    }
}

async fn left(store: &dyn SlotStore, scope: &str, ids: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    for text in ids {
        if !store.find(Some(&scoped(scope)), &id(text)).await.expect("an answer").is_empty() {
            left.push((*text).to_owned());
        }
    }
    left
}

/// By age, to the microsecond; settled ones only; in one scope; never in another week.
pub async fn by_age(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    undated(store, &run, "s+a", &["old", "older", "edge"], 0, 0).await;
    undated(store, &run, "s+a", &["young"], 3, 1).await;
    undated(store, &run, "s+b", &["old"], 4, 0).await;
    run.reserve(store, &["dated"], 5, (0, LONG)).await.expect("a claim in a week");
    assert_eq!(sweep(store, "s+a", 1, 10).await, (0, 1), "nothing of it is settled");
    settle(store, &run, 6).await;
    assert_eq!(sweep(store, "s+a", 0, 10).await, (0, 1), "none is older than itself");
    assert_eq!(sweep(store, "s+a", 1, 10).await.0, 3);
    assert_eq!(left(store, "s+a", &["old", "older", "edge", "young"]).await, ["young"]);
    assert_eq!(left(store, "s+b", &["old"]).await, ["old"], "another table's");
    assert_eq!(sweep(store, "billing", 9, 10).await, (0, 0), "weeks are retired as a whole");
    assert_eq!(left(store, "billing", &["dated"]).await, ["dated"]);
    assert_eq!(sweep(store, "nobody's", 9, 10).await, (0, 0));
    undated(store, &run, "s+a", &["old"], 6, 2).await;
    assert_eq!(left(store, "s+a", &["old"]).await, ["old"], "it can be claimed again");
}

/// Unsettled on an open lane, and left in doubt on a closed one: both stay. Without a lane: settled for ever, it goes.
pub async fn settled_only(subject: Subject) {
    let store = &*subject.store;
    let run = Run::start(store, "one", LONG).await;
    undated(store, &run, "s", &["a", "b", "c"], 0, 0).await;
    settle(store, &run, 2).await;
    assert_eq!(sweep(store, "s", 1, 10).await.0, 2);
    assert_eq!(left(store, "s", &["a", "b", "c"]).await, ["c"]);
    let next = run.next();
    let former = semel::store::slots::Former { in_doubt: &[2], ..run.knows(2) };
    next.take(store, Some(&run), Some(former), LONG).await.expect("the slot");
    assert_eq!(sweep(store, "s", 1, 10).await.0, 0, "it is in doubt");
    let laneless = TryClaim { scope: scoped("s"), ..trying("tried", Week::UNDATED) };
    store.try_claim(&[laneless], NOW).await.expect("claimed");
    assert_eq!(sweep(store, "s", 1, 10).await.0, 1);
    assert_eq!(left(store, "s", &["c", "tried"]).await, ["c"]);
    let scopes: BTreeSet<Scope> = store.scopes().await.expect("scopes").into_iter().collect();
    assert_eq!(scopes, [scoped("s")].into());
}

/// The same, however many are looked at together; ids of all forms.
pub async fn in_batches(subject: Subject) {
    let store = &*subject.store;
    let run = Run::start(store, "one", LONG).await;
    let ids: Vec<String> = (0..60)
        .map(|n| match n % 4 {
            0 => format!("order-{n}"),
            1 => format!("0199f2d4-77aa-7bbb-8ccc-0123456789{n:02}"),
            2 => format!("{n:04}"),
            _ => format!("é{n}"),
        })
        .collect();
    let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut position = 0;
    for claims_max in [1, 7, 60, 61] {
        let (old, young) = texts.split_at(40);
        for (part, seen) in [(old, 0), (young, 5)] {
            undated(store, &run, "s", part, position, seen).await;
            position += part.len() as i64;
        }
        settle(store, &run, position).await;
        let (deleted, looks) = sweep(store, "s", 5, claims_max).await;
        assert_eq!(deleted, 40, "by {claims_max}");
        assert!(looks >= 60_usize.div_ceil(claims_max), "by {claims_max}: {looks} looks");
        assert_eq!(left(store, "s", &texts).await.len(), 20);
        assert_eq!(sweep(store, "s", 6, claims_max).await.0, 20);
    }
}
