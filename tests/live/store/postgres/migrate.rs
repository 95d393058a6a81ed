//! Making the schema, refusing another, adopting the table of the guard that came before.

use std::time::Duration;

use semel::protocol::lane::{Holder, LaneId, StreamId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::postgres::migrate::SCHEMA_VERSION;
use semel::store::slots::Reserved;
use semel::store::{ClaimStore, StoreError};
use sha2::Digest;
use tokio_postgres::Client;

use super::super::kit::{NOW, Writer, id, of, scope, trying, week};
use super::super::slots::{LONG, RUNS, Run};
use super::{Own, run, told, while_it_waits};

/// From several places at once: applied once, by one of them.
#[test]
fn at_once() {
    run(async || {
        let own = Own::empty().await;
        assert_eq!(own.store.schema_version().await.expect("an answer"), None);
        let calls = [(); 4].map(|()| {
            let store = own.store.clone();
            tokio::spawn(async move { store.migrate().await.expect("a schema") })
        });
        let mut applied = Vec::new();
        for call in calls {
            applied.extend(call.await.expect("no panic"));
        }
        // Which of them applied which does not matter.
        applied.sort_unstable();
        assert_eq!(applied, (1..=SCHEMA_VERSION).collect::<Vec<_>>());
        assert_eq!(own.store.schema_version().await.expect("an answer"), Some(SCHEMA_VERSION));
        own.store.check_schema().await.expect("the schema");
    });
}

/// One clear line for each schema that this program was not built for.
#[test]
fn refused() {
    run(async || {
        let own = Own::empty().await;
        let refusal = async || {
            let error = own.store.check_schema().await.expect_err("a refusal");
            assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
            told(&error)
        };
        assert!(refusal().await.contains("no schema of Semel's: run `semel migrate`"));
        own.store.migrate().await.expect("a schema");
        let side = own.side().await;
        let cases = [
            ("UPDATE semel_migrations SET digest = 'other'", "applied in another form"),
            ("INSERT INTO semel_migrations (version, name, digest) VALUES (999, 'later', '')", "version 999, newer"),
            (
                "DELETE FROM semel_migrations WHERE version >= 1; INSERT INTO semel_migrations VALUES (0, 'none', '')",
                "version 0, this program needs",
            ),
        ];
        for (change, expected) in cases {
            side.batch_execute(&format!("CREATE TABLE kept AS TABLE semel_migrations; {change}"))
                .await
                .expect("changed");
            let refusal = refusal().await;
            assert!(refusal.contains(expected), "{refusal}");
            let back = "DELETE FROM semel_migrations; INSERT INTO semel_migrations TABLE kept; DROP TABLE kept";
            side.batch_execute(back).await.expect("changed back");
        }
        own.store.check_schema().await.expect("the schema");
    });
}

/// What `semel migrate` of version 1 left behind, with claims in it.
const VERSION_1: &str = "
    INSERT INTO semel_streams VALUES ('stream', 11, 7, NULL, 'billing', 'header:id');
    INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at, closed_at, cut) VALUES
        (6, 'stream', 'billing', 'header:id', '2026-01-01', '2026-01-01', 5),
        (7, 'stream', 'billing', 'header:id', '2026-01-01', NULL, NULL);
    CREATE TABLE processed_kafka_events_20251229
        PARTITION OF processed_kafka_events FOR VALUES FROM ('2025-12-29') TO ('2026-01-05');
    INSERT INTO processed_kafka_events
        (consumer_scope_id, event_id, week_start, first_seen_at, topic, \"partition\", \"offset\", lane, position)
    VALUES ('billing', 'old', '2025-12-29', now(), 'orders', 3, 4, 6, 4),
        ('billing', 'new', '2025-12-29', now(), 'orders', 3, 8, 7, 8);
";

const MIGRATIONS: [&str; 2] = [
    include_str!("../../../../migrations/0001_claims.sql"),
    include_str!("../../../../migrations/0002_instance_lanes.sql"),
];

/// What `semel migrate` of an earlier version left behind.
async fn at_version(own: &Own, version: usize) -> Client {
    let side = own.side().await;
    side.batch_execute(include_str!("../../../../src/store/postgres/sql/make_migrations.sql")).await.expect("made");
    for (sql, n) in MIGRATIONS[..version].iter().zip(1..) {
        let digest = hex::encode(sha2::Sha256::digest(sql));
        let record = format!("INSERT INTO semel_migrations (version, name, digest) VALUES ({n}, 'n', '{digest}')");
        side.batch_execute(&format!("{sql}; {record}")).await.expect("a version");
    }
    side
}

/// From version 1 with rows in it: they are as they were, its pipeline goes on, and slots can be taken.
#[test]
fn from_version_1() {
    run(async || {
        let own = Own::empty().await;
        let side = at_version(&own, 1).await;
        side.batch_execute(VERSION_1).await.expect("rows");
        assert_eq!(own.store.schema_version().await.expect("an answer"), Some(1));
        let refusal = told(&own.store.check_schema().await.expect_err("a refusal"));
        assert!(refusal.contains("at version 1, this program needs") && refusal.contains("semel migrate"), "{refusal}");
        let rows = async || {
            let all = "SELECT string_agg(r, '|' ORDER BY r) FROM (
                SELECT e::text FROM processed_kafka_events AS e UNION ALL SELECT s::text FROM semel_streams AS s
                UNION ALL SELECT id FROM semel_store
                UNION ALL SELECT (lane, stream, scope, recipe, opened_at, closed_at, cut)::text FROM semel_lanes
            ) AS t (r)";
            side.query_one(all, &[]).await.expect("rows").get::<_, String>(0)
        };
        let before = rows().await;
        assert_eq!(own.store.migrate().await.expect("a schema"), (2..=SCHEMA_VERSION).collect::<Vec<_>>());
        own.store.check_schema().await.expect("the schema");
        assert_eq!(rows().await, before);
        let of_partitions = "SELECT count(*) FROM semel_lanes WHERE settled IS NULL AND lease_until IS NULL";
        assert_eq!(side.query_one(of_partitions, &[]).await.expect("a count").get::<_, i64>(0), 2);
        let partition = Writer { stream: StreamId::from_stored("stream"), lane: LaneId(7), token: Token(11) };
        let answers = partition.claim(&*own.store, &["new", "newer"], 8).await.expect("a claim");
        assert_eq!((of(&answers, "new"), of(&answers, "newer")), (partition.at(8), Claimed::Inserted));
        let instance = Run::start(&*own.store, "one", LONG).await;
        let answers = instance.reserve(&*own.store, &["new", "fresh"], 0, (0, LONG)).await.expect("a reserve");
        assert_eq!(answers["fresh"], Reserved::Inserted);
        assert_eq!(answers["new"], Run { lane: LaneId(7), ..instance.clone() }.at(8, 0, RUNS));
    });
}

