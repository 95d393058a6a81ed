//! Where claims are kept.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::mask;
use super::reader::Reader;
use super::setting::{Default, Kind, Setting};

pub const STORE: Setting = Setting::new(
    "SEMEL_STORE",
    Kind::Url("postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…, embedded:FOLDER"),
    Default::Required,
    "Where claims are kept. What the URL of PostgreSQL leaves open, the usual PG* variables say. An embedded store \
     serves one process.",
)
.secret()
.in_pipe_as("embedded:./semel-claims")
.written_in_pipe("embedded:FOLDER")
.told_in_pipe("Folder where claims are kept, made where there is none. It serves one process at a time.");

pub const CONNECTIONS: Setting = Setting::new(
    "SEMEL_STORE_CONNECTIONS",
    Kind::Count(1..=1000),
    Default::Value("8"),
    "Most connections to PostgreSQL at a time.",
);

pub const CONNECT_TIMEOUT: Setting = Setting::new(
    "SEMEL_STORE_CONNECT_TIMEOUT",
    Kind::Duration,
    Default::Value("5s"),
    "Longest wait for a connection to PostgreSQL, TLS and log-in included.",
);

pub const TCP_TIMEOUT: Setting = Setting::new(
    "SEMEL_STORE_TCP_TIMEOUT",
    Kind::Duration,
    Default::Value("10s"),
    "How long data sent to PostgreSQL may stay unacknowledged before the connection is given up.",
);

pub const LOCK_TIMEOUT: Setting = Setting::new(
    "SEMEL_STORE_LOCK_TIMEOUT",
    Kind::Duration,
    Default::Value("10s"),
    "Longest wait for one lock in PostgreSQL.",
);

pub const STATEMENT_TIMEOUT: Setting = Setting::new(
    "SEMEL_STORE_STATEMENT_TIMEOUT",
    Kind::Duration,
    Default::Value("30s"),
    "Longest run of one claim in PostgreSQL.",
);

pub const SCAN_TIMEOUT: Setting = Setting::new(
    "SEMEL_STORE_SCAN_TIMEOUT",
    Kind::Duration,
    Default::Value("4m"),
    "Longest run of a statement that may read every claim: a lane's cut, `semel release`.",
);

pub const SETTINGS: &[&Setting] =
    &[&STORE, &CONNECTIONS, &CONNECT_TIMEOUT, &TCP_TIMEOUT, &LOCK_TIMEOUT, &STATEMENT_TIMEOUT, &SCAN_TIMEOUT];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    Postgres(Postgres),
    Embedded { folder: PathBuf },
}

#[derive(Clone, PartialEq, Eq)]
pub struct Postgres {
    /// With its password. Parameters are the store's to read.
    pub url: String,
    pub connections: usize,
    pub connect_timeout: Duration,
    pub tcp_timeout: Duration,
    pub lock_timeout: Duration,
    pub statement_timeout: Duration,
    pub scan_timeout: Duration,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("url", &mask::url(&self.url)).finish_non_exhaustive()
    }
}

pub(super) enum Url {
    Postgres(String),
    Embedded(PathBuf),
}

impl Store {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Store> {
        let url = reader.parsed(&STORE, parse);
        let count = reader.count(&CONNECTIONS);
        let connect_timeout = reader.duration(&CONNECT_TIMEOUT, "100ms", "10m");
        let tcp_timeout = reader.duration(&TCP_TIMEOUT, "100ms", "10m");
        let lock_timeout = reader.duration(&LOCK_TIMEOUT, "10ms", "10m");
        let statement_timeout = reader.duration(&STATEMENT_TIMEOUT, "100ms", "1h");
        let scan_timeout = reader.duration(&SCAN_TIMEOUT, "100ms", "1d");
        if let Some(Url::Embedded(_)) = url {
            SETTINGS[1..].iter().for_each(|setting| reader.has_no_effect(setting, "the store is embedded"));
        }
        if let (Some(lock), Some(statement)) = (lock_timeout, statement_timeout)
            && lock > statement
        {
            let why = "the statement that waits for the lock would be ended first";
            reader.problem_with(&LOCK_TIMEOUT, format!("it is longer than {}: {why}", STATEMENT_TIMEOUT.name));
        }
        Some(match url? {
            Url::Embedded(folder) => Store::Embedded { folder },
            Url::Postgres(url) => Store::Postgres(Postgres {
                url,
                connections: usize::try_from(count?).ok()?,
                connect_timeout: connect_timeout?,
                tcp_timeout: tcp_timeout?,
                lock_timeout: lock_timeout?,
                statement_timeout: statement_timeout?,
                scan_timeout: scan_timeout?,
            }),
        })
    }
}

/// No word of the URL itself in an error: a password may be anywhere in one that is wrong.
pub(super) fn parse(text: &str) -> Result<Url, &'static str> {
    if let Some(folder) = text.strip_prefix("embedded:") {
        let folder = folder.strip_prefix("//").unwrap_or(folder);
        return if folder.is_empty() { Err("it names no folder") } else { Ok(Url::Embedded(folder.into())) };
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return if text.contains(char::is_whitespace) {
            Err("there is white space in it")
        } else {
            Ok(Url::Postgres(text.into()))
        };
    }
    Err("it begins with neither postgres:// nor embedded:")
}
