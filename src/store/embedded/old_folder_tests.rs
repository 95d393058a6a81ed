//! A folder as it was written before there were lanes of instances, record by record.
//!
//! Nothing here is written by today's code: that its records are still read, and mean the same, is what is tested.

use super::*;
use crate::protocol::lane::{Cut, Token};
use crate::store::LaneFor;
use crate::store::slots::{Reserve, Reserved, SlotAsk, SlotStore, TakeSlot, TakenSlot};

/// Keyspace, key, value.
const RECORDS: &[(&str, &str, &str)] = &[
    ("small", "6300000000", "62696c6c696e67"),
    ("small", "69", "6331663239643130376431643361613563623038623966636163356530306339"),
    ("small", "6c0000000000000001", "6b61666b613a632f672f742f30"),
    ("small", "6c0000000000000002", "6b61666b613a632f672f742f30"),
    ("small", "6c0000000000000003", "6b61666b613a632f672f742f31"),
    ("small", "6e70697065", "6e6f746564"),
    ("small", "6f00000000", "010102066f72646572730100"),
    ("small", "6f00000001", "010104066f72646572730100"),
    ("small", "6f00000002", "01000466696c6500"),
    ("small", "736b61666b613a632f672f742f30", "0104010400010762696c6c696e67096865616465723a6964"),
    ("small", "736b61666b613a632f672f742f31", "010601060122010762696c6c696e67096865616465723a6964"),
    (
        "tails",
        "000000000000000200",
        "0100ffffffffffffffffff010af3e4570a1000006576656e742d3137313536303735f3e457081000006576656e742d3738646465366334",
    ),
    (
        "tails",
        "000000000000000201",
        "0101ffffffffffffffffff010ef3e4570e1000006576656e742d3533383435336437f3e4570c1000006576656e742d6235346364613236",
    ),
    ("week-719162", "00006576656e742d3030303030303030", "10000000"),
    ("week-719162", "00006576656e742d3137313536303735", "10010a00"),
    ("week-719162", "00006576656e742d3363366566333632", "10000400"),
    ("week-719162", "00006576656e742d3533383435336437", "10010e00"),
    ("week-719162", "00006576656e742d3738646465366334", "10010800"),
    ("week-719162", "00006576656e742d3965333737396231", "10000200"),
    ("week-719162", "00006576656e742d6235346364613236", "10010c00"),
    ("week-719162", "00006576656e742d6461613636643133", "10000600"),
    ("week-719162", "00006f662d612d66696c65", "1002180e"),
    ("week-3", "00007472696564", "12036170690001120a"),
];

fn old_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let fill = |database: &fjall::Database| {
        for (space, key, value) in RECORDS {
            let options = || if space.starts_with("week") { folder::week_options() } else { folder::small_options() };
            let bytes = |text| hex::decode(text).expect("hexadecimal");
            database.keyspace(space, options)?.insert(bytes(key), bytes(value))?;
        }
        Ok(())
    };
    drop(folder::open_or_make(folder.path(), fill).expect("made"));
    folder
}

/// Event ids as the folder has them: `event-` and eight hexadecimal digits, in an order of their own.
fn event(position: Position) -> EventId {
    EventId::from_stored(format!("event-{:08x}", (position as u32).wrapping_mul(0x9e37_79b1)))
}

async fn found(store: &EmbeddedStore, event_id: EventId) -> Option<(Option<i64>, Position, String, Option<i64>)> {
    let claim = store.find(None, &event_id).await.expect("found").pop()?;
    Some((claim.holder.lane.map(|lane| lane.0), claim.holder.position, claim.topic, claim.offset))
}

