//! What `semel ingest` is told: HTTP in, RabbitMQ, NATS JetStream or Kafka out.
//!
//! Settings that it shares with pipelines mean the same here; those that would do nothing are refused.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ends::Sink;
use super::extraction::{ACCEPT_RECIPE, EVENT_ID};
use super::identity::{self, GRACE, INSTANCE, PIPELINE, SCOPE};
use super::kafka::{OAUTH_TOKEN_FILE, Side};
use super::leased::{LEASE, PUBLISH_TIMEOUT};
use super::outside::{self, HTTP, LOG, LOG_FORMAT, Log};
use super::reader::{Command, Reader};
use super::route;
use super::setting::{Default, Kind, Setting};
use super::sink::{SINK, SINK_PASSWORD, TRANSACTION_TIMEOUT};
use super::store::{self, Store};
use super::units::show_duration;
use super::values::Given;
use super::{CONFIG, ConfigError, settings};
use crate::key::{Extraction, Recipe, TimeRecipe};
use crate::protocol::event::{SCOPE_BYTES_MAX, Scope};

/// What its lanes are called where nobody gives the pipeline a name.
const PIPELINE_DEFAULT: &str = "ingest";
/// Behind the scope stand the names of a tenant and a table.
const TARGET_BYTES_MAX: usize = 2 + 2 * 64;

pub const LISTEN: Setting = Setting::new(
    "SEMEL_INGEST_LISTEN",
    Kind::Address,
    Default::Value("127.0.0.1:7980"),
    "Where `semel ingest` takes records. Without TLS of its own.",
);

pub const KEYS: Setting = Setting::new(
    "SEMEL_INGEST_KEYS",
    Kind::Path,
    Default::Absent("needed by `semel ingest`"),
    "File that says who may write which tenants' tables, read again when it changes.",
);

pub const UNDEDUPED: Setting = Setting::new(
    "SEMEL_INGEST_UNDEDUPED",
    Kind::Text,
    Default::Absent("none"),
    "Tables without dedupe, as TENANT/TABLE between commas; `*` is any.",
);

pub const CLAIMS_KEPT: Setting = Setting::new(
    "SEMEL_INGEST_RETENTION",
    Kind::Text,
    Default::Absent("for ever"),
    "How long tables' claims are kept, as TENANT/TABLE=DURATION (or `forever`) between commas; `*` is any, and the first \
     that fits counts. Once it is over, the same id is published again.",
);

pub const SCHEMAS: Setting = Setting::new(
    "SEMEL_INGEST_SCHEMAS",
    Kind::Text,
    Default::Absent("none"),
    "Files with the JSON Schema of tables, as TENANT/TABLE=PATH between commas; `*` is any, and the first that fits \
     counts. A record that does not fit is rejected. Read at the start; nothing else is fetched.",
);

pub const LANES: Setting = Setting::new(
    "SEMEL_INGEST_LANES",
    Kind::Count(1..=64),
    Default::Value("8"),
    "Windows that are under way at a time, each with a connection to the sink.",
);

pub const WINDOW: Setting = Setting::new(
    "SEMEL_INGEST_WINDOW",
    Kind::Count(1..=10_000),
    Default::Value("256"),
    "Most records that are claimed and published together.",
);

pub const RECORD_BYTES: Setting = Setting::new(
    "SEMEL_INGEST_RECORD_BYTES",
    Kind::Bytes,
    Default::Value("256KiB"),
    "Most bytes of a record; a larger one is rejected.",
);

pub const DOCUMENT_BYTES: Setting = Setting::new(
    "SEMEL_INGEST_DOCUMENT_BYTES",
    Kind::Bytes,
    Default::Value("8MiB"),
    "Most bytes of a JSON document, before and after decompression. Each connection may take so much memory.",
);

pub const STREAM_BYTES: Setting = Setting::new(
    "SEMEL_INGEST_STREAM_BYTES",
    Kind::Bytes,
    Default::Value("1GiB"),
    "Most bytes of a body of NDJSON, before and after decompression.",
);

pub const TIMEOUT: Setting = Setting::new(
    "SEMEL_INGEST_TIMEOUT",
    Kind::Duration,
    Default::Value("5m"),
    "How long a request may take to its last record.",
);

pub const CONNECTIONS: Setting = Setting::new(
    "SEMEL_INGEST_CONNECTIONS",
    Kind::Count(1..=10_000),
    Default::Value("128"),
    "Most connections of callers at a time; who comes beyond is hung up on.",
);

