//! A durable consumer of NATS JetStream, pulled from and acknowledged one by one.
//!
//! **One pull at a time, and a short one.** Messages come only as answers to a pull, and a pull that is over brings
//! none. So a pause waits for the end of the pull that is out (at most [`PULL`]) and then knows everything that it has to
//! hand back: nothing is left on its way to a subscription that nobody reads.
//!
//! **Acknowledged means confirmed.** Each acknowledgement asks for an answer, and all of a call are sent before the first
//! answer is waited for: one round trip for any number. Without all answers in time the connection is given up, and what
//! was not taken note of comes again.
//!
//! **What is held is kept.** The server delivers again what is out for longer than the consumer's wait for
//! acknowledgements. So every [`Source::receive`] asks for more time for what is out for half of it. Who does not call
//! it for so long is taken for gone; then a message may be out twice, and either acknowledgement ends it.
//!
//! **A lost connection is not repaired.** The client would do it silently; here it is dropped, what was handed out is
//! void, and the next connection hands it back at once, where the server would otherwise wait. What a process had that is
//! gone for good comes back after that wait.
//!
//! The limit of what is out (`max_ack_pending`) is the consumer's: that of all instances together. A consumer that is
//! there is used as it is, but for its limit and its wait; one that is not is made, and begins with the oldest message.
//! A message has no time of its producer's: the stream's is the time of storing, which a retry renews.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::{Client, StatusCode, Subject, Subscriber};
use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Cause, Delivery, Gather, Received, Seen, Source, SourceError, Tag};
use crate::message::Message;

mod connect;
mod message;

/// How long a pull waits at the server.
const PULL: Duration = Duration::from_secs(1);
/// How much later than its end a pull is waited for.
const PULL_GRACE: Duration = Duration::from_secs(2);
/// Before another pull, where the server ended one before its time.
const PULL_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct NatsSourceOptions {
    /// `host:port` each; any of them will do.
    pub hosts: Vec<String>,
    pub tls: bool,
    pub user: Option<String>,
    /// Without a user it is a token.
    pub password: Option<String>,
    pub stream: String,
    pub consumer: String,
    /// Most deliveries that are out at a time, of all instances together.
    pub prefetch: usize,
    /// What is out for longer is delivered again.
    pub ack_wait: Duration,
    /// Of the instance: it names the connection in the server's own tools.
    pub client: String,
    /// Of connecting, and of the answers to acknowledgements.
    pub timeout: Duration,
}

pub struct NatsSource {
    options: NatsSourceOptions,
    /// Counts connections.
    connection: u64,
    /// Counts deliveries.
    number: u64,
    live: Option<Live>,
    /// What was out when a connection was lost: where each answers.
    orphans: Vec<Subject>,
}

struct Live {
    client: Client,
    consumer: PullConsumer,
    /// Where messages come.
    inbox: String,
    messages: Subscriber,
    /// Where answers to acknowledgements come: each at a number of its own.
    answers_to: String,
    answers: Subscriber,
    answer: u64,
    /// True once the connection was lost.
    lost: watch::Receiver<bool>,
    pull: Option<Pull>,
    /// Received and not handed out.
    ready: VecDeque<Held>,
    /// Handed out and not settled.
    out: BTreeMap<u64, Held>,
}

/// The request for messages that is out.
struct Pull {
    left: usize,
    until: Instant,
}

struct Held {
    /// Where it is acknowledged.
    subject: Subject,
    /// Since when the server waits.
    since: Instant,
    /// None once it was handed out.
    message: Option<Message>,
}

impl NatsSource {
    pub fn new(options: NatsSourceOptions) -> NatsSource {
        NatsSource { options, connection: 0, number: 0, live: None, orphans: Vec::new() }
    }

    async fn gather(&mut self, gather: Gather) -> Result<Vec<Delivery>, SourceError> {
        if self.live.is_none() {
            let mut live = connect::connect(&self.options).await?;
            self.connection += 1;
            for subject in &self.orphans {
                live.say(subject, AckKind::Nak(None)).await?;
            }
            self.orphans.clear();
            self.live = Some(live);
        }
        let Some(live) = &mut self.live else { return Ok(Vec::new()) };
        live.ask_for_time(self.options.ack_wait / 2).await?;
        live.fill(gather, self.options.prefetch).await?;
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(size) = live.ready.front().map(Held::size).filter(|_| taken.len() < gather.messages_max) {
            bytes += size;
            if !taken.is_empty() && bytes > gather.bytes_max {
                break;
            }
            let Some(mut held) = live.ready.pop_front() else { break };
            self.number += 1;
            if let Some(message) = held.message.take() {
                let tag = Tag { connection: self.connection, number: self.number };
                taken.push(Delivery { tag, message });
                live.out.insert(self.number, held);
            }
        }
        Ok(taken)
    }

