use std::collections::BTreeSet;

use super::super::testing::given;
use super::super::values::Values;
use super::*;

const NATS: &str = "nats://h?subject=orders";

fn read(changes: &[(&str, &str)]) -> Result<IngestConfig, Vec<String>> {
    let base = [
        ("SEMEL_SOURCE", ""),
        ("SEMEL_DEAD_LETTER", ""),
        ("SEMEL_EVENT_ID", ""),
        ("SEMEL_SINK", NATS),
        ("SEMEL_INGEST_KEYS", "/keys.json"),
    ];
    let changes: Vec<(&str, &str)> = base.iter().chain(changes).copied().collect();
    IngestConfig::of(given(&changes)).map_err(|ConfigError(problems)| problems)
}

fn config(changes: &[(&str, &str)]) -> IngestConfig {
    read(changes).unwrap_or_else(|problems| panic!("{changes:?}: {problems:?}"))
}

fn problems(changes: &[(&str, &str)]) -> Vec<String> {
    read(changes).err().unwrap_or_default()
}

#[test]
fn what_is_required_is_enough() {
    let config = config(&[]);
    assert_eq!((config.pipeline.as_str(), config.instance.as_str()), ("ingest", "this-host"));
    assert_eq!(config.extraction.recipe().to_string(), "header:Idempotency-Key|json:/id");
    assert_eq!((config.lanes, config.window_records_max, config.lease), (8, 256, Duration::from_secs(30)));
    assert_eq!(config.listen.to_string(), "127.0.0.1:7980");
    let missing: Vec<String> = problems(&[("SEMEL_SINK", ""), ("SEMEL_STORE", ""), ("SEMEL_INGEST_KEYS", "")]);
    let told: Vec<&str> = missing.iter().map(|problem| problem.split(':').next().unwrap_or_default()).collect();
    assert_eq!(told, ["SEMEL_SINK", "SEMEL_STORE", "SEMEL_INGEST_KEYS"]);
}

