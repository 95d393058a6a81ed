//! The plans that decide the speed, on partitions that were never analysed.

use super::super::kit::{room, week};
use super::{Own, run};
use semel::store::ClaimStore;

/// The losers' queries look up each key in the index of the asked weeks' partitions alone: empty, young or full, and
/// however many other weeks there are. Lanes are looked up by their ids.
#[test]
fn holders_are_looked_up() {
    looks_up(include_str!("../../../../src/store/postgres/sql/find_holders.sql"), &[]);
}

#[test]
fn what_is_in_the_way_is_looked_up() {
    looks_up(include_str!("../../../../src/store/postgres/sql/find_in_the_way.sql"), &["semel_lanes_pkey"]);
}

fn looks_up(query: &'static str, also: &'static [&'static str]) {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        own.store.ensure_weeks(week().plus(2), week().plus(30)).await.expect("room");
        let side = own.side().await;
        side.batch_execute("ALTER TABLE processed_kafka_events_20251229 SET (autovacuum_enabled = off)")
            .await
            .expect("set");
        // As statements without a name are planned: each time, for its values.
        side.batch_execute("SET plan_cache_mode = force_custom_plan").await.expect("set");
        let lanes = "ALTER TABLE semel_lanes SET (autovacuum_enabled = off);
            INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at)
            SELECT n, 'stream', 'billing', 'header:id', now() FROM generate_series(1, 2000) AS n";
        side.batch_execute(lanes).await.expect("lanes");
        side.batch_execute(&format!("PREPARE holders (text, text[], date[], date[]) AS {query}"))
            .await
            .expect("prepared");
        for rows in [0, 10, 50_000] {
            let fill = format!(
                "INSERT INTO processed_kafka_events
                     (consumer_scope_id, event_id, week_start, first_seen_at, lane, position)
                 SELECT 'billing', 'event ' || n, '2025-12-29', now(), 1, n FROM generate_series(1, {rows}) AS n
                 ON CONFLICT DO NOTHING"
            );
            side.batch_execute(&fill).await.expect("rows");
            for keys in [1, 5_000] {
                let ids = format!("string_to_array(rtrim(repeat('event 1,', {keys}), ','), ',')");
                let ask = format!(
                    "EXPLAIN EXECUTE holders ('billing', {ids}, array_fill(DATE '2025-12-29', ARRAY[{keys}]),
                     ARRAY[DATE '2025-12-29'])"
                );
                let plan: Vec<String> =
                    side.simple_query(&ask).await.expect("a plan").iter().filter_map(line).collect();
                let plan = plan.join("\n");
                assert!(
                    plan.contains("Index Scan using processed_kafka_events_20251229_pkey"),
                    "{rows} rows, {keys} keys:\n{plan}"
                );
                assert!(!plan.contains("Seq Scan"), "{rows} rows, {keys} keys:\n{plan}");
                also.iter().for_each(|index| assert!(plan.contains(index), "{rows} rows, {keys} keys:\n{plan}"));
                assert_eq!(plan.matches(" on processed_kafka_events").count(), 1, "{rows} rows, {keys} keys:\n{plan}");
            }
        }
    });
}

/// What takes, releases and sweeps slots finds their claims by lane and position, however many others there are: by
/// statements that were never analysed for, as the store sends them.
#[test]
fn claims_of_slots_are_looked_up() {
    const STATEMENTS: [(&str, &str, &str); 6] = [
        (include_str!("../../../../src/store/postgres/sql/read_slot.sql"), "text", "'slot 7'"),
        (
            include_str!("../../../../src/store/postgres/sql/release_window.sql"),
            "bigint, bigint, bigint, bigint[], bigint, bigint",
            "7, 7, 0, ARRAY[1, 2], 0, 90",
        ),
        (include_str!("../../../../src/store/postgres/sql/sweep_lane.sql"), "bigint", "7"),
        (
            include_str!("../../../../src/store/postgres/sql/delete_unsent.sql"),
            "bigint, bigint, bigint[]",
            "7, 0, ARRAY[1, 2]",
        ),
        (include_str!("../../../../src/store/postgres/sql/keep_published.sql"), "bigint, bigint[]", "7, ARRAY[1, 2]"),
        (include_str!("../../../../src/store/postgres/sql/delete_unsettled_of_slot.sql"), "bigint, bigint", "7, 0"),
    ];
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let side = own.side().await;
        side.batch_execute(
            "ALTER TABLE processed_kafka_events_20251229 SET (autovacuum_enabled = off);
             SET plan_cache_mode = force_custom_plan;
             INSERT INTO semel_streams (stream, owner, open_lane)
             SELECT 'slot ' || n, n, n FROM generate_series(1, 100) AS n;
             INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at, settled, lease_until)
             SELECT n, 'slot ' || n, 'billing', 'header:id', now(), 0, now() FROM generate_series(1, 100) AS n",
        )
        .await
        .expect("slots");
        for rows in [1_000, 200_000] {
            let fill = format!(
                "INSERT INTO processed_kafka_events
                     (consumer_scope_id, event_id, week_start, first_seen_at, lane, position, \"offset\")
                 SELECT 'billing', 'event ' || n, '2025-12-29', now(), n % 100, n / 100,
                     CASE WHEN n % 100 > 50 THEN n END
                 FROM generate_series(1, {rows}) AS n
                 ON CONFLICT DO NOTHING"
            );
            side.batch_execute(&fill).await.expect("rows");
            for (statement, types, values) in STATEMENTS {
                side.batch_execute(&format!("DEALLOCATE ALL; PREPARE ask ({types}) AS {statement}"))
                    .await
                    .expect("prepared");
                let ask = format!("EXPLAIN EXECUTE ask ({values})");
                let plan: Vec<String> =
                    side.simple_query(&ask).await.expect("a plan").iter().filter_map(line).collect();
                let plan = plan.join("\n");
                assert!(
                    !plan.contains("Seq Scan on processed_kafka_events_20251229"),
                    "{rows} rows: {statement}\n{plan}"
                );
                assert!(plan.contains("processed_kafka_events_20251229_lane_position_idx"), "{statement}\n{plan}");
            }
        }
    });
}

fn line(message: &tokio_postgres::SimpleQueryMessage) -> Option<String> {
    match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }
}