/// What a program of version 2 asks when it takes a slot.
const DELETE_UNSENT_2: &str = "
    WITH gone AS (
        DELETE FROM processed_kafka_events WHERE lane = 8 AND position >= 1 AND position <> ALL ('{}') RETURNING 1
    )
    SELECT count(*) FROM gone";

/// From version 2 with claims in use: the index of slots' claims reaches each week, those that are made later too, while
/// claims go on. What an interrupted call leaves is mended by the next.
#[test]
fn from_version_2() {
    const WEEKS: &str = "
        SELECT c.relname::text, x.indisvalid, p.inhparent IS NOT NULL
        FROM pg_inherits AS i
        JOIN pg_class AS c ON c.oid = i.inhrelid
        LEFT JOIN pg_index AS x ON x.indrelid = c.oid AND x.indpred IS NOT NULL
        LEFT JOIN pg_inherits AS p
            ON p.inhrelid = x.indexrelid AND p.inhparent = 'processed_kafka_events_of_slots'::regclass
        WHERE i.inhparent = 'processed_kafka_events'::regclass ORDER BY 1";
    run(async || {
        let own = Own::empty().await;
        let side = at_version(&own, 2).await;
        side.batch_execute(VERSION_1).await.expect("rows");
        side.batch_execute(
            "INSERT INTO semel_streams VALUES ('slot:orders/one', 12, 8, NULL, 'billing', 'header:id');
             INSERT INTO semel_lanes VALUES (8, 'slot:orders/one', 'billing', 'header:id', now(), NULL, NULL, 0, now());
             INSERT INTO processed_kafka_events
                 (consumer_scope_id, event_id, week_start, first_seen_at, topic, lane, position)
             SELECT 'billing', 'of slot ' || n, '2025-12-29', now(), 'queue', 8, n FROM generate_series(0, 2) AS n",
        )
        .await
        .expect("rows");
        // Not by way of the parent: what is under way there is waited for too, but before anything is changed.
        side.batch_execute(
            "BEGIN;
             INSERT INTO processed_kafka_events_20251229 (consumer_scope_id, event_id, week_start, first_seen_at)
             VALUES ('billing', 'under way', '2025-12-29', now())",
        )
        .await
        .expect("rows");
        let other = own.side().await;
        let weeks = async || {
            let rows = other.query(WEEKS, &[]).await.expect("weeks");
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect::<Vec<(String, Option<bool>, bool)>>()
        };
        let migrating = || {
            let store = own.store.clone();
            tokio::spawn(async move { store.migrate().await })
        };
        let monday = "processed_kafka_events_20251229".to_owned();
        for interrupted in [true, false] {
            let call = migrating();
            while_it_waits().await;
            assert!(!call.is_finished(), "it waits for what is under way");
            let row = "INSERT INTO processed_kafka_events (consumer_scope_id, event_id, week_start, first_seen_at)
                VALUES ('billing', $1, '2025-12-29', now())";
            let id = format!("meanwhile {interrupted}");
            let claim = tokio::time::timeout(Duration::from_secs(1), other.execute(row, &[&id])).await;
            assert_eq!(claim.expect("claims go on").expect("a claim"), 1);
            if interrupted {
                let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                    WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND datname = current_database()";
                assert_eq!(other.query(cancel, &[]).await.expect("an answer").len(), 1);
                assert!(call.await.expect("no panic").is_err(), "it says that it was interrupted");
                assert_eq!(weeks().await[0], (monday.clone(), Some(false), false), "and left something behind");
                own.store.check_schema().await.expect("which harms nobody");
            } else {
                side.batch_execute("COMMIT").await.expect("an end");
                assert_eq!(call.await.expect("no panic").expect("the rest"), [0; 0]);
            }
        }
        own.store.ensure_weeks(week().plus(1), week().plus(1)).await.expect("room");
        let whole = |name: &str| (name.to_owned(), Some(true), true);
        let undated = whole("processed_kafka_events_undated");
        assert_eq!(weeks().await, [whole(&monday), whole("processed_kafka_events_20260105"), undated]);
        assert_eq!(own.store.migrate().await.expect("nothing is left to do"), [0; 0]);
        assert_eq!(other.query_one(DELETE_UNSENT_2, &[]).await.expect("a count").get::<_, i64>(0), 2);
        let before = Run { lane: LaneId(8), token: Token(12), ..Run::of("one") };
        let next = Run { lane: LaneId(1 << 40), ..before.next() };
        let taken = next.take(&*own.store, Some(&before), None, LONG).await.expect("the slot");
        assert_eq!(taken, semel::store::slots::TakenSlot::Taken { released: 1 });
    });
}