#[test]
fn every_setting_says_something_and_is_read() {
    let changed = [
        ("SEMEL_INGEST_LISTEN", "127.0.0.1:1"),
        ("SEMEL_INGEST_KEYS", "/other.json"),
        ("SEMEL_INGEST_UNDEDUPED", "acme/logs"),
        ("SEMEL_INGEST_RETENTION", "acme/logs=7d"),
        ("SEMEL_INGEST_SCHEMAS", "acme/logs=/schema.json"),
        ("SEMEL_INGEST_LANES", "3"),
        ("SEMEL_INGEST_WINDOW", "100"),
        ("SEMEL_INGEST_RECORD_BYTES", "1MiB"),
        ("SEMEL_INGEST_DOCUMENT_BYTES", "1MiB"),
        ("SEMEL_INGEST_STREAM_BYTES", "1MiB"),
        ("SEMEL_INGEST_TIMEOUT", "1m"),
        ("SEMEL_INGEST_CONNECTIONS", "7"),
        ("SEMEL_SCOPE", "other"),
        ("SEMEL_PIPELINE", "other"),
        ("SEMEL_INSTANCE", "other"),
        ("SEMEL_GRACE", "1m"),
        ("SEMEL_SINK", "amqp://u:p@h?queue=q"),
        ("SEMEL_LEASE", "1m"),
        ("SEMEL_PUBLISH_TIMEOUT", "1s"),
        ("SEMEL_STORE", "embedded:/claims"),
        ("SEMEL_EVENT_ID", "json:/key"),
        ("SEMEL_HTTP", "off"),
        ("SEMEL_LOG", "debug"),
        ("SEMEL_LOG_FORMAT", "json"),
    ];
    let base = format!("{:?}", config(&[]));
    for change in changed {
        assert_ne!(format!("{:?}", config(&[change])), base, "{change:?}");
    }
    let tried: BTreeSet<&str> = changed.iter().map(|(name, _)| *name).collect();
    let missing: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).filter(|name| !tried.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
    let (values, _) = Values::gather(given(&[("SEMEL_SINK", NATS)]));
    let reader = Reader::new(&values, Command::Ingest);
    IngestConfig::parts(&reader);
    let (_, read) = reader.finish();
    let shared = SHARED.iter().filter(|setting| ![CONFIG.name, PIPELINE.name].contains(&setting.name));
    let all = SETTINGS.iter().chain(shared).map(|setting| setting.name);
    assert_eq!(all.filter(|name| !read.contains(name)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn what_is_refused() {
    let long = "s".repeat(126);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SEMEL_SCOPE", &long)],
            "SEMEL_SCOPE (environment): it is so long that it leaves no room for a tenant and a table",
        ),
        (&[("SEMEL_PIPELINE", "a/b")], "SEMEL_PIPELINE (environment): there is a `/` in it"),
        (&[("SEMEL_INGEST_LISTEN", "off")], "SEMEL_INGEST_LISTEN (environment): nothing would be listened to"),
        (
            &[("SEMEL_LEASE", "5s"), ("SEMEL_PUBLISH_TIMEOUT", "5s")],
            "SEMEL_PUBLISH_TIMEOUT (environment): 5s is not shorter than SEMEL_LEASE, 5s: others could take over what is \
             being published",
        ),
        (
            &[("SEMEL_MODE", "observe")],
            "SEMEL_MODE (environment): it has no effect: `semel ingest` takes records by HTTP, and they have no time",
        ),
        (&[("SEMEL_KAFKA_ACKS", "1")], "SEMEL_KAFKA_ACKS (environment): it has no effect: there is no Kafka here"),
        (&[("SEMEL_INGEST_LANES", "0")], "SEMEL_INGEST_LANES (environment): `0` is not a whole number from 1 to 64"),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
    let accepted = config(&[]).extraction.digest();
    assert!(config(&[("SEMEL_ACCEPT_RECIPE", &accepted)]).accept_change);
    assert_eq!(problems(&[("SEMEL_ACCEPT_RECIPE", "0")]).len(), 1);
}

#[test]
fn into_kafka() {
    const KAFKA: (&str, &str) = ("SEMEL_SINK", "kafka://k:9092/orders");
    let read = config(&[KAFKA, ("SEMEL_TRANSACTION_TIMEOUT", "7s"), ("SEMEL_SINK_KAFKA_LINGER_MS", "3")]);
    assert_eq!(read.publish_timeout, Duration::from_secs(7));
    let Sink::Kafka(kafka) = &read.sink else { panic!("{:?}", read.sink) };
    assert_eq!((kafka.topic.as_str(), &kafka.brokers[..]), ("orders", &["k:9092".to_owned()][..]));
    assert_eq!(kafka.properties.0.get("linger.ms").map(String::as_str), Some("3"));
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[KAFKA, ("SEMEL_TRANSACTION_TIMEOUT", "30s")],
            "SEMEL_TRANSACTION_TIMEOUT (environment): 30s is not shorter than SEMEL_LEASE, 30s: others could take over \
             what is being published",
        ),
        (
            &[KAFKA, ("SEMEL_PUBLISH_TIMEOUT", "5s")],
            "SEMEL_PUBLISH_TIMEOUT (environment): it has no effect: into Kafka SEMEL_TRANSACTION_TIMEOUT says it",
        ),
        (
            &[KAFKA, ("SEMEL_SOURCE_KAFKA_CLIENT_ID", "a")],
            "SEMEL_SOURCE_KAFKA_CLIENT_ID (environment): it has no effect: the source is not Kafka",
        ),
        (
            &[("SEMEL_TRANSACTION_TIMEOUT", "5s")],
            "SEMEL_TRANSACTION_TIMEOUT (environment): it has no effect: there is no Kafka here",
        ),
        (
            &[("SEMEL_SINK", "kafka:///orders")],
            "SEMEL_SINK (environment): it names no broker, and the source has none that it could take",
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
}

#[test]
fn pipelines_have_no_use_for_it() {
    let own = ("SEMEL_INGEST_WINDOW", "5");
    let right = "SEMEL_INGEST_WINDOW (environment): it has no effect: it is for `semel ingest`";
    assert_eq!(super::super::testing::problems(&[own]), [right]);
}
