//! Gathers what was given, wherever it was given.
//!
//! A flag goes over the environment, the environment over the file, the file over the default. Within one of them a
//! setting has one value: by its name, its other name, or the file that `<name>_FILE` names; two that differ are
//! refused. An empty value is none. A name that is unknown is refused, because a setting that is misspelt is a setting
//! that is not there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::names::{Known, known, nearest, service_link};
use super::setting::Setting;
use super::{file, kafka};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag,
    Environment,
    File { path: PathBuf, line: usize },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Environment => f.write_str("environment"),
            Origin::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A value that was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub origin: Origin,
    /// The name it was given by.
    pub name: String,
}

/// One problem: its name, where, and what. Never a secret.
pub type Problem = String;

/// What a process was given. Nothing in here is read from the process itself.
#[derive(Clone, Default)]
pub struct Given {
    /// By the settings' names.
    pub flags: Vec<(String, String)>,
    /// The whole environment.
    pub environment: BTreeMap<String, String>,
    /// Names in the environment whose values are no text.
    pub not_text: Vec<String>,
    pub host: Option<String>,
}

/// Everything that was given, each under the name of its setting.
#[derive(Clone, Default)]
pub struct Values {
    pub settings: BTreeMap<&'static str, Value>,
    /// librdkafka's properties.
    pub kafka: BTreeMap<kafka::Place, Value>,
    pub environment: BTreeMap<String, String>,
    pub host: Option<String>,
}

/// The name of the setting that names the file.
pub const CONFIG: &str = "SEMEL_CONFIG";

impl Values {
    /// What could be gathered, and every problem on the way.
    pub fn gather(given: Given) -> (Values, Vec<Problem>) {
        let mut values = Values { environment: given.environment, host: given.host, ..Values::default() };
        let mut problems: Vec<Problem> =
            given.not_text.iter().map(|name| format!("{name} (environment): the value is not UTF-8")).collect();
        let flags = given.flags.into_iter().map(|(name, text)| Value { text, origin: Origin::Flag, name });
        values.layer(flags.collect(), &mut problems);
        let environment = values.environment.iter().filter(|(name, text)| is_ours(name, text));
        let environment = environment.map(|(name, text)| Value {
            text: text.clone(),
            origin: Origin::Environment,
            name: name.clone(),
        });
        values.layer(environment.collect(), &mut problems);
        if let Some(path) = values.settings.get(CONFIG).map(|value| PathBuf::from(&value.text)) {
            values.layer(read_file(&path, &mut problems), &mut problems);
        }
        (values, problems)
    }

    /// Adds what is not there yet.
    fn layer(&mut self, given: Vec<Value>, problems: &mut Vec<Problem>) {
        let mut layer = Values::default();
        for value in given.into_iter().filter(|value| !value.text.is_empty()) {
            let (known, value) = match known(&value.name) {
                None => {
                    problems.push(unknown(&value));
                    continue;
                }
                Some(Known::FileOf(known)) => match read_secret(&value) {
                    Ok(text) if text.is_empty() => continue,
                    Ok(text) => (*known, Value { text, ..value }),
                    Err(problem) => {
                        problems.push(problem);
                        continue;
                    }
                },
                Some(known) => (known, value),
            };
            let there = match known {
                Known::Setting(setting) => layer.settings.insert(setting.name, value.clone()),
                Known::Kafka(place) => layer.kafka.insert(place, value.clone()),
                Known::FileOf(_) => None,
            };
            if let Some(there) = there.filter(|there| there.text != value.text) {
                let problem = format!("{} and {} are both given and differ", there.name, value.name);
                problems.push(match there.name == value.name {
                    true => format!("{} is given twice ({} and {})", value.name, there.origin, value.origin),
                    false => problem,
                });
            }
        }
        for (name, value) in layer.settings {
            self.settings.entry(name).or_insert(value);
        }
        for (place, value) in layer.kafka {
            self.kafka.entry(place).or_insert(value);
        }
    }

    /// The setting's value with its references resolved.
    pub fn text(&self, setting: &Setting) -> Option<Result<String, Problem>> {
        let value = self.settings.get(setting.name)?;
        if !setting.references {
            return Some(Ok(value.text.clone()));
        }
        Some(self.resolved(&value.text).map_err(|problem| format!("{} ({}): {problem}", value.name, value.origin)))
    }

    fn resolved(&self, text: &str) -> Result<String, Problem> {
        let mut resolved = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((front, behind)) = rest.split_once("${") {
            let (name, tail) = behind.split_once('}').ok_or("there is a `${` without its `}` in it")?;
            let value = self.environment.get(name).filter(|value| !value.is_empty());
            resolved.push_str(front);
            resolved.push_str(value.ok_or_else(|| format!("`${{{name}}}`: there is no such environment variable"))?);
            rest = tail;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// Whether a variable of the environment is meant for Semel.
fn is_ours(name: &str, text: &str) -> bool {
    (name.starts_with("SEMEL_") && !name.starts_with("SEMEL_TEST_") && !service_link(name, text))
        || matches!(known(name), Some(Known::Setting(_)))
}

fn unknown(value: &Value) -> Problem {
    let hint = match (value.name.strip_suffix("_FILE").and_then(known), nearest(&value.name)) {
        (Some(_), _) => "; only a secret may be held by a file".into(),
        (None, Some(name)) => format!("; did you mean {name}?"),
        (None, None) => String::new(),
    };
    format!("{} ({}): there is no such setting{hint}", value.name, value.origin)
}

fn read_file(path: &Path, problems: &mut Vec<Problem>) -> Vec<Value> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            problems.push(format!("{CONFIG}: cannot read {}: {error}", path.display()));
            return Vec::new();
        }
    };
    let (lines, bad) = file::parse(&text);
    problems.extend(bad.iter().map(|(number, problem)| format!("{}, line {number}: {problem}", path.display())));
    let of_line = |line: file::Line<'_>| Value {
        text: line.value.into(),
        origin: Origin::File { path: path.into(), line: line.number },
        name: line.name.into(),
    };
    let (config, values): (Vec<_>, Vec<_>) = lines.into_iter().map(of_line).partition(|value| value.name == CONFIG);
    problems.extend(config.iter().map(|value| format!("{CONFIG} ({}): a file cannot name another", value.origin)));
    values
}

fn read_secret(value: &Value) -> Result<String, Problem> {
    // One line break at the end is the editor's, not the secret's.
    let text = std::fs::read_to_string(&value.text)
        .map_err(|error| format!("{} ({}): cannot read {}: {error}", value.name, value.origin, value.text))?;
    Ok(text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text)).to_owned())
}

/// Secrets may be among the values.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.settings.keys()).entries(self.kafka.keys()).finish()
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