    async fn settle(&mut self, tags: &[Tag], kind: AckKind) -> Result<(), SourceError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let connection = self.connection;
        let of_connection = tags.iter().filter(|tag| tag.connection == connection);
        let held = of_connection.filter_map(|tag| live.out.remove(&tag.number));
        let subjects: Vec<Subject> = held.map(|held| held.subject).collect();
        let settled = live.settle(&subjects, kind, self.options.timeout).await;
        self.lost_if(settled)
    }

    /// After any error everything is made anew.
    fn lost_if<T>(&mut self, result: Result<T, SourceError>) -> Result<T, SourceError> {
        if result.is_err()
            && let Some(live) = self.live.take()
        {
            self.orphans.extend(live.out.into_values().chain(live.ready).map(|held| held.subject));
        }
        result
    }
}

impl Live {
    /// Asks the server to wait on for what it has waited for so long.
    async fn ask_for_time(&mut self, after: Duration) -> Result<(), SourceError> {
        let now = Instant::now();
        let old = self.out.values_mut().chain(&mut self.ready).filter(|held| now - held.since >= after);
        for held in old {
            say(&self.client, &held.subject, AckKind::Progress).await?;
            held.since = now;
        }
        Ok(())
    }

    /// Keeps what comes as it comes, so that a dropped call loses nothing.
    async fn fill(&mut self, gather: Gather, prefetch: usize) -> Result<(), SourceError> {
        let first_until = Instant::now() + gather.wait;
        let mut bytes: usize = self.ready.iter().map(Held::size).sum();
        while self.ready.len() < gather.messages_max && bytes < gather.bytes_max {
            let wanted = (gather.messages_max - self.ready.len()).min(prefetch);
            self.pull(wanted).await?;
            let until = if self.ready.is_empty() { first_until } else { Instant::now() + gather.linger };
            let before = self.ready.len();
            if !self.next(until).await? {
                break;
            }
            bytes += self.ready.iter().skip(before).map(Held::size).sum::<usize>();
        }
        Ok(())
    }

    /// Sends a pull where none is out.
    async fn pull(&mut self, wanted: usize) -> Result<(), SourceError> {
        if self.pull.as_ref().is_some_and(|pull| Instant::now() < pull.until + PULL_GRACE) {
            return Ok(());
        }
        // The consumer may have limits of its own.
        let limits = &self.consumer.cached_info().config;
        let most = usize::try_from(limits.max_batch).ok().filter(|most| *most > 0).unwrap_or(wanted);
        let (wanted, expires) = (wanted.min(most), Some(limits.max_expires).filter(|most| *most > Duration::ZERO));
        let expires = expires.map_or(PULL, |most| PULL.min(most));
        let batch = BatchConfig { batch: wanted, expires: Some(expires), ..BatchConfig::default() };
        let sent = self.consumer.request_batch(batch, self.inbox.as_str().into());
        sent.await.map_err(|error| SourceError::Lost(error.into()))?;
        self.pull = Some(Pull { left: wanted, until: Instant::now() + expires });
        Ok(())
    }

    /// Takes one answer of the server; false where none came in time.
    async fn next(&mut self, until: Instant) -> Result<bool, SourceError> {
        let came = tokio::select! {
            biased;
            came = timeout_at(until, self.messages.next()) => came,
            _ = self.lost.wait_for(|lost| *lost) => return Err(SourceError::Lost("the connection was lost".into())),
        };
        let message = match came {
            Err(_) => return Ok(false),
            Ok(None) => return Err(SourceError::Lost("the subscription has ended".into())),
            Ok(Some(message)) => message,
        };
        match (message.status, &message.reply) {
            (None, Some(subject)) => {
                if let Some(pull) = &mut self.pull {
                    pull.left = pull.left.saturating_sub(1);
                }
                self.pull = self.pull.take().filter(|pull| pull.left > 0);
                let subject = subject.clone();
                self.ready.push_back(Held { subject, since: Instant::now(), message: Some(message::of(message)) });
            }
            (Some(StatusCode::IDLE_HEARTBEAT), _) | (None, None) => {}
            (Some(status), _) => {
                self.pull = None;
                let told = message.description.unwrap_or_default();
                if is_the_end(status, &told) {
                    return Err(SourceError::Lost(format!("the server ended the consumer: {status} {told}").into()));
                }
                if status == StatusCode::REQUEST_TERMINATED {
                    // It would end the next one as well, at once.
                    tracing::debug!(told, "the server ended a pull");
                    tokio::time::sleep(PULL_PAUSE).await;
                }
            }
        }
        Ok(true)
    }

