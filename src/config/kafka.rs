//! librdkafka's own properties: `SEMEL_KAFKA_SECURITY_PROTOCOL` is `security.protocol` of both sides,
//! `SEMEL_SOURCE_KAFKA_…` and `SEMEL_SINK_KAFKA_…` of one, which goes over both.
//!
//! Names and values are checked by the library itself, without a connection. What the protocol needs to be otherwise,
//! and what would have no effect, is refused with its reason.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::mask::MASK;
use super::properties::{REFUSED, REFUSED_FAMILIES, SECRET, SINK_ONLY, SOURCE_ONLY};
use super::reader::Reader;
use super::setting::{Default, Kind, Setting};
use super::values::Value;

pub const OAUTH_TOKEN_FILE: Setting = Setting::new(
    "SEMEL_OAUTH_TOKEN_FILE",
    Kind::Path,
    Default::Absent("without OAUTHBEARER"),
    "File with the bearer token for Kafka's OAUTHBEARER, read anew at every refresh.",
);

pub const SETTINGS: &[&Setting] = &[&OAUTH_TOKEN_FILE];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Both,
    Source,
    Sink,
}

/// A property of one side or both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub side: Side,
    /// As librdkafka spells it: `security.protocol`.
    pub property: String,
}

impl Place {
    const PREFIXES: [(&'static str, Side); 3] =
        [("SEMEL_KAFKA_", Side::Both), ("SEMEL_SOURCE_KAFKA_", Side::Source), ("SEMEL_SINK_KAFKA_", Side::Sink)];

    pub fn named(name: &str) -> Option<Place> {
        let found = Self::PREFIXES.iter().find_map(|(prefix, side)| Some((name.strip_prefix(prefix)?, *side)));
        let (rest, side) = found.filter(|(rest, _)| !rest.is_empty())?;
        let plain = rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        plain.then(|| Place { side, property: rest.to_ascii_lowercase().replace('_', ".") })
    }

    /// The name in the environment.
    pub fn name(side: Side, property: &str) -> String {
        let prefix = Self::PREFIXES.iter().find(|(_, known)| *known == side).map_or("", |(prefix, _)| prefix);
        format!("{prefix}{}", property.to_ascii_uppercase().replace('.', "_"))
    }
}

pub fn is_secret(property: &str) -> bool {
    SECRET.contains(&property)
}

/// What the operator set for one side.
#[derive(Clone, PartialEq, Eq, std::default::Default)]
pub struct Properties(pub BTreeMap<String, String>);

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(name, text)| (name, if is_secret(name) { MASK } else { text.as_str() }));
        f.debug_map().entries(shown).finish()
    }
}

/// How the clients of both sides are set up beyond their brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    pub source: Properties,
    pub sink: Properties,
    pub oauth_token_file: Option<PathBuf>,
}

impl Clients {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Clients> {
        let mut sound = true;
        for (place, value) in &reader.values.kafka {
            if let Err(problem) = check(place, value) {
                reader.problem(format!("{} ({}): {problem}", value.name, value.origin));
                sound = false;
            }
        }
        let oauth_token_file = reader.optional(&OAUTH_TOKEN_FILE, || reader.path(&OAUTH_TOKEN_FILE));
        if !sound {
            return None;
        }
        let of = |side| Properties(properties(&reader.values.kafka, side));
        let clients = Clients { source: of(Side::Source), sink: of(Side::Sink), oauth_token_file: oauth_token_file? };
        clients.check_security(reader);
        Some(clients)
    }

    /// Combinations that would be refused only when a client is made, or, worse, would go on without protection.
    fn check_security(&self, reader: &Reader<'_>) {
        let mut wants_token = false;
        for (side, properties) in [(Side::Source, &self.source.0), (Side::Sink, &self.sink.0)] {
            let get = |name: &str| properties.get(name).map(String::as_str);
            let protocol = get("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
            let mechanism = get("sasl.mechanism").or(get("sasl.mechanisms"));
            let (sasl, ssl) = (protocol.starts_with("sasl"), protocol.ends_with("ssl"));
            let unprotected = properties.keys().find(|name| {
                !sasl && name.starts_with("sasl.") || !ssl && (name.starts_with("ssl.") || name.contains(".ssl."))
            });
            if let Some(name) = unprotected {
                let [name, key] = [name, "security.protocol"].map(|name| self.given_as(reader, side, name));
                reader.problem(format!("{name}: it has no effect while {key} is {protocol}"));
            }
            let mechanism_name = self.given_as(reader, side, "sasl.mechanism");
            match mechanism.map(str::to_ascii_uppercase).as_deref() {
                None if sasl => reader.problem(format!("{mechanism_name}: it must be given with {protocol}")),
                Some("OAUTHBEARER") if sasl => wants_token = true,
                Some("GSSAPI") => reader.problem(format!("{mechanism_name}: Kerberos is not built in")),
                Some(_) if sasl => {
                    for name in ["sasl.username", "sasl.password"].iter().filter(|name| get(name).is_none()) {
                        reader.problem(format!("{}: it must be given", self.given_as(reader, side, name)));
                    }
                }
                _ => {}
            }
        }
        match (wants_token, &self.oauth_token_file) {
            (true, None) => reader.problem(format!("{}: OAUTHBEARER needs it", OAUTH_TOKEN_FILE.name)),
            (false, Some(_)) => reader.has_no_effect(&OAUTH_TOKEN_FILE, "no side uses OAUTHBEARER"),
            _ => {}
        }
    }

    /// The name by which a side's property was given, or would be.
    fn given_as(&self, reader: &Reader<'_>, side: Side, property: &str) -> String {
        let there = |side| reader.values.kafka.contains_key(&Place { side, property: property.to_owned() });
        Place::name(if there(side) { side } else { Side::Both }, property)
    }
}

/// Both sides' properties, with one side's own over them.
fn properties(given: &BTreeMap<Place, Value>, side: Side) -> BTreeMap<String, String> {
    let foreign = if side == Side::Source { SINK_ONLY } else { SOURCE_ONLY };
    let of = |side| given.iter().filter(move |(place, _)| place.side == side);
    let both = of(Side::Both).filter(|(place, _)| !foreign.contains(&place.property.as_str()));
    both.chain(of(side)).map(|(place, value)| (place.property.clone(), value.text.clone())).collect()
}

fn check(place: &Place, value: &Value) -> Result<(), String> {
    let property = place.property.as_str();
    let listed = REFUSED.iter().find(|(name, _)| name.replace('_', ".") == property);
    let family = || REFUSED_FAMILIES.iter().find(|(beginning, _)| property.starts_with(beginning));
    if let Some((_, why)) = listed.or_else(family) {
        return Err(format!("{property} cannot be set: {why}"));
    }
    if property.ends_with(".cb") {
        return Err(format!("{property} cannot be set: it is for programs, not for settings"));
    }
    match place.side {
        Side::Source if SINK_ONLY.contains(&property) => return Err(format!("{property} is a property of producers")),
        Side::Sink if SOURCE_ONLY.contains(&property) => return Err(format!("{property} is a property of consumers")),
        _ => {}
    }
    if value.text.contains('\0') {
        return Err("there is a NUL in the value".into());
    }
    let mut config = ClientConfig::new();
    config.set(property, &value.text);
    match config.create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            Err(format!("librdkafka has no property {property}"))
        }
        // Its words may hold the value.
        Err(_) if is_secret(property) => Err(format!("librdkafka refuses the value of {property}")),
        Err(KafkaError::ClientConfig(_, what, ..)) => Err(one_line(&what)),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "kafka_tests.rs"]
mod tests;