pub const SETTINGS: &[&Setting] = &[
    &LISTEN,
    &KEYS,
    &UNDEDUPED,
    &CLAIMS_KEPT,
    &SCHEMAS,
    &LANES,
    &WINDOW,
    &RECORD_BYTES,
    &DOCUMENT_BYTES,
    &STREAM_BYTES,
    &TIMEOUT,
    &CONNECTIONS,
];

/// What it takes of the pipelines' settings, the store's beside them.
const SHARED: &[&Setting] = &[
    &SCOPE,
    &PIPELINE,
    &INSTANCE,
    &GRACE,
    &SINK,
    &SINK_PASSWORD,
    &LEASE,
    &PUBLISH_TIMEOUT,
    &EVENT_ID,
    &ACCEPT_RECIPE,
    &HTTP,
    &LOG,
    &LOG_FORMAT,
    &CONFIG,
];

/// What it takes of them where it writes to Kafka.
const OF_KAFKA: &[&Setting] = &[&TRANSACTION_TIMEOUT, &OAUTH_TOKEN_FILE];

#[derive(Debug, Clone)]
pub struct IngestConfig {
    /// With room for a tenant and a table.
    pub scope: Scope,
    /// Without a slash.
    pub pipeline: String,
    pub instance: String,
    /// How long a drain may take.
    pub grace: Duration,
    pub sink: Sink,
    pub lease: Duration,
    /// Shorter than the lease. Into Kafka the transaction's.
    pub publish_timeout: Duration,
    pub store: Store,
    /// Of ids; what is handed over has no time.
    pub extraction: Extraction,
    /// The present way was acknowledged as a change.
    pub accept_change: bool,
    pub listen: SocketAddr,
    pub keys: PathBuf,
    /// As it is written; who reads it checks it.
    pub undeduped: Option<String>,
    /// The same.
    pub claims_kept: Option<String>,
    /// The same.
    pub schemas: Option<String>,
    pub lanes: usize,
    pub window_records_max: usize,
    pub record_bytes_max: usize,
    pub document_bytes_max: u64,
    pub stream_bytes_max: u64,
    pub request_timeout: Duration,
    pub connections_max: u32,
    pub http: Option<SocketAddr>,
    pub log: Log,
}

impl IngestConfig {
    pub fn of(given: Given) -> Result<IngestConfig, ConfigError> {
        super::read_all(given, Command::Ingest, IngestConfig::parts)
    }

