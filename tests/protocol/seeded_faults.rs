//! The checker finds what is wrong: evidence of a right run, one fault seeded into it at a time, and exactly that fault
//! found.

use std::collections::HashMap;

use semel::protocol::lane::{LaneId, Mark, StoreId, TopicId};

use crate::checker::{Claim, Evidence, Excused, Log, Offsets, Part, Partitioning, Record, Skipped, judge, murmur2};
use crate::generator::{Dress, EVENT_ID, Message, Recipe};

const PARTITIONS: i32 = 3;
const LANES: i64 = 100;

/// What a right run over the generator's messages leaves behind: the input partitions read in turns, each event
/// claimed and forwarded by the first of its copies to be read.
fn right_run(seed: u64) -> Evidence {
    let recipe = Recipe {
        dress: Dress::Odd,
        without_id_percent: 2,
        newest: 1_767_225_600_000,
        ..Recipe::new(seed, 3_000, PARTITIONS)
    };
    let sent = recipe.all();
    let logs = |topic: &str| -> Vec<Log> {
        let log = |partition| Log { topic: topic.to_owned(), partition, ..Log::default() };
        (0..PARTITIONS).map(log).collect()
    };
    let (mut input, mut output, mut dead) = (logs("in"), logs("out"), vec![logs("dead").remove(0)]);
    for message in &sent {
        append(&mut input[message.partition as usize], record_of(message));
    }
    let mut claims: HashMap<_, Claim> = HashMap::new();
    let longest = input.iter().map(|log| log.records.len()).max().unwrap_or(0);
    for at in 0..longest {
        for log in &input {
            let Some(record) = log.records.get(at) else { continue };
            let Some(event) = record.event() else {
                let mut letter = record.clone();
                letter.headers.push(("semel-cause".to_owned(), Some(b"no event id".to_vec())));
                append(&mut dead[0], letter);
                continue;
            };
            claims.entry(event.clone()).or_insert_with(|| {
                let to = record.key.as_deref().map_or(0, |key| murmur2::partition(key, PARTITIONS as usize));
                append(&mut output[to as usize], record.clone());
                Claim {
                    event,
                    week: "2025-12-29".to_owned(),
                    lane: Some(LANES + i64::from(log.partition)),
                    position: Some(record.offset),
                    topic: "in".to_owned(),
                    partition: Some(log.partition),
                    offset: Some(record.offset),
                }
            });
        }
    }
    let offsets = input.iter().map(offsets_of).collect();
    let mut claims: Vec<Claim> = claims.into_values().collect();
    claims.sort_by_key(|claim| (claim.partition, claim.offset));
    let (partitioning, excused) = (Partitioning::Murmur2, Excused::default());
    Evidence { partitioning, sent, input, output, dead, claims, offsets, excused }
}

fn record_of(message: &Message) -> Record {
    let Message { key, value, headers, timestamp, .. } = message.clone();
    Record { offset: 0, key, value, headers, timestamp: Some(timestamp) }
}

/// Leaves a gap now and then, as the end of a transaction does.
fn append(log: &mut Log, record: Record) {
    let offset = log.end + i64::from(log.end % 7 == 3);
    log.records.push(Record { offset, ..record });
    log.end = offset + 1;
    log.stable_end = log.end;
}

fn mark(lane: i64) -> String {
    Mark { store: StoreId("store".into()), topic: TopicId("topic".into()), lane: LaneId(lane), cut: None }.encode()
}

fn offsets_of(log: &Log) -> Offsets {
    let lane = LANES + i64::from(log.partition);
    Offsets {
        topic: "in".to_owned(),
        partition: log.partition,
        committed: Some(log.end),
        settled: Some((log.end, mark(lane))),
        open_lane: Some(lane),
        end: log.end,
    }
}

/// Where the second forwarded copy of some event lies that has more than one copy in the input: (log, index).
fn with_duplicates(evidence: &Evidence) -> (usize, usize) {
    for (l, log) in evidence.output.iter().enumerate() {
        for (n, record) in log.records.iter().enumerate() {
            if other_copy(evidence, record).is_some() {
                return (l, n);
            }
        }
    }
    panic!("no event with a second copy")
}

/// Another copy of the record's event that belongs to the same output partition.
fn other_copy(evidence: &Evidence, record: &Record) -> Option<Record> {
    let same =
        |other: &&Record| other.event() == record.event() && other.copy() != record.copy() && other.key == record.key;
    evidence.input.iter().flat_map(|log| &log.records).find(same).cloned()
}

