use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::testing::{BASE, config, elsewhere, given, problems};
use super::*;
use crate::config::operator::OperatorConfig;
use crate::config::pipe::PipeConfig;
use crate::config::route::Route;
use crate::config::store::Store;

#[test]
fn what_is_required_is_enough() {
    let config = config(&[]).expect("valid");
    assert_eq!(config.source.brokers, ["h1:9092", "h2:9092"]);
    assert_eq!(config.sink.brokers, config.source.brokers, "those of the source");
    assert_eq!(config.identity.transactional_id(0), "semel.g.this-host.0", "pipeline, instance, worker");
    assert_eq!(config.http.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:7979"));
    let Store::Postgres(postgres) = config.store else { panic!("PostgreSQL was asked for") };
    assert_eq!(postgres.url, "postgres://u:hidden@db/claims");
}

#[test]
fn what_is_missing_is_told_at_once() {
    let missing: Vec<(&str, &str)> = BASE.iter().map(|(name, _)| (*name, "")).collect();
    let problems = problems(&missing);
    let told: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().unwrap_or_default()).collect();
    assert_eq!(
        told,
        ["SEMEL_SOURCE", "SEMEL_SINK", "SEMEL_DEAD_LETTER", "SEMEL_SCOPE", "SEMEL_STORE", "SEMEL_EVENT_ID"]
    );
    assert!(problems[3..].iter().all(|problem| problem.contains("it must be given")), "{problems:?}");
}

/// A setting, another value than its default, and what else it needs.
type Changed = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const CHANGED: &[Changed] = &[
    ("SEMEL_SCOPE", "other", &[]),
    (
        "SEMEL_BROADCAST",
        "true",
        &[("POD_NAME", "p-0"), ("SEMEL_SCOPE", "s-${POD_NAME}"), ("SEMEL_SOURCE", "kafka://h/in?group=g-${POD_NAME}")],
    ),
    ("SEMEL_ALLOW_SHARED_SCOPE", "true", &[]),
    ("SEMEL_PIPELINE", "orders", &[]),
    ("SEMEL_INSTANCE", "one", &[]),
    ("SEMEL_WORKERS", "2", &[]),
    ("SEMEL_GRACE", "1m", &[]),
    ("SEMEL_SOURCE", "kafka://h1/in,in2?group=g", &[]),
    ("SEMEL_START", "latest", &[]),
    ("SEMEL_ASSIGNMENT", "cooperative", &[]),
    ("SEMEL_SESSION_TIMEOUT", "6s", &[]),
    ("SEMEL_FETCH_AHEAD", "1MiB", &[]),
    ("SEMEL_SINK", "kafka://h1/out?partition=same", &[]),
    ("SEMEL_TRANSACTION_TIMEOUT", "10s", &[]),
    ("SEMEL_DEAD_LETTER", "dead2", &[]),
    ("SEMEL_DUPLICATES_TOPIC", "twice", &[("SEMEL_DUPLICATES", "route")]),
    ("SEMEL_STORE", "embedded:./claims", &[]),
    ("SEMEL_STORE_CONNECTIONS", "2", &[]),
    ("SEMEL_STORE_CONNECT_TIMEOUT", "2s", &[]),
    ("SEMEL_STORE_TCP_TIMEOUT", "2s", &[]),
    ("SEMEL_STORE_LOCK_TIMEOUT", "2s", &[]),
    ("SEMEL_STORE_STATEMENT_TIMEOUT", "20s", &[]),
    ("SEMEL_STORE_SCAN_TIMEOUT", "20s", &[]),
    ("SEMEL_EVENT_ID", "key", &[]),
    ("SEMEL_EVENT_TIME", "json:/at", &[]),
    ("SEMEL_ACCEPT_RECIPE", "1c1cce40c33439d7", &[]),
    ("SEMEL_MODE", "observe", &[]),
    ("SEMEL_MISSING_ID", "stop", &[]),
    ("SEMEL_MISSING_TIME", "forward", &[]),
    ("SEMEL_OLD_EVENT", "stop", &[]),
    ("SEMEL_FUTURE_EVENT", "stop", &[]),
    ("SEMEL_OVERSIZE", "stop", &[]),
    ("SEMEL_DUPLICATES", "mark", &[]),
    ("SEMEL_STORE_AWAY", "forward", &[]),
    ("SEMEL_WINDOW_SIZE", "1", &[]),
    ("SEMEL_WINDOW_BYTES", "1MiB", &[]),
    ("SEMEL_LINGER", "0ms", &[]),
    ("SEMEL_RECENT_IDS", "0", &[]),
    ("SEMEL_RETENTION_WEEKS", "60", &[]),
    ("SEMEL_WEEKS_AHEAD", "1", &[]),
    ("SEMEL_LONGEST_OUTAGE", "1d", &[]),
    (
        "SEMEL_OAUTH_TOKEN_FILE",
        "/token",
        &[("SEMEL_KAFKA_SECURITY_PROTOCOL", "SASL_SSL"), ("SEMEL_KAFKA_SASL_MECHANISM", "OAUTHBEARER")],
    ),
    ("SEMEL_HTTP", "off", &[]),
    ("SEMEL_LOG", "debug,semel::store=trace", &[]),
    ("SEMEL_LOG_FORMAT", "human", &[]),
];

