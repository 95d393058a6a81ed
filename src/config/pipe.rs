//! What `semel pipe` is told: the settings that it shares with `semel run`, with defaults that need nothing.

use std::path::PathBuf;

use super::ConfigError;
use super::extraction::Keys;
use super::outside::Log;
use super::policy::{self, Unclaimable};
use super::reader::{Command, Reader};
use super::retention::{RETENTION_WEEKS, WEEKS_AHEAD};
use super::sink::DEAD_LETTER;
use super::store::STORE;
use super::values::Given;
use super::window::{BYTES, SIZE};
use crate::key::Bounds;
use crate::protocol::event::Scope;

#[derive(Debug, Clone)]
pub struct PipeConfig {
    pub scope: Scope,
    /// Of the embedded store.
    pub folder: PathBuf,
    pub keys: Keys,
    pub missing_id: Unclaimable,
    pub missing_time: Unclaimable,
    pub old_event: Unclaimable,
    pub future_event: Unclaimable,
    /// File for lines that are rejected.
    pub dead_letter: Option<PathBuf>,
    pub messages_max: usize,
    pub bytes_max: usize,
    pub bounds: Bounds,
    pub log: Log,
}

impl PipeConfig {
    pub fn of(given: Given) -> Result<PipeConfig, ConfigError> {
        super::read_all(given, Command::Pipe, PipeConfig::parts)
    }

    pub(super) fn parts(reader: &Reader<'_>) -> Option<PipeConfig> {
        let scope = super::identity::scope(reader);
        let folder = folder(reader);
        let keys = Keys::read(reader);
        let missing_id = reader.choice(&policy::MISSING_ID);
        let missing_time = reader.choice(&policy::MISSING_TIME);
        let old_event = reader.choice(&policy::OLD_EVENT);
        let future_event = reader.choice(&policy::FUTURE_EVENT);
        let dead_letter = reader.optional(&DEAD_LETTER, || reader.path(&DEAD_LETTER));
        let messages_max = reader.count(&SIZE);
        let bytes_max = reader.bytes(&BYTES, "1KiB", "1GiB");
        let weeks_kept = reader.count(&RETENTION_WEEKS);
        let weeks_ahead = reader.count(&WEEKS_AHEAD);
        let log = Log::read(reader);
        if let Some(keys) = &keys {
            policy::check_undated(reader, keys.extraction.time());
        }
        Some(PipeConfig {
            scope: scope?,
            folder: folder?,
            keys: keys?,
            missing_id: missing_id?,
            missing_time: missing_time?,
            old_event: old_event?,
            future_event: future_event?,
            dead_letter: dead_letter?,
            messages_max: usize::try_from(messages_max?).ok()?,
            bytes_max: usize::try_from(bytes_max?).ok()?,
            bounds: Bounds {
                weeks_kept: u32::try_from(weeks_kept?).ok()?,
                weeks_ahead: u32::try_from(weeks_ahead?).ok()?,
            },
            log: log?,
        })
    }
}

fn folder(reader: &Reader<'_>) -> Option<PathBuf> {
    reader.parsed(&STORE, |text| match super::store::parse(text) {
        Ok(super::store::Url::Embedded(folder)) => Ok(folder),
        Err(problem) if text.starts_with("embedded:") => Err(problem),
        _ => Err("semel pipe keeps its claims in an embedded store (embedded:FOLDER)"),
    })
}
