//! Reads values as what they mean, and remembers every problem instead of stopping at the first.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::setting::{Choice, Default, Kind, Setting};
use super::store::STORE;
use super::units;
use super::values::{Problem, Values};

/// What the settings are read for: their defaults differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Run,
    Pipe,
    Ingest,
    /// The operator's commands: what is missing is missing, the store excepted.
    Operator,
}

pub struct Reader<'a> {
    pub values: &'a Values,
    command: Command,
    problems: RefCell<Vec<Problem>>,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub fn new(values: &'a Values, command: Command) -> Reader<'a> {
        Reader { values, command, problems: RefCell::default(), read: RefCell::default() }
    }

    pub fn problem(&self, problem: impl Into<Problem>) {
        let (mut problems, problem) = (self.problems.borrow_mut(), problem.into());
        // What holds for both sides is told once.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// The problems so far, and the settings that were asked for.
    pub fn finish(self) -> (Vec<Problem>, BTreeSet<&'static str>) {
        (self.problems.into_inner(), self.read.into_inner())
    }

    /// The default that holds here.
    fn default(&self, setting: &Setting) -> Default {
        match self.command {
            Command::Operator if setting.default == Default::Required && setting.name != STORE.name => {
                Default::Absent("")
            }
            command => setting.default_in(command),
        }
    }

    /// Whether a value was given.
    pub fn is_given(&self, setting: &Setting) -> bool {
        self.values.settings.contains_key(setting.name)
    }

    /// Refuses a value that was given and that nothing would come of.
    pub fn has_no_effect(&self, setting: &Setting, why: &str) {
        if let Some(value) = self.values.settings.get(setting.name) {
            self.problem(format!("{} ({}): it has no effect: {why}", value.name, value.origin));
        }
    }

    /// The value, given or default. None where there is none, or where it has a problem.
    pub fn text(&self, setting: &'static Setting) -> Option<String> {
        self.read.borrow_mut().insert(setting.name);
        match (self.values.text(setting), self.default(setting)) {
            (Some(Ok(text)), _) => Some(text),
            (Some(Err(problem)), _) => {
                self.problem(problem);
                None
            }
            (None, Default::Value(text)) => Some(text.into()),
            (None, Default::Absent(_)) => None,
            (None, Default::Required) => {
                self.problem(format!("{}: it must be given ({})", setting.name, setting.form_in(self.command)));
                None
            }
        }
    }

    /// `parse` must not put a secret into its words.
    pub fn parsed<T, E: Display>(
        &self,
        setting: &'static Setting,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(&self.text(setting)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem_with(setting, error);
                None
            }
        }
    }

    /// A problem that belongs to one setting.
    pub fn problem_with(&self, setting: &Setting, what: impl Display) {
        self.problem(match self.values.settings.get(setting.name) {
            Some(value) => format!("{} ({}): {what}", value.name, value.origin),
            None => format!("{} (default): {what}", setting.name),
        });
    }

    pub fn choice<T: Choice>(&self, setting: &'static Setting) -> Option<T> {
        self.parsed(setting, |text| {
            let found = T::ALL.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| format!("`{text}` is none of {}", setting.form()))
        })
    }

    pub fn switch(&self, setting: &'static Setting) -> Option<bool> {
        self.parsed(setting, |text| text.parse().map_err(|_| format!("`{text}` is neither true nor false")))
    }

    pub fn count(&self, setting: &'static Setting) -> Option<u64> {
        let Kind::Count(range) = &setting.kind else { unreachable!("{} is a count", setting.name) };
        self.parsed(setting, |text| {
            let count: Option<u64> = text.parse().ok().filter(|count| range.contains(count));
            count.ok_or_else(|| format!("`{text}` is not a whole number from {} to {}", range.start(), range.end()))
        })
    }

    pub fn duration(&self, setting: &'static Setting, least: &str, most: &str) -> Option<Duration> {
        self.bounded(setting, units::duration, least, most)
    }

    pub fn bytes(&self, setting: &'static Setting, least: &str, most: &str) -> Option<u64> {
        self.bounded(setting, units::bytes, least, most)
    }

    fn bounded<T: PartialOrd>(
        &self,
        setting: &'static Setting,
        parse: fn(&str) -> Result<T, String>,
        least: &str,
        most: &str,
    ) -> Option<T> {
        self.parsed(setting, |text| {
            let value = parse(text)?;
            let within = parse(least)? <= value && value <= parse(most)?;
            if within { Ok(value) } else { Err(format!("`{text}` is not between {least} and {most}")) }
        })
    }

    /// `off` is None.
    pub fn address(&self, setting: &'static Setting) -> Option<Option<SocketAddr>> {
        self.parsed(setting, |text| match text {
            "off" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| format!("`{text}` is not ADDRESS:PORT in digits, nor off")),
        })
    }

    /// Outer None: it has a problem.
    pub fn optional<T>(&self, setting: &'static Setting, read: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
        self.read.borrow_mut().insert(setting.name);
        if self.is_given(setting) { read().map(Some) } else { Some(None) }
    }

    pub fn path(&self, setting: &'static Setting) -> Option<PathBuf> {
        self.text(setting).map(PathBuf::from)
    }
}
