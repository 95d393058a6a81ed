//! The registry as documents, and the settings of a process as it sees them.

use serde_json::{Value as Json, json};

use super::kafka::{Place, is_secret};
use super::mask::{self, MASK};
use super::policy::{Duplicates, Policies};
use super::reader::{Command, Reader};
use super::setting::{Default, Kind, Pipe, Setting};
use super::sink::{DEAD_LETTER, DUPLICATES_TOPIC};
use super::values::{Origin, Values};
use super::{CONCERNS, identity, settings};

/// Every setting, for programs.
pub fn json() -> Json {
    let of_concern = |(concern, settings): &(&str, &[&Setting])| {
        settings.iter().map(|setting| of_setting(concern, setting)).collect::<Vec<_>>()
    };
    json!({
        "settings": CONCERNS.iter().flat_map(of_concern).collect::<Vec<_>>(),
        "kafka": {
            "both": "SEMEL_KAFKA_<PROPERTY>",
            "source": "SEMEL_SOURCE_KAFKA_<PROPERTY>",
            "sink": "SEMEL_SINK_KAFKA_<PROPERTY>",
            "flag": "--kafka, --source-kafka, --sink-kafka <property>=<value>",
        },
        "precedence": ["flag", "environment", "file", "default"],
    })
}

fn of_setting(concern: &str, setting: &Setting) -> Json {
    let (required, default) = match setting.default {
        Default::Required => (true, Json::Null),
        Default::Value(text) => (false, text.into()),
        Default::Absent(_) => (false, Json::Null),
    };
    let mut entry = json!({
        "name": setting.name,
        "concern": concern,
        "flag": format!("--{}", setting.flag()),
        "form": setting.form(),
        "required": required,
        "default": default,
        "secret": setting.secret,
        "references": setting.references,
        "doc": setting.doc,
    });
    if let Some(alias) = setting.alias {
        entry["alias"] = alias.into();
    }
    if setting.secret {
        entry["file"] = format!("{}_FILE", setting.name).into();
    }
    if let Default::Absent(otherwise) = setting.default {
        entry["otherwise"] = otherwise.into();
    }
    if let Kind::Choice(words) = setting.kind {
        entry["values"] = words().into();
    }
    match setting.pipe {
        Pipe::No => {}
        Pipe::Otherwise(Default::Value(text)) => entry["pipe"] = text.into(),
        Pipe::Otherwise(Default::Absent(otherwise)) => {
            entry["pipe"] = true.into();
            entry["pipe_otherwise"] = otherwise.into();
        }
        Pipe::Same | Pipe::Otherwise(Default::Required) => entry["pipe"] = true.into(),
    }
    for (name, text) in [("pipe_form", setting.pipe_form), ("pipe_doc", setting.pipe_doc)] {
        if let Some(text) = text {
            entry[name] = text.into();
        }
    }
    entry
}

/// Every setting as a Markdown table, as it stands in README.
pub fn markdown() -> String {
    let mut table = String::from("| setting | form | default | meaning |\n| --- | --- | --- | --- |\n");
    for (concern, settings) in CONCERNS {
        table.push_str(&format!("| **{concern}** | | | |\n"));
        for setting in *settings {
            let alias = setting.alias.map_or_else(String::new, |alias| format!(" (also `{alias}`)"));
            let file = if setting.secret { format!(" (or `{}_FILE`)", setting.name) } else { String::new() };
            let default = match setting.default {
                Default::Required => "**required**".into(),
                Default::Value(text) => format!("`{text}`"),
                Default::Absent(text) => text.into(),
            };
            let in_pipe = match setting.pipe {
                Pipe::Otherwise(Default::Value(text)) => format!("; in `semel pipe` `{text}`"),
                Pipe::Otherwise(Default::Absent(text)) => format!("; in `semel pipe` {text}"),
                _ => String::new(),
            };
            let cells = [
                format!("`{}`{alias}{file}", setting.name),
                setting.form(),
                format!("{default}{in_pipe}"),
                setting.doc.to_owned(),
            ];
            table.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
        }
    }
    table
}

/// A setting as it holds, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub name: String,
    pub value: String,
    pub origin: String,
}

/// What holds for a command, given or by default, with where it came from, and what is missing. Other settings without
/// a value are left out.
pub fn show(values: &Values, command: Command) -> Vec<Shown> {
    let mut shown: Vec<Shown> = settings().filter_map(|setting| shown_setting(values, command, setting)).collect();
    for (place, value) in &values.kafka {
        let secret = is_secret(&place.property);
        shown.push(Shown {
            name: Place::name(place.side, &place.property),
            value: if secret { MASK.into() } else { value.text.clone() },
            origin: value.origin.to_string(),
        });
    }
    shown
}

fn shown_setting(values: &Values, command: Command, setting: &Setting) -> Option<Shown> {
    let name = setting.name.to_owned();
    if let Some(value) = values.settings.get(setting.name) {
        let text = values.text(setting)?.unwrap_or_else(|_| value.text.clone());
        let by = if value.name == setting.name { String::new() } else { format!(" by {}", value.name) };
        // A secret that is no URL is nothing but secret.
        let hidden = setting.secret && !matches!(setting.kind, Kind::Url(_));
        let value_shown = if hidden { MASK.into() } else { mask::url(&text) };
        return Some(Shown { name, value: value_shown, origin: format!("{}{by}", value.origin) });
    }
    let derived = match setting.name {
        _ if command != Command::Run => None,
        name if name == identity::PIPELINE.name => identity::default_pipeline(values),
        name if name == identity::INSTANCE.name => identity::default_instance(values),
        _ => None,
    };
    if let Some((value, origin)) = derived {
        return Some(Shown { name, value, origin: origin.into() });
    }
    if command == Command::Pipe && setting.pipe == Pipe::No {
        return None;
    }
    match setting.default_in(command) {
        Default::Value(text) => Some(Shown { name, value: text.into(), origin: Origin::Default.to_string() }),
        _ if is_missing(values, command, setting) => {
            Some(Shown { name, value: "-".into(), origin: "missing: it must be given".into() })
        }
        _ => None,
    }
}

/// Whether the command would refuse to start without it. A topic is needed where a policy sends messages there.
fn is_missing(values: &Values, command: Command, setting: &Setting) -> bool {
    let policies = || Policies::read(&Reader::new(values, command)).filter(|_| command == Command::Run);
    match setting.name {
        name if name == DEAD_LETTER.name => policies().is_some_and(|policies| !policies.rejecting().is_empty()),
        name if name == DUPLICATES_TOPIC.name => policies().is_some_and(|it| it.duplicates == Duplicates::Route),
        _ => setting.default_in(command) == Default::Required,
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
