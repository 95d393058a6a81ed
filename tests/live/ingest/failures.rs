//! The failure table, row by row, as callers, brokers and stores see it.

use std::sync::Arc;
use std::time::Duration;

use semel::protocol::event::{EventId, EventTime, Scope, Week};
use semel::protocol::lane::{LaneId, StreamId, Token};
use semel::store::slots::{Reserve, SlotAsk, TakeSlot};
use semel::store::{Guard, LaneFor};

use super::Subject;
use super::kit::{Answer, Form, Instance, ids, options, published, record, records, start, start_with};
use super::scripted::Fault;
use super::watched::{Call, Fail};

fn lease_s(subject: &Subject) -> u64 {
    subject.lease.as_secs_f64().ceil() as u64
}

fn refused_answer() -> Answer {
    Answer::failure(503, "the broker refused a record", Some(30))
}

fn in_doubt_answer(subject: &Subject) -> Answer {
    Answer::failure(503, "the broker is out of reach", Some(lease_s(subject)))
}

fn in_flight_answer(subject: &Subject) -> Answer {
    Answer::failure(503, "an event is in flight", Some(lease_s(subject)))
}

fn unavailable_answer() -> Answer {
    Answer::failure(503, "dedupe store unavailable", Some(5))
}

fn reserves(calls: &[Call]) -> usize {
    calls.iter().filter(|call| matches!(call, Call::Reserve(_))).count()
}

async fn each_once(subject: &Subject, mut right: Vec<String>) {
    let mut came = published(subject).await;
    came.sort();
    right.sort();
    assert_eq!(came, right);
}

/// Records before k are committed, k and those behind it released, later windows never reserved; a retry of the whole
/// batch publishes every record exactly once.
pub async fn refused(subject: Subject) {
    let instance = start(&subject).await;
    let mut all = Vec::new();
    for k in [1_usize, 100, 256, 257, 590] {
        let prefix = format!("k{k}-");
        let records = records(&prefix, 600);
        instance.store.calls();
        instance.scripts.fault(k as u64 - 1, Fault::Refuse);
        assert_eq!(instance.post(Form::Array, &records).await, refused_answer(), "at record {k}");
        assert_eq!(reserves(&instance.store.calls()), k.div_ceil(256), "at record {k}: windows reserved");
        assert_eq!(instance.claimed(&prefix, 0..600).await, (0..k - 1).collect::<Vec<_>>(), "at record {k}: claims");
        let came = published(&subject).await;
        assert_eq!(came[all.len()..], ids(&prefix, 0..k - 1), "at record {k}: published");
        let before = instance.post(Form::Array, &records[..k - 1]).await;
        assert_eq!(before.counts(), (0, k as u64 - 1, 0), "at record {k}: those before it are committed");
        let again = instance.post(Form::Array, &records).await;
        assert_eq!(again.counts(), (601 - k as u64, k as u64 - 1, 0), "at record {k}: the retry");
        all.extend(ids(&prefix, 0..600));
        each_once(&subject, all.clone()).await;
        assert_eq!(instance.post(Form::Lines, &records).await.counts(), (0, 600, 0), "at record {k}: a third try");
    }
    let single = record("single");
    instance.scripts.fault(0, Fault::Refuse);
    assert_eq!(instance.post_one(&single).await, refused_answer());
    assert_eq!(instance.post_one(&single).await.outcomes(), "p");
    assert_eq!(instance.post_one(&single).await.outcomes(), "d");
    all.push("single".to_owned());
    each_once(&subject, all).await;
}