    /// Every part is read, so that every problem is found, before one that is missing ends it.
    pub(super) fn parts(reader: &Reader<'_>) -> Option<IngestConfig> {
        let sink = Sink::read(reader, None);
        let scope = reader.parsed(&SCOPE, |text| {
            let scope = Scope::new(text).map_err(|error| error.to_string())?;
            let escaped = text.len() + text.bytes().filter(|byte| matches!(byte, b'+' | b'\\')).count();
            match escaped + TARGET_BYTES_MAX > SCOPE_BYTES_MAX {
                true => Err("it is so long that it leaves no room for a tenant and a table".to_owned()),
                false => Ok(scope),
            }
        });
        let pipeline = match reader.is_given(&PIPELINE) {
            true => identity::pipeline(reader),
            false => Some(PIPELINE_DEFAULT.to_owned()),
        };
        let instance = identity::instance(reader);
        let grace = identity::grace(reader);
        let lease = reader.duration(&LEASE, "1s", "1h");
        let publish_timeout = reader.duration(&PUBLISH_TIMEOUT, "100ms", "1h");
        let into_kafka = route::kind_of(reader, &SINK) == Some(route::Kind::Kafka);
        let (publish_timeout, publish_setting) = match &sink {
            Some(Sink::Kafka(kafka)) => (Some(kafka.transaction_timeout), &TRANSACTION_TIMEOUT),
            _ => (publish_timeout, &PUBLISH_TIMEOUT),
        };
        let store = Store::read(reader);
        let recipe = reader.parsed(&EVENT_ID, Recipe::parse);
        let accepted = reader.optional(&ACCEPT_RECIPE, || reader.text(&ACCEPT_RECIPE));
        let listen = reader.address(&LISTEN);
        let keys = reader.path(&KEYS);
        let undeduped = reader.optional(&UNDEDUPED, || reader.text(&UNDEDUPED));
        let claims_kept = reader.optional(&CLAIMS_KEPT, || reader.text(&CLAIMS_KEPT));
        let schemas = reader.optional(&SCHEMAS, || reader.text(&SCHEMAS));
        let lanes = reader.count(&LANES);
        let window = reader.count(&WINDOW);
        let record_bytes = reader.bytes(&RECORD_BYTES, "1KiB", "64MiB");
        let document_bytes = reader.bytes(&DOCUMENT_BYTES, "1KiB", "1GiB");
        let stream_bytes = reader.bytes(&STREAM_BYTES, "1KiB", "1024GiB");
        let timeout = reader.duration(&TIMEOUT, "1s", "24h");
        let connections = reader.count(&CONNECTIONS);
        let http = outside::http(reader);
        let log = Log::read(reader);
        if pipeline.as_ref().is_some_and(|name| name.contains('/')) {
            reader.problem_with(&PIPELINE, "there is a `/` in it");
        }
        if keys.is_none() {
            reader.problem(format!("{}: it must be given ({})", KEYS.name, KEYS.form()));
        }
        if listen == Some(None) {
            reader.problem_with(&LISTEN, "nothing would be listened to");
        }
        if let (Some(lease), Some(publish)) = (lease, publish_timeout)
            && publish >= lease
        {
            let (publish, lease) = (show_duration(publish), show_duration(lease));
            let why = format!("{publish} is not shorter than {}, {lease}", LEASE.name);
            reader.problem_with(publish_setting, format!("{why}: others could take over what is being published"));
        }
        refuse_useless(reader, into_kafka);
        let extraction = recipe.map(|recipe| Extraction::new(recipe, TimeRecipe::None));
        if let (Some(extraction), Some(Some(accepted))) = (&extraction, &accepted)
            && *accepted != extraction.digest()
        {
            let present = extraction.digest();
            reader.problem_with(&ACCEPT_RECIPE, format!("it accepts another recipe; the present one is {present}"));
        }
        Some(IngestConfig {
            scope: scope?,
            pipeline: pipeline?,
            instance: instance?,
            grace: grace?,
            sink: sink?,
            lease: lease?,
            publish_timeout: publish_timeout?,
            store: store?,
            extraction: extraction?,
            accept_change: accepted?.is_some(),
            listen: listen??,
            keys: keys?,
            undeduped: undeduped?,
            claims_kept: claims_kept?,
            schemas: schemas?,
            lanes: usize::try_from(lanes?).ok()?,
            window_records_max: usize::try_from(window?).ok()?,
            record_bytes_max: usize::try_from(record_bytes?).ok()?,
            document_bytes_max: document_bytes?,
            stream_bytes_max: stream_bytes?,
            request_timeout: timeout?,
            connections_max: u32::try_from(connections?).ok()?,
            http: http?,
            log: log?,
        })
    }
}

/// Whether `semel ingest` asks for this setting.
pub fn takes(setting: &Setting) -> bool {
    let mut taken = SETTINGS.iter().chain(SHARED).chain(OF_KAFKA).chain(store::SETTINGS);
    taken.any(|other| other.name == setting.name)
}

fn refuse_useless(reader: &Reader<'_>, into_kafka: bool) {
    const WHY: &str = "`semel ingest` takes records by HTTP, and they have no time";
    const NO_KAFKA: &str = "there is no Kafka here";
    settings().filter(|setting| !takes(setting)).for_each(|setting| reader.has_no_effect(setting, WHY));
    if into_kafka {
        reader.has_no_effect(&PUBLISH_TIMEOUT, "into Kafka SEMEL_TRANSACTION_TIMEOUT says it");
    } else {
        OF_KAFKA.iter().for_each(|setting| reader.has_no_effect(setting, NO_KAFKA));
    }
    let why = if into_kafka { "the source is not Kafka" } else { NO_KAFKA };
    for (_, value) in reader.values.kafka.iter().filter(|(place, _)| !into_kafka || place.side == Side::Source) {
        reader.problem(format!("{} ({}): it has no effect: {why}", value.name, value.origin));
    }
}

/// Refuses, in pipelines, what is only for `semel ingest`.
pub(super) fn refuse_elsewhere(reader: &Reader<'_>) {
    SETTINGS.iter().for_each(|setting| reader.has_no_effect(setting, "it is for `semel ingest`"));
}

#[cfg(test)]
#[path = "ingest_tests.rs"]
mod tests;
