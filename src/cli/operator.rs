//! What the operator's commands share: their settings, event ids and times as they are typed and shown.

use chrono::SecondsFormat;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::flags::{self, Listed};
use crate::config::operator::OperatorConfig;
use crate::config::source::SOURCE;
use crate::config::{ConfigError, reader};
use crate::kafka::groups::{GroupError, Groups};
use crate::pipeline::transactional::wiring;
use crate::protocol::event::{EventId, EventTime};

/// Said at the end of every dry run.
pub const DRY_RUN: &str = "dry run: nothing was changed. repeat it with --yes to do it";

pub fn with_settings(command: Command, listed: &Listed) -> Command {
    flags::with_listed(command, reader::Command::Operator, listed)
}

pub fn config(matches: &ArgMatches) -> Result<OperatorConfig, ConfigError> {
    flags::checked(OperatorConfig::of(flags::given(matches))?, |config| &config.store)
}

/// Does what is planned, instead of only showing it.
pub fn yes() -> Arg {
    Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Do it; without this nothing is changed")
}

/// A client of the source's cluster; None where no source is set.
pub fn groups(config: &OperatorConfig) -> Result<Option<Groups>, GroupError> {
    let Some(source) = &config.source else { return Ok(None) };
    Groups::new(&wiring::cluster(&config.oauth_token_file, &source.brokers, &source.properties)).map(Some)
}

/// A setting that this command cannot do without.
pub fn needed<T>(value: Option<T>, name: &str) -> Result<T, ConfigError> {
    value.ok_or_else(|| ConfigError(vec![format!("{name}: it must be given")]))
}

pub fn needed_groups(config: &OperatorConfig) -> anyhow::Result<Groups> {
    Ok(needed(groups(config)?, SOURCE.name)?)
}

/// The arguments that name an event.
pub fn with_event(command: Command) -> Command {
    let id = Arg::new("id")
        .required(true)
        .num_args(1..)
        .value_name("ID")
        .help("The event id; of a composite its parts in order. Behind `--` it may begin with a hyphen");
    let stored = Arg::new("stored").long("stored").action(ArgAction::SetTrue);
    command.arg(id).arg(stored.help("The id is given as the table holds it (it may begin with ~)"))
}

/// The event that the arguments name, in its stored form. SEMEL_EVENT_ID says how single parts are written.
pub fn event_id(matches: &ArgMatches, config: &OperatorConfig) -> Result<EventId, ConfigError> {
    let parts: Vec<&String> = matches.get_many("id").into_iter().flatten().collect();
    let wrong = |problem: &str| ConfigError(vec![problem.to_owned()]);
    if matches.get_flag("stored") {
        let [stored] = parts[..] else { return Err(wrong("--stored: one id is given as the table holds it")) };
        return Ok(EventId::from_stored(stored.as_str()));
    }
    let parts: Vec<&[u8]> = parts.into_iter().map(|part| part.as_bytes()).collect();
    if parts.iter().any(|part| part.is_ascii() && part.trim_ascii().is_empty()) {
        return Err(wrong("a part of the event id is blank"));
    }
    let encoded = match &config.keys {
        Some(keys) => keys.extraction.recipe().id_of(&parts).ok(),
        None => EventId::encode(&EventId::join(&parts)).ok(),
    };
    encoded.ok_or_else(|| wrong("the event id is blank"))
}

pub fn time(time: EventTime) -> String {
    let shown = time.to_datetime().map(|time| time.to_rfc3339_opts(SecondsFormat::Millis, true));
    shown.unwrap_or_else(|| format!("{} us", time.micros()))
}
