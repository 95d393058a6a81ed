//! Messages that follow from a seed.
//!
//! Every message is a *copy* of an event and says so itself: header `ce_id` is the event's id, the same in each of its
//! copies; header `copy` is a number that no other message has. So whatever turns up downstream, or in the dead letters,
//! can be told apart and traced to its place in the input.

use super::random::Random;

/// Header with the event's id.
pub const EVENT_ID: &str = "ce_id";
/// Header with the number of the copy.
pub const COPY: &str = "copy";

pub type Header = (String, Option<Vec<u8>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub copy: u64,
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    /// Milliseconds since the epoch; the same in every copy of an event.
    pub timestamp: i64,
}

/// Where the copies of an event go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// All to one partition, chosen by the event.
    SamePartition,
    /// Each to any.
    Anywhere,
}

/// How the messages are dressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dress {
    /// A key, a JSON value, the two headers.
    Plain,
    /// Now and then: null keys and values, empty ones, bytes that are no text, headers that repeat, are null or empty,
    /// ids that are no text, ids of 2,000 bytes.
    Odd,
}

#[derive(Debug, Clone)]
pub struct Recipe {
    pub seed: u64,
    pub messages: u64,
    /// Number of the first copy; recipes whose messages meet on one topic must not share numbers.
    pub first_copy: u64,
    pub partitions: i32,
    pub duplicates_percent: u32,
    pub spread: Spread,
    pub dress: Dress,
    /// So many of a hundred carry no event id.
    pub without_id_percent: u32,
    /// Length of a plain value in bytes.
    pub value_bytes: usize,
    /// The latest event time, in milliseconds since the epoch.
    pub newest: i64,
    /// Event times lie within so many milliseconds before `newest`.
    pub span_millis: u64,
}

impl Recipe {
    /// 30 % duplicates anywhere, plain, event times within the last nine days: two or three weeks of the table.
    pub fn new(seed: u64, messages: u64, partitions: i32) -> Recipe {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
        Recipe {
            seed,
            messages,
            first_copy: 0,
            partitions,
            duplicates_percent: 30,
            spread: Spread::Anywhere,
            dress: Dress::Plain,
            without_id_percent: 0,
            value_bytes: 120,
            newest: now.as_millis() as i64,
            span_millis: 9 * 86_400_000,
        }
    }

    pub fn iter(&self) -> Generator {
        Generator { random: Random::new(self.seed), recipe: self.clone(), copy: 0, events: 0 }
    }

    pub fn all(&self) -> Vec<Message> {
        self.iter().collect()
    }
}

/// The messages in the order in which they are to be sent.
pub struct Generator {
    recipe: Recipe,
    random: Random,
    /// So many messages were made.
    copy: u64,
    events: u64,
}

impl Iterator for Generator {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.copy == self.recipe.messages {
            return None;
        }
        let copy = self.recipe.first_copy + self.copy;
        self.copy += 1;
        let event = if self.events > 0 && self.random.percent(self.recipe.duplicates_percent) {
            // Half of the duplicates are near to their first copy, where windows overlap; half are anywhere before it.
            let reach = if self.random.percent(50) { self.events.min(200) } else { self.events };
            self.events - 1 - self.random.among(0..reach)
        } else {
            self.events += 1;
            self.events - 1
        };
        Some(self.message(copy, event))
    }
}

impl Generator {
    fn message(&mut self, copy: u64, event: u64) -> Message {
        let recipe = &self.recipe;
        // What belongs to the event follows from its number, so that all its copies agree.
        let mut own = Random::new(recipe.seed ^ (event + 1).wrapping_mul(0x0100_0000_01b3));
        let timestamp = recipe.newest - own.among(0..recipe.span_millis.max(1)) as i64;
        let anywhere = recipe.spread == Spread::Anywhere;
        let partition = if anywhere { &mut self.random } else { &mut own }.among(0..recipe.partitions as u64) as i32;
        let key = format!("key-{}", own.among(0..5_000)).into_bytes();
        let mut headers = vec![
            (EVENT_ID.to_owned(), Some(format!("{:016x}-{event}", own.next()).into_bytes())),
            (COPY.to_owned(), Some(copy.to_string().into_bytes())),
        ];
        let value = format!(r#"{{"event":{event},"copy":{copy},"pad":""#);
        let value = format!("{value:x<0$}\"}}", recipe.value_bytes.saturating_sub(2)).into_bytes();
        let mut message = Message { copy, partition, key: Some(key), value: Some(value), headers: vec![], timestamp };
        if recipe.dress == Dress::Odd {
            odd_id(&mut own, &mut headers[0].1);
            odd_body(&mut self.random, &mut message, &mut headers);
        }
        if self.random.percent(recipe.without_id_percent) {
            headers.remove(0);
        }
        message.headers = headers;
        message
    }
}

fn odd_id(own: &mut Random, id: &mut Option<Vec<u8>>) {
    let Some(id) = id else { return };
    match own.among(0..50) {
        0 => id.extend([0xff, 0x00, 0xfe]),
        1 => id.resize(2_000, b'i'),
        2 => id.insert(0, b'~'),
        3 => id.extend("-é漢🎈".as_bytes()),
        _ => {}
    }
}

fn odd_body(random: &mut Random, message: &mut Message, headers: &mut Vec<Header>) {
    match random.among(0..20) {
        0 => message.key = None,
        1 => message.key = Some(vec![]),
        2 => message.key = Some(vec![0, 0xff, 0x80, b'k']),
        _ => {}
    }
    match random.among(0..20) {
        0 => message.value = None,
        1 => message.value = Some(vec![]),
        2 => message.value = Some((0..=255).collect()),
        _ => {}
    }
    let header = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(<[u8]>::to_vec));
    match random.among(0..10) {
        0 => headers.extend([header("k", Some(b"1")), header("k", Some(b"2"))]),
        1 => headers.extend([header("n", None), header("empty", Some(b""))]),
        2 => headers.insert(0, header("b", Some(&[0x00, 0xff]))),
        3 => headers.insert(1, header("", Some(b"no name"))),
        4 => headers.extend([header("k", Some(b"2")), header("n", None), header("k", Some(b"1"))]),
        _ => {}
    }
}
