use std::collections::BTreeSet;

use super::super::testing::{self, LEASED, given};
use super::*;
use crate::config::mask::Secret;
use crate::config::operator::OperatorConfig;
use crate::config::route::Route;
use crate::config::values::Values;
use crate::config::{CONFIG, ConfigError, reader, settings};

/// From RabbitMQ to RabbitMQ, with these changes.
fn read(changes: &[(&str, &str)]) -> Result<LeasedConfig, Vec<String>> {
    let changes: Vec<(&str, &str)> = LEASED.iter().chain(changes).copied().collect();
    match Route::of(given(&changes)) {
        Ok(Route::Leased(config)) => Ok(*config),
        Ok(other) => panic!("another route: {other:?}"),
        Err(ConfigError(problems)) => Err(problems),
    }
}

fn config(changes: &[(&str, &str)]) -> LeasedConfig {
    read(changes).unwrap_or_else(|problems| panic!("{changes:?}: {problems:?}"))
}

fn problems(changes: &[(&str, &str)]) -> Vec<String> {
    read(changes).err().unwrap_or_default()
}

const NATS: (&str, &str) = ("SEMEL_SOURCE", "nats://h?stream=orders&consumer=once");
const STDIN: (&str, &str) = ("SEMEL_SOURCE", "stdin:");
const NATS_SINK: (&str, &str) = ("SEMEL_SINK", "nats://u:p@h?subject=orders.once");
const BY_JSON: (&str, &str) = ("SEMEL_EVENT_TIME", "json:/at");

#[test]
fn what_is_required_is_enough() {
    let config = config(&[]);
    let Source::RabbitMq(source) = &config.source else { panic!("{:?}", config.source) };
    let Sink::RabbitMq(sink) = &config.sink else { panic!("{:?}", config.sink) };
    assert_eq!((source.queue.as_str(), source.vhost.as_str(), source.prefetch), ("in", "v", 2_000));
    assert_eq!((&sink.servers, sink.vhost.as_str()), (&source.servers, "v"), "those of the source");
    assert_eq!((sink.exchange.as_str(), sink.routing_key.as_str(), sink.queue()), ("", "out", Some("out")));
    assert_eq!((config.pipeline.as_str(), config.instance.as_str()), ("in", "this-host"));
    assert_eq!((config.lease, config.publish_timeout), (Duration::from_secs(30), Duration::from_secs(10)));
    assert_eq!((config.dead_letter.as_deref(), config.duplicates), (Some("dead"), None));
}

#[test]
fn every_pair_that_is_there() {
    let to_nats = config(&[NATS, NATS_SINK, BY_JSON]);
    let Source::Nats(source) = &to_nats.source else { panic!("{:?}", to_nats.source) };
    assert_eq!((source.servers.hosts.as_slice(), source.prefetch), (&["h:4222".to_owned()][..], 2_000));
    assert_eq!((source.ack_wait, to_nats.pipeline.as_str()), (Duration::from_secs(30), "orders.once"));
    let own = ("SEMEL_SINK", "nats:///?subject=out");
    let Sink::Nats(sink) = config(&[NATS, own, BY_JSON]).sink else { panic!("of NATS") };
    assert_eq!(sink.servers, source.servers, "those of the source");
    let exchange = ("SEMEL_SINK", "amqps://u:p@h1,h2:1?exchange=e&routing_key=a.b");
    let Sink::RabbitMq(sink) = config(&[exchange]).sink else { panic!("of RabbitMQ") };
    assert_eq!((sink.exchange.as_str(), sink.routing_key.as_str(), sink.queue()), ("e", "a.b", None));
    assert_eq!((sink.servers.tls, sink.vhost.as_str()), (true, "/"));
    let named = ("SEMEL_PIPELINE", "lines");
    let of_lines = config(&[STDIN, NATS_SINK, BY_JSON, named]);
    assert_eq!((of_lines.source, of_lines.pipeline.as_str()), (Source::Stdin, "lines"));
}

