//! A queue without offsets, as one instance's connection sees it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::message::{Header, Message};
use semel::source::{Delivery, Gather, Received, Seen, Source, SourceError, Tag};

use super::machine::Simulated;
use super::world::{Event, Known};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Comes at this time.
    Ready(Duration),
    Out(Tag),
    Acknowledged,
}

/// Which event each message carries, and where the message is.
#[derive(Debug)]
pub struct Queue {
    pub messages: Vec<(Event, State)>,
    connections: u64,
    numbers: u64,
}

impl Queue {
    pub fn new(messages: Vec<(Event, Duration)>) -> Queue {
        let messages = messages.into_iter().map(|(event, at)| (event, State::Ready(at))).collect();
        Queue { messages, connections: 0, numbers: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.messages.iter().all(|(_, state)| *state == State::Acknowledged)
    }

    fn requeue(&mut self, which: impl Fn(Tag) -> bool) {
        for (_, state) in &mut self.messages {
            if matches!(state, State::Out(tag) if which(*tag)) {
                *state = State::Ready(Duration::ZERO);
            }
        }
    }
}

pub struct Connected {
    pub machine: Simulated,
    pub queue: Arc<Mutex<Queue>>,
    pub known: Arc<Mutex<Known>>,
    pub prefetch: usize,
    patience: Duration,
    /// None until it is made.
    connection: Option<u64>,
}

impl Connected {
    pub fn new(machine: Simulated, queue: Arc<Mutex<Queue>>, known: Arc<Mutex<Known>>, prefetch: usize) -> Connected {
        let patience = if machine.percent(50) { Duration::ZERO } else { Duration::from_secs(2) };
        Connected { machine, queue, known, prefetch, patience, connection: None }
    }

    /// What was out on it comes again.
    fn cut(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.queue.lock().expect("one thread").requeue(|tag| tag.connection == connection);
        }
    }

    /// The connection is found to be lost, now and then.
    fn fails(&mut self) -> Result<(), SourceError> {
        let chance = self.known.lock().expect("one thread").faults.source;
        if self.machine.percent(chance) {
            self.cut();
            return Err(SourceError::Lost("cut".into()));
        }
        Ok(())
    }

    fn take(&mut self, most: usize) -> Vec<Delivery> {
        let now = self.machine.time();
        let mut queue = self.queue.lock().expect("one thread");
        if self.connection.is_none() {
            queue.connections += 1;
            self.connection = Some(queue.connections);
        }
        let connection = self.connection.expect("made");
        let out = |(_, state): &&(Event, State)| matches!(state, State::Out(tag) if tag.connection == connection);
        let room = self.prefetch.saturating_sub(queue.messages.iter().filter(out).count()).min(most);
        let mut taken = Vec::new();
        let Queue { messages, numbers, .. } = &mut *queue;
        for (event, state) in messages {
            if taken.len() < room && matches!(state, State::Ready(at) if *at <= now) {
                *numbers += 1;
                let tag = Tag { connection, number: *numbers };
                *state = State::Out(tag);
                let headers = vec![Header::new("id", event.to_string().into_bytes())];
                taken.push(Delivery { tag, message: Message { headers, ..Message::default() } });
            }
        }
        taken
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.cut();
    }
}

#[async_trait]
impl Source for Connected {
    fn name(&self) -> &str {
        "queue"
    }

    async fn check(&self) -> Result<Seen, SourceError> {
        Ok(Seen::default())
    }

    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError> {
        self.fails()?;
        if self.machine.percent(self.known.lock().expect("one thread").faults.source / 2) {
            // Lost and made again without a word.
            self.cut();
        }
        let until = self.machine.time() + gather.wait;
        loop {
            let taken = self.take(gather.messages_max);
            let now = self.machine.time();
            if !taken.is_empty() || now >= until {
                return Ok(Received::Deliveries(taken));
            }
            self.machine.wait((until - now).min(Duration::from_millis(20))).await;
        }
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.machine.others().await;
        self.fails()?;
        let chance = self.known.lock().expect("one thread").faults.source;
        if self.machine.percent(chance) {
            // It never arrives, and nobody says so.
            self.cut();
            return Ok(());
        }
        let mut queue = self.queue.lock().expect("one thread");
        for (event, state) in &mut queue.messages {
            if matches!(state, State::Out(tag) if tags.contains(tag)) {
                *state = State::Acknowledged;
                self.known.lock().expect("one thread").acknowledged(*event);
            }
        }
        Ok(())
    }

    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.machine.others().await;
        self.fails()?;
        self.queue.lock().expect("one thread").requeue(|tag| tags.contains(&tag));
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        self.machine.others().await;
        self.fails()?;
        self.cut();
        Ok(())
    }
}
