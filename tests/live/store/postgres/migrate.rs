//! Making the schema, refusing another, adopting the table of the guard that came before.

use semel::protocol::lane::{Holder, LaneId, StreamId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::postgres::migrate::SCHEMA_VERSION;
use semel::store::slots::Reserved;
use semel::store::{ClaimStore, StoreError};
use sha2::Digest;

use super::super::kit::{NOW, Writer, id, of, scope, trying, week};
use super::super::slots::{LONG, RUNS, Run};
use super::{Own, run, told};

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

/// From version 1 with rows in it: they are as they were, its pipeline goes on, and slots can be taken.
#[test]
fn from_version_1() {
    run(async || {
        let own = Own::empty().await;
        let side = own.side().await;
        let first = include_str!("../../../../migrations/0001_claims.sql");
        side.batch_execute(include_str!("../../../../src/store/postgres/sql/make_migrations.sql")).await.expect("made");
        side.batch_execute(first).await.expect("version 1");
        let digest = hex::encode(sha2::Sha256::digest(first));
        let record = format!("INSERT INTO semel_migrations (version, name, digest) VALUES (1, 'claims', '{digest}')");
        side.batch_execute(&format!("{record}; {VERSION_1}")).await.expect("rows");
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
