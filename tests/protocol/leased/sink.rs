//! A sink without transactions: what is sent is on the wire for a while, and may arrive whatever becomes of the sender.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::message::Message;
use semel::sink::{Doubt, Outgoing, Published, Sink, SinkError};

use super::broken::Broken;
use super::machine::Simulated;
use super::world::{Event, Known, LEASE, PUBLISH_TIMEOUT};

pub struct Connected {
    pub machine: Simulated,
    pub known: Arc<Mutex<Known>>,
    pub broken: Option<Broken>,
}

fn event(message: &Message) -> Event {
    let id = message.headers[0].value.as_ref().expect("an id");
    std::str::from_utf8(id).expect("text").parse().expect("a number")
}

impl Connected {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("one thread")
    }

    /// Whether it arrives, now or at any later time, is chance.
    fn doubt(&self, event: Event) -> Published {
        let now = self.machine.time();
        let arrives = match self.machine.among(0..3) {
            0 => None,
            1 => Some(now),
            _ => Some(now + self.machine.millis(0..2 * LEASE.as_millis() as u64)),
        };
        let told = self.broken != Some(Broken::DoubtIsRefusal);
        self.known().sent_in_doubt(event, arrives, told);
        Published::InDoubt(Doubt::silent("no answer"))
    }
}

#[async_trait]
impl Sink for Connected {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let chance = self.known().faults.sink;
        if self.machine.percent(chance) {
            self.machine.others().await;
            return vec![Published::NotSent; messages.len()];
        }
        let mut answers = Vec::with_capacity(messages.len());
        for outgoing in messages {
            let event = event(&outgoing.message);
            if answers.iter().any(|answer: &Published| !answer.is_stored()) {
                // Sent before the failure was heard of, or not at all.
                match self.machine.among(0..4) {
                    0 => answers.push(self.doubt(event)),
                    1 => {
                        self.known().stored(event);
                        answers.push(Published::Confirmed);
                    }
                    _ => answers.push(Published::NotSent),
                }
                continue;
            }
            self.machine.others().await;
            if self.machine.percent(chance) {
                answers.push(match self.machine.among(0..2) {
                    0 => Published::Refused("full".to_owned()),
                    _ => {
                        self.machine.wait(self.machine.millis(0..PUBLISH_TIMEOUT.as_millis() as u64 / 8)).await;
                        self.doubt(event)
                    }
                });
                continue;
            }
            self.known().stored(event);
            self.machine.others().await;
            answers.push(if self.machine.percent(3) { Published::Deduplicated } else { Published::Confirmed });
        }
        match self.broken {
            Some(Broken::UnconfirmedIsConfirmed) => vec![Published::Confirmed; messages.len()],
            Some(Broken::DoubtIsRefusal) => {
                let refused = |answer| match answer {
                    Published::InDoubt(doubt) => Published::Refused(doubt.why),
                    other => other,
                };
                answers.into_iter().map(refused).collect()
            }
            _ => answers,
        }
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        self.machine.wait(Duration::from_millis(5)).await;
        let chance = self.known().faults.sink;
        if self.machine.percent(chance) { Err(SinkError::Lost("away".into())) } else { Ok(()) }
    }
}