#[test]
fn what_is_missing_is_told_at_once() {
    let missing: Vec<(&str, &str)> =
        ["SEMEL_SINK", "SEMEL_DEAD_LETTER", "SEMEL_SCOPE", "SEMEL_STORE", "SEMEL_EVENT_ID"]
            .map(|name| (name, ""))
            .into();
    let problems = problems(&missing);
    let told: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().unwrap_or_default()).collect();
    assert_eq!(told, ["SEMEL_SINK", "SEMEL_DEAD_LETTER", "SEMEL_SCOPE", "SEMEL_STORE", "SEMEL_EVENT_ID"]);
}

#[test]
fn passwords_reach_their_servers() {
    let (source, sink) = (("SEMEL_SOURCE_PASSWORD", "one"), ("SEMEL_SINK_PASSWORD", "two"));
    let password = |servers: &crate::config::servers::Servers| servers.password.clone();
    let changed =
        config(&[("SEMEL_SOURCE", "amqp://u@h?queue=in"), ("SEMEL_SINK", "amqp://u@h?queue=out"), source, sink]);
    let (Source::RabbitMq(of_source), Sink::RabbitMq(of_sink)) = (&changed.source, &changed.sink) else { panic!() };
    let found = (password(&of_source.servers), password(&of_sink.servers));
    assert_eq!(found, (Some(Secret("one".into())), Some(Secret("two".into()))));
    let shared = config(&[("SEMEL_SOURCE", "amqp://u@h?queue=in"), source]);
    let Sink::RabbitMq(of_sink) = shared.sink else { panic!() };
    assert_eq!(password(&of_sink.servers), Some(Secret("one".into())), "on the source's servers");
    let token = config(&[NATS, NATS_SINK, BY_JSON, source]);
    let Source::Nats(of_source) = token.source else { panic!() };
    assert_eq!(password(&of_source.servers), Some(Secret("one".into())), "a token has no user");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, "from-file\n").expect("written");
    let by_file =
        [("SEMEL_SOURCE", "amqp://u@h?queue=in"), ("SEMEL_SOURCE_PASSWORD_FILE", path.to_str().expect("text"))];
    let Source::RabbitMq(of_source) = config(&by_file).source else { panic!() };
    assert_eq!(password(&of_source.servers), Some(Secret("from-file".into())));
}

#[test]
fn urls_that_are_refused() {
    let source = |text: &'static str, right: &'static str| ("SEMEL_SOURCE", text, right);
    let sink = |text: &'static str, right: &'static str| ("SEMEL_SINK", text, right);
    let cases = [
        source("amqp://h", "it names no queue (`?queue=…`)"),
        source("amqp:///?queue=q", "it names no host"),
        source("amqp://h?queue=%20", "`queue` is blank"),
        source("amqp://h?queue=q&prefetch=0", "`prefetch` is not a whole number from 1 to 65535"),
        source("amqp://h?stream=s", "it takes queue, prefetch and not `stream`"),
        source("amqp://u@h?queue=q", "its user has no password: see SEMEL_SOURCE_PASSWORD"),
        source("nats://h?stream=s", "it names no consumer (`?consumer=…`)"),
        source(
            "nats://h?stream=s&consumer=a.b",
            "`a.b` is no name for a stream or consumer (no white space, `.`, `*`, `>`, `/`, `\\`)",
        ),
        source("nats://h?stream=s&consumer=c&ack_wait=30", "`ack_wait` is not a duration between 1s and 1h"),
        source("nats://h/p?stream=s&consumer=c", "it has no path: streams and subjects are named behind `?`"),
        source("file:in", "a file is read by `semel pipe`, or by a redirection into `stdin:`"),
        source("stdin:x", "nothing follows `stdin:`"),
        sink("amqp://h", "it names neither queue nor exchange (`?queue=…`, `?exchange=…`)"),
        sink("amqp://h?queue=q&exchange=e", "beside `queue` neither `exchange` nor `routing_key` is taken"),
        sink("nats:///?subject=s", "it names no host, and the source is no stream of NATS"),
        sink("nats://h?subject=a.*", "`a.*` is no subject to write to (words between dots, no wildcards)"),
        sink("nats://h?subject=a..b", "`a..b` is no subject to write to (words between dots, no wildcards)"),
        sink("file:", "`` is no path of a file"),
        sink("file:a/", "`a/` is no path of a file"),
        sink("file://host/a", "a file is on no host: `file:PATH` or `file:///PATH`"),
        sink("file:a?format=json", "`?format=json` is neither `?format=value` nor `?format=record`"),
        sink("stdin:", "nothing can be written to standard input"),
    ];
    for (name, value, right) in cases {
        let told = problems(&[(name, value), BY_JSON, ("SEMEL_PIPELINE", "p"), ("SEMEL_SINK_PASSWORD", "")]);
        let right = format!("{name} (environment): {right}");
        assert!(told.contains(&right), "{name}={value}: {told:#?}");
    }
}

