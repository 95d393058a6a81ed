//! What is promised, and the test that would fail if it did not hold: for every setting, and for every case that was
//! collected from reports about systems of this kind. The tests named here must be there.

use std::collections::BTreeSet;
use std::path::Path;

use semel::config::settings;

/// File and name of a test.
type Test = (&'static str, &'static str);

const POLICIES: &str = "tests/live/policies.rs";
const SETTINGS: &str = "tests/live/settings.rs";
const END_TO_END: &str = "tests/live/end_to_end.rs";
const CUTS: &str = "tests/live/cuts.rs";
const CONFIG: &str = "src/config/config_tests.rs";
const LEASED: &str = "src/config/leased_tests.rs";
const HANDOVERS: &str = "tests/live/from_kafka/handovers.rs";
const WIRING: &str = "src/pipeline/transactional/wiring_tests.rs";
const OPERATOR: &str = "tests/live/operator.rs";
const CHECK: &str = "tests/live/commands/check.rs";
const QUEUE_FAULTS: &str = "tests/live/queue_faults.rs";
const OUTAGE: &str = "tests/live/store/postgres/outage.rs";
const CLAIMS: &str = "tests/live/store/claims.rs";
const INGEST: &str = "src/config/ingest_tests.rs";
const INGEST_BINARY: &str = "tests/live/ingest/binary.rs";
const INGEST_BODIES: &str = "tests/live/ingest/bodies.rs";

