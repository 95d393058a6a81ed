//! Which names there are.

use super::kafka::{self, Place};
use super::setting::Setting;
use super::settings;

/// What a name stands for.
#[derive(Debug, Clone)]
pub enum Known {
    Setting(&'static Setting),
    /// A property of librdkafka.
    Kafka(Place),
    /// The file that holds the value of a secret.
    FileOf(Box<Known>),
}

/// None for a name that means nothing.
pub fn known(name: &str) -> Option<Known> {
    if let Some(setting) = settings().find(|setting| setting.name == name || setting.alias == Some(name)) {
        return Some(Known::Setting(setting));
    }
    if let Some(Some(held)) = name.strip_suffix("_FILE").map(known) {
        let secret = match &held {
            Known::Setting(setting) => setting.secret,
            Known::Kafka(place) => kafka::is_secret(&place.property),
            Known::FileOf(_) => false,
        };
        if secret {
            return Some(Known::FileOf(Box::new(held)));
        }
    }
    Place::named(name).map(Known::Kafka)
}

/// The name that a misspelt one was probably meant to be: at most one letter in three differs.
pub fn nearest(name: &str) -> Option<&'static str> {
    let letters = name.trim_start_matches("SEMEL_").len();
    settings()
        .map(|setting| (distance(name, setting.name), setting.name))
        .min()
        .filter(|(distance, _)| *distance <= letters / 3)
        .map(|(_, name)| name)
}

/// Letters to insert, drop or change.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in two.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}

/// Whether Kubernetes put a variable there for a Service whose name begins with `semel`: `SEMEL_SERVICE_HOST`,
/// `SEMEL_X_PORT`, `SEMEL_PORT_7979_TCP_ADDR` and the like, in the environment of every pod beside it.
pub fn service_link(name: &str, value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let words: Vec<&str> = name.split('_').collect();
    let ports = (1..words.len()).find(|&at| words[at] == "PORT");
    match (ports, &words[..]) {
        (_, [_, .., "SERVICE", "HOST"]) => true,
        (_, [_, .., "SERVICE", "PORT"]) => is_number(value),
        (Some(at), [_, ..]) if words[at - 1] == "SERVICE" => is_number(value),
        (Some(at), [_, ..]) => match &words[at + 1..] {
            [] => is_url,
            [number, "TCP" | "UDP" | "SCTP"] => is_number(number) && is_url,
            [number, "TCP" | "UDP" | "SCTP", "ADDR" | "PORT" | "PROTO"] => is_number(number),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_makes() {
        let cases = [
            ("SEMEL_SERVICE_HOST", "10.0.0.1", true, "of a service named semel"),
            ("SEMEL_METRICS_SERVICE_PORT", "7979", true, "of one named semel-metrics"),
            ("SEMEL_SERVICE_PORT_HTTP", "7979", true, "of a named port"),
            ("SEMEL_PORT", "tcp://10.0.0.1:7979", true, "its URL"),
            ("SEMEL_PORT_7979_TCP", "tcp://10.0.0.1:7979", true, "of one port"),
            ("SEMEL_PORT_7979_TCP_ADDR", "10.0.0.1", true, "its address"),
            ("SEMEL_PORT_7979_TCP_PROTO", "tcp", true, "its protocol"),
            ("SEMEL_PORT", "7979", false, "somebody means a setting that is not there"),
            ("SEMEL_SCOPE", "tcp://x", false, "a setting"),
            ("SEMEL_PORT_HTTP", "7979", false, "nothing of Kubernetes"),
        ];
        for (name, value, right, why) in cases {
            assert_eq!(service_link(name, value), right, "{name}={value}: {why}");
        }
    }

    #[test]
    fn what_was_meant() {
        let cases = [
            ("SEMEL_SCOP", Some("SEMEL_SCOPE"), "a letter dropped"),
            ("SEMEL_EVENTID", Some("SEMEL_EVENT_ID"), "an underscore dropped"),
            ("SEMEL_SINKS", Some("SEMEL_SINK"), "a letter added"),
            ("SEMEL_DEADLETTERS", Some("SEMEL_DEAD_LETTER"), "two slips"),
            ("SEMEL_COMPLETELY_DIFFERENT", None, "nothing like it"),
        ];
        for (name, right, why) in cases {
            assert_eq!(nearest(name), right, "{name}: {why}");
        }
    }
}
