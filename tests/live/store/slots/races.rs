//! Several at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::protocol::lane::Position;
use semel::protocol::slot::Conflicting;
use semel::store::StoreError;
use semel::store::slots::{Former, Reserved, TakenSlot};

use super::super::kit::{count, room};
use super::{LONG, OVER, Run, Subject, claims_of};

/// Of many that reserve one key, in whatever order, one inserts, and all others are told that one.
pub async fn one_inserts(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let calls: Vec<_> = (0..6)
        .map(|caller: i64| {
            let store = store.clone();
            tokio::spawn(async move {
                let run = Run::start(&*store, &format!("instance {caller}"), LONG).await;
                let mut found = Vec::new();
                for part in 0..10 {
                    let ids: Vec<String> = (0..30).map(|n| format!("{part}/{}", (n * 7 + caller) % 30)).collect();
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let answers = run.reserve(&*store, &ids, part * 30, (0, LONG)).await.expect("a reserve");
                    found.extend(answers);
                }
                (run, found)
            })
        })
        .collect();
    let mut winners = BTreeMap::new();
    let mut told = Vec::new();
    for call in calls {
        let (run, found) = call.await.expect("no panic");
        for (event_id, answer) in found {
            match answer {
                Reserved::Inserted => assert_eq!(winners.insert(event_id, run.lane), None, "inserted twice"),
                Reserved::InTheWay(found) => told.push((event_id, found.expect("nobody deletes").holder.lane)),
            }
        }
    }
    assert_eq!((winners.len(), told.len()), (300, 5 * 300));
    for (event_id, lane) in told {
        assert_eq!(lane, Some(winners[&event_id]), "{event_id}");
    }
}