/// Adds a record to an output partition without disturbing the order.
fn put_in_order(evidence: &mut Evidence, log: usize, record: Record) {
    let place = |record: &Record| {
        let all = evidence.input.iter().flat_map(|log| log.records.iter().map(move |r| (log.partition, r)));
        let mut here = all.filter(|(_, original)| original.copy() == record.copy());
        here.next().map(|(partition, original)| (partition, original.offset))
    };
    let mine = place(&record).expect("a record of the input");
    let behind =
        |other: &Record| place(other).is_some_and(|(partition, offset)| partition == mine.0 && offset > mine.1);
    let records = &evidence.output[log].records;
    let at = records.iter().position(behind).unwrap_or(records.len());
    evidence.output[log].records.insert(at, record);
}

/// The first two neighbours of an output partition that come from one input partition.
fn neighbours(evidence: &Evidence, log: usize) -> usize {
    let origin = |record: &Record| {
        let copy = record.copy().expect("a copy");
        evidence.sent[copy as usize].partition
    };
    let records = &evidence.output[log].records;
    (1..records.len()).find(|&n| origin(&records[n - 1]) == origin(&records[n])).expect("two neighbours")
}

type Fault = (&'static str, fn(&mut Evidence), &'static [&'static str]);

#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    ("nothing is wrong", |_| {}, &[]),
    ("a claimed event never came out, as after a crash between claim and publish",
        |e| drop(e.output[0].records.remove(5)), &["lost"]),
    ("an event was neither claimed nor forwarded, as when a window is dropped with its offsets committed",
        |e| {
            let event = e.output[1].records.remove(5).event();
            e.claims.retain(|claim| Some(&claim.event) != event.as_ref());
        }, &["lost"]),
    ("one copy came out twice, as when a window of unknown outcome is sent again",
        |e| { let again = e.output[0].records[5].clone(); e.output[0].records.push(again) }, &["doubled"]),
    ("two copies of an event came out, as when its claim was released although it was settled",
        |e| {
            let (l, n) = with_duplicates(e);
            let second = other_copy(e, &e.output[l].records[n]).unwrap();
            put_in_order(e, l, second);
        }, &["doubled"]),
    ("two neighbours of one input partition changed places",
        |e| { let n = neighbours(e, 1); e.output[1].records.swap(n - 1, n) }, &["reordered"]),
    ("an empty key became null",
        |e| { find(e, |r| r.key.as_deref() == Some(b"")).key = None }, &["altered"]),
    ("a tombstone became an empty value",
        |e| { find(e, |r| r.value.is_none()).value = Some(vec![]) }, &["altered"]),
    ("an empty value became a tombstone",
        |e| { find(e, |r| r.value.as_deref() == Some(b"")).value = None }, &["altered"]),
    ("repeated headers changed places",
        |e| { find(e, |r| repeats(r) && r.headers[2].1 != r.headers[3].1).headers.swap(2, 3) }, &["altered"]),
    ("a null header became empty",
        |e| {
            let record = find(e, |r| r.headers.iter().any(|h| h.1.is_none()));
            record.headers.iter_mut().find(|h| h.1.is_none()).unwrap().1 = Some(vec![]);
        }, &["altered"]),
    ("a header was added",
        |e| e.output[2].records[7].headers.push(("semel-lane".to_owned(), Some(b"1".to_vec()))), &["altered"]),
    ("the timestamp is that of forwarding",
        |e| e.output[2].records[7].timestamp = Some(1_800_000_000_000), &["altered"]),
    ("the other copy came out, and not the one that owns the claim",
        |e| {
            let (l, n) = with_duplicates(e);
            let event = e.output[l].records[n].event().unwrap();
            let owner = e.output[l].records[n].copy();
            let other = e.input.iter().zip(0..).find_map(|(log, p)| {
                let record = log.records.iter().find(|r| r.event().as_ref() == Some(&event) && r.copy() != owner)?;
                Some((p, record.offset))
            }).unwrap();
            let claim = e.claims.iter_mut().find(|claim| claim.event == event).unwrap();
            (claim.partition, claim.offset, claim.position) = (Some(other.0), Some(other.1), Some(other.1));
        }, &["by the wrong copy"]),
    ("a record that nobody sent lies in the output",
        |e| e.output[0].records[3].headers.retain(|h| h.0 != "copy"), &["lost", "never sent"]),
    ("an extra record that nobody sent lies in the output",
        |e| {
            let headers = vec![(EVENT_ID.to_owned(), Some(b"stranger".to_vec()))];
            let record = Record { offset: 99_999, key: None, value: None, headers, timestamp: Some(1) };
            e.output[0].records.push(record);
        }, &["never sent"]),
    ("a message without an id was forwarded, and is no dead letter",
        |e| {
            let letter = e.dead[0].records.remove(0);
            let record = e.input.iter().flat_map(|log| &log.records).find(|r| r.copy() == letter.copy()).unwrap().clone();
            let to = record.key.as_deref().map_or(0, |key| murmur2::partition(key, 3));
            put_in_order(e, to as usize, record);
        }, &["dead letter missing", "forwarded without an id"]),
    ("records went where CRC32 puts them",
        |e| {
            let n = e.output[0].records.iter().position(|r| r.key.is_some()).unwrap();
            let record = e.output[0].records.remove(n);
            put_in_order(e, 1, record);
        }, &["in the wrong partition"]),
    ("a transaction on the output was left open",
        |e| e.output[1].stable_end -= 1, &["open transaction"]),
    ("a claim is gone",
        |e| drop(e.claims.remove(11)), &["output without a claim"]),
    ("a claim is left of an event that nobody can read",
        |e| { let mut claim = e.claims[11].clone(); claim.event = id("ghost"); e.claims.push(claim) },
        &["claim without an output"]),
    ("an event is claimed in two weeks",
        |e| { let mut claim = e.claims[11].clone(); claim.week = "2026-01-05".to_owned(); e.claims.push(claim) },
        &["claimed twice"]),
    ("a claim names the place of another event",
        |e| { e.claims[11].offset = e.claims[12].offset; e.claims[11].position = e.claims[12].position },
        &["claim misplaced"]),
    ("a claim's position is not the offset of its message",
        |e| e.claims[11].position = Some(0), &["claim misplaced"]),
    ("the last window was claimed and forwarded, and its offsets were not committed",
        |e| {
            e.offsets[2].committed = Some(e.offsets[2].end - 1);
            e.offsets[2].settled = Some((e.offsets[2].end - 1, mark(LANES + 2)));
            let last = e.input[2].records.last().unwrap().clone();
            let claimed = e.claims.iter().any(|c| c.partition == Some(2) && c.offset == Some(last.offset));
            if !claimed { // A duplicate lies last: let it own the claim, so that there is one to find.
                let claim = e.claims.iter_mut().rev().find(|c| Some(&c.event) == last.event().as_ref()).unwrap();
                (claim.partition, claim.offset, claim.position) = (Some(2), Some(last.offset), Some(last.offset));
                claim.lane = Some(LANES + 2);
                for log in &mut e.output { log.records.retain(|r| r.event() != last.event()) }
                let to = last.key.as_deref().map_or(0, |key| murmur2::partition(key, 3));
                e.output[to as usize].records.push(last);
            }
        }, &["lag", "unsettled claim"]),
    ("offsets were committed without the settled ones",
        |e| e.offsets[1].settled = Some((e.offsets[1].end - 1, mark(7))).inspect(|_| e.offsets[1].open_lane = Some(7)),
        &["offsets apart"]),
    ("the input was not read to its end",
        |e| { e.offsets[1].end += 4; }, &["lag"]),
    ("the group has no offset",
        |e| e.offsets[0].committed = None, &["no offset"]),
    ("the settled group has no offset",
        |e| e.offsets[0].settled = None, &["no offset"]),
    ("somebody else committed to the settled group",
        |e| e.offsets[0].settled.as_mut().unwrap().1 = "by hand".to_owned(), &["settled offset is foreign"]),
    ("the store has another lane open than the settled offset names",
        |e| e.offsets[0].open_lane = Some(9), &["another lane is open"]),
    ("a dead letter was lost",
        |e| drop(e.dead[0].records.remove(0)), &["dead letter missing"]),
    ("a dead letter was sent twice",
        |e| { let again = e.dead[0].records[1].clone(); e.dead[0].records.push(again) }, &["dead letter doubled"]),
    ("a dead letter lost a header",
        |e| drop(e.dead[0].records[1].headers.remove(0)), &["dead letter missing", "dead letter unexpected"]),
    ("a dead letter lost its value",
        |e| e.dead[0].records[1].value = Some(b"?".to_vec()), &["dead letter altered"]),
    ("an event that came out is a dead letter too",
        |e| { let record = e.output[0].records[4].clone(); e.dead[0].records.push(record) }, &["dead letter unexpected"]),
    ("the test's input lacks a message that was sent",
        |e| {
            let mut more = e.sent[0].clone();
            more.copy = 1_000_000; // And nowhere stored.
            e.sent.push(more);
        }, &["bad input"]),
    ("an event all of whose copies were skipped did not come out, and none was to",
        |e| { let gone = lose_rare(e); e.excused.skipped.push(gone) }, &[]),
    ("an event was lost although another of its copies was not skipped",
        |e| { let gone = lose_common(e); e.excused.skipped.push(gone) }, &["lost"]),
    ("the same, where that other copy may have been dropped against a claim that was unsettled",
        |e| { let gone = lose_common(e); e.excused.skipped.push(Skipped { unsettled: true, ..gone }) }, &[]),
    ("a claim survived the skip of its event",
        |e| {
            let claims = e.claims.clone();
            let gone = lose_rare(e);
            e.claims = claims;
            e.excused.skipped.push(gone);
        }, &["claim without an output"]),
];

fn id(text: &str) -> semel::protocol::event::EventId {
    semel::protocol::event::EventId::encode(text.as_bytes()).expect("an id")
}

fn repeats(record: &Record) -> bool {
    record.headers.len() >= 4 && record.headers[2].0 == "k" && record.headers[3].0 == "k"
}

/// The first record of the output that is as asked.
fn find(evidence: &mut Evidence, asked: impl Fn(&Record) -> bool) -> &mut Record {
    evidence.output.iter_mut().flat_map(|log| &mut log.records).find(|record| asked(record)).expect("such a record")
}

/// Takes an event with one copy out of output and claims; answers the span of the input in which that copy lies.
fn lose_rare(evidence: &mut Evidence) -> Skipped {
    lose(evidence, |copies| copies == 1)
}

fn lose_common(evidence: &mut Evidence) -> Skipped {
    lose(evidence, |copies| copies > 1)
}

fn lose(evidence: &mut Evidence, asked: impl Fn(usize) -> bool) -> Skipped {
    let copies = |event: &_| {
        let all = evidence.input.iter().flat_map(|log| &log.records);
        all.filter(|record| record.event().as_ref() == Some(event)).count()
    };
    let claim = evidence.claims.iter().find(|claim| asked(copies(&claim.event))).expect("such an event").clone();
    evidence.claims.retain(|other| other.event != claim.event);
    for log in &mut evidence.output {
        log.records.retain(|record| record.event().as_ref() != Some(&claim.event));
    }
    let (partition, from) = (claim.partition.unwrap_or(0), claim.offset.unwrap_or(0));
    Skipped { topic: "in".to_owned(), generation: 0, partition, from, to: from + 1, unsettled: false }
}

#[test]
fn every_seeded_fault_is_found_and_nothing_else() {
    for seed in [1, 2, 3] {
        let right = right_run(seed);
        for (what, fault, expected) in FAULTS {
            let mut evidence = right.clone();
            fault(&mut evidence);
            let report = judge(&evidence);
            let mut kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            assert_eq!(kinds, *expected, "seed {seed}, {what}: {report}");
        }
    }
}

#[test]
fn a_fault_is_counted_once() {
    let mut evidence = right_run(4);
    evidence.output[0].records[9].timestamp = None;
    let again = evidence.output[1].records[5].clone();
    evidence.output[1].records.push(again);
    let report = judge(&evidence);
    assert_eq!(report.findings.len(), 2, "{report}");
    let (altered, doubled) = (&report.findings[0], &report.findings[1]);
    assert!(matches!(altered, crate::checker::Finding::Altered { part: Part::Timestamp, .. }), "{altered:?}");
    assert!(matches!(doubled, crate::checker::Finding::Doubled { from, .. } if from.len() == 2), "{doubled:?}");
}

/// From Kafka's own tests of its hash.
#[test]
fn murmur2_is_javas() {
    let table: &[(&[u8], i32)] = &[
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ];
    for (text, hash) in table {
        assert_eq!(murmur2::murmur2(text) as i32, *hash, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn the_generator_repeats_itself_and_keeps_its_promises() {
    let recipe = Recipe { newest: 1_767_225_600_000, ..Recipe::new(9, 20_000, 4) };
    let messages = recipe.all();
    assert_eq!(messages, recipe.all());
    let other = Recipe { seed: 10, ..recipe.clone() };
    assert_ne!(messages, other.all());
    let mut first: HashMap<Vec<u8>, &Message> = HashMap::new();
    let mut elsewhere = 0;
    for message in &messages {
        let id = message.headers[0].1.clone().expect("an id");
        let known = first.entry(id).or_insert(message);
        assert_eq!((known.timestamp, &known.key), (message.timestamp, &message.key), "copies agree on time and key");
        elsewhere += u32::from(known.partition != message.partition);
    }
    let distinct = first.len();
    assert!((13_600..14_400).contains(&distinct), "30 % of 20,000 are duplicates: {distinct} distinct");
    assert!((4_000..5_000).contains(&elsewhere), "three quarters of the duplicates lie elsewhere: {elsewhere}");
}
