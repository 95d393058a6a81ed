//! Flags of the settings, and what a process was given in all.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::kafka::{Place, Side};
use crate::config::setting::{Default, Kind, Pipe, Setting};
use crate::config::store::{STORE, Store};
use crate::config::values::Given;
use crate::config::{CONCERNS, Config, ConfigError, reader};
use crate::store;

/// Properties of librdkafka, `NAME=VALUE`.
const KAFKA: [(&str, Side); 3] = [("kafka", Side::Both), ("source-kafka", Side::Source), ("sink-kafka", Side::Sink)];

/// Adds a flag for every setting that the command takes.
pub fn with_settings(command: Command, of: reader::Command) -> Command {
    let mut command = command.next_line_help(true);
    for (concern, settings) in CONCERNS {
        let taken = settings.iter().filter(|setting| of != reader::Command::Pipe || setting.pipe != Pipe::No);
        for setting in taken {
            command = command.arg(flag(setting, of).help_heading(*concern));
            if setting.secret {
                let name = kept(format!("{}_FILE", setting.name));
                let arg = Arg::new(name).long(kept(format!("{}-file", setting.flag()))).value_name("path");
                command = command.arg(arg.help(format!("File that holds it [{name}]")).help_heading(*concern));
            }
        }
    }
    if of != reader::Command::Pipe {
        for (name, side) in KAFKA {
            let help = match side {
                Side::Both => "Property of librdkafka for both sides [SEMEL_KAFKA_<PROPERTY>]",
                Side::Source => "Property of librdkafka for the source [SEMEL_SOURCE_KAFKA_<PROPERTY>]",
                Side::Sink => "Property of librdkafka for the sink [SEMEL_SINK_KAFKA_<PROPERTY>]",
            };
            let arg = Arg::new(name).long(name).value_name("property=value").action(ArgAction::Append);
            command = command.arg(arg.value_parser(property).help(help).help_heading("Kafka's clients"));
        }
    }
    command
}

fn flag(setting: &Setting, of: reader::Command) -> Arg {
    let default = match (of, setting.pipe, setting.default) {
        (reader::Command::Pipe, Pipe::Value(text), _) | (_, _, Default::Value(text)) => format!("default: {text}"),
        (reader::Command::Operator, _, Default::Required) if setting.name != STORE.name => "optional".into(),
        (_, _, Default::Required) => "required".into(),
        (_, _, Default::Absent(otherwise)) => format!("default: {otherwise}"),
    };
    let arg = Arg::new(setting.name)
        .long(kept(setting.flag()))
        .value_name(kept(setting.form()))
        .help(format!("{} [{}] [{default}]", setting.doc, setting.name));
    match setting.kind {
        // Alone it means true.
        Kind::Switch => arg.num_args(0..=1).default_missing_value("true"),
        _ => arg,
    }
}

/// Names of flags live as long as the process.
fn kept(text: String) -> &'static str {
    text.leak()
}

fn property(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("it is PROPERTY=VALUE"),
    }
}

/// The configuration of `semel run`, with what only the store can judge of it.
pub fn config(matches: &ArgMatches) -> Result<Config, ConfigError> {
    checked(Config::of(given(matches))?, |config| &config.store)
}

/// Refuses a configuration whose store the store itself refuses.
pub fn checked<C>(config: C, store: impl Fn(&C) -> &Store) -> Result<C, ConfigError> {
    match store::open::check(store(&config)) {
        Ok(()) => Ok(config),
        // The cause is the store's own words, which hold no secret.
        Err(error) => {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Err(ConfigError(vec![format!("{}: {cause}", STORE.name)]))
        }
    }
}

/// What this process was given: its flags, its environment, its host's name.
pub fn given(matches: &ArgMatches) -> Given {
    let mut given = Given { host: host_name(), ..Given::default() };
    for id in matches.ids() {
        if let Some((_, side)) = KAFKA.iter().find(|(name, _)| *name == id.as_str()) {
            let properties = matches.get_many::<(String, String)>(id.as_str()).into_iter().flatten();
            given.flags.extend(properties.map(|(name, value)| (Place::name(*side, name), value.clone())));
        } else if id.as_str().starts_with("SEMEL_")
            && let Some(value) = matches.get_one::<String>(id.as_str())
        {
            given.flags.push((id.as_str().into(), value.clone()));
        }
    }
    let mut environment = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(environment.insert(name, value)),
            Err(_) if name.starts_with("SEMEL_") => given.not_text.push(name),
            Err(_) => {}
        }
    }
    given.environment = environment;
    given
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
