//! RabbitMQ as a sink: one channel with publisher confirms.
//!
//! A window is sent without waiting for each confirm, up to a number that may be unconfirmed, and the confirms are
//! awaited in order. What the broker says, and what it means:
//!
//! | the broker's answer | the message is |
//! | --- | --- |
//! | ack, not returned | confirmed: in every queue it was routed to, on disk if the queue is durable |
//! | ack, returned (mandatory) | in doubt: there was no queue for it |
//! | nack, sent to one queue by its name | refused: the queue is full and its overflow is `reject-publish` |
//! | nack, sent to an exchange | in doubt: one of its queues refused, another may have it |
//! | channel or connection lost, no answer in time | in doubt if it was sent |
//!
//! **Which message was returned?** The client hands a return to whichever confirm it completes next; when one ack
//! stands for many messages that is any of them. So where it is found says nothing. But the broker returns what it was
//! sent, so a message that differs from what came back, in route, properties or body, is not the one. All that equal it
//! are in doubt; where none does (a plugin changed it), all that were sent are. Returns come before their ack on the
//! same channel, so when all confirms are in, all returns are.
//!
//! **After a failure** of the channel it is made anew at the next call, with its connection: lapin's own recovery is
//! off, since it would send what was in doubt again. A channel is used only after every destination was seen to exist:
//! publishing to an exchange that is missing would close it, and would leave a window in doubt for nothing.
//!
//! **While the broker blocks its publishers** (out of memory or disk) nothing is sent. It says so only to who publishes,
//! and does not read what that one sends from then on; so what was under way is in doubt once, and a new channel is used
//! only after an empty message to no queue was confirmed. (Where every destination is behind an exchange there is no
//! such message, and each call leaves something in doubt.)
//!
//! What is in doubt may be stored later than any time limit: a broker that read nothing for a while reads on where it
//! was, and stores what stands in its buffers, although the connection is gone.
//!
//! Not handled: a broker that confirms and loses it nevertheless (classic queues that are not durable; a mirror that
//! was not in step).

use async_trait::async_trait;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ErrorKind, ExchangeKind};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

use super::flight::{Answered, Flight};
use super::{Doubt, Outgoing, Published, Sink, SinkError};

mod options;
mod properties;
#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod returned_tests;

pub use options::{RabbitOptions, Route, Server};

/// What RabbitMQ allows unless it is told otherwise.
const USUAL_FRAME_MAX: usize = 131_072;
const BLOCKED_POLL: Duration = Duration::from_millis(20);

pub struct RabbitSink {
    options: RabbitOptions,
    open: Option<Open>,
    /// As it was last agreed on with the broker.
    frame_max: usize,
}

struct Open {
    /// Kept: the channel ends with it.
    connection: Connection,
    channel: Channel,
}

impl Open {
    fn is_sound(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }
}

impl RabbitSink {
    /// Connects when it is first used.
    pub fn new(options: RabbitOptions) -> RabbitSink {
        RabbitSink { options, open: None, frame_max: USUAL_FRAME_MAX }
    }

    /// The channel to publish on; made anew where it is not there any more.
    async fn open(&mut self) -> Result<&Open, SinkError> {
        if !self.open.as_ref().is_some_and(Open::is_sound) {
            self.open = None;
            let connection = self.options.server.connect().await.map_err(failed)?;
            let channel = connection.create_channel().await.map_err(failed)?;
            for route in self.options.routes() {
                look_for(&channel, route).await?;
            }
            channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(failed)?;
            if self.options.routes().any(Route::is_one_queue) {
                to_no_queue(&channel).await.map_err(failed)?;
            }
            self.frame_max = match connection.configuration().frame_max() {
                0 => usize::MAX,
                bytes => bytes as usize,
            };
            self.open = Some(Open { connection, channel });
        }
        let open = self.open.as_ref().expect("opened");
        while open.connection.status().blocked() {
            sleep(BLOCKED_POLL).await;
        }
        Ok(open)
    }

