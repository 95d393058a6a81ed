//! librdkafka's properties, as far as Semel has to know them by name. All others are the operator's alone.

/// Of consumers only.
pub const SOURCE_ONLY: &[&str] = &[
    "check.crcs",
    "coordinator.query.interval.ms",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "queued.min.messages",
];

/// Of producers only.
pub const SINK_ONLY: &[&str] = &[
    "batch.num.messages",
    "compression.codec",
    "compression.level",
    "compression.type",
    "linger.ms",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "request.timeout.ms",
    "sticky.partitioning.linger.ms",
];

/// Shown as a mask, and held by a file where `_FILE` stands behind the name.
pub const SECRET: &[&str] = &[
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    // Refused below, but not to be shown when they are.
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
];

const BY_URL: &str = "the brokers are named by the URLs of SEMEL_SOURCE and SEMEL_SINK";
const SETTLES: &str = "offsets are committed with the output, in one transaction, and in no other way";
const RESET: &str = "where to begin is said by SEMEL_START; a lost offset must never start over silently";
const CLASSIC: &str = "the protocol rests on the classic group protocol";
const EXACT: &str = "the output is written by an idempotent, transactional producer";
const NO_EFFECT: &str = "it has no effect here";
const IN_CODE: &str = "it is for programs, not for settings";
const TOKEN_FILE: &str = "tokens for OAUTHBEARER come from the file that SEMEL_OAUTH_TOKEN_FILE names";

/// Refused, with the reason. They would break the protocol, are set by a setting of Semel's own, or do nothing.
pub const REFUSED: &[(&str, &str)] = &[
    ("acks", EXACT),
    ("allow.auto.create.topics", "a topic that is not there is a mistake in the URL"),
    ("auto.commit.enable", SETTLES),
    ("auto.commit.interval.ms", SETTLES),
    ("auto.offset.reset", RESET),
    ("batch.size", "it follows from the output topic's largest message"),
    ("bootstrap.servers", BY_URL),
    ("builtin.features", NO_EFFECT),
    ("consume.callback.max.messages", NO_EFFECT),
    ("default_topic_conf", IN_CODE),
    ("delivery.report.only.error", "the sink looks at failures only"),
    ("delivery.timeout.ms", "it follows from SEMEL_TRANSACTION_TIMEOUT"),
    ("enable.auto.commit", SETTLES),
    ("enable.auto.offset.store", SETTLES),
    ("enable.gapless.guarantee", EXACT),
    ("enable.idempotence", EXACT),
    ("enable.metrics.push", NO_EFFECT),
    ("enable.partition.eof", "the source needs to know where a partition ends"),
    ("enable.sasl.oauthbearer.unsecure.jwt", TOKEN_FILE),
    ("enabled_events", IN_CODE),
    ("group.id", "the group is named in the URL of SEMEL_SOURCE"),
    ("group.instance.id", "several workers would claim one member's place in the group"),
    ("group.protocol", CLASSIC),
    ("group.protocol.type", CLASSIC),
    ("group.remote.assignor", CLASSIC),
    ("heartbeat.interval.ms", "it follows from SEMEL_SESSION_TIMEOUT"),
    ("isolation.level", "a reader of uncommitted records would claim what an abort takes back"),
    ("interceptors", IN_CODE),
    ("internal.termination.signal", IN_CODE),
    ("log.queue", IN_CODE),
    ("log_level", "what is logged is said by SEMEL_LOG"),
    ("max.in.flight", EXACT),
    ("max.in.flight.requests.per.connection", EXACT),
    ("message.max.bytes", "it follows from the output topic's largest message"),
    ("message.send.max.retries", EXACT),
    ("message.timeout.ms", "it follows from SEMEL_TRANSACTION_TIMEOUT"),
    ("metadata.broker.list", BY_URL),
    ("offset.store.method", SETTLES),
    ("offset.store.path", SETTLES),
    ("offset.store.sync.interval.ms", SETTLES),
    ("opaque", IN_CODE),
    ("partition.assignment.strategy", "the strategy is said by SEMEL_ASSIGNMENT"),
    ("partitioner", "partitions are said by the URL of SEMEL_SINK: `partition=murmur2` or `same`"),
    ("plugin.library.paths", "foreign code may change anything that the protocol rests on"),
    ("produce.offset.report", NO_EFFECT),
    ("queued.max.messages.kbytes", "how much is read ahead is said by SEMEL_FETCH_AHEAD"),
    ("queuing.strategy", "messages of a partition stay in their order"),
    ("request.required.acks", EXACT),
    ("retries", EXACT),
    ("retry.backoff.max.ms", "a transaction's calls are repeated at a pace of their own"),
    ("retry.backoff.ms", "a transaction's calls are repeated at a pace of their own"),
    ("session.timeout.ms", "it is said by SEMEL_SESSION_TIMEOUT"),
    ("ssl_ca", IN_CODE),
    ("ssl_certificate", IN_CODE),
    ("ssl_engine_callback_data", IN_CODE),
    ("ssl_key", IN_CODE),
    ("statistics.interval.ms", NO_EFFECT),
    ("topic.blacklist", "topics are named in the URL of SEMEL_SOURCE"),
    ("transaction.timeout.ms", "it is said by SEMEL_TRANSACTION_TIMEOUT"),
    ("transactional.id", "it is made of pipeline, instance and worker"),
];

/// Refused by the beginning of their names.
pub const REFUSED_FAMILIES: &[(&str, &str)] = &[("sasl.oauthbearer.", TOKEN_FILE), ("test.mock.", IN_CODE)];
