//! Messages made one by one, and topics read back as what tests say of them.

use super::broker::Broker;
use super::checker::Record;
use super::generator::{COPY, EVENT_ID, Header, Message};
use super::world::World;

/// Milliseconds since the epoch.
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
    since.as_millis() as i64
}

pub fn header(name: &str, value: Option<&str>) -> Header {
    (name.to_owned(), value.map(|text| text.as_bytes().to_vec()))
}

/// Of partition 0, of now, with these headers and its number.
pub fn bare(copy: u64, headers: &[(&str, Option<&str>)]) -> Message {
    let mut headers: Vec<Header> = headers.iter().map(|(name, value)| header(name, *value)).collect();
    headers.push(header(COPY, Some(&copy.to_string())));
    let (key, value) = (Some(b"k".to_vec()), Some(b"v".to_vec()));
    Message { copy, partition: 0, key, value, headers, timestamp: now() }
}

/// Of partition 0, of now, with an event id.
pub fn event(copy: u64, id: &str) -> Message {
    bare(copy, &[(EVENT_ID, Some(id))])
}

/// Every record of a topic, partition by partition.
pub fn all(broker: &Broker, topic: &str) -> Vec<Record> {
    broker.read(topic).into_iter().flat_map(|log| log.records).collect()
}

/// The copies in the output, sorted.
pub fn forwarded(world: &World) -> Vec<u64> {
    copies(&all(&world.broker, &world.output))
}

pub fn copies(records: &[Record]) -> Vec<u64> {
    let mut copies: Vec<u64> = records.iter().filter_map(Record::copy).collect();
    copies.sort_unstable();
    copies
}

/// The last header of a name, as text.
pub fn text<'a>(record: &'a Record, name: &str) -> Option<&'a str> {
    let (_, value) = record.headers.iter().rfind(|(found, _)| found == name)?;
    std::str::from_utf8(value.as_deref()?).ok()
}

/// Copies with the text of one header, sorted; for records that have both.
pub fn marked(records: &[Record], name: &str) -> Vec<(u64, String)> {
    let mut marked: Vec<_> =
        records.iter().filter_map(|record| Some((record.copy()?, text(record, name)?.to_owned()))).collect();
    marked.sort_unstable();
    marked
}