    fn prepare<'a>(&'a self, outgoing: &'a Outgoing) -> Result<Prepared<'a>, String> {
        let route = self.options.route(outgoing.destination);
        let route = route.ok_or_else(|| format!("no destination is set for {:?}", outgoing.destination))?;
        let name = |text: &str| ShortString::try_new(text).map_err(|error| format!("{route}: {error}"));
        let (exchange, routing_key) = (name(&route.exchange)?, name(&route.routing_key)?);
        let properties = properties::properties(outgoing)?;
        let (bytes, bytes_max) = (properties::frame_bytes(&properties), self.frame_max);
        if bytes > bytes_max {
            return Err(format!("its headers take {bytes} bytes, and the broker takes frames of {bytes_max}"));
        }
        let body = outgoing.message.value.as_deref().unwrap_or_default();
        if body.len() > self.options.message_bytes_max {
            let bytes_max = self.options.message_bytes_max;
            return Err(format!("its body has {} bytes, more than the {bytes_max} that are allowed", body.len()));
        }
        Ok(Prepared { route, exchange, routing_key, properties, body })
    }

    /// Answers, and whether the channel is good for more.
    async fn send(&self, open: &Open, messages: &[Outgoing], deadline: Instant) -> (Vec<Published>, bool) {
        let mut flight = Flight::new(self.options.unconfirmed_max, deadline);
        let mut window = Window { answers: vec![Published::NotSent; messages.len()], ..Window::default() };
        for (number, outgoing) in messages.iter().enumerate() {
            while let Some(answered) = flight.make_room().await {
                window.settle(answered);
            }
            if window.failed || !open.is_sound() {
                break;
            }
            match self.prepare(outgoing) {
                Ok(prepared) => {
                    window.sent = number + 1;
                    flight.send(number, confirm(&open.channel, prepared));
                }
                Err(unfit) => {
                    window.answers[number] = Published::Refused(unfit);
                    break;
                }
            }
        }
        while let Some(answered) = flight.next().await {
            window.settle(answered);
        }
        for (outgoing, answer) in messages.iter().zip(&mut window.answers).take(window.sent) {
            if matches!(answer, Published::Refused(_)) && !self.goes_to_one_queue(outgoing) {
                *answer = Published::InDoubt(Doubt::answered("a queue of the exchange refused it"));
            }
        }
        for returned in std::mem::take(&mut window.returned) {
            self.doubt(&returned, messages, &mut window);
        }
        (window.answers, !window.broken)
    }

    fn goes_to_one_queue(&self, outgoing: &Outgoing) -> bool {
        self.options.route(outgoing.destination).is_some_and(Route::is_one_queue)
    }

    /// Puts everything in doubt that may be what the broker returned.
    fn doubt(&self, returned: &BasicReturnMessage, messages: &[Outgoing], window: &mut Window) {
        let reason = format!("returned by the broker: {} {}", returned.reply_code, returned.reply_text);
        let sent = &messages[..window.sent];
        let same = |outgoing: &&Outgoing| self.prepare(outgoing).is_ok_and(|prepared| prepared.is(returned));
        let known = sent.iter().any(|outgoing| same(&outgoing));
        for (outgoing, answer) in sent.iter().zip(&mut window.answers) {
            if *answer == Published::Confirmed && (!known || same(&outgoing)) {
                *answer = Published::InDoubt(Doubt::answered(reason.clone()));
            }
        }
    }
}

/// A message as it goes on the wire.
struct Prepared<'a> {
    route: &'a Route,
    exchange: ShortString,
    routing_key: ShortString,
    properties: BasicProperties,
    body: &'a [u8],
}

impl Prepared<'_> {
    fn is(&self, returned: &BasicReturnMessage) -> bool {
        returned.data == self.body
            && returned.routing_key.as_str() == self.route.routing_key
            && returned.exchange.as_str() == self.route.exchange
            && returned.properties == self.properties
    }
}

/// Queued for sending when it is first polled.
async fn confirm(channel: &Channel, message: Prepared<'_>) -> lapin::Result<Confirmation> {
    let Prepared { exchange, routing_key, properties, body, .. } = message;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    channel.basic_publish(exchange, routing_key, options, body, properties).await?.await
}