/// Beside these, `every_setting_says_something` shows for each that another value changes the configuration.
const OF_SETTINGS: &[(&str, &[Test])] = &[
    ("SEMEL_SCOPE", &[(SETTINGS, "whose_events_they_are")]),
    ("SEMEL_BROADCAST", &[(CONFIG, "what_does_not_go_together")]),
    ("SEMEL_ALLOW_SHARED_SCOPE", &[(SETTINGS, "whose_events_they_are")]),
    ("SEMEL_PIPELINE", &[(SETTINGS, "whose_events_they_are"), (WIRING, "what_the_clients_are_told")]),
    (
        "SEMEL_INSTANCE",
        &[
            (SETTINGS, "whose_events_they_are"),
            (END_TO_END, "two_processes_with_one_name"),
            ("tests/live/clash.rs", "of_one_name"),
        ],
    ),
    ("SEMEL_WORKERS", &[(SETTINGS, "four_workers_on_two_connections")]),
    ("SEMEL_GRACE", &[(SETTINGS, "how_long_it_is_waited_for")]),
    ("SEMEL_SOURCE", &[(END_TO_END, "each_event_comes_through_once")]),
    ("SEMEL_SOURCE_PASSWORD", &[(LEASED, "passwords_reach_their_servers")]),
    ("SEMEL_START", &[(SETTINGS, "an_embedded_store_from_the_latest_on_and_seen_by_nobody")]),
    ("SEMEL_ASSIGNMENT", &[("tests/live/rebalance.rs", "cooperative"), (WIRING, "what_the_clients_are_told")]),
    ("SEMEL_SESSION_TIMEOUT", &[(SETTINGS, "how_long_it_is_waited_for")]),
    ("SEMEL_FETCH_AHEAD", &[(WIRING, "what_the_clients_are_told")]),
    ("SEMEL_SINK", &[(END_TO_END, "the_partition_number_is_kept_where_that_is_asked_for")]),
    ("SEMEL_SINK_PASSWORD", &[(LEASED, "passwords_reach_their_servers")]),
    (
        "SEMEL_TRANSACTION_TIMEOUT",
        &[
            (WIRING, "what_the_clients_are_told"),
            (CUTS, "the_broker_is_away_after_a_claim_for_longer_than_a_transaction_lasts"),
        ],
    ),
    ("SEMEL_DEAD_LETTER", &[(POLICIES, "rejected_and_duplicates_routed")]),
    ("SEMEL_DUPLICATES_TOPIC", &[(POLICIES, "rejected_and_duplicates_routed")]),
    (
        "SEMEL_LEASE",
        &[
            (LEASED, "times_say_something"),
            (LEASED, "what_does_not_go_together"),
            (HANDOVERS, "a_paused_instance_is_waited_for"),
        ],
    ),
    ("SEMEL_PUBLISH_TIMEOUT", &[(LEASED, "times_say_something"), (LEASED, "what_does_not_go_together")]),
    ("SEMEL_INGEST_LISTEN", &[(INGEST_BINARY, "records_by_http")]),
    ("SEMEL_INGEST_KEYS", &[(INGEST_BINARY, "records_by_http")]),
    ("SEMEL_INGEST_UNDEDUPED", &[(INGEST_BINARY, "records_by_http")]),
    ("SEMEL_INGEST_RETENTION", &[(INGEST_BINARY, "tables_settings")]),
    ("SEMEL_INGEST_SCHEMAS", &[(INGEST_BINARY, "tables_settings")]),
    ("SEMEL_INGEST_LANES", &[(INGEST_BINARY, "limits_of_the_binary")]),
    ("SEMEL_INGEST_WINDOW", &[(INGEST_BINARY, "limits_of_the_binary")]),
    ("SEMEL_INGEST_RECORD_BYTES", &[(INGEST_BINARY, "limits_of_the_binary")]),
    ("SEMEL_INGEST_DOCUMENT_BYTES", &[(INGEST_BINARY, "limits_of_the_binary"), (INGEST_BODIES, "bounds")]),
    ("SEMEL_INGEST_STREAM_BYTES", &[(INGEST_BINARY, "limits_of_the_binary"), (INGEST_BODIES, "bounds")]),
    ("SEMEL_INGEST_TIMEOUT", &[(INGEST_BINARY, "limits_of_the_binary"), (INGEST_BODIES, "bounds")]),
    ("SEMEL_INGEST_CONNECTIONS", &[(INGEST_BINARY, "limits_of_the_binary"), (INGEST, "what_is_refused")]),
    ("SEMEL_STORE", &[(SETTINGS, "an_embedded_store_from_the_latest_on_and_seen_by_nobody")]),
    ("SEMEL_STORE_CONNECTIONS", &[(SETTINGS, "four_workers_on_two_connections")]),
    ("SEMEL_STORE_CONNECT_TIMEOUT", &[(SETTINGS, "a_connection_is_not_waited_for_longer")]),
    // Its effect is the kernel's, on data that a dead network leaves unacknowledged.
    ("SEMEL_STORE_TCP_TIMEOUT", &[(WIRING, "what_the_store_is_told")]),
    ("SEMEL_STORE_LOCK_TIMEOUT", &[(SETTINGS, "four_workers_on_two_connections")]),
    ("SEMEL_STORE_STATEMENT_TIMEOUT", &[(WIRING, "what_the_store_is_told"), (OUTAGE, "limits")]),
    ("SEMEL_STORE_SCAN_TIMEOUT", &[(WIRING, "what_the_store_is_told"), (OUTAGE, "a_limit_for_scans")]),
    ("SEMEL_EVENT_ID", &[(POLICIES, "rejected_and_duplicates_routed"), (SETTINGS, "whose_events_they_are")]),
    ("SEMEL_EVENT_TIME", &[(POLICIES, "rejected_and_duplicates_routed")]),
    ("SEMEL_ACCEPT_RECIPE", &[(SETTINGS, "whose_events_they_are"), (CHECK, "compares_lanes_and_recipe")]),
    ("SEMEL_MODE", &[(POLICIES, "observed")]),
    ("SEMEL_MISSING_ID", POLICY),
    ("SEMEL_MISSING_TIME", POLICY),
    ("SEMEL_OLD_EVENT", POLICY),
    ("SEMEL_FUTURE_EVENT", POLICY),
    ("SEMEL_OVERSIZE", &[(POLICIES, "stopped"), ("tests/live/dead_letters.rs", "too_large_for_the_sink")]),
    (
        "SEMEL_DUPLICATES",
        &[
            (END_TO_END, "a_mixed_replay"),
            (POLICIES, "rejected_and_duplicates_routed"),
            (POLICIES, "forwarded_and_duplicates_marked"),
        ],
    ),
    ("SEMEL_STORE_AWAY", &[(POLICIES, "the_store_is_away")]),
    ("SEMEL_WINDOW_SIZE", &[(SETTINGS, "the_shape_of_windows")]),
    ("SEMEL_WINDOW_BYTES", &[(SETTINGS, "the_shape_of_windows")]),
    ("SEMEL_LINGER", &[(SETTINGS, "the_shape_of_windows")]),
    ("SEMEL_RECENT_IDS", &[(SETTINGS, "the_shape_of_windows")]),
    ("SEMEL_RETENTION_WEEKS", &[(POLICIES, "rejected_and_duplicates_routed")]),
    ("SEMEL_WEEKS_AHEAD", &[(POLICIES, "rejected_and_duplicates_routed")]),
    (
        "SEMEL_LONGEST_OUTAGE",
        &[(CHECK, "tells_everything_that_is_wrong_at_once"), (CONFIG, "what_does_not_go_together")],
    ),
    ("SEMEL_OAUTH_TOKEN_FILE", &[("src/kafka/client.rs", "a_token_is_read_anew_each_time")]),
    ("SEMEL_HTTP", &[(SETTINGS, "an_embedded_store_from_the_latest_on_and_seen_by_nobody")]),
    ("SEMEL_LOG", &[(SETTINGS, "an_embedded_store_from_the_latest_on_and_seen_by_nobody")]),
    ("SEMEL_LOG_FORMAT", &[(SETTINGS, "an_embedded_store_from_the_latest_on_and_seen_by_nobody")]),
    ("SEMEL_CONFIG", &[("src/config/values_tests.rs", "what_goes_over_what")]),
];

