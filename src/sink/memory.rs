//! The reference: what the promises mean, in the plainest form, and a sink whose failures are written down beforehand.
//!
//! A failing message ends the call as a real sink does: those behind it that were *out* already (as many as
//! [`MemorySink::out`] says) are still answered for as if nothing had happened, the rest is not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{Destination, Doubt, Outgoing, Published, Sink, SinkError};

/// What happens to a message, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Refuse,
    /// In doubt, and it was stored.
    DoubtStored,
    /// In doubt, and it was not.
    DoubtLost,
    /// Stored after a while.
    Slow(Duration),
    /// The connection was lost before it was sent.
    NotSent,
}

/// A sink, and by its clones what the test sees and changes of it.
#[derive(Debug, Clone, Default)]
pub struct MemorySink {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    stored: Vec<Outgoing>,
    faults: BTreeMap<u64, Fault>,
    /// Messages that were offered so far: the number of the next.
    offered: u64,
    out: usize,
    missing: BTreeSet<&'static str>,
    keys: Option<BTreeSet<(&'static str, Box<str>)>>,
    room: Option<usize>,
    away: bool,
}

impl MemorySink {
    pub fn new() -> MemorySink {
        MemorySink::default()
    }

    /// It drops second copies by their key, as NATS does.
    pub fn deduplicating() -> MemorySink {
        let sink = MemorySink::new();
        sink.lock().keys = Some(BTreeSet::new());
        sink
    }

    /// What happens to the n-th message (from 0) that is offered from now on.
    pub fn fault(&self, n: u64, fault: Fault) {
        let mut inner = self.lock();
        let number = inner.offered + n;
        inner.faults.insert(number, fault);
    }

    /// How many messages behind a failing one were sent before its answer came.
    pub fn out(&self, messages: usize) {
        self.lock().out = messages;
    }

    /// There is no such destination: what is sent there is in doubt, as an unroutable message is.
    pub fn remove(&self, destination: Destination) {
        self.lock().missing.insert(name(destination));
    }

    pub fn make(&self, destination: Destination) {
        self.lock().missing.remove(name(destination));
    }

    /// How many more messages there is room for; none for any number.
    pub fn room(&self, messages: Option<usize>) {
        self.lock().room = messages;
    }

    /// Out of reach: nothing is sent.
    pub fn away(&self, away: bool) {
        self.lock().away = away;
    }

    /// Everything that was stored, in its order.
    pub fn stored(&self) -> Vec<Outgoing> {
        self.lock().stored.clone()
    }

    pub fn stored_at(&self, destination: Destination) -> Vec<Outgoing> {
        self.lock().stored.iter().filter(|outgoing| outgoing.destination == destination).cloned().collect()
    }

    /// Takes out what was stored there.
    pub fn take(&self, destination: Destination) -> Vec<Outgoing> {
        let mut inner = self.lock();
        let stored = std::mem::take(&mut inner.stored);
        let (taken, kept) = stored.into_iter().partition(|outgoing| outgoing.destination == destination);
        inner.stored = kept;
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_fault(&mut self) -> Option<Fault> {
        let fault = self.faults.remove(&self.offered);
        self.offered += 1;
        fault
    }

    fn take(&mut self, outgoing: &Outgoing) -> Published {
        if self.missing.contains(name(outgoing.destination)) {
            return Published::InDoubt(Doubt::answered("there is no such destination"));
        }
        if let (Some(keys), Some(key)) = (&mut self.keys, &outgoing.idempotency_key)
            && keys.contains(&(name(outgoing.destination), key.clone()))
        {
            return Published::Deduplicated;
        }
        match &mut self.room {
            Some(0) => return Published::Refused("the queue is full".to_owned()),
            Some(room) => *room -= 1,
            None => (),
        }
        if let (Some(keys), Some(key)) = (&mut self.keys, &outgoing.idempotency_key) {
            keys.insert((name(outgoing.destination), key.clone()));
        }
        self.stored.push(outgoing.clone());
        Published::Confirmed
    }
}

#[async_trait]
impl Sink for MemorySink {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let mut answers = vec![Published::NotSent; messages.len()];
        let mut end = messages.len();
        let mut number = 0;
        while number < end && !self.lock().away {
            let fault = self.lock().next_fault();
            if let Some(Fault::Slow(time)) = fault {
                tokio::time::sleep(time).await;
            }
            let mut inner = self.lock();
            answers[number] = match fault {
                None | Some(Fault::Slow(_)) => inner.take(&messages[number]),
                Some(Fault::Refuse) => Published::Refused("refused as planned".to_owned()),
                Some(Fault::DoubtLost) => Published::InDoubt(Doubt::silent("lost as planned")),
                Some(Fault::DoubtStored) => {
                    inner.take(&messages[number]);
                    Published::InDoubt(Doubt::silent("stored as planned"))
                }
                Some(Fault::NotSent) => break,
            };
            if !answers[number].is_stored() {
                end = end.min(number + 1 + inner.out);
            }
            number += 1;
        }
        answers
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        let inner = self.lock();
        if inner.away {
            return Err(SinkError::Lost("away as planned".into()));
        }
        match inner.missing.first() {
            Some(missing) => Err(SinkError::Refused(format!("there is no destination {missing}").into())),
            None => Ok(()),
        }
    }
}

fn name(destination: Destination) -> &'static str {
    match destination {
        Destination::Forward => "forward",
        Destination::DeadLetter => "dead letter",
        Destination::Duplicates => "duplicates",
    }
}

#[cfg(test)]
mod tests {
    use Published::{Confirmed, NotSent};

    use super::*;
    use crate::message::Message;

    fn message(value: &'static str) -> Outgoing {
        let message = Message { value: Some(value.into()), ..Message::default() };
        Outgoing { destination: Destination::Forward, message, idempotency_key: None }
    }

    fn publish(sink: &mut MemorySink, messages: &[Outgoing]) -> Vec<Published> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(sink.publish(messages))
    }

    fn values(sink: &MemorySink) -> String {
        let stored = sink.stored();
        let values = stored.iter().map(|outgoing| outgoing.message.value.as_deref().expect("a value"));
        String::from_utf8(values.flatten().copied().collect()).expect("text")
    }

    #[test]
    fn a_fault_is_what_it_says_and_ends_the_call() {
        let refused = |text: &str| Published::Refused(text.to_owned());
        let doubt = |text: &str| Published::InDoubt(Doubt::silent(text));
        let cases = [
            (Fault::Refuse, 0, [Confirmed, refused("refused as planned"), NotSent, NotSent], "a"),
            (Fault::Refuse, 1, [Confirmed, refused("refused as planned"), Confirmed, NotSent], "ac"),
            (Fault::DoubtLost, 2, [Confirmed, doubt("lost as planned"), Confirmed, Confirmed], "acd"),
            (Fault::DoubtStored, 0, [Confirmed, doubt("stored as planned"), NotSent, NotSent], "ab"),
            (Fault::Slow(Duration::from_millis(1)), 0, [Confirmed, Confirmed, Confirmed, Confirmed], "abcd"),
            (Fault::NotSent, 3, [Confirmed, NotSent, NotSent, NotSent], "a"),
        ];
        for (fault, out, right, stored) in cases {
            let mut sink = MemorySink::new();
            sink.out(out);
            sink.fault(1, fault);
            let answers = publish(&mut sink, &["a", "b", "c", "d"].map(message));
            assert_eq!((&answers[..], values(&sink).as_str()), (&right[..], stored), "{fault:?} with {out} out");
            assert_eq!(publish(&mut sink, &[message("e")]), [Confirmed], "{fault:?} happens once");
        }
    }
}