/// Records before k are committed, k's claim stays until its lease lapses, those behind it are released.
pub async fn in_doubt(subject: Subject) {
    let instance = start(&subject).await;
    let mut all = Vec::new();
    for (k, fault) in [(100_usize, Fault::DoubtLost), (400, Fault::DoubtLost), (100, Fault::DoubtStored)] {
        let prefix = format!("{fault:?}{k}-");
        let records = records(&prefix, 600);
        instance.store.calls();
        instance.scripts.fault(k as u64 - 1, fault);
        assert_eq!(instance.post(Form::Lines, &records).await, in_doubt_answer(&subject), "at record {k}");
        let calls = instance.store.calls();
        assert_eq!(reserves(&calls), k.div_ceil(256), "at record {k}: windows reserved");
        assert_eq!(calls.last(), Some(&Call::Take(1)), "at record {k}: the lane is given up with one in doubt");
        assert_eq!(instance.post(Form::Lines, &records).await, in_flight_answer(&subject), "at record {k}: too early");
        assert_eq!(instance.post_one(&records[k - 1]).await, in_flight_answer(&subject), "at record {k}: by itself");
        assert_eq!(instance.claimed(&prefix, 0..600).await, (0..k).collect::<Vec<_>>(), "at record {k}: claims");
        let behind = instance.post(Form::Lines, &records[k..k + 10]).await;
        assert_eq!(behind.counts(), (10, 0, 0), "at record {k}: those behind it are released");
        let before = instance.post(Form::Lines, &records[..k - 1]).await;
        assert_eq!(before.counts(), (0, k as u64 - 1, 0), "at record {k}: those before it are committed");
        (subject.lapse)().await;
        let again = instance.post(Form::Lines, &records).await;
        assert_eq!(again.counts(), (591 - k as u64, k as u64 + 9, 0), "at record {k}: the retry");
        all.extend(ids(&prefix, 0..600));
        each_once(&subject, all.clone()).await;
        assert_eq!(instance.post(Form::Lines, &records).await.counts(), (0, 600, 0), "at record {k}: a third try");
    }
}

/// The broker is out of reach: by the table that is in doubt, although nothing left this process.
pub async fn not_sent(subject: Subject) {
    let instance = start(&subject).await;
    let records = records("n", 3);
    instance.scripts.fault(0, Fault::NotSent);
    assert_eq!(instance.post(Form::Array, &records).await, in_doubt_answer(&subject));
    assert_eq!(instance.claimed("n", 0..3).await, [0]);
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ppp");
    each_once(&subject, ids("n", 0..3)).await;
}

/// In any other way, an unroutable return included: in doubt too, but no time is named for a retry.
pub async fn fails_otherwise(subject: Subject) {
    let instance = start(&subject).await;
    let records = records("u", 3);
    instance.scripts.fault(1, Fault::Unroutable);
    assert_eq!(instance.post(Form::Array, &records).await, Answer::failure(500, "publish failed", None));
    assert_eq!(instance.claimed("u", 0..3).await, [0, 1]);
    assert_eq!(instance.post(Form::Array, &records).await, in_flight_answer(&subject));
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "dpp");
    each_once(&subject, ids("u", 0..3)).await;
    instance.scripts.fault(0, Fault::Unroutable);
    assert_eq!(instance.post_one("{\"no\":\"id\"}").await, Answer::failure(500, "publish failed", None));
}

/// A run that has left lets the next one begin at once; one that was killed does not, but for the lanes that were idle.
pub async fn restarts(subject: Subject) {
    let instance = start(&subject).await;
    assert_eq!(instance.post(Form::Array, &records("r", 3)).await.outcomes(), "ppp");
    instance.ingest.leave().await;
    drop(instance);
    let next = start(&subject).await;
    assert_eq!(next.ingest.lanes_ready(), 3);
    assert_eq!(next.post(Form::Array, &records("r", 5)).await.outcomes(), "dddpp");
    let beside = start(&subject).await;
    assert_eq!(beside.ingest.lanes_ready(), 0, "the leases of the other run are not over");
    let answer = beside.post(Form::Array, &records("r", 6)).await;
    assert_eq!(answer, unavailable_answer());
    drop(next);
    (subject.lapse)().await;
    assert_eq!(beside.post(Form::Array, &records("r", 6)).await.outcomes(), "dddddp");
    each_once(&subject, ids("r", 0..6)).await;
}