const PREDECESSOR: &str = r#"
    CREATE TABLE processed_kafka_events (
        consumer_scope_id varchar(200) NOT NULL,
        event_id text NOT NULL,
        week_start date NOT NULL,
        topic text NOT NULL,
        "partition" int NOT NULL,
        "offset" bigint NOT NULL,
        first_seen_at timestamptz NOT NULL DEFAULT now(),
        handler text,
        PRIMARY KEY (consumer_scope_id, event_id, week_start)
    ) PARTITION BY RANGE (week_start);
    CREATE TABLE events_december PARTITION OF processed_kafka_events FOR VALUES FROM ('2025-12-01') TO ('2026-01-01');
    INSERT INTO processed_kafka_events VALUES ('billing', 'old', '2025-12-29', 'orders', 1, 42);
"#;

/// Its rows are duplicates for ever, its partitions take claims and retire, whatever they span.
#[test]
fn adopts_a_predecessor() {
    run(async || {
        let own = Own::empty().await;
        let side = own.side().await;
        side.batch_execute(PREDECESSOR).await.expect("a table");
        own.store.migrate().await.expect("adopted");
        let december: Vec<_> = (-4..=0).map(|n| week().plus(n)).collect();
        assert_eq!(own.store.weeks().await.expect("weeks")[1..], december);
        own.store.ensure_weeks(week().plus(-5), week().plus(1)).await.expect("room on both sides");
        let settled = Claimed::Held(Holder { lane: None, position: 42 });
        let rows = [trying("old", week()), trying("new", week().plus(-5)), trying("new", week().plus(1))];
        let answers = own.store.try_claim(&rows, NOW).await.expect("claims");
        assert_eq!(answers, [settled, Claimed::Inserted, Claimed::Inserted]);
        let writer = Writer::open(&*own.store, "stream").await;
        let answers = writer.claim(&*own.store, &["fresh", "old"], 41).await.expect("a claim");
        assert_eq!((of(&answers, "fresh"), of(&answers, "old")), (Claimed::Inserted, settled));
        let bare = semel::store::TryClaim { partition: None, offset: None, ..trying("bare", week()) };
        assert_eq!(own.store.try_claim(&[bare], NOW).await.expect("a claim"), [Claimed::Inserted]);
        let found = own.store.find(Some(&scope()), &id("old")).await.expect("claims");
        assert_eq!((found.len(), found[0].offset, found[0].stream.as_ref()), (1, Some(42), None));
        assert_eq!(
            own.store.retire_weeks(week()).await.expect("an answer"),
            [week().plus(-5)],
            "December has a kept week"
        );
        assert_eq!(own.store.retire_weeks(week().plus(1)).await.expect("an answer"), december);
    });
}

/// What cannot be adopted is said, and nothing is changed.
#[test]
fn refuses_to_adopt() {
    run(async || {
        let default = "CREATE TABLE rest PARTITION OF processed_kafka_events DEFAULT";
        let cases = [
            (PREDECESSOR.replace("event_id, week_start)", "week_start, event_id)"), "its primary key"),
            (PREDECESSOR.replace("week_start date", "week_start timestamptz"), "its primary key"),
            (PREDECESSOR.replace("BY RANGE (week_start)", "BY RANGE (consumer_scope_id)"), "not partitioned"),
            (format!("{PREDECESSOR}; {default}"), "default partition"),
        ];
        for (table, expected) in cases {
            let own = Own::empty().await;
            let side = own.side().await;
            let table = match expected {
                "not partitioned" => table.split("CREATE TABLE events_december").next().expect("a table").to_owned(),
                _ => table,
            };
            side.batch_execute(&table).await.expect("a table");
            let error = own.store.migrate().await.expect_err("a refusal");
            assert!(matches!(error, StoreError::Rejected(_)) && told(&error).contains(expected), "{}", told(&error));
            assert_eq!(own.store.schema_version().await.expect("an answer"), None);
        }
    });
}
