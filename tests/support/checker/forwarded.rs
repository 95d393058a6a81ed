//! What came out, against what went in.

use std::collections::{BTreeMap, HashMap, HashSet};

use semel::protocol::event::EventId;

use super::{Evidence, Finding, Header, Input, Log, Part, Partitioning, Place, Record, murmur2};

/// Which copy of each event came out, and which of them more than once.
#[derive(Default)]
pub(super) struct Outcome {
    pub forwarded: BTreeMap<EventId, Vec<u64>>,
}

/// The test's own footing: what was sent is what lies in the input.
pub(super) fn sent_is_stored(evidence: &Evidence, input: &Input<'_>, findings: &mut Vec<Finding>) {
    let bad = |copy, why| Finding::InputBad { copy, why };
    findings.extend(input.stored_twice.iter().map(|&copy| bad(copy, "stored twice")));
    for message in &evidence.sent {
        let Some((place, record)) = input.by_copy.get(&message.copy) else {
            findings.push(bad(message.copy, "sent and not stored"));
            continue;
        };
        let same = record.key == message.key
            && record.value == message.value
            && record.headers == message.headers
            && record.timestamp == Some(message.timestamp)
            && place.partition == message.partition;
        if !same {
            findings.push(bad(message.copy, "stored otherwise than sent"));
        }
    }
}

pub(super) fn judge(evidence: &Evidence, input: &Input<'_>, findings: &mut Vec<Finding>) -> Outcome {
    let mut outcome = Outcome::default();
    for log in &evidence.output {
        read_log(evidence, input, log, &mut outcome, findings);
    }
    for (event, copies) in &input.copies_of {
        match outcome.forwarded.get(event).map_or(0, Vec::len) {
            0 => lost(evidence, input, event, copies, findings),
            1 => {}
            _ => {
                let from = outcome.forwarded[event].iter().map(|copy| input.by_copy[copy].0.clone()).collect();
                findings.push(Finding::Doubled { event: event.clone(), from });
            }
        }
    }
    outcome
}

/// One output partition: origin, content, place, order.
fn read_log(evidence: &Evidence, input: &Input<'_>, log: &Log, outcome: &mut Outcome, findings: &mut Vec<Finding>) {
    if log.stable_end != log.end {
        let (topic, partition) = (log.topic.clone(), log.partition);
        findings.push(Finding::OpenTransaction { topic, partition, stable_end: log.stable_end, end: log.end });
    }
    let mut last: HashMap<(&str, u32, i32), i64> = HashMap::new();
    let mut seen = HashSet::new();
    for record in &log.records {
        let Some((copy, (place, original))) = record.copy().and_then(|copy| Some((copy, input.by_copy.get(&copy)?)))
        else {
            findings.push(Finding::NeverSent { output_partition: log.partition, offset: record.offset });
            continue;
        };
        findings.extend(altered(original, record).map(|part| Finding::Altered { copy, part }));
        match original.event() {
            Some(event) => outcome.forwarded.entry(event).or_default().push(copy),
            None => findings.push(Finding::ForwardedWithoutId { copy }),
        }
        if !seen.insert(copy) {
            continue; // Doubled, which is said once, and says nothing of the order.
        }
        if let Some(belongs) = belongs(evidence, place, original).filter(|&belongs| belongs != log.partition) {
            findings.push(Finding::WrongPartition { copy, is: log.partition, belongs });
        }
        let behind = last.entry((&place.topic, place.generation, place.partition)).or_insert(-1);
        if place.offset < *behind {
            let (at, output_partition) = (place.clone(), log.partition);
            findings.push(Finding::Reordered { copy, at, after: *behind, output_partition });
        }
        *behind = place.offset.max(*behind);
    }
}

/// The output partition of a copy, where only one is right.
fn belongs(evidence: &Evidence, place: &Place, record: &Record) -> Option<i32> {
    match evidence.partitioning {
        Partitioning::Same => Some(place.partition),
        Partitioning::Murmur2 => Some(murmur2::partition(record.key.as_deref()?, evidence.output.len())),
    }
}

/// The first part of a copy that is not as it was.
fn altered(original: &Record, copy: &Record) -> Option<Part> {
    if original.key != copy.key {
        Some(Part::Key)
    } else if original.value != copy.value {
        Some(Part::Value)
    } else if original.headers != copy.headers {
        Some(Part::Headers)
    } else if original.timestamp != copy.timestamp {
        Some(Part::Timestamp)
    } else {
        None
    }
}

/// An event that did not come out, unless all that might have brought it was taken away unread.
fn lost(evidence: &Evidence, input: &Input<'_>, event: &EventId, copies: &[u64], findings: &mut Vec<Finding>) {
    let places: Vec<Place> = copies.iter().map(|copy| input.by_copy[copy].0.clone()).collect();
    let spans: Vec<_> = places.iter().map(|place| evidence.excused.skipped(place)).collect();
    let all_gone = spans.iter().all(Option::is_some);
    let dropped_against_one = spans.iter().flatten().any(|span| span.unsettled);
    if !all_gone && !dropped_against_one {
        let claimed = evidence.claims.iter().any(|claim| claim.event == *event);
        findings.push(Finding::Lost { event: event.clone(), copies: places, claimed });
    }
}

/// What has no id is in the dead letters once, with all it was made of; nothing else is.
pub(super) fn dead_letters(evidence: &Evidence, input: &Input<'_>, findings: &mut Vec<Finding>) {
    let mut times: HashMap<u64, usize> = HashMap::new();
    for record in evidence.dead.iter().flat_map(|log| &log.records) {
        let Some(copy) = record.copy().filter(|copy| input.without_id.contains(copy)) else {
            findings.push(Finding::DeadLetterUnexpected { offset: record.offset });
            continue;
        };
        *times.entry(copy).or_default() += 1;
        let original = input.by_copy[&copy].1;
        let part = match altered(original, record) {
            // Semel adds headers of its own; the message's must all be there, in their order.
            Some(Part::Headers) if within(&original.headers, &record.headers) => {
                (original.timestamp != record.timestamp).then_some(Part::Timestamp)
            }
            other => other,
        };
        findings.extend(part.map(|part| Finding::DeadLetterAltered { copy, part }));
    }
    let mut expected: Vec<u64> = input.without_id.iter().copied().collect();
    expected.sort_unstable();
    for copy in expected {
        let skipped = evidence.excused.skipped(&input.by_copy[&copy].0).is_some();
        match times.get(&copy).copied().unwrap_or(0) {
            0 if !skipped => findings.push(Finding::DeadLetterMissing { copy }),
            0 | 1 => {}
            _ if evidence.excused.dead_letters_repeat => {}
            _ => findings.push(Finding::DeadLetterDoubled { copy }),
        }
    }
}

/// Whether `all` holds `part` in its order, perhaps with others between.
fn within(part: &[Header], all: &[Header]) -> bool {
    let mut all = all.iter();
    part.iter().all(|header| all.any(|other| other == header))
}