/// Records behind k that were out already when it failed are published, and stay so.
pub async fn answered_after_k(subject: Subject) {
    let instance = start(&subject).await;
    instance.scripts.out(3);
    let records = records("r", 10);
    instance.scripts.fault(4, Fault::Refuse);
    assert_eq!(instance.post(Form::Array, &records).await, refused_answer());
    assert_eq!(published(&subject).await, ["r0", "r1", "r2", "r3", "r5", "r6", "r7"]);
    assert_eq!(instance.claimed("r", 0..10).await, [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ddddpdddpp");
    each_once(&subject, ids("r", 0..10)).await;

    let doubtful: Vec<String> = super::kit::records("d", 10);
    instance.scripts.fault(4, Fault::DoubtLost);
    assert_eq!(instance.post(Form::Array, &doubtful).await, in_doubt_answer(&subject));
    assert_eq!(instance.claimed("d", 0..10).await, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(instance.post(Form::Array, &doubtful[5..8]).await.outcomes(), "ddd", "they are settled by themselves");
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &doubtful).await.outcomes(), "ddddpdddpp");
    each_once(&subject, [ids("r", 0..10), ids("d", 0..10)].concat()).await;
}

/// Stored, but reported as failed: in flight until the lease lapses, then published again and dropped by the broker's
/// duplicate window. Without the idempotency key it would be there twice.
pub async fn stored_but_reported_failed(subject: Subject) {
    let instance = start(&subject).await;
    let records = records("s", 3);
    instance.scripts.fault(1, Fault::DoubtStored);
    assert_eq!(instance.post(Form::Array, &records).await, in_doubt_answer(&subject));
    assert_eq!(instance.post(Form::Array, &records).await, in_flight_answer(&subject));
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "dpp");
    assert_eq!(published(&subject).await, ids("s", 0..3), "3 events for 3 records");
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ddd");
    // That the key does it.
    let unnamed = super::kit::records("u", 3);
    instance.scripts.without_keys();
    instance.scripts.fault(1, Fault::DoubtStored);
    assert_eq!(instance.post(Form::Array, &unnamed).await, in_doubt_answer(&subject));
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &unnamed).await.outcomes(), "dpp");
    assert_eq!(published(&subject).await[3..], ["u0", "u1", "u1", "u2"], "a broker without a key cannot tell");
}

/// Not open, throttled, out of reach; in the second window only; for a single object.
pub async fn store_unavailable(subject: Subject) {
    let instance = start(&subject).await;
    let mut all = Vec::new();
    for fail in [Fail::NotOpen, Fail::Throttled, Fail::OutOfReach] {
        let prefix = format!("{fail:?}-");
        let records = records(&prefix, 600);
        instance.store.calls();
        instance.store.fail_reserve(0, fail);
        assert_eq!(instance.post(Form::Array, &records).await, unavailable_answer(), "{fail:?}");
        assert_eq!(instance.store.calls(), [Call::Reserve(256)], "{fail:?}: nothing else is asked");
        assert_eq!(published(&subject).await.len(), all.len(), "{fail:?}: nothing is published");

        instance.store.fail_reserve(1, fail);
        assert_eq!(instance.post(Form::Array, &records).await, unavailable_answer(), "{fail:?} in the second window");
        let right = [Call::Reserve(256), Call::Reserve(256), Call::Commit];
        assert_eq!(instance.store.calls(), right, "{fail:?}: the first is committed, the third never reserved");
        assert_eq!(instance.claimed(&prefix, 0..600).await, (0..256).collect::<Vec<_>>());
        assert_eq!(instance.post(Form::Array, &records).await.counts(), (344, 256, 0), "{fail:?}: the retry");
        all.extend(ids(&prefix, 0..600));

        let single = format!("{fail:?}");
        instance.store.calls();
        instance.store.fail_reserve(0, fail);
        assert_eq!(instance.post_one(&record(&single)).await, unavailable_answer(), "{fail:?} for a single object");
        assert_eq!(instance.post_one(&record(&single)).await.outcomes(), "p");
        all.push(single);
        each_once(&subject, all.clone()).await;
    }
    // Away for all of them, and with a commit that cannot be made.
    instance.store.away(true);
    assert_eq!(instance.post(Form::Array, &records("away", 600)).await, unavailable_answer());
    instance.store.away(false);
    assert_eq!(instance.post(Form::Array, &records("away", 600)).await.counts(), (600, 0, 0));
}

pub async fn reserve_fails_otherwise(subject: Subject) {
    let instance = start(&subject).await;
    instance.store.fail_reserve(0, Fail::Rejected);
    assert_eq!(instance.post_one(&record("a")).await, Answer::failure(500, "dedupe failed", None));
    assert_eq!(published(&subject).await, [""; 0]);
    assert_eq!(instance.post_one(&record("a")).await.outcomes(), "p");
}

