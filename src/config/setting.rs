//! What a setting is: one entry of the registry, from which flags, parsing, `semel config schema` and README's table
//! are made.

use std::ops::RangeInclusive;

use super::reader::Command;

/// A key of the configuration.
#[derive(Debug)]
pub struct Setting {
    /// In the environment and in the file. The flag is made of it: `SEMEL_EVENT_ID`, `--event-id`.
    pub name: &'static str,
    /// Another name for the same.
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub default: Default,
    /// Whether `semel pipe` takes it, and with which default.
    pub pipe: Pipe,
    /// How it is written for `semel pipe`, and what it means there, where that is otherwise.
    pub pipe_form: Option<&'static str>,
    pub pipe_doc: Option<&'static str>,
    /// What it is for `semel ingest` when nobody says it, where that is otherwise.
    pub ingest: Option<Default>,
    /// Never shown; `<name>_FILE` names a file that holds it.
    pub secret: bool,
    /// `${NAME}` in its value stands for that environment variable.
    pub references: bool,
    pub doc: &'static str,
}

/// How a value is written.
#[derive(Debug, Clone)]
pub enum Kind {
    Text,
    /// Scheme and form.
    Url(&'static str),
    Recipe(&'static str),
    Duration,
    Bytes,
    Count(RangeInclusive<u64>),
    Choice(fn() -> Vec<&'static str>),
    Switch,
    Address,
    Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// It must be given.
    Required,
    Value(&'static str),
    /// Nothing is done without it; or it follows from others, in these words.
    Absent(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    No,
    Same,
    Otherwise(Default),
}

/// A value that is one of a few words.
pub trait Choice: Sized + Copy + PartialEq + 'static {
    /// In the order in which they are shown.
    const ALL: &'static [(&'static str, Self)];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

fn words<T: Choice>() -> Vec<&'static str> {
    T::ALL.iter().map(|(word, _)| *word).collect()
}

impl Setting {
    pub const fn new(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Setting {
        Setting {
            name,
            alias: None,
            kind,
            default,
            pipe: Pipe::No,
            pipe_form: None,
            pipe_doc: None,
            ingest: None,
            secret: false,
            references: false,
            doc,
        }
    }

    pub const fn choice<T: Choice>(name: &'static str, default: &'static str, doc: &'static str) -> Setting {
        Setting::new(name, Kind::Choice(words::<T>), Default::Value(default), doc)
    }

    pub const fn in_pipe(mut self) -> Setting {
        self.pipe = Pipe::Same;
        self
    }

    pub const fn in_ingest_as(mut self, default: &'static str) -> Setting {
        self.ingest = Some(Default::Value(default));
        self
    }

    pub const fn in_pipe_as(mut self, default: &'static str) -> Setting {
        self.pipe = Pipe::Otherwise(Default::Value(default));
        self
    }

    /// `otherwise`: what holds without it, in words.
    pub const fn in_pipe_without(mut self, otherwise: &'static str) -> Setting {
        self.pipe = Pipe::Otherwise(Default::Absent(otherwise));
        self
    }

    pub const fn written_in_pipe(mut self, form: &'static str) -> Setting {
        self.pipe_form = Some(form);
        self
    }

    pub const fn told_in_pipe(mut self, doc: &'static str) -> Setting {
        self.pipe_doc = Some(doc);
        self
    }

    pub const fn secret(mut self) -> Setting {
        self.secret = true;
        self
    }

    pub const fn with_references(mut self) -> Setting {
        self.references = true;
        self
    }

    pub const fn also_named(mut self, alias: &'static str) -> Setting {
        self.alias = Some(alias);
        self
    }

    /// `SEMEL_EVENT_ID` → `event-id`.
    pub fn flag(&self) -> String {
        self.name.trim_start_matches("SEMEL_").to_ascii_lowercase().replace('_', "-")
    }

    /// What it is for a command when nobody says it.
    pub const fn default_in(&self, command: Command) -> Default {
        match (command, self.pipe) {
            (Command::Pipe, Pipe::Otherwise(default)) => default,
            (Command::Ingest, _) => match self.ingest {
                Some(default) => default,
                None => self.default,
            },
            _ => self.default,
        }
    }

    /// What a command's help says of it.
    pub fn doc_in(&self, command: Command) -> &'static str {
        self.pipe_doc.filter(|_| command == Command::Pipe).unwrap_or(self.doc)
    }

    /// [`Setting::form`], as a command takes it.
    pub fn form_in(&self, command: Command) -> String {
        self.pipe_form.filter(|_| command == Command::Pipe).map_or_else(|| self.form(), str::to_owned)
    }

    /// What is written, in a few words: `duration`, `1 to 64`, `drop, route, mark`.
    pub fn form(&self) -> String {
        match &self.kind {
            Kind::Text => "text".into(),
            Kind::Url(form) | Kind::Recipe(form) => (*form).into(),
            Kind::Duration => "duration (ms, s, m, h, d)".into(),
            Kind::Bytes => "bytes (B, KiB, MiB, GiB)".into(),
            Kind::Count(range) => format!("{} to {}", range.start(), range.end()),
            Kind::Choice(words) => words().join(", "),
            Kind::Switch => "true, false".into(),
            Kind::Address => "ADDRESS:PORT, off".into(),
            Kind::Path => "path".into(),
        }
    }
}
