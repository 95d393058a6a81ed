//! Promises 4 and 5 of streams and lanes.

use semel::protocol::lane::{Cut, LaneId, StreamId, Token};
use semel::protocol::start::Row;
use semel::protocol::verdict::Claimed;
use semel::store::{ClaimStore, Guard, StoreError, Take, Taken};

use super::Subject;
use super::kit::{NOW, Writer, claim, count, fresh, inserted, lane_for, of, room};

async fn take(
    store: &dyn ClaimStore,
    stream: &StreamId,
    token: Token,
    instead_of: Option<Token>,
) -> Result<Taken, StoreError> {
    store.take(&Take { stream, token, instead_of }).await
}

/// Taking tells what is open, and ends the owner before.
pub async fn takes(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let stream = StreamId::from_stored("new");
    let nothing = Taken { row: None, opened_for: None };
    assert_eq!(take(store, &stream, Token(fresh()), None).await.expect("the stream"), nothing);
    let before = Writer::open(store, "stream").await;
    let open = Taken { row: Some(Row { open: before.lane, drained: None }), opened_for: Some(lane_for()) };
    let token = Token(fresh());
    for _ in 0..2 {
        assert_eq!(take(store, &before.stream, token, None).await.expect("the stream"), open, "may be repeated");
    }
    let refused = before.claim(store, &["a"], 1).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    let after = Writer { token, ..before };
    assert_eq!(inserted(&after.claim(store, &["a"], 1).await.expect("a claim")), 1);
}

/// In place of a token: only while it stands, or when it was done already.
pub async fn retakes(subject: Subject) {
    let store = &*subject.store;
    let writer = Writer::open(store, "stream").await;
    let (next, other) = (Token(fresh()), Token(fresh()));
    for _ in 0..2 {
        let taken = take(store, &writer.stream, next, Some(writer.token)).await.expect("the stream");
        assert_eq!(taken.row, Some(Row { open: writer.lane, drained: None }));
    }
    let refused = take(store, &writer.stream, other, Some(writer.token)).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    let refused = take(store, &StreamId::from_stored("nobody's"), other, Some(next)).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    assert_eq!(store.streams().await.expect("streams").len(), 1, "a refused take makes no stream");
    let guard = Guard { lane: writer.lane, token: next };
    assert!(claim(store, &[guard], vec![]).await.is_ok(), "the refused takes changed nothing");
}

/// The cut frees what was not settled and nothing else; what was is foreign from now on.
pub async fn opens_and_releases(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let mut writer = Writer::open(store, "stream").await;
    let neighbour = Writer::open(store, "neighbour").await;
    writer.claim(store, &["a", "b", "c", "d"], 10).await.expect("a claim");
    neighbour.claim(store, &["n"], 12).await.expect("a claim");
    let before = writer.clone();
    assert_eq!(writer.discontinue(store, 12).await, 2, "c at 12 and d at 13");
    assert!(!store.is_open(before.lane).await.expect("an answer"));
    assert!(store.is_open(writer.lane).await.expect("an answer"));
    let answers = writer.claim(store, &["a", "b", "c", "d", "n"], 10).await.expect("a claim");
    assert_eq!([of(&answers, "a"), of(&answers, "b")], [before.at(10), before.at(11)]);
    assert_eq!([of(&answers, "c"), of(&answers, "d")], [Claimed::Inserted; 2]);
    assert_eq!(of(&answers, "n"), neighbour.at(12));
    let refused = before.claim(store, &["z"], 14).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    // Without a cut nothing is freed, and what was open is closed all the same.
    let before = writer.clone();
    writer.lane = LaneId(fresh());
    assert_eq!(writer.open_lane(store, None).await.expect("a lane"), 0);
    assert!(!store.is_open(before.lane).await.expect("an answer"));
    assert_eq!(of(&writer.claim(store, &["c"], 1).await.expect("a claim"), "c"), before.at(12));
}

/// Again with the same lane: nothing to do. After another was opened: refused, whoever's token stands.
pub async fn opens_once(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let first = Writer::open(store, "stream").await;
    first.claim(store, &["a", "b"], 1).await.expect("a claim");
    let second = Writer { lane: LaneId(fresh()), ..first.clone() };
    let cut = Some(Cut { prev: first.lane, cut: 2 });
    assert_eq!(second.open_lane(store, cut).await.expect("a lane"), 1);
    second.claim(store, &["c"], 2).await.expect("a claim");
    assert_eq!(second.open_lane(store, cut).await.expect("a lane"), 0, "may be repeated");
    assert_eq!(count(store, "c").await, 1, "the repetition freed nothing");
    let late = first.open_lane(store, None).await;
    assert!(matches!(late, Err(StoreError::NotOwner)), "{late:?}");
    let stale = Writer { lane: LaneId(fresh()), token: Token(fresh()), ..first.clone() };
    let refused = stale.open_lane(store, Some(Cut { prev: second.lane, cut: 0 })).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    assert!(store.is_open(second.lane).await.expect("an answer"));
    assert_eq!(count(store, "c").await, 1, "the refused opening freed nothing");
    let nobody = Writer { stream: StreamId::from_stored("never taken"), ..stale };
    let refused = nobody.open_lane(store, None).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
}