/// A lapsed slot, or one that nobody has: one gets it, the others find themselves too late, and its lane is the open one.
pub async fn one_taker(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    for round in 0..20 {
        let name = format!("slot {round}");
        let before = if round % 2 == 0 {
            let run = Run::start(&*store, &name, OVER).await;
            run.reserve(&*store, &[&name], 0, (0, OVER)).await.expect("a reserve");
            Some(run)
        } else {
            None
        };
        let takers: Vec<Run> = (0..5).map(|_| Run::of(&name)).collect();
        let calls = takers.iter().enumerate().map(|(n, taker)| {
            let (store, taker, before) = (store.clone(), taker.clone(), before.clone());
            tokio::spawn(async move {
                // Both ways of taking it.
                match n % 2 {
                    0 => taker.take(&*store, before.as_ref(), None, LONG).await,
                    _ => store.write_token(&taker.slot, taker.token, before.map(|run| run.token), false).await,
                }
            })
        });
        let mut winners = Vec::new();
        for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            match call.await.expect("no panic") {
                Ok(TakenSlot::Taken { released }) => winners.push((n, released)),
                Ok(TakenSlot::Leased { .. }) | Err(StoreError::NotOwner) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let [(winner, released)] = winners[..] else { panic!("round {round}: {winners:?}") };
        let slot = store.slot(&takers[winner].slot).await.expect("an answer").expect("a slot");
        assert_eq!(slot.owner, takers[winner].token);
        let open = slot.open.map(|open| open.lane);
        let right = if winner % 2 == 0 { Some(takers[winner].lane) } else { before.as_ref().map(|run| run.lane) };
        assert_eq!((open, released), (right, u64::from(winner % 2 == 0 && before.is_some())), "round {round}");
    }
}

/// A run goes on reserving while its slot is taken: whatever it reserved is released, and it reserves nothing afterwards.
pub async fn a_take_ends_reserves(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    for round in 0..50 {
        let old = Run::start(&*store, &format!("slot {round}"), LONG).await;
        let (zombie, its_store) = (old.clone(), store.clone());
        let reserves = tokio::spawn(async move {
            for n in 0.. {
                let ids: Vec<String> = (0..20).map(|k| format!("{round}/{n}/{k}")).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                if n > 50 {
                    // A store without a disk would fill up.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // All windows before this one are published.
                match zombie.reserve(&*its_store, &ids, n * 20, (n * 20, LONG)).await {
                    Ok(answers) => assert!(answers.values().all(|answer| *answer == Reserved::Inserted)),
                    Err(StoreError::NotOwner) => return n,
                    Err(error) => panic!("{error:?}"),
                }
            }
            unreachable!("a zombie is stopped")
        });
        tokio::time::sleep(Duration::from_micros(300 * round)).await;
        let new = old.next();
        let taken = new.take(&*store, Some(&old), Some(old.knows(0)), LONG).await.expect("the slot");
        let then = claims_of(&*store, old.lane, 0).await;
        let windows: i64 = reserves.await.expect("no panic");
        assert_eq!(taken, TakenSlot::Taken { released: if windows == 0 { 0 } else { 20 } }, "round {round}");
        let settled = (windows - 1).max(0) * 20;
        assert_eq!(claims_of(&*store, old.lane, settled).await, 0, "round {round}");
        assert_eq!((claims_of(&*store, old.lane, 0).await, then), (settled as u64, settled as u64), "round {round}");
    }
}

/// There should never be two reserves of one lane at once. If there are, they take turns.
pub async fn of_one_lane(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let run = Run::start(&*store, "one", LONG).await;
    for round in 0..20 {
        let calls: Vec<_> = (0..4)
            .map(|caller: i64| {
                let (store, run) = (store.clone(), run.clone());
                tokio::spawn(async move {
                    let ids: Vec<String> = (0..10).map(|n| format!("{round}/{}", (n * 3 + caller) % 10)).collect();
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let (from, committed) = (round * 1_000 + caller * 100, round * 10 + (caller * 7) % 4);
                    let answers = run.reserve(&*store, &ids, from, (committed, LONG)).await.expect("a reserve");
                    answers.values().filter(|answer| **answer == Reserved::Inserted).count()
                })
            })
            .collect();
        let mut inserted = 0;
        for call in calls {
            inserted += call.await.expect("no panic");
        }
        assert_eq!(inserted, 10, "round {round}");
        assert_eq!(run.open(&*store).await.seen.settled, round * 10 + 3, "round {round}");
    }
}

/// One claims and gives up, in turn by a release and by a cut; the other finds the claim, or finds it gone, or has it.
/// Whatever it finds is of one moment: a claim in the way is of a lane that has not released it.
pub async fn comes_and_goes(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let (mut other, run) = (Run::start(&*store, "other", LONG).await, Run::start(&*store, "one", LONG).await);
    let ended = Arc::new(AtomicBool::new(false));
    let (its_store, stop) = (store.clone(), ended.clone());
    let others = tokio::spawn(async move {
        for n in 0.. {
            let position: Position = n * 2;
            let reserved = other.reserve(&*its_store, &["k", "own"], position, (position, LONG)).await;
            reserved.expect("a reserve");
            if n % 3 == 0 {
                let next = other.next();
                let former: Former<'_> = other.knows(position);
                next.take(&*its_store, Some(&other), Some(former), LONG).await.expect("the slot");
                other = next;
            } else {
                let guard = other.guard();
                its_store.release(guard, position, &[], position, position + 2).await.expect("released");
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
        }
    });
    let (mut had, mut met, mut gone) = (0, 0, 0);
    for n in 0..300 {
        let answers = run.reserve(&*store, &["k"], n, (n, LONG)).await.expect("a reserve");
        match answers["k"] {
            Reserved::Inserted => {
                had += 1;
                assert_eq!(store.release(run.guard(), n, &[], n, n + 1).await.expect("released"), 1);
            }
            Reserved::InTheWay(None) => gone += 1,
            Reserved::InTheWay(Some(Conflicting { holder, lane })) => {
                met += 1;
                let lane = lane.expect("an instance's lane");
                assert!(lane.open && holder.position >= lane.settled, "released with its lane: {holder:?} {lane:?}");
            }
        }
        tokio::task::yield_now().await;
    }
    ended.store(true, Ordering::SeqCst);
    others.await.expect("no panic");
    println!("had it {had} times, met it {met} times, found it gone {gone} times");
    assert!(had > 0, "met it {met} times, found it gone {gone} times");
    assert_eq!(count(&*store, "k").await, 0);
}