    async fn say(&mut self, subject: &Subject, kind: AckKind) -> Result<(), SourceError> {
        say(&self.client, subject, kind).await
    }

    /// Says it to all of them, and waits until the server has confirmed each.
    async fn settle(&mut self, subjects: &[Subject], kind: AckKind, patience: Duration) -> Result<(), SourceError> {
        if subjects.is_empty() {
            return Ok(());
        }
        let first = self.answer + 1;
        self.answer += subjects.len() as u64;
        let said = timeout(patience, async {
            for (subject, number) in subjects.iter().zip(first..) {
                let answer = format!("{}.{number}", self.answers_to);
                let sent = self.client.publish_with_reply(subject.clone(), answer, kind.into());
                sent.await.map_err(Cause::from)?;
            }
            let mut left = subjects.len();
            while left > 0 {
                let answer = tokio::select! {
                    biased;
                    answer = self.answers.next() => answer.ok_or("the subscription has ended")?,
                    _ = self.lost.wait_for(|lost| *lost) => return Err("the connection was lost".into()),
                };
                // Answers to an earlier call that was dropped count for nothing.
                let number = answer.subject.rsplit('.').next().and_then(|number| number.parse::<u64>().ok());
                left -= usize::from(number.is_some_and(|number| number >= first));
            }
            Ok(())
        });
        match said.await {
            Ok(answered) => answered.map_err(SourceError::Lost),
            Err(_) => Err(SourceError::Lost("the server did not confirm what was settled".into())),
        }
    }

    async fn pause(&mut self, patience: Duration) -> Result<(), SourceError> {
        while let Some(pull) = &self.pull {
            let until = pull.until + PULL_GRACE;
            if !self.next(until).await? {
                self.pull = None;
            }
        }
        let all = std::mem::take(&mut self.out).into_values().chain(std::mem::take(&mut self.ready));
        let subjects: Vec<Subject> = all.map(|held| held.subject).collect();
        self.settle(&subjects, AckKind::Nak(None), patience).await
    }
}

async fn say(client: &Client, subject: &Subject, kind: AckKind) -> Result<(), SourceError> {
    client.publish(subject.clone(), kind.into()).await.map_err(|error| SourceError::Lost(error.into()))
}

/// Whether pulling on is useless, rather than that this pull is over.
fn is_the_end(status: StatusCode, told: &str) -> bool {
    let told = told.to_ascii_lowercase();
    match status {
        StatusCode::NO_RESPONDERS => true,
        StatusCode::REQUEST_TERMINATED => told.contains("deleted") || told.contains("push based"),
        _ => false,
    }
}

impl Held {
    fn size(&self) -> usize {
        self.message.as_ref().map_or(0, Message::size)
    }
}

#[async_trait]
impl Source for NatsSource {
    fn name(&self) -> &str {
        &self.options.stream
    }

    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError> {
        let gathered = self.gather(gather).await;
        self.lost_if(gathered).map(Received::Deliveries)
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.settle(tags, AckKind::Ack).await
    }

    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.settle(tags, AckKind::Nak(None)).await
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let paused = live.pause(self.options.timeout).await;
        self.lost_if(paused)
    }

    async fn check(&self) -> Result<Seen, SourceError> {
        connect::look(&self.options).await
    }
}

/// Without the password.
impl fmt::Debug for NatsSourceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NatsSourceOptions { hosts, stream, consumer, prefetch, ack_wait, .. } = self;
        write!(f, "NatsSourceOptions {{ {hosts:?} {stream:?} {consumer:?} {prefetch} {ack_wait:?} }}")
    }
}