/// Every field of a configuration that is not a secret.
fn shown(config: &Config) -> String {
    match &config.store {
        Store::Postgres(store) => {
            let limits = (store.connections, store.connect_timeout, store.tcp_timeout);
            let more = (store.lock_timeout, store.statement_timeout, store.scan_timeout);
            format!("{config:?} {limits:?} {more:?}")
        }
        Store::Embedded { .. } => format!("{config:?}"),
    }
}

#[test]
fn every_setting_says_something() {
    let base = shown(&config(&[]).expect("valid"));
    for (name, value, needed) in CHANGED {
        let mut changes = needed.to_vec();
        let before = config(&changes).map(|config| shown(&config)).unwrap_or_else(|_| base.clone());
        changes.push((name, value));
        let after = shown(&config(&changes).unwrap_or_else(|error| panic!("{name}={value}: {error}")));
        assert_ne!(before, after, "{name}={value} changes nothing");
    }
    let tried: BTreeSet<&str> = CHANGED.iter().map(|(name, ..)| *name).chain(elsewhere()).collect();
    let all: BTreeSet<&str> = settings().map(|setting| setting.name).filter(|name| *name != CONFIG.name).collect();
    assert_eq!(tried, all, "every setting is tried, here or in the tests of leased pipelines and of ingest");
}

#[test]
fn every_setting_is_read() {
    let (values, _) = Values::gather(given(&[]));
    let reader = Reader::new(&values, Command::Run);
    assert!(Config::parts(&reader).is_some());
    let (_, read) = reader.finish();
    let is_elsewhere = |name: &str| name == CONFIG.name || elsewhere().any(|other| other == name);
    let all = settings().map(|setting| setting.name).filter(|name| !is_elsewhere(name));
    assert_eq!(read, all.collect());
}

