//! The reference: what the promises mean, in the plainest form. A queue that any number of sources read, with the means
//! to lose a connection, and counts of what was delivered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Delivery, Gather, Received, Seen, Source, SourceError, Tag};
use crate::message::Message;

/// Cheap to clone: all clones are one queue.
#[derive(Debug, Clone, Default)]
pub struct MemoryQueue {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Something came, or a connection was lost.
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Every message that was ever sent, with how often it was delivered.
    sent: Vec<(Message, u32)>,
    /// Numbers of those that may be delivered.
    waiting: VecDeque<usize>,
    /// How many were acknowledged.
    settled: usize,
    /// Those that are out, by the connection that has them.
    out: BTreeMap<u64, BTreeMap<u64, usize>>,
    /// Connections so far.
    connections: u64,
    tags: u64,
    /// No connection can be made.
    away: bool,
}

impl MemoryQueue {
    pub fn send(&self, message: Message) {
        let mut state = self.lock();
        let number = state.sent.len();
        state.sent.push((message, 0));
        state.waiting.push_back(number);
        self.inner.told.notify_waiters();
    }

    /// Takes every connection away: what is out comes back.
    pub fn lose_connection(&self) {
        self.lock().lose_all();
        self.inner.told.notify_waiters();
    }

    /// As [`MemoryQueue::lose_connection`], and none can be made until it is no longer away.
    pub fn set_away(&self, away: bool) {
        let mut state = self.lock();
        state.away = away;
        if away {
            state.lose_all();
        }
        self.inner.told.notify_waiters();
    }

    /// How often each message was delivered, in the order in which they were sent.
    pub fn deliveries(&self) -> Vec<u32> {
        self.lock().sent.iter().map(|(_, deliveries)| *deliveries).collect()
    }

    /// How many are not acknowledged: waiting, and out.
    pub fn left(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.out.values().map(BTreeMap::len).sum())
    }

    pub fn settled(&self) -> usize {
        self.lock().settled
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No call panics between two writes.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lose_all(&mut self) {
        for (_, out) in std::mem::take(&mut self.out) {
            self.put_back(out.into_values());
        }
    }

    /// What was sent first comes first again, as in a queue of RabbitMQ.
    fn put_back(&mut self, numbers: impl IntoIterator<Item = usize>) {
        self.waiting.extend(numbers);
        self.waiting.make_contiguous().sort_unstable();
    }
}

pub struct MemorySource {
    queue: MemoryQueue,
    name: String,
    prefetch: usize,
    /// None before the first receive, and when it is known to be lost.
    connection: Option<u64>,
}

impl MemorySource {
    pub fn new(queue: &MemoryQueue, name: &str, prefetch: usize) -> MemorySource {
        MemorySource { queue: queue.clone(), name: name.to_owned(), prefetch, connection: None }
    }

    fn connect(&mut self) -> Result<u64, SourceError> {
        let mut state = self.queue.lock();
        match self.connection {
            Some(connection) if state.out.contains_key(&connection) => Ok(connection),
            // It had one, and is told so once.
            Some(_) => {
                self.connection = None;
                Err(SourceError::Lost("the connection was lost".into()))
            }
            None if state.away => Err(SourceError::Lost("the queue is away".into())),
            None => {
                state.connections += 1;
                let connection = state.connections;
                state.out.insert(connection, BTreeMap::new());
                self.connection = Some(connection);
                Ok(connection)
            }
        }
    }

    fn take(&self, connection: u64, gather: Gather) -> Vec<Delivery> {
        let mut state = self.queue.lock();
        let State { sent, waiting, out, tags, .. } = &mut *state;
        let Some(out) = out.get_mut(&connection) else { return Vec::new() };
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < gather.messages_max && out.len() < self.prefetch {
            let Some((message, deliveries)) = waiting.front().and_then(|number| sent.get_mut(*number)) else { break };
            bytes += message.size();
            if !taken.is_empty() && bytes > gather.bytes_max {
                break;
            }
            let Some(number) = waiting.pop_front() else { break };
            *deliveries += 1;
            *tags += 1;
            out.insert(*tags, number);
            taken.push(Delivery { tag: Tag { connection, number: *tags }, message: message.clone() });
        }
        taken
    }

    /// What is out under these tags, and no longer is.
    fn end(&self, tags: &[Tag]) -> Vec<usize> {
        let mut state = self.queue.lock();
        let of_connection = tags.iter().filter(|tag| Some(tag.connection) == self.connection);
        of_connection.filter_map(|tag| state.out.get_mut(&tag.connection)?.remove(&tag.number)).collect()
    }
}

#[async_trait]
impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError> {
        let until = Instant::now() + gather.wait;
        loop {
            let queue = self.queue.clone();
            // Before the look: what comes in between is heard.
            let told = queue.inner.told.notified();
            let connection = self.connect()?;
            let taken = self.take(connection, gather);
            if !taken.is_empty() || timeout_at(until, told).await.is_err() {
                return Ok(Received::Deliveries(taken));
            }
        }
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        let settled = self.end(tags).len();
        self.queue.lock().settled += settled;
        Ok(())
    }

    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        let back = self.end(tags);
        self.queue.lock().put_back(back);
        self.queue.inner.told.notify_waiters();
        Ok(())
    }

    async fn check(&self) -> Result<Seen, SourceError> {
        let found = format!("messages ready: {}", self.queue.lock().waiting.len());
        Ok(Seen { found, warnings: Vec::new() })
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        let out = self.connection.and_then(|connection| self.queue.lock().out.get_mut(&connection).map(std::mem::take));
        self.queue.lock().put_back(out.into_iter().flat_map(BTreeMap::into_values));
        self.queue.inner.told.notify_waiters();
        Ok(())
    }
}

/// A process that ends loses its connection.
impl Drop for MemorySource {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let out = self.connection.and_then(|connection| state.out.remove(&connection));
        state.put_back(out.into_iter().flat_map(BTreeMap::into_values));
        drop(state);
        self.queue.inner.told.notify_waiters();
    }
}
