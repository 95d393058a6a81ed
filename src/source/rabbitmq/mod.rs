//! A queue of RabbitMQ, classic or quorum.
//!
//! **Nothing is trusted to survive a channel.** The client could repair connections by itself; it is not asked to, since
//! what was handed out before is void anyway: on any error connection and channel are dropped (the broker takes back what
//! was out) and the next [`Source::receive`] makes new ones, with the prefetch set before anything is consumed. A
//! delivery tag is acted on only under the channel that it came by, since an unknown one ends the channel.
//!
//! **Acknowledgements join.** Delivery tags of a channel rise, and messages are handed out in their order, those that
//! were received and not yet handed out last. So where the lowest tags that are out are all to be settled, one frame
//! that says "up to here" does it and names nothing else; the others go one by one. The protocol has no answer to an
//! acknowledgement: one that was lost shows in a second delivery.
//!
//! **A pause is one frame.** It ends the consumer, and then hands back all that the channel has out, also what the client
//! still holds. A quorum queue counts each return of a message towards its delivery limit, so whoever waits for less than
//! [`Source::patience`] does not pause, and nobody hands back again and again. What comes often all the same is renewed
//! ([`renew`]).

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, future};
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use tokio::time::{Instant, timeout_at};

use super::{Delivery, Gather, Received, Seen, Source, SourceError, Tag};
use crate::message::Message;

mod connect;
mod message;
mod renew;

/// The broker ends a consumer that keeps a delivery for 30 minutes. What is out may have been so for ten already.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

#[derive(Clone)]
pub struct RabbitMqSourceOptions {
    /// `host:port` each; any of them will do.
    pub hosts: Vec<String>,
    pub tls: bool,
    /// Name and password; None is RabbitMQ's guest.
    pub user: Option<(String, String)>,
    pub vhost: String,
    pub queue: String,
    /// Most deliveries that are out at a time.
    pub prefetch: u16,
    /// Of the instance: it names connection and consumer in RabbitMQ's own tools.
    pub client: String,
    /// Of connecting.
    pub timeout: Duration,
}

pub struct RabbitMqSource {
    options: RabbitMqSourceOptions,
    /// Counts connections.
    number: u64,
    live: Option<Live>,
}

/// A connection with its one channel.
struct Live {
    channel: Channel,
    connection: Connection,
    /// None while paused.
    consumer: Option<Consumer>,
    /// Received and not handed out, by rising delivery tags that are above all that are out.
    ready: VecDeque<Ready>,
    /// Handed out and not settled.
    out: BTreeSet<u64>,
    renewal: renew::Renewal,
}

struct Ready {
    tag: u64,
    message: Message,
    /// It came often: to be sent to the queue anew before it is handed out.
    is_old: bool,
}

/// What becomes of deliveries.
#[derive(Debug, Clone, Copy)]
enum Settle {
    Acknowledge,
    HandBack,
}

impl RabbitMqSource {
    pub fn new(options: RabbitMqSourceOptions) -> RabbitMqSource {
        RabbitMqSource { options, number: 0, live: None }
    }

    async fn gather(&mut self, gather: Gather) -> Result<Vec<Delivery>, SourceError> {
        if self.live.is_none() {
            let (connection, channel) = connect::connect(&self.options).await?;
            let (ready, out, renewal) = (VecDeque::new(), BTreeSet::new(), renew::Renewal::default());
            self.live = Some(Live { channel, connection, consumer: None, ready, out, renewal });
            self.number += 1;
        }
        let Some(live) = &mut self.live else { return Ok(Vec::new()) };
        live.consume(&self.options).await?;
        live.fill(gather).await?;
        live.renew_old(&self.options).await?;
        Ok(live.take(gather, self.number))
    }

    async fn settle(&mut self, tags: &[Tag], settle: Settle) -> Result<(), SourceError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let number = self.number;
        let named = tags.iter().filter(|tag| tag.connection == number).map(|tag| tag.number);
        let settled = live.settle(named.collect(), settle).await;
        self.lost_if(settled)
    }

    /// After any error everything is made anew.
    fn lost_if<T>(&mut self, result: Result<T, SourceError>) -> Result<T, SourceError> {
        if result.is_err() {
            self.live = None;
        }
        result
    }
}