#[test]
fn what_does_not_go_together() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SEMEL_SINK", "amqp:///?queue=in")],
            "SEMEL_SINK (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (
            &[("SEMEL_SINK", "amqp://u:p@other,h/v?queue=in")],
            "SEMEL_SINK (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (
            &[("SEMEL_DEAD_LETTER", "in")],
            "SEMEL_DEAD_LETTER (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ),
        (&[("SEMEL_DEAD_LETTER", "out")], "SEMEL_DEAD_LETTER (environment): out is where SEMEL_SINK goes already"),
        (
            &[("SEMEL_DUPLICATES", "route"), ("SEMEL_DUPLICATES_TOPIC", "dead")],
            "SEMEL_DUPLICATES_TOPIC (environment): dead is where SEMEL_DEAD_LETTER goes already",
        ),
        (
            &[("SEMEL_LEASE", "10s")],
            "SEMEL_PUBLISH_TIMEOUT (default): 10s is not shorter than SEMEL_LEASE, 10s: others could take over what is \
             still being published",
        ),
        (
            &[("SEMEL_GRACE", "5s")],
            "SEMEL_GRACE (environment): 5s is shorter than SEMEL_PUBLISH_TIMEOUT, 10s: a drain could leave its last \
             messages in doubt",
        ),
        (&[("SEMEL_PIPELINE", "a/b")], "SEMEL_PIPELINE (environment): there is a `/` in it"),
        (
            &[("SEMEL_SOURCE", "amqp://u:hidden@h/v?queue=a/b")],
            "SEMEL_PIPELINE: it must be given: the source has no name that it could take",
        ),
        (&[STDIN, NATS_SINK, BY_JSON], "SEMEL_PIPELINE: it must be given: the source has no name that it could take"),
        (
            &[NATS, NATS_SINK],
            "SEMEL_EVENT_TIME (default): `record` has no meaning here: in NATS a message has the time at which it was \
             stored, which a retry renews",
        ),
        (
            &[("SEMEL_SOURCE_PASSWORD", "x")],
            "SEMEL_SOURCE_PASSWORD (environment): the URL of SEMEL_SOURCE holds a password too",
        ),
        (
            &[("SEMEL_SINK_PASSWORD", "x")],
            "SEMEL_SINK_PASSWORD (environment): it has no effect: the sink is on the source's servers",
        ),
        (
            &[("SEMEL_SINK", "amqp://h?queue=q"), ("SEMEL_SINK_PASSWORD", "x")],
            "SEMEL_SINK_PASSWORD (environment): the URL of SEMEL_SINK names no user",
        ),
        (
            &[("SEMEL_RETENTION_WEEKS", "1")],
            "SEMEL_RETENTION_WEEKS (environment): 7d (1 week) is less than SEMEL_LONGEST_OUTAGE, 7d, and 40s more, for \
             which an instance that lost its connections may go on",
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
    let elsewhere = [("SEMEL_SINK", "amqp://u:p@other/v?queue=in"), ("SEMEL_SINK", "amqp://u:p@h/w?queue=in")];
    for change in elsewhere {
        assert_eq!(problems(&[change]), Vec::<String>::new(), "{change:?}: another queue of that name");
    }
}