/// A topic made anew: its lane is open on the stream of the former id, whose owner must not go on.
pub async fn closes_elsewhere(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let former = Writer::open(store, "topic one").await;
    former.claim(store, &["a", "b"], 1).await.expect("a claim");
    let mut anew = Writer { stream: StreamId::from_stored("topic two"), lane: LaneId(fresh()), token: Token(0) };
    anew.take(store).await;
    assert_eq!(anew.open_lane(store, Some(Cut { prev: former.lane, cut: 2 })).await.expect("a lane"), 1);
    assert!(!store.is_open(former.lane).await.expect("an answer"));
    let refused = former.claim(store, &["z"], 3).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    // Not only its lane is closed: it does not own the stream any more.
    let refused = Writer { lane: LaneId(fresh()), ..former.clone() }.open_lane(store, None).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    let refused = take(store, &former.stream, Token(fresh()), Some(former.token)).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    let streams = store.streams().await.expect("streams");
    let state = streams.iter().find(|state| state.stream == former.stream).expect("the former stream");
    assert_eq!((state.row, &state.opened_for), (None, &None));
    let answers = anew.claim(store, &["a", "b"], 0).await.expect("a claim");
    assert_eq!((of(&answers, "a"), of(&answers, "b")), (former.at(1), Claimed::Inserted));
}

/// With none in its place: what was not settled is free, what was is foreign, and nobody extends the lane any more.
pub async fn closes(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let mut writer = Writer::open(store, "stream").await;
    let neighbour = Writer::open(store, "neighbour").await;
    writer.claim(store, &["a", "b", "c"], 10).await.expect("a claim");
    store.record_drain(&writer.stream, writer.guard(), 13).await.expect("a drain");
    let bad = [Guard { token: Token(fresh()), ..writer.guard() }, Guard { lane: neighbour.lane, ..writer.guard() }];
    for guard in bad {
        let refused = store.close_lane(&writer.stream, guard, 0, NOW).await;
        assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    }
    assert_eq!(store.close_lane(&writer.stream, writer.guard(), 11, NOW).await.expect("closed"), 2);
    assert_eq!(store.close_lane(&writer.stream, writer.guard(), 0, NOW).await.expect("closed"), 0, "may be repeated");
    assert_eq!([count(store, "a").await, count(store, "b").await, count(store, "c").await], [1, 0, 0]);
    assert!(!store.is_open(writer.lane).await.expect("an answer"));
    assert!(store.is_open(neighbour.lane).await.expect("an answer"));
    let refused = writer.claim(store, &["z"], 13).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    let late = writer.open_lane(store, None).await;
    assert!(matches!(late, Err(StoreError::NotOwner)), "a closed lane came back: {late:?}");
    let before = writer.clone();
    writer.lane = LaneId(fresh());
    assert_eq!(writer.open_lane(store, None).await.expect("a lane"), 0);
    let answers = writer.claim(store, &["a", "b"], 0).await.expect("a claim");
    assert_eq!((of(&answers, "a"), of(&answers, "b")), (before.at(10), Claimed::Inserted));
    let taken = take(store, &writer.stream, writer.token, None).await.expect("the stream");
    assert_eq!(taken.row, Some(Row { open: writer.lane, drained: None }));
}

/// A drain is recorded and forgotten by the owner of the open lane alone, and does not outlive the lane.
pub async fn drains(subject: Subject) {
    let store = &*subject.store;
    let mut writer = Writer::open(store, "stream").await;
    let drained = async |writer: &Writer| {
        let taken = take(store, &writer.stream, writer.token, Some(writer.token)).await.expect("the stream");
        taken.row.expect("an open lane").drained
    };
    for _ in 0..2 {
        store.record_drain(&writer.stream, writer.guard(), 42).await.expect("a drain");
        assert_eq!(drained(&writer).await, Some(42));
    }
    let bad = [Guard { token: Token(fresh()), ..writer.guard() }, Guard { lane: LaneId(fresh()), ..writer.guard() }];
    for guard in bad {
        let refused = store.record_drain(&writer.stream, guard, 7).await;
        assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
        let refused = store.forget_drain(&writer.stream, guard).await;
        assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
    }
    assert_eq!(drained(&writer).await, Some(42));
    store.forget_drain(&writer.stream, writer.guard()).await.expect("forgotten");
    assert_eq!(drained(&writer).await, None);
    store.record_drain(&writer.stream, writer.guard(), 43).await.expect("a drain");
    writer.discontinue(store, 43).await;
    assert_eq!(drained(&writer).await, None);
}

/// Once a new token is written, no claim under the old one appears any more, though its owner goes on trying.
pub async fn a_token_ends_old_claims(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    for round in 0..10 {
        let old = Writer::open(&*store, &format!("stream {round}")).await;
        let (zombie, its_store) = (old.clone(), store.clone());
        let claims = tokio::spawn(async move {
            for n in 0.. {
                let ids: Vec<String> = (0..20).map(|k| format!("{round}/{n}/{k}")).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                match zombie.claim(&*its_store, &ids, n * 20).await {
                    Ok(answers) => assert_eq!(inserted(&answers), 20),
                    Err(StoreError::NotOwner) => return n * 20,
                    Err(error) => panic!("{error:?}"),
                }
            }
            unreachable!("a zombie is stopped")
        });
        tokio::time::sleep(std::time::Duration::from_millis(15)).await;
        let mut new = old.clone();
        new.take(&*store).await;
        let free = semel::store::Free::Unsettled { lane: old.lane, from: 0 };
        let then = store.free(&free, true).await.expect("a count");
        let claimed = claims.await.expect("no panic") as u64;
        assert_eq!(store.free(&free, true).await.expect("a count"), then, "a claim landed after the new token");
        assert_eq!(then, claimed, "every claim that was answered is there");
    }
}