impl Live {
    async fn consume(&mut self, options: &RabbitMqSourceOptions) -> Result<(), SourceError> {
        if self.consumer.is_some() {
            return Ok(());
        }
        let (queue, tag) = (options.queue.as_str().into(), connect::short(&format!("semel.{}", options.client)));
        let consumer = self.channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default());
        self.consumer = Some(consumer.await.map_err(connect::fate)?);
        Ok(())
    }

    /// Keeps what comes as it comes, so that a dropped call loses nothing.
    async fn fill(&mut self, gather: Gather) -> Result<(), SourceError> {
        let Some(consumer) = &mut self.consumer else { return Ok(()) };
        let mut bytes: usize = self.ready.iter().map(|ready| ready.message.size()).sum();
        let first_until = Instant::now() + gather.wait;
        while self.ready.len() < gather.messages_max && bytes < gather.bytes_max {
            let until = if self.ready.is_empty() { first_until } else { Instant::now() + gather.linger };
            match timeout_at(until, consumer.next()).await {
                Err(_) => break,
                Ok(Some(Ok(delivery))) => {
                    let (tag, is_old) = (delivery.delivery_tag, renew::is_due(&delivery));
                    let message = message::of(delivery);
                    bytes += message.size();
                    self.ready.push_back(Ready { tag, message, is_old });
                }
                Ok(Some(Err(error))) => return Err(connect::fate(error)),
                // The queue was deleted, or moved to another node.
                Ok(None) => return Err(SourceError::Lost("the broker ended the consumer".into())),
            }
        }
        Ok(())
    }

    /// A dropped call does it again: the queue then has it once more.
    async fn renew_old(&mut self, options: &RabbitMqSourceOptions) -> Result<(), SourceError> {
        while let Some(n) = self.ready.iter().position(|ready| ready.is_old) {
            let Ready { tag, message, .. } = &self.ready[n];
            let tag = *tag;
            if self.renewal.renew(&self.connection, &options.queue, message, options.timeout).await {
                let acknowledged = self.channel.basic_ack(tag, BasicAckOptions { multiple: false }).await;
                self.ready.remove(n);
                acknowledged.map_err(connect::fate)?;
            } else {
                self.ready[n].is_old = false;
            }
        }
        Ok(())
    }

    fn take(&mut self, gather: Gather, connection: u64) -> Vec<Delivery> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(ready) = self.ready.front() {
            bytes += ready.message.size();
            // A single message may be larger.
            if taken.len() >= gather.messages_max || !taken.is_empty() && bytes > gather.bytes_max {
                break;
            }
            let Some(Ready { tag: number, message, .. }) = self.ready.pop_front() else { break };
            self.out.insert(number);
            taken.push(Delivery { tag: Tag { connection, number }, message });
        }
        taken
    }

    async fn settle(&mut self, named: BTreeSet<u64>, settle: Settle) -> Result<(), SourceError> {
        let due: Vec<u64> = named.into_iter().filter(|tag| self.out.contains(tag)).collect();
        let joined = self.out.iter().zip(&due).take_while(|(out, due)| out == due).count();
        self.out.retain(|tag| due.binary_search(tag).is_err());
        let (joined, single) = due.split_at(joined);
        let frames = joined.last().map(|tag| (*tag, true)).into_iter().chain(single.iter().map(|tag| (*tag, false)));
        let channel = &self.channel;
        // Each resolves when it is written; the order on the channel is that of the calls.
        let sent = frames.map(|(tag, multiple)| async move {
            match settle {
                Settle::Acknowledge => channel.basic_ack(tag, BasicAckOptions { multiple }).await,
                Settle::HandBack => channel.basic_nack(tag, BasicNackOptions { multiple, requeue: true }).await,
            }
        });
        future::try_join_all(sent).await.map_err(connect::fate)?;
        Ok(())
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        if let Some(consumer) = &self.consumer {
            self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await.map_err(connect::fate)?;
            // Tag 0: all that are out, those that the client holds included.
            let all = self.channel.basic_nack(0, BasicNackOptions { multiple: true, requeue: true });
            all.await.map_err(connect::fate)?;
        }
        self.consumer = None;
        self.ready.clear();
        self.out.clear();
        Ok(())
    }
}

#[async_trait]
impl Source for RabbitMqSource {
    fn name(&self) -> &str {
        &self.options.queue
    }

    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError> {
        let gathered = self.gather(gather).await;
        self.lost_if(gathered).map(Received::Deliveries)
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.settle(tags, Settle::Acknowledge).await
    }

    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        self.settle(tags, Settle::HandBack).await
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let paused = live.pause().await;
        self.lost_if(paused)
    }

    async fn check(&self) -> Result<Seen, SourceError> {
        let (connection, channel) = connect::connect(&self.options).await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.options.queue.as_str().into();
        let declared = channel.queue_declare(queue, passive, FieldTable::default()).await.map_err(connect::fate)?;
        // What the broker says of a farewell does not matter.
        drop(connection.close(200, "done".into()).await);
        let (ready, consumers) = (declared.message_count(), declared.consumer_count());
        Ok(Seen { found: format!("messages ready: {ready}, consumers: {consumers}"), warnings: Vec::new() })
    }
}

/// Without the password.
impl fmt::Debug for RabbitMqSourceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RabbitMqSourceOptions { hosts, vhost, queue, prefetch, .. } = self;
        write!(f, "RabbitMqSourceOptions {{ {hosts:?} {vhost:?} {queue:?} {prefetch} }}")
    }
}