#[test]
fn into_a_file() {
    for (url, path, records) in [
        ("file:out", "out", false),
        ("file:/a/b?format=value", "/a/b", false),
        ("file:///a/b?format=record", "/a/b", true),
    ] {
        let Sink::File(sink) = config(&[("SEMEL_SINK", url)]).sink else { panic!("{url}: of another kind") };
        assert_eq!((sink.path.to_str(), sink.records), (Some(path), records), "{url}");
    }
    let file = ("SEMEL_SINK", "file:out");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[file, ("SEMEL_DEAD_LETTER", "a/")], "SEMEL_DEAD_LETTER (environment): `a/` is no path of a file"),
        (
            &[file, ("SEMEL_DEAD_LETTER", "out")],
            "SEMEL_DEAD_LETTER (environment): out is where SEMEL_SINK goes already",
        ),
        (
            &[file, ("SEMEL_PUBLISH_TIMEOUT", "1s")],
            "SEMEL_PUBLISH_TIMEOUT (environment): it has no effect: nobody has to confirm what is in a file",
        ),
        (
            &[file, ("SEMEL_SINK_PASSWORD", "hidden")],
            "SEMEL_SINK_PASSWORD (environment): it has no effect: nobody logs in to a file",
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
}

const INTO_KAFKA: (&str, &str) = ("SEMEL_SINK", "kafka://h:1,g/out");

#[test]
fn into_kafka() {
    let sink = |changes: &[(&str, &str)]| match config(&[&[INTO_KAFKA], changes].concat()) {
        LeasedConfig { sink: Sink::Kafka(sink), publish_timeout, .. } => (sink, publish_timeout),
        other => panic!("{:?}", other.sink),
    };
    let (usual, timeout) = sink(&[]);
    assert_eq!((usual.brokers.as_slice(), usual.topic.as_str()), (&["h:1".to_owned(), "g:9092".to_owned()][..], "out"));
    assert_eq!((usual.transaction_timeout, timeout), (Duration::from_secs(15), Duration::from_secs(15)));
    let (changed, timeout) = sink(&[("SEMEL_TRANSACTION_TIMEOUT", "5s"), ("SEMEL_SINK_KAFKA_LINGER_MS", "3")]);
    assert_eq!((timeout, changed.properties.0["linger.ms"].as_str()), (Duration::from_secs(5), "3"));
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SEMEL_SINK", "kafka:///out")],
            "SEMEL_SINK (environment): it names no broker, and the source has none that it could take",
        ),
        (&[("SEMEL_SINK", "kafka://h/a,b")], "SEMEL_SINK (environment): it names one topic"),
        (
            &[INTO_KAFKA, ("SEMEL_LEASE", "15s")],
            "SEMEL_TRANSACTION_TIMEOUT (default): 15s is not shorter than SEMEL_LEASE, 15s: others could take over what is still \
             being published",
        ),
        (
            &[INTO_KAFKA, ("SEMEL_PUBLISH_TIMEOUT", "1s")],
            "SEMEL_PUBLISH_TIMEOUT (environment): it has no effect: into Kafka SEMEL_TRANSACTION_TIMEOUT says it",
        ),
        (
            &[INTO_KAFKA, ("SEMEL_SOURCE_KAFKA_FETCH_MIN_BYTES", "1")],
            "SEMEL_SOURCE_KAFKA_FETCH_MIN_BYTES (environment): it has no effect: the source is not Kafka",
        ),
        (
            &[INTO_KAFKA, ("SEMEL_SINK_PASSWORD", "hidden")],
            "SEMEL_SINK_PASSWORD (environment): it has no effect: Kafka's password is SEMEL_SINK_KAFKA_SASL_PASSWORD",
        ),
        (
            &[INTO_KAFKA, ("SEMEL_DEAD_LETTER", "out")],
            "SEMEL_DEAD_LETTER (environment): out is where SEMEL_SINK goes already",
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
}

