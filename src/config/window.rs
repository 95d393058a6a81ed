//! How many messages are claimed together.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Default, Kind, Setting};

pub const SIZE: Setting = Setting::new(
    "SEMEL_WINDOW_SIZE",
    Kind::Count(1..=1_000_000),
    Default::Value("6000"),
    "Most messages that are claimed and forwarded together.",
)
.in_pipe_as("50000")
.told_in_pipe("Most lines that are claimed and forwarded together.");

pub const BYTES: Setting = Setting::new(
    "SEMEL_WINDOW_BYTES",
    Kind::Bytes,
    Default::Value("8MiB"),
    "Most bytes of messages in a window; a single message may be larger. The daemon has to deliver a window within SEMEL_TRANSACTION_TIMEOUT.",
)
.in_pipe_as("16MiB")
.told_in_pipe("Most bytes of lines that are claimed and forwarded together; a single line may be larger.");

pub const LINGER: Setting = Setting::new(
    "SEMEL_LINGER",
    Kind::Duration,
    Default::Value("5ms"),
    "How long a window waits for more when nothing else is at hand.",
);

pub const RECENT_IDS: Setting = Setting::new(
    "SEMEL_RECENT_IDS",
    Kind::Count(0..=100_000_000),
    Default::Value("400000"),
    "Claimed ids that each worker remembers, so that their duplicates need no question to the store; 0 for none.",
);

pub const SETTINGS: &[&Setting] = &[&SIZE, &BYTES, &LINGER, &RECENT_IDS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub messages_max: usize,
    pub bytes_max: usize,
    pub linger: Duration,
    pub recent_ids_max: usize,
}

impl Window {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Window> {
        let messages_max = reader.count(&SIZE);
        let bytes_max = reader.bytes(&BYTES, "1KiB", "1GiB");
        let linger = reader.duration(&LINGER, "0ms", "10s");
        let recent_ids_max = reader.count(&RECENT_IDS);
        Some(Window {
            messages_max: usize::try_from(messages_max?).ok()?,
            bytes_max: usize::try_from(bytes_max?).ok()?,
            linger: linger?,
            recent_ids_max: usize::try_from(recent_ids_max?).ok()?,
        })
    }
}