#[test]
fn values_that_are_refused() {
    let cases: &[(&str, &str, &str)] = &[
        ("SEMEL_SCOPE", " ", "the scope is blank"),
        ("SEMEL_SCOPE", "a\nb", "the scope has a control character in it"),
        ("SEMEL_BROADCAST", "yes", "`yes` is neither true nor false"),
        ("SEMEL_PIPELINE", " ", "it is blank"),
        ("SEMEL_INSTANCE", "a\tb", "there is a control character in it"),
        ("SEMEL_WORKERS", "0", "`0` is not a whole number from 1 to 64"),
        ("SEMEL_WORKERS", "two", "`two` is not a whole number from 1 to 64"),
        ("SEMEL_GRACE", "30", "`30` is not a whole number with its unit (ms, s, m, h, d)"),
        ("SEMEL_GRACE", "2h", "`2h` is not between 1s and 1h"),
        ("SEMEL_SOURCE", "kafka://h/in", "it names no group (`?group=…`)"),
        ("SEMEL_SOURCE", "kafka:///in?group=g", "it names no broker"),
        ("SEMEL_SOURCE", "amqp://h/in", "it must begin with kafka://"),
        (
            "SEMEL_SOURCE",
            "http://h/in",
            "it must begin with one of kafka://, amqp://, amqps://, nats://, stdin:, file:",
        ),
        (
            "SEMEL_SOURCE",
            "kafka://h/in?group=g.settled",
            "a group whose name ends in `.settled` holds the settled offsets of another",
        ),
        ("SEMEL_START", "now", "`now` is none of earliest, latest"),
        ("SEMEL_ASSIGNMENT", "Eager", "`Eager` is none of eager, cooperative"),
        ("SEMEL_SESSION_TIMEOUT", "0s", "`0s` is not between 1s and 30m"),
        ("SEMEL_FETCH_AHEAD", "16MB", "`16MB` is not a whole number with its unit (B, KiB, MiB, GiB)"),
        ("SEMEL_SINK", "kafka:///a,b", "it names one topic"),
        ("SEMEL_SINK", "kafka:///out?partition=crc32", "`partition=crc32` is neither murmur2 nor same"),
        ("SEMEL_SINK", "kafka:///out?group=g", "it takes partition and not `group`"),
        ("SEMEL_DEAD_LETTER", "a/b", "`a/b` is no name for a topic (letters, digits, `.`, `_`, `-`)"),
        ("SEMEL_STORE", "mysql://u:hidden@h/db", "it begins with neither postgres:// nor embedded:"),
        ("SEMEL_STORE", "postgres://u:hid den@h/db", "there is white space in it"),
        ("SEMEL_STORE", "embedded:", "it names no folder"),
        ("SEMEL_STORE_CONNECTIONS", "0", "`0` is not a whole number from 1 to 1000"),
        (
            "SEMEL_EVENT_ID",
            "json:/id|jsn:/x",
            "`json:/id|jsn:/x`, column 10: `jsn:/x` is none of header:NAME, key, json:/pointer, cloudevents, digest",
        ),
        ("SEMEL_EVENT_TIME", "now", "`now`, column 1: `now` is none of record, header:NAME, json:/pointer, id, none"),
        ("SEMEL_ACCEPT_RECIPE", "0000000000000000", "it accepts another recipe; the present one is 1c1cce40c33439d7"),
        ("SEMEL_MODE", "observer", "`observer` is none of enforce, observe"),
        ("SEMEL_MISSING_ID", "drop", "`drop` is none of reject, forward, stop"),
        ("SEMEL_OVERSIZE", "forward", "`forward` is none of reject, stop"),
        ("SEMEL_DUPLICATES", "keep", "`keep` is none of drop, route, mark"),
        ("SEMEL_STORE_AWAY", "drop", "`drop` is none of block, forward"),
        ("SEMEL_WINDOW_SIZE", "1000001", "`1000001` is not a whole number from 1 to 1000000"),
        ("SEMEL_LINGER", "1m", "`1m` is not between 0ms and 10s"),
        ("SEMEL_RETENTION_WEEKS", "0", "`0` is not a whole number from 1 to 1040"),
        ("SEMEL_HTTP", "localhost:80", "`localhost:80` is not ADDRESS:PORT in digits, nor off"),
        ("SEMEL_LOG", "verbose", "`verbose` is neither a level nor MODULE=LEVEL"),
        ("SEMEL_LOG", "info,", "`` is neither a level nor MODULE=LEVEL"),
        ("SEMEL_LOG", "semel=3", "`semel=3` is neither a level nor MODULE=LEVEL"),
        ("SEMEL_LOG_FORMAT", "xml", "`xml` is none of auto, json, human"),
    ];
    for (name, value, right) in cases {
        assert_eq!(problems(&[(name, value)]), [format!("{name} (environment): {right}")], "{name}={value}");
    }
}