#[test]
fn what_an_earlier_version_wrote_means_the_same() {
    let folder = old_folder();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let store = EmbeddedStore::open(folder.path()).expect("the store opens");
    let old = Week::of(EventTime::from_micros(0));
    let streams = ["kafka:c/g/t/0", "kafka:c/g/t/1"].map(StreamId::from_stored);
    let lane_for = LaneFor { scope: Scope::new("billing").expect("a scope"), recipe: "header:id".into() };
    runtime.block_on(async {
        assert_eq!(&*store.store_id().await.expect("an id").0, "c1f29d107d1d3aa5cb08b9fcac5e00c9");
        assert_eq!(store.weeks().await.expect("weeks"), [Week::UNDATED, old]);
        assert_eq!(store.note(b"pipe").expect("read").as_deref(), Some(&b"noted"[..]));
        for (state, (stream, lane, drained)) in store
            .streams()
            .await
            .expect("streams")
            .into_iter()
            .zip([(&streams[0], 2, None), (&streams[1], 3, Some(17))])
        {
            assert_eq!((&state.stream, state.owner), (stream, Some(Token(lane))));
            assert_eq!(state.row.map(|row| (row.open, row.drained)), Some((LaneId(lane), drained)));
            assert_eq!(state.opened_for.as_ref(), Some(&lane_for));
        }
        let orders = |lane, at| Some((Some(lane), at, "orders".to_owned(), Some(at)));
        for position in 0..8 {
            let lane = if position < 4 { 1 } else { 2 };
            assert_eq!(found(&store, event(position)).await, orders(lane, position), "{position}");
        }
        let of_a_file = Some((None, 12, "file".to_owned(), Some(12)));
        assert_eq!(found(&store, EventId::from_stored("of-a-file")).await, of_a_file);
        assert_eq!(found(&store, EventId::from_stored("tried")).await, Some((None, 9, "api".to_owned(), Some(9))));
    });

    // Lanes of instances beside what is there.
    let slot = StreamId::slot("orders", "pod-0");
    let (guard, now) = (Guard { lane: LaneId(4), token: Token(4) }, EventTime::from_micros(9));
    let ask = |position| SlotAsk { event_id: event(position), week: Week::UNDATED, position };
    let store = runtime.block_on(async {
        let take = TakeSlot {
            slot: &slot,
            token: guard.token,
            lane: guard.lane,
            instead_of: None,
            former: None,
            lane_for: &lane_for,
            lease: std::time::Duration::ZERO,
            now,
        };
        assert_eq!(store.take_slot(&take).await.expect("taken"), TakenSlot::Taken { released: 0 });
        let mut rows = [ask(7), ask(8)];
        rows.sort_by(|a, b| a.event_id.cmp(&b.event_id));
        let reserve = Reserve {
            guard,
            scope: &lane_for.scope,
            committed: 8,
            lease: std::time::Duration::ZERO,
            rows: &rows,
            origin: &"queue".into(),
            partition: None,
            first_seen_at: now,
        };
        let answers = store.reserve(&reserve).await.expect("reserved");
        let of = |position| answers[rows.iter().position(|row| row.position == position).expect("asked")];
        assert_eq!(of(8), Reserved::Inserted);
        assert!(
            matches!(of(7), Reserved::InTheWay(Some(found)) if found.holder.lane == Some(LaneId(2))),
            "{answers:?}"
        );
        drop(store);
        let store = EmbeddedStore::open(folder.path()).expect("the store opens");
        // From the ring that the earlier version kept.
        let (token, cut) = (Token(5), Some(Cut { prev: LaneId(2), cut: 5 }));
        store.take(&Take { stream: &streams[0], token, instead_of: None }).await.expect("taken");
        assert!(store.lock().expect("whole").tails[&LaneId(2)].places(LaneId(2), 5).is_some());
        let open = OpenLane { stream: &streams[0], token, lane: LaneId(5), cut, lane_for: &lane_for, now };
        assert_eq!(store.open_lane(&open).await.expect("opened"), 3);
        store
    });
    let kept: Vec<Position> =
        (0..9).filter(|&position| runtime.block_on(found(&store, event(position))).is_some()).collect();
    assert_eq!(kept, [0, 1, 2, 3, 4, 8]);
}
