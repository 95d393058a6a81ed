//! How Semel is seen from outside: HTTP and logs.

use std::net::SocketAddr;

use tracing_subscriber::filter::LevelFilter;

use super::reader::Reader;
use super::setting::{Choice, Default, Kind, Setting};

pub const HTTP: Setting = Setting::new(
    "SEMEL_HTTP",
    Kind::Address,
    Default::Value("127.0.0.1:7979"),
    "Where /metrics, /livez and /readyz are served.",
);

pub const LOG: Setting = Setting::new(
    "SEMEL_LOG",
    Kind::Text,
    Default::Value("info"),
    "How much is logged: off, error, warn, info, debug or trace, for all or by module (`info,semel::store=debug`).",
)
.in_pipe_as("warn");

pub const LOG_FORMAT: Setting = Setting::choice::<LogFormat>(
    "SEMEL_LOG_FORMAT",
    "auto",
    "How log lines are written; auto is human on a terminal, else json.",
)
.in_pipe();

pub const SETTINGS: &[&Setting] = &[&HTTP, &LOG, &LOG_FORMAT];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Json,
    Human,
}

impl Choice for LogFormat {
    const ALL: &'static [(&'static str, LogFormat)] =
        &[("auto", LogFormat::Auto), ("json", LogFormat::Json), ("human", LogFormat::Human)];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Checked: each directive is a level, or a module and its level.
    pub filter: String,
    pub format: LogFormat,
}

impl Log {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Log> {
        let filter = reader.parsed(&LOG, |text| match text.split(',').find(|directive| !is_directive(directive)) {
            Some(directive) => Err(format!("`{directive}` is neither a level nor MODULE=LEVEL")),
            None => Ok(text.to_owned()),
        });
        let format = reader.choice(&LOG_FORMAT);
        Some(Log { filter: filter?, format: format? })
    }
}

/// A word alone is a level: the log's own parser would take a misspelt one for a module's name.
fn is_directive(text: &str) -> bool {
    let is_level = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic());
        plain && text.parse::<LevelFilter>().is_ok()
    };
    match text.split_once('=') {
        Some((module, level)) => {
            let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
            !module.is_empty() && module.bytes().all(sound) && is_level(level)
        }
        None => is_level(text),
    }
}

pub(super) fn http(reader: &Reader<'_>) -> Option<Option<SocketAddr>> {
    reader.address(&HTTP)
}
