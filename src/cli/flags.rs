//! Flags of the settings, and what a process was given in all.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::ingest;
use crate::config::kafka::{Place, Side};
use crate::config::route::Route;
use crate::config::setting::{Default, Kind, Pipe, Setting};
use crate::config::sink::SINK;
use crate::config::source::SOURCE;
use crate::config::store::{STORE, Store};
use crate::config::values::Given;
use crate::config::{CONCERNS, CONFIG, ConfigError, reader};
use crate::store;

/// Properties of librdkafka, `NAME=VALUE`.
const KAFKA: [(&str, Side); 3] = [("kafka", Side::Both), ("source-kafka", Side::Source), ("sink-kafka", Side::Sink)];

/// What a command's help lists of the settings. It takes the others all the same, so that one environment serves every
/// command.
pub struct Listed {
    /// Nothing is done without these.
    pub needed: &'static [&'static Setting],
    pub read: &'static [&'static Setting],
}

/// Of a command that reads what `semel run` reads: nothing is told twice.
pub const AS_RUN: Listed = Listed { needed: &[], read: &[&CONFIG] };

/// Said at the end of a help that does not list every setting.
const OTHERS: &str = "Every other setting of `semel run` is taken too, as a flag, from the environment or from the file, so \
                      that one environment serves all commands: semel run --help";

impl Listed {
    fn is_needed(&self, setting: &Setting) -> bool {
        self.needed.iter().any(|needed| needed.name == setting.name)
    }

    fn has(&self, setting: &Setting) -> bool {
        self.is_needed(setting) || self.read.iter().any(|read| read.name == setting.name)
    }
}

/// Adds a flag for every setting that the command takes, and lists them all.
pub fn with_settings(command: Command, of: reader::Command) -> Command {
    with_flags(command, of, None)
}

/// Adds a flag for every setting that the command takes, and lists some.
pub fn with_listed(command: Command, of: reader::Command, listed: &Listed) -> Command {
    let told = command.get_after_help().map_or_else(String::new, |told| format!("{told}\n\n"));
    with_flags(command, of, Some(listed)).after_help(format!("{told}{OTHERS}"))
}

fn with_flags(command: Command, of: reader::Command, listed: Option<&Listed>) -> Command {
    let is_listed = |setting: &Setting| listed.is_none_or(|listed| listed.has(setting));
    let mut command = command.next_line_help(true);
    for (concern, settings) in CONCERNS {
        let taken = settings.iter().filter(|setting| match of {
            reader::Command::Pipe => setting.pipe != Pipe::No,
            reader::Command::Ingest => ingest::takes(setting),
            reader::Command::Run | reader::Command::Operator => true,
        });
        for setting in taken {
            let is_needed = listed.is_some_and(|listed| listed.is_needed(setting));
            command = command.arg(flag(setting, of, is_needed).help_heading(*concern).hide(!is_listed(setting)));
            if setting.secret {
                let name = kept(format!("{}_FILE", setting.name));
                let arg = Arg::new(name).long(kept(format!("{}-file", setting.flag()))).value_name("path");
                let arg = arg.help(format!("File that holds it [{name}]")).help_heading(*concern);
                // A folder is no secret.
                command = command.arg(arg.hide(of == reader::Command::Pipe || !is_listed(setting)));
            }
        }
    }
    if !matches!(of, reader::Command::Pipe | reader::Command::Ingest) {
        for (name, side) in KAFKA {
            let (help, of_setting) = match side {
                Side::Both => ("Property of librdkafka for both sides [SEMEL_KAFKA_<PROPERTY>]", &SOURCE),
                Side::Source => ("Property of librdkafka for the source [SEMEL_SOURCE_KAFKA_<PROPERTY>]", &SOURCE),
                Side::Sink => ("Property of librdkafka for the sink [SEMEL_SINK_KAFKA_<PROPERTY>]", &SINK),
            };
            let arg = Arg::new(name).long(name).value_name("property=value").action(ArgAction::Append);
            let arg = arg.value_parser(property).help(help).help_heading("Kafka's clients");
            command = command.arg(arg.hide(!is_listed(of_setting)));
        }
    }
    command
}

fn flag(setting: &Setting, of: reader::Command, is_needed: bool) -> Arg {
    let default = match setting.default_in(of) {
        _ if is_needed => "required".into(),
        Default::Required if of == reader::Command::Operator && setting.name != STORE.name => "optional".into(),
        Default::Required => "required".into(),
        Default::Value(text) | Default::Absent(text) => format!("default: {text}"),
    };
    let alias = setting.alias.map_or_else(String::new, |alias| format!(", or its name before Semel, {alias}"));
    let arg = Arg::new(setting.name).long(kept(setting.flag())).value_name(kept(setting.form_in(of))).help(format!(
        "{} [{}{alias}] [{default}]",
        setting.doc_in(of),
        setting.name
    ));
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
pub fn route(matches: &ArgMatches) -> Result<Route, ConfigError> {
    checked(Route::of(given(matches))?, Route::store)
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