#[test]
fn what_does_not_go_together() {
    let pod = ("POD_NAME", "notify-7");
    let all_stop = [
        ("SEMEL_MISSING_ID", "stop"),
        ("SEMEL_MISSING_TIME", "stop"),
        ("SEMEL_OLD_EVENT", "stop"),
        ("SEMEL_FUTURE_EVENT", "forward"),
        ("SEMEL_OVERSIZE", "stop"),
    ];
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SEMEL_SINK", "kafka:///in")],
            "SEMEL_SINK (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (
            &[("SEMEL_SINK", "kafka://elsewhere:1/in")],
            "SEMEL_SINK (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (
            &[("SEMEL_DEAD_LETTER", "in")],
            "SEMEL_DEAD_LETTER (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (&[("SEMEL_DEAD_LETTER", "out")], "SEMEL_DEAD_LETTER (environment): out is SEMEL_SINK's topic already"),
        (
            &[("SEMEL_DUPLICATES", "route"), ("SEMEL_DUPLICATES_TOPIC", "dead")],
            "SEMEL_DUPLICATES_TOPIC (environment): dead is SEMEL_DEAD_LETTER's topic already",
        ),
        (&[("SEMEL_DUPLICATES", "route")], "SEMEL_DUPLICATES_TOPIC: SEMEL_DUPLICATES=route needs it"),
        (
            &[("SEMEL_DUPLICATES_TOPIC", "twice")],
            "SEMEL_DUPLICATES_TOPIC (environment): it has no effect: SEMEL_DUPLICATES is not route",
        ),
        (
            &[("SEMEL_DEAD_LETTER", ""), ("SEMEL_MISSING_ID", "stop"), ("SEMEL_MISSING_TIME", "stop")],
            "SEMEL_DEAD_LETTER: it must be given, since these reject: SEMEL_OLD_EVENT, SEMEL_FUTURE_EVENT, SEMEL_OVERSIZE",
        ),
        (&all_stop, "SEMEL_DEAD_LETTER (environment): it has no effect: no policy rejects"),
        (
            &[("SEMEL_MODE", "observe"), ("SEMEL_DUPLICATES", "mark")],
            "SEMEL_DUPLICATES (environment): it has no effect: SEMEL_MODE=observe marks duplicates and forwards them",
        ),
        (
            &[("SEMEL_EVENT_TIME", "none"), ("SEMEL_OLD_EVENT", "stop")],
            "SEMEL_OLD_EVENT (environment): it has no effect: SEMEL_EVENT_TIME is none",
        ),
        (
            &[("SEMEL_EVENT_ID", "digest"), ("SEMEL_EVENT_TIME", "id")],
            "SEMEL_EVENT_TIME (environment): there is no time inside a digest",
        ),
        (
            &[("SEMEL_STORE", "embedded:./claims"), ("SEMEL_STORE_CONNECTIONS", "2")],
            "SEMEL_STORE_CONNECTIONS (environment): it has no effect: the store is embedded",
        ),
        (
            &[("SEMEL_STORE_LOCK_TIMEOUT", "1m")],
            "SEMEL_STORE_LOCK_TIMEOUT (environment): it is longer than SEMEL_STORE_STATEMENT_TIMEOUT: the statement that \
             waits for the lock would be ended first",
        ),
        (
            &[("SEMEL_GRACE", "10s")],
            "SEMEL_GRACE (environment): 10s is shorter than SEMEL_TRANSACTION_TIMEOUT, 15s: a drain could leave its last \
             transaction open",
        ),
        (
            &[("SEMEL_RETENTION_WEEKS", "1")],
            "SEMEL_RETENTION_WEEKS (environment): 7d (1 week) is less than SEMEL_LONGEST_OUTAGE, 7d, and 25s more, for \
             which an instance that lost its connections may go on",
        ),
        (&[("SEMEL_BROADCAST", "true")], "SEMEL_BROADCAST (environment): it needs the pod's name in POD_NAME"),
        (
            &[pod, ("SEMEL_BROADCAST", "true"), ("SEMEL_SOURCE", "kafka://h/in?group=g-${POD_NAME}")],
            "SEMEL_SCOPE (environment): with SEMEL_BROADCAST it must hold the pod's name notify-7",
        ),
        (
            &[pod, ("SEMEL_BROADCAST", "true"), ("SEMEL_SCOPE", "s-${POD_NAME}")],
            "SEMEL_SOURCE (environment): the group must hold the pod's name notify-7: a scope of each pod's own needs a \
             group of each pod's own",
        ),
        (
            &[pod, ("SEMEL_SCOPE", "s-${POD_NAME}")],
            "SEMEL_SOURCE (environment): the group must hold the pod's name notify-7: a scope of each pod's own needs a \
             group of each pod's own",
        ),
        (
            &[pod, ("SEMEL_SOURCE", "kafka://h/in?group=g-${POD_NAME}")],
            "SEMEL_SCOPE (environment): it must hold the pod's name notify-7 as the group does: groups of the pods' own \
             with one scope for all give each event to one pod only",
        ),
        (
            &[
                ("POD_NAME", "notify-5d8f9c7b6d-x2k4q"),
                ("SEMEL_BROADCAST", "true"),
                ("SEMEL_SCOPE", "s-${POD_NAME}"),
                ("SEMEL_SOURCE", "kafka://h/in?group=g-${POD_NAME}"),
            ],
            "SEMEL_BROADCAST (environment): the pod's name notify-5d8f9c7b6d-x2k4q is not stable: a pod of a Deployment \
             has a new name after each restart; use a StatefulSet",
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
}

#[test]
fn combinations_that_are_sound() {
    let cases: &[&[(&str, &str)]] = &[
        &[("SEMEL_STORE", "embedded:./claims")],
        &[("SEMEL_GRACE", "15s")],
        &[("SEMEL_RETENTION_WEEKS", "1"), ("SEMEL_LONGEST_OUTAGE", "6d")],
        &[("POD_NAME", "notify-7")],
        &[("SEMEL_EVENT_ID", "digest|key"), ("SEMEL_EVENT_TIME", "id")],
        &[("SEMEL_EVENT_TIME", "none")],
        &[("SEMEL_SOURCE", "kafka://h/in?group=g"), ("SEMEL_SINK", "kafka://h/in-once")],
    ];
    for changes in cases {
        assert_eq!(problems(changes), Vec::<String>::new(), "{changes:?}");
    }
}

#[test]
fn the_longest_wait_is_what_it_says() {
    let config = config(&[("SEMEL_LONGEST_OUTAGE", "36h")]).expect("valid");
    assert_eq!(config.retention.longest_outage, Duration::from_secs(36 * 3600));
}

proptest! {
    #[test]
    fn any_environment_is_read_without_a_panic(
        which in prop::collection::vec((0..200_usize, "[ -~é]{0,20}"), 0..6),
        name in "SEMEL_[A-Z_]{0,20}",
        text in any::<String>(),
    ) {
        let names: Vec<&str> = settings().map(|setting| setting.name).collect();
        let mut given = given(&[(&name, &text)]);
        for (n, text) in which {
            given.environment.insert(names[n % names.len()].into(), text.replace("SEMEL_CONFIG", ""));
        }
        given.environment.remove("SEMEL_CONFIG");
        let _ = (Route::of(given.clone()), PipeConfig::of(given.clone()), OperatorConfig::of(given));
    }

    /// Wherever a secret was put, and whatever else is wrong.
    #[test]
    fn no_secret_is_shown(form in 0..11_usize, wrong in 0..4_usize, before in "[a-z:/?#@%&=]{0,3}") {
        let secret = format!("{before}qX7-secret");
        let (name, value) = match form {
            0 => ("SEMEL_STORE", format!("postgres://u:{secret}@h/db")),
            1 => ("SEMEL_STORE", format!("postgres://h/db?password={secret}")),
            2 => ("SEMEL_STORE", format!("mysql://u:{secret}@h/db")),
            3 => ("SEMEL_KAFKA_SASL_PASSWORD", secret.clone()),
            4 => ("SEMEL_SINK_KAFKA_SSL_KEY_PASSWORD", secret.clone()),
            5 => ("SEMEL_SOURCE", format!("amqp://u:{secret}@h/v?queue=q")),
            6 => ("SEMEL_SOURCE", format!("nats://u:{secret}@h?stream=s&consumer=c")),
            7 => ("SEMEL_SOURCE_PASSWORD", secret.clone()),
            8 => ("SEMEL_SINK_PASSWORD", secret.clone()),
            9 => ("SEMEL_SINK", format!("amqp://u:{secret}@h/v?queue=q")),
            _ => ("SEMEL_SOURCE", format!("kafka://u:{secret}@h/in?group=g")),
        };
        let others = [("SEMEL_LOG", "info"), ("SEMEL_WORKERS", "0"), ("SEMEL_SINK", "kafka:///in"), ("SEMEL_SKOPE", "x")];
        let given = given(&[(name, &value), others[wrong]]);
        let (values, _) = Values::gather(given.clone());
        let listed = format!("{:?}", schema::show(&values, Command::Run));
        let read = format!("{:?} {:?} {values:?}", Route::of(given.clone()), OperatorConfig::of(given));
        for text in [listed, read] {
            prop_assert!(!text.contains("qX7-secret"), "{}={} is seen in {}", name, value, text);
        }
    }
}