/// Carried out or not: out of reach for the caller, and nothing of it remains.
pub async fn reserve_of_unknown_outcome(subject: Subject) {
    let instance = start(&subject).await;
    for fail in [Fail::LostAnswer, Fail::LostCall] {
        let prefix = format!("{fail:?}-");
        let records = records(&prefix, 300);
        instance.store.calls();
        instance.store.fail_reserve(1, fail);
        assert_eq!(instance.post(Form::Array, &records).await, unavailable_answer(), "{fail:?}");
        // The lane is given up: what of it was claimed and not published is anybody's.
        assert_eq!(instance.post(Form::Array, &records).await.counts(), (44, 256, 0), "{fail:?}");
    }
    each_once(&subject, [ids("LostAnswer-", 0..300), ids("LostCall-", 0..300)].concat()).await;
}

/// What cannot be released is released with the lane.
pub async fn release_fails(subject: Subject) {
    let instance = start(&subject).await;
    for fail in [Fail::OutOfReach, Fail::LostAnswer, Fail::LostCall] {
        let prefix = format!("{fail:?}-");
        let records = records(&prefix, 10);
        instance.store.calls();
        instance.store.fail_release(0, fail);
        instance.scripts.out(2);
        instance.scripts.fault(4, Fault::Refuse);
        assert_eq!(instance.post(Form::Array, &records).await, refused_answer(), "{fail:?}");
        assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ddddpddppp", "{fail:?}");
    }
    let all = ["OutOfReach-", "LostAnswer-", "LostCall-"].map(|prefix| ids(prefix, 0..10));
    each_once(&subject, all.concat()).await;
}

/// The records succeed all the same, and the store hears of it later.
pub async fn commit_fails(subject: Subject) {
    let instance = start(&subject).await;
    for fail in [Fail::OutOfReach, Fail::LostAnswer, Fail::LostCall] {
        let prefix = format!("{fail:?}-");
        let records = records(&prefix, 300);
        instance.store.calls();
        instance.store.fail_commit(0, fail);
        assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "p".repeat(300), "{fail:?}");
        // What is mended meanwhile goes on with other lanes.
        let mut calls = instance.store.calls();
        calls.retain(|call| !matches!(call, Call::Take(_)));
        let first = calls.iter().position(|call| *call == Call::Reserve(256)).expect("it was reserved");
        assert_eq!(calls[first..][..3], [Call::Reserve(256), Call::Reserve(44), Call::Commit], "{fail:?}");
        let again = until(async || instance.post(Form::Array, &records).await).await;
        assert_eq!(again.counts(), (0, 300, 0), "{fail:?}: it is mended");
    }
    assert_eq!(published(&subject).await.len(), 900);
}

/// Again and again while an event is in flight; not for as long as a lease.
async fn until(post: impl AsyncFn() -> Answer) -> Answer {
    for _ in 0..12 {
        let answer = post().await;
        if answer.status == 200 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    post().await
}

/// A claim that somebody else holds, on a lane of its own.
pub async fn held_elsewhere(subject: &Subject, id: &str, lease: Duration) -> (StreamId, Guard) {
    let (slot, guard) =
        (StreamId::slot("ingest", &format!("other-{id}")), Guard { lane: LaneId(77), token: Token(78) });
    let scope = Scope::new("s+acme+orders").expect("a scope");
    let lane_for = LaneFor { scope: scope.clone(), recipe: "r".into() };
    let now = EventTime::from_millis(0);
    let take = TakeSlot {
        slot: &slot,
        token: guard.token,
        lane: guard.lane,
        instead_of: None,
        former: None,
        lane_for: &lane_for,
        lease,
        now,
    };
    subject.store.take_slot(&take).await.expect("a slot");
    let event_id = EventId::encode(id.as_bytes()).expect("an id");
    let rows = [SlotAsk { event_id, week: Week::UNDATED, position: 0 }];
    let origin = Arc::from("elsewhere");
    let (scope, rows, origin) = (&scope, &rows, &origin);
    let reserve = Reserve { guard, scope, committed: 0, lease, rows, origin, partition: None, first_seen_at: now };
    subject.store.reserve(&reserve).await.expect("a claim");
    (slot, guard)
}

/// The window's own claims are released, and nothing of it is published.
pub async fn in_flight(subject: Subject) {
    let instance = start(&subject).await;
    let (_, guard) = held_elsewhere(&subject, "f300", Duration::from_secs(60)).await;
    let records = records("f", 600);
    assert_eq!(instance.post(Form::Array, &records).await, in_flight_answer(&subject));
    let calls = instance.store.calls();
    assert_eq!(calls[..2], [Call::Reserve(256), Call::Reserve(256)]);
    assert_eq!(calls[2..], [Call::Release], "the third window is never reserved");
    assert_eq!(published(&subject).await, ids("f", 0..256));
    let claimed: Vec<usize> = (0..256).chain([300]).collect();
    assert_eq!(instance.claimed("f", 0..600).await, claimed);
    // It is published there after all.
    subject.store.release(guard, 1, &[], 1, 1).await.expect("settled");
    let outcomes = instance.post(Form::Array, &records).await.outcomes();
    assert_eq!(outcomes, ["d".repeat(256), "p".repeat(44), "d".to_owned(), "p".repeat(299)].concat());
    assert_eq!(published(&subject).await.len(), 599);
}

/// The holder is gone: its slot is taken within the request.
pub async fn taken_over(subject: Subject) {
    let instance = start(&subject).await;
    held_elsewhere(&subject, "t5", subject.lease).await;
    let records = records("t", 10);
    assert_eq!(instance.post(Form::Array, &records).await, in_flight_answer(&subject), "its lease runs");
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "p".repeat(10));
    each_once(&subject, ids("t", 0..10)).await;
}

