//! Who this is: the scope, the pipeline, the instance and its workers.

use std::time::Duration;

use super::ends;
use super::kafka_url::KafkaUrl;
use super::reader::Reader;
use super::route::{Kind, kind};
use super::setting::{self, Default, Setting};
use super::sink::Sink;
use super::source::{SOURCE, Source};
use super::units::show_duration;
use super::values::Values;
use crate::protocol::event::Scope;

pub const SCOPE: Setting = Setting::new(
    "SEMEL_SCOPE",
    setting::Kind::Text,
    Default::Required,
    "For whom each event counts once: the consumer's logical identity. `${POD_NAME}` gives each pod its own.",
)
.also_named("IM2BE_DEDUP_DEFAULT_SCOPE_ID")
.with_references()
.in_pipe_as("default")
.told_in_pipe("For whom each event counts once: what was claimed in one scope is new in another.");

pub const BROADCAST: Setting = Setting::new(
    "SEMEL_BROADCAST",
    setting::Kind::Switch,
    Default::Value("false"),
    "Every pod sees every event: scope and group must both hold the pod's name (`POD_NAME`), and it must be stable.",
);

pub const ALLOW_SHARED_SCOPE: Setting = Setting::new(
    "SEMEL_ALLOW_SHARED_SCOPE",
    setting::Kind::Switch,
    Default::Value("false"),
    "Let two groups with one scope read one topic: its events split between them.",
);

pub const PIPELINE: Setting = Setting::new(
    "SEMEL_PIPELINE",
    setting::Kind::Text,
    Default::Absent("the group, the queue, `STREAM.CONSUMER`"),
    "Name of the pipeline, the same in all its instances; the transactional id is pipeline, instance, worker.",
)
.with_references();

pub const INSTANCE: Setting = Setting::new(
    "SEMEL_INSTANCE",
    setting::Kind::Text,
    Default::Absent("`POD_NAME`, then the host's name"),
    "Name of this instance: stable over restarts, and no other's.",
)
.with_references();

pub const WORKERS: Setting = Setting::new(
    "SEMEL_WORKERS",
    setting::Kind::Count(1..=64),
    Default::Value("1"),
    "Members of the group in this process, each with threads, a producer and partitions of its own.",
);

pub const GRACE: Setting = Setting::new(
    "SEMEL_GRACE",
    setting::Kind::Duration,
    Default::Value("25s"),
    "How long a drain may take after SIGTERM. Not shorter than SEMEL_TRANSACTION_TIMEOUT or SEMEL_PUBLISH_TIMEOUT.",
);

pub const SETTINGS: &[&Setting] = &[&SCOPE, &BROADCAST, &ALLOW_SHARED_SCOPE, &PIPELINE, &INSTANCE, &WORKERS, &GRACE];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub broadcast: bool,
    pub allow_shared_scope: bool,
    pub pipeline: String,
    pub instance: String,
    pub workers: usize,
    pub grace: Duration,
}

impl Identity {
    /// Stable over restarts, different between live processes and between workers.
    pub fn transactional_id(&self, worker: usize) -> String {
        format!("semel.{}.{}.{worker}", self.pipeline, self.instance)
    }

    pub(super) fn read(reader: &Reader<'_>) -> Option<Identity> {
        let broadcast = reader.switch(&BROADCAST);
        let allow_shared_scope = reader.switch(&ALLOW_SHARED_SCOPE);
        let pipeline = pipeline(reader);
        let instance = instance(reader);
        let workers = reader.count(&WORKERS);
        let grace = grace(reader);
        Some(Identity {
            broadcast: broadcast?,
            allow_shared_scope: allow_shared_scope?,
            pipeline: pipeline?,
            instance: instance?,
            workers: usize::try_from(workers?).ok()?,
            grace: grace?,
        })
    }
}

pub(super) fn scope(reader: &Reader<'_>) -> Option<Scope> {
    reader.parsed(&SCOPE, Scope::new)
}

pub(super) fn pipeline(reader: &Reader<'_>) -> Option<String> {
    match reader.optional(&PIPELINE, || name(reader, &PIPELINE)) {
        // Without a group the source has a problem of its own.
        Some(None) => default_pipeline(reader.values).map(|(name, _)| name),
        given => given.flatten(),
    }
}

pub(super) fn instance(reader: &Reader<'_>) -> Option<String> {
    match reader.optional(&INSTANCE, || name(reader, &INSTANCE)) {
        Some(None) => own_name(reader),
        given => given.flatten(),
    }
}

pub(super) fn grace(reader: &Reader<'_>) -> Option<Duration> {
    reader.duration(&GRACE, "1s", "1h")
}

/// The pod's name, where there is one.
fn pod_name(values: &Values) -> Option<&str> {
    values.environment.get("POD_NAME").map(String::as_str).filter(|name| !name.is_empty())
}

