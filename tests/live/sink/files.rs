//! Files as a sink, read by what is in them.

use std::path::PathBuf;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use semel::sink::file::{FileOptions, FileSink, Format};
use semel::sink::{Destination, Sink};
use serde_json::Value;
use tempfile::TempDir;

use super::{Broker, Stored, Subject};

/// There is room for any number of messages.
pub async fn file(_room: Option<usize>) -> Subject {
    let folder = Folder(tempfile::tempdir().expect("a folder"));
    Subject { sink: Box::new(FileSink::new(folder.options())), broker: Box::new(folder) }
}

struct Folder(TempDir);

impl Folder {
    fn path(&self, destination: Destination) -> PathBuf {
        self.0.path().join(format!("{destination:?}.ndjson"))
    }

    fn options(&self) -> FileOptions {
        FileOptions {
            path: self.path(Destination::Forward),
            format: Format::Record,
            dead_letter: Some(self.path(Destination::DeadLetter)),
            duplicates: Some(self.path(Destination::Duplicates)),
        }
    }
}

#[async_trait]
impl Broker for Folder {
    async fn take(&self, destination: Destination) -> Vec<Stored> {
        let path = self.path(destination);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "every line is whole");
        drop(std::fs::remove_file(path));
        text.lines().map(stored).collect()
    }

    async fn remove(&self, destination: Destination) {
        drop(std::fs::remove_file(self.path(destination)));
        std::fs::create_dir(self.path(destination)).expect("something in its place");
    }

    async fn make(&self, destination: Destination) {
        std::fs::remove_dir(self.path(destination)).expect("its place is free");
    }

    fn without_duplicates(&self) -> Option<Box<dyn Sink>> {
        None
    }

    fn keeps_millis(&self) -> bool {
        true
    }
}

fn stored(line: &str) -> Stored {
    let record: Value = serde_json::from_str(line).expect("a JSON object");
    let mut stored = Stored {
        id: record.get("id").map(|id| id.as_str().expect("text").to_owned()),
        key: record.get("key").and_then(octets),
        value: octets(&record["value"]),
        timestamp_millis: record.get("timestamp_millis").and_then(Value::as_i64),
        ..Stored::default()
    };
    for header in record.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let name = header[0].as_str().expect("a name").to_owned();
        stored.headers.entry(name).or_default().push(octets(&header[1]));
    }
    stored
}

fn octets(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => Some(STANDARD.decode(value["base64"].as_str().expect("text")).expect("base64")),
    }
}