/// Whatever ends a publish in the middle leaves its window in doubt.
pub async fn a_panic(subject: Subject) {
    let instance = start(&subject).await;
    let records = records("p", 3);
    instance.scripts.fault(1, Fault::Panic);
    assert_eq!(instance.post(Form::Array, &records).await, Answer::failure(500, "publish failed", None));
    assert_eq!(instance.post_one(&record("other")).await.outcomes(), "p", "the others go on");
    assert_eq!(instance.post(Form::Array, &records).await, in_flight_answer(&subject));
    tokio::time::sleep(Duration::from_millis(900)).await;
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ppp");
}

/// Too little is left of the lease: nothing is published under it.
pub async fn a_slow_reserve(subject: Subject) {
    let publish_timeout = subject.lease - Duration::from_millis(300);
    let options = semel::pipeline::ingest::Options { publish_timeout, ..options(&subject, "a") };
    let instance = start_with(&subject, options, super::kit::LIMITS).await;
    instance.store.fail_reserve(0, Fail::Slow(500));
    assert_eq!(instance.post_one(&record("a")).await, unavailable_answer());
    assert_eq!(instance.store.calls(), [Call::Reserve(1), Call::Release]);
    assert_eq!(published(&subject).await, [""; 0]);
    assert_eq!(instance.post_one(&record("a")).await.outcomes(), "p");
}

/// Another took the slots, as after a lease that was outlived: they are taken back, and what was claimed stays claimed.
pub async fn overtaken(subject: Subject) {
    let instance = start(&subject).await;
    assert_eq!(instance.post(Form::Array, &records("o", 300)).await.counts(), (300, 0, 0));
    (subject.lapse)().await;
    let other: Instance = start(&subject).await;
    assert_eq!(other.post(Form::Array, &records("o", 310)).await.counts(), (10, 300, 0));
    (subject.lapse)().await;
    assert_eq!(instance.post(Form::Array, &records("o", 320)).await.counts(), (10, 310, 0));
    each_once(&subject, ids("o", 0..320)).await;
}

/// A record without a claim that is in doubt leaves nothing behind.
pub async fn unclaimed_records_fail(subject: Subject) {
    let instance = start(&subject).await;
    let mut records = records("c", 4);
    records.insert(2, "{\"no\":\"id\"}".to_owned());
    instance.scripts.fault(2, Fault::DoubtLost);
    let unclaimed = Answer::failure(503, "the broker is out of reach", Some(5));
    assert_eq!(instance.post(Form::Array, &records).await, unclaimed);
    assert_eq!(instance.store.calls(), [Call::Reserve(4), Call::Release]);
    assert_eq!(instance.claimed("c", 0..4).await, [0, 1]);
    assert_eq!(instance.post(Form::Array, &records).await.outcomes(), "ddppp", "at once");
}