/// Reject, forward and stop.
const POLICY: &[Test] = &[
    (POLICIES, "rejected_and_duplicates_routed"),
    (POLICIES, "forwarded_and_duplicates_marked"),
    (POLICIES, "stopped"),
];

const OF_CASES: &[(&str, &[Test])] = &[
    ("a repeat inside one window", &[(END_TO_END, "a_repeat_inside_one_window")]),
    (
        "windows in opposite orders",
        &[(CLAIMS, "opposite_orders"), (END_TO_END, "two_workers_meet_the_same_ids_in_opposite_orders")],
    ),
    ("the week turned between two runs", &[(OPERATOR, "a_rewind_after_the_week_has_turned")]),
    (
        "weeks at the ends of years, in any time zone",
        &[
            ("tests/protocol/event.rs", "the_week_is_the_monday_at_or_before_the_event"),
            ("tests/live/store/weeks.rs", "boundaries"),
        ],
    ),
    ("no id, and composites of nulls", POLICY),
    ("a crash between claim and publish", &[("tests/live/crash.rs", "kills_on_the_sight_of_a_claim_and_of_a_commit")]),
    (
        "a retry after a publish that failed",
        &[(CUTS, "the_broker_is_away_after_a_claim_for_longer_than_a_transaction_lasts")],
    ),
    ("a replay of claimed and fresh ids", &[(END_TO_END, "a_mixed_replay")]),
    ("headers that repeat, are null or binary", &[(END_TO_END, "headers_tombstones_and_times")]),
    ("tombstones and empty values", &[(END_TO_END, "headers_tombstones_and_times")]),
    ("timestamps", &[(END_TO_END, "headers_tombstones_and_times")]),
    (
        "too large downstream",
        &[
            ("tests/live/dead_letters.rs", "too_large_for_the_sink"),
            ("tests/live/dead_letters.rs", "refused_by_the_broker_although_claimed"),
        ],
    ),
    (
        "store away before a queue that counts deliveries",
        &[(QUEUE_FAULTS, "a_store_that_is_away"), (QUEUE_FAULTS, "a_message_that_comes_often")],
    ),
    ("members that come and go", &[("tests/live/rebalance.rs", "eager"), ("tests/live/rebalance.rs", "cooperative")]),
    (
        "weeks made and dropped under load",
        &[
            ("tests/live/store/weeks.rs", "under_load"),
            ("tests/live/store/postgres/partitions.rs", "an_open_transaction_on_the_table"),
        ],
    ),
    ("a window of 22,000 rows", &[(CLAIMS, "big_window")]),
    (
        "a try claim where REPEATABLE READ is the default",
        &[("tests/live/store/operator.rs", "try_claims_at_once"), ("tests/live/store/subjects.rs", "postgres")],
    ),
    (
        "the producer timed out and the broker had stored it",
        &[(CUTS, "connections_to_kafka_are_cut_in_and_after_a_transaction")],
    ),
    (
        "the store is away",
        &[(POLICIES, "the_store_is_away"), ("tests/live/away.rs", "postgres_is_stopped_hard_and_started")],
    ),
    ("a setting without effect", &[(CONFIG, "every_setting_says_something"), (CONFIG, "every_setting_is_read")]),
];

/// A test by itself, or one of the stores' suite.
fn is_there((path, name): Test) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let text = read(path);
    let called = [format!("fn {name}("), format!("fn {name}<")];
    let Some((before, _)) = called.iter().find_map(|call| text.split_once(call.as_str())) else { return false };
    let is_marked = before.rsplit("\n\n").next().is_some_and(|near| near.contains("#[test]"));
    let suite = read("tests/live/store/mod.rs") + &read("tests/live/store/slots/mod.rs");
    let words = || suite.split(|c: char| !c.is_alphanumeric() && c != '_');
    is_marked || (path.starts_with("tests/live/store/") && words().any(|word| word == name))
}

#[test]
fn every_setting_has_a_test_of_its_effect() {
    let all: Vec<&str> = settings().map(|setting| setting.name).collect();
    let listed: Vec<&str> = OF_SETTINGS.iter().map(|(name, _)| *name).collect();
    let set = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(set(&listed), set(&all));
    assert_eq!(listed.len(), all.len(), "each once");
}

#[test]
fn the_named_tests_are_there() {
    let rows = OF_SETTINGS.iter().chain(OF_CASES);
    let missing: Vec<_> = rows
        .flat_map(|(what, tests)| tests.iter().filter(|test| !is_there(**test)).map(move |test| (what, test)))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(OF_SETTINGS.iter().chain(OF_CASES).all(|(_, tests)| !tests.is_empty()));
    assert!(!is_there((CONFIG, "no_such_test")) && !is_there((POLICIES, "messages")), "and the look at them is sharp");
}
