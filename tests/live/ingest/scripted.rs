//! A sink whose failures are written down beforehand, around a real one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::sink::{Doubt, Outgoing, Published, Sink, SinkError};

/// What happens to a message, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The queue is full.
    Refuse,
    /// In doubt, and it was not stored.
    DoubtLost,
    /// In doubt, and it was stored.
    DoubtStored,
    /// The broker returned it as unroutable.
    Unroutable,
    /// There is no connection: nothing from here on is sent.
    NotSent,
    Slow(Duration),
    Panic,
}

#[derive(Debug, Default)]
pub struct Script {
    faults: BTreeMap<u64, Fault>,
    offered: u64,
    /// Messages behind a failing one that were out already, and are published.
    out: usize,
    /// Idempotency keys are taken out on the way.
    pub without_keys: bool,
}

#[derive(Clone, Default)]
pub struct Scripts(Arc<Mutex<Script>>);

impl Scripts {
    /// The n-th message (from 0) that is offered from now on, on whatever lane.
    pub fn fault(&self, n: u64, fault: Fault) {
        let mut script = self.0.lock().expect("no panic");
        let number = script.offered + n;
        script.faults.insert(number, fault);
    }

    pub fn out(&self, messages: usize) {
        self.0.lock().expect("no panic").out = messages;
    }

    pub fn without_keys(&self) {
        self.0.lock().expect("no panic").without_keys = true;
    }

    /// The first fault among these messages, if there is one.
    fn next(&self, messages: usize) -> (Option<(usize, Fault)>, usize, bool) {
        let mut script = self.0.lock().expect("no panic");
        let from = script.offered;
        let found = (0..messages as u64).find_map(|n| Some((n as usize, script.faults.remove(&(from + n))?)));
        script.offered += found.map_or(messages as u64, |(n, _)| n as u64 + 1);
        (found, script.out, script.without_keys)
    }
}

pub struct Scripted {
    pub inner: Box<dyn Sink>,
    pub scripts: Scripts,
}

#[async_trait]
impl Sink for Scripted {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let (found, out, without_keys) = self.scripts.next(messages.len());
        let mut messages = messages.to_vec();
        if without_keys {
            messages.iter_mut().for_each(|message| message.idempotency_key = None);
        }
        let Some((k, fault)) = found else { return self.inner.publish(&messages).await };
        if let Fault::Slow(time) = fault {
            tokio::time::sleep(time).await;
            return self.inner.publish(&messages).await;
        }
        assert!(fault != Fault::Panic, "a panic as planned");
        let mut answers = self.inner.publish(&messages[..k]).await;
        answers.push(match fault {
            Fault::Refuse => Published::Refused("refused as planned".to_owned()),
            Fault::DoubtLost => Published::InDoubt(Doubt::silent("lost as planned")),
            Fault::DoubtStored => {
                self.inner.publish(&messages[k..=k]).await;
                Published::InDoubt(Doubt::silent("stored as planned"))
            }
            Fault::Unroutable => Published::InDoubt(Doubt::answered("no route as planned")),
            _ => Published::NotSent,
        });
        let end = messages.len().min(k + 1 + out);
        answers.extend(self.inner.publish(&messages[k + 1..end]).await);
        answers.resize(messages.len(), Published::NotSent);
        answers
    }

    fn unfit(&self, message: &Outgoing) -> Option<String> {
        self.inner.unfit(message)
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        self.inner.check().await
    }
}