/// The pipeline's name when it is not given, and what it follows from.
pub(super) fn default_pipeline(values: &Values) -> Option<(String, &'static str)> {
    let text = values.text(&SOURCE)?.ok()?;
    let name = match kind(&text).ok()? {
        Kind::Kafka => KafkaUrl::parse(&text, &["group"]).ok()?.parameter("group")?.to_owned(),
        Kind::RabbitMq | Kind::Nats | Kind::Stdin | Kind::File => ends::Source::parse(&text).ok()?.pipeline()?,
    };
    Some((name, SOURCE.name))
}

/// The instance's name when it is not given, and what it follows from.
pub(super) fn default_instance(values: &Values) -> Option<(String, &'static str)> {
    match (pod_name(values), &values.host) {
        (Some(pod), _) => Some((pod.to_owned(), "POD_NAME")),
        (None, Some(host)) => Some((host.clone(), "host's name")),
        (None, None) => None,
    }
}

fn own_name(reader: &Reader<'_>) -> Option<String> {
    let name = default_instance(reader.values);
    if name.is_none() {
        reader.problem(format!("{}: it must be given, since this host has no name", INSTANCE.name));
    }
    name.map(|(name, _)| name)
}

fn name(reader: &Reader<'_>, setting: &'static Setting) -> Option<String> {
    const BYTES_MAX: usize = 200;
    reader.parsed(setting, |text| match text {
        _ if text.trim().is_empty() => Err("it is blank".to_owned()),
        _ if text.len() > BYTES_MAX => Err(format!("it is longer than {BYTES_MAX} bytes")),
        _ if text.chars().any(char::is_control) => Err("there is a control character in it".into()),
        _ => Ok(text.to_owned()),
    })
}

/// What does not go together here. One scope a pod with a group for all would hand a message that is read again to a
/// pod that has not seen it; one group a pod with a scope for all would give each event to one pod.
pub(super) fn check_broadcast(reader: &Reader<'_>, scope: &Scope, identity: &Identity, source: &Source) {
    let Some(pod) = pod_name(reader.values) else {
        if identity.broadcast {
            reader.problem_with(&BROADCAST, "it needs the pod's name in POD_NAME");
        }
        return;
    };
    let (in_scope, in_group) = (scope.as_str().contains(pod), source.group.contains(pod));
    if identity.broadcast && is_passing(pod) {
        let why = "a pod of a Deployment has a new name after each restart; use a StatefulSet";
        reader.problem_with(&BROADCAST, format!("the pod's name {pod} is not stable: {why}"));
    }
    match (in_scope, in_group) {
        (false, _) if identity.broadcast => {
            reader.problem_with(&SCOPE, format!("with SEMEL_BROADCAST it must hold the pod's name {pod}"));
        }
        (_, false) if identity.broadcast || in_scope => {
            let why = "a scope of each pod's own needs a group of each pod's own";
            reader.problem_with(&SOURCE, format!("the group must hold the pod's name {pod}: {why}"));
        }
        (false, true) => {
            let why = "groups of the pods' own with one scope for all give each event to one pod only";
            reader.problem_with(&SCOPE, format!("it must hold the pod's name {pod} as the group does: {why}"));
        }
        _ => {}
    }
}

/// A drain that is cut off before its last transaction must have ended leaves readers waiting for it.
pub(super) fn check_grace(reader: &Reader<'_>, identity: &Identity, sink: &Sink) {
    if identity.grace < sink.transaction_timeout {
        let [grace, timeout] = [identity.grace, sink.transaction_timeout].map(show_duration);
        let why = format!("{grace} is shorter than {}, {timeout}", super::sink::TRANSACTION_TIMEOUT.name);
        reader.problem_with(&GRACE, format!("{why}: a drain could leave its last transaction open"));
    }
}

/// `name-5d8f9c7b6d-x2k4q`: the name that a Deployment's pod gets.
fn is_passing(pod: &str) -> bool {
    const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
    let of_alphabet = |text: &str| text.chars().all(|char| ALPHABET.contains(char));
    let words: Vec<&str> = pod.rsplitn(3, '-').collect();
    matches!(words[..], [random, hash, _]
        if random.len() == 5 && of_alphabet(random) && (6..=10).contains(&hash.len()) && of_alphabet(hash))
}

#[cfg(test)]
mod tests {
    use super::is_passing;

    #[test]
    fn names_that_do_not_last() {
        let cases = [
            ("notify-5d8f9c7b6d-x2k4q", true, "a Deployment's"),
            ("notify-7", false, "a StatefulSet's"),
            ("notification-service-pod-7", false, "a StatefulSet's with hyphens"),
            ("a-service-12345", false, "1 and 3 are not in the alphabet of made-up names"),
        ];
        for (pod, right, why) in cases {
            assert_eq!(is_passing(pod), right, "{pod}: {why}");
        }
    }
}