/// Confirmed as soon as the broker takes messages at all: no queue has this name.
async fn to_no_queue(channel: &Channel) -> lapin::Result<()> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).expect("the system has randomness");
    let name = format!("semel.nowhere.{}", hex::encode(name)).into();
    let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
    channel.basic_publish(ShortString::default(), name, options, b"", properties).await?.await?;
    Ok(())
}

#[derive(Default)]
struct Window {
    answers: Vec<Published>,
    /// Messages from the first on that were sent.
    sent: usize,
    returned: Vec<BasicReturnMessage>,
    /// Nothing more is to be sent.
    failed: bool,
    /// The channel is of no use any more.
    broken: bool,
}

impl Window {
    fn settle(&mut self, (number, answer): Answered<lapin::Result<Confirmation>>) {
        let (answer, returned) = match answer {
            Some(Ok(Confirmation::Ack(returned))) => (Published::Confirmed, returned),
            Some(Ok(Confirmation::Nack(returned))) => {
                (Published::Refused("the broker refused it: the queue is full".to_owned()), returned)
            }
            Some(Ok(Confirmation::NotRequested)) => {
                self.broken = true;
                (Published::InDoubt(Doubt::answered("the channel gives no confirms")), None)
            }
            Some(Err(error)) => {
                self.broken = true;
                (Published::InDoubt(Doubt::silent(error.to_string())), None)
            }
            None => {
                self.broken = true;
                (Published::InDoubt(Doubt::silent("not confirmed in time")), None)
            }
        };
        self.failed |= answer != Published::Confirmed || returned.is_some();
        self.returned.extend(returned);
        self.answers[number] = answer;
    }
}

#[async_trait]
impl Sink for RabbitSink {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let deadline = Instant::now() + self.options.timeout;
        let error = match timeout_at(deadline, self.open()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(SinkError::Lost("no channel in time, or the broker blocks its publishers".into())),
        };
        // Kept where it is blocked: the broker lets a new connection publish once before it blocks it.
        let Some(open) = self.open.take_if(|_| error.is_none()) else {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            tracing::warn!(error, messages = messages.len(), "nothing was sent to rabbitmq");
            return vec![Published::NotSent; messages.len()];
        };
        let (answers, sound) = self.send(&open, messages, deadline).await;
        if sound {
            self.open = Some(open);
        }
        answers
    }

    fn unfit(&self, message: &Outgoing) -> Option<String> {
        self.prepare(message).err()
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        let deadline = Instant::now() + self.options.timeout;
        let check = async {
            let connection = self.options.server.connect().await.map_err(failed)?;
            let channel = connection.create_channel().await.map_err(failed)?;
            for route in self.options.routes() {
                look_for(&channel, route).await?;
            }
            Ok(())
        };
        timeout_at(deadline, check).await.unwrap_or_else(|_| Err(SinkError::Lost("no answer in time".into())))
    }
}

/// Asks for the queue or exchange; a missing one closes the channel.
async fn look_for(channel: &Channel, route: &Route) -> Result<(), SinkError> {
    let name = |text: &str| ShortString::try_new(text).map_err(|error| SinkError::Refused(error.into()));
    let found = if route.is_one_queue() {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name(&route.routing_key)?, options, FieldTable::default()).await.map(|_| ())
    } else {
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(name(&route.exchange)?, ExchangeKind::Direct, options, FieldTable::default()).await
    };
    found.map_err(|error| {
        let refused = is_refusal(&error);
        let missing = Unavailable { route: route.clone(), source: error };
        if refused { SinkError::Refused(missing.into()) } else { SinkError::Lost(missing.into()) }
    })
}

#[derive(Debug, thiserror::Error)]
#[error("{route} cannot be used")]
struct Unavailable {
    route: Route,
    source: lapin::Error,
}

fn failed(error: lapin::Error) -> SinkError {
    if is_refusal(&error) { SinkError::Refused(error.into()) } else { SinkError::Lost(error.into()) }
}

/// Whether the broker's answer is the same the next time: access refused, not found, locked, precondition failed, not
/// allowed, an invalid path. A broker that shuts down or runs out of something says other things.
fn is_refusal(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(said) => matches!(said.get_id(), 402..=406 | 530),
        ErrorKind::AuthProviderError(_) => true,
        _ => false,
    }
}