#[test]
fn what_is_of_kafka_has_no_effect() {
    let values: &[(&str, &str)] = &[
        ("SEMEL_BROADCAST", "true"),
        ("SEMEL_ALLOW_SHARED_SCOPE", "true"),
        ("SEMEL_WORKERS", "2"),
        ("SEMEL_START", "latest"),
        ("SEMEL_ASSIGNMENT", "cooperative"),
        ("SEMEL_SESSION_TIMEOUT", "6s"),
        ("SEMEL_FETCH_AHEAD", "1MiB"),
        ("SEMEL_TRANSACTION_TIMEOUT", "10s"),
        ("SEMEL_OAUTH_TOKEN_FILE", "/token"),
        ("SEMEL_RECENT_IDS", "1"),
        ("SEMEL_SINK_KAFKA_LINGER_MS", "1"),
    ];
    for (name, value) in values {
        let right = format!("{name} (environment): it has no effect: neither source nor sink is Kafka");
        assert_eq!(problems(&[(name, value)]), [right]);
    }
    assert_eq!(values.len(), OF_KAFKA.len() + 1, "each");
}

#[test]
fn what_is_of_others_has_no_effect_from_kafka_to_kafka() {
    let values = ["hidden", "hidden", "30s", "10s"];
    assert_eq!(values.len(), OF_OTHERS.len(), "each");
    for ((setting, why), value) in OF_OTHERS.iter().zip(values) {
        let right = format!("{} (environment): it has no effect: {why}", setting.name);
        assert_eq!(testing::problems(&[(setting.name, value)]), [right]);
    }
}

#[test]
fn operators_find_no_group_where_there_are_no_offsets() {
    let config = OperatorConfig::of(given(LEASED)).expect("valid");
    assert!(config.source.is_none() && config.scope.is_some());
    let ConfigError(problems) = OperatorConfig::of(given(&[("SEMEL_SOURCE", "amqp://h")])).expect_err("no queue");
    assert_eq!(problems, ["SEMEL_SOURCE (environment): it names no queue (`?queue=…`)"]);
}

#[test]
fn every_other_setting_is_read() {
    let (values, _) = Values::gather(given(LEASED));
    let reader = Reader::new(&values, reader::Command::Run);
    assert!(LeasedConfig::parts(&reader).is_some());
    let (_, read) = reader.finish();
    // One of them is read with the others of its concern.
    let unread = OF_KAFKA.iter().filter(|setting| setting.name != RECENT_IDS.name).chain(ingest::SETTINGS);
    let of_kafka: BTreeSet<&str> = unread.map(|setting| setting.name).collect();
    let all = settings().map(|setting| setting.name).filter(|name| *name != CONFIG.name && !of_kafka.contains(name));
    // Not asked for where the sink is on the source's servers.
    let asked = all.filter(|name| *name != SINK_PASSWORD.name).collect::<BTreeSet<_>>();
    assert_eq!(read, asked);
    assert!(OF_OTHERS.iter().all(|(setting, _)| setting.name == SINK_PASSWORD.name || read.contains(setting.name)));
}

#[test]
fn times_say_something() {
    let times = |config: &LeasedConfig| (config.lease, config.publish_timeout, config.grace);
    let usual = times(&config(&[]));
    for change in [("SEMEL_LEASE", "1m"), ("SEMEL_PUBLISH_TIMEOUT", "1s"), ("SEMEL_GRACE", "40s")] {
        assert_ne!(times(&config(&[change])), usual, "{change:?}");
    }
}
