//! NATS JetStream as a sink: publishes whose acknowledgements are awaited in order.
//!
//! The stream remembers `Nats-Msg-Id` for its duplicate window, so a message that was in doubt may be sent again within
//! it: [`Sink::check`] compares the real stream with the pipeline's lease, and refuses one that forgets too soon.
//!
//! | the server's answer | the message is |
//! | --- | --- |
//! | ack | confirmed: stored in the stream |
//! | ack, duplicate | deduplicated: the stream has a message with this key |
//! | the stream is full and refuses new messages, or takes none so large | refused |
//! | no responder (no stream holds the subject), any other error | in doubt |
//! | connection lost, no answer in time | in doubt if it was handed to the client |
//!
//! The client queues what it is given, and would send it over its next connection. Ours has no next one (see
//! `options.rs`), and is dropped after the first answer that did not come: nothing that was answered for as in doubt is
//! sent later. It is made anew at the next call.
//!
//! The check needs the right to ask the server about its streams (`$JS.API.STREAM.NAMES`, `.INFO`), publishing does not.
//!
//! Not handled: a stream whose limits drop old messages (its operator's choice), an interest stream without consumers,
//! which acknowledges and drops.

use async_nats::jetstream::context::{ContextBuilder, PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{ConnectErrorKind, HeaderMap, connection::State};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::flight::{Answered, Flight};
use super::{Doubt, Outgoing, Published, Sink, SinkError};

mod headers;
mod options;
mod streams;

pub use options::{NatsOptions, Servers};

/// What a server takes unless it is told otherwise.
const USUAL_PAYLOAD_MAX: usize = 1 << 20;

pub struct NatsSink {
    options: NatsOptions,
    context: Option<Context>,
    /// As the server last told.
    payload_max: usize,
}

impl NatsSink {
    /// Connects when it is first used.
    pub fn new(options: NatsOptions) -> NatsSink {
        NatsSink { options, context: None, payload_max: USUAL_PAYLOAD_MAX }
    }

    async fn open(&mut self) -> Result<Context, SinkError> {
        let sound = |context: &Context| context.client().connection_state() == State::Connected;
        if let Some(context) = self.context.take().filter(sound) {
            return Ok(context);
        }
        let client = self.options.servers.connect().await.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Authentication
            | ConnectErrorKind::ServerParse => SinkError::Refused(error.into()),
            _ => SinkError::Lost(error.into()),
        })?;
        self.payload_max = client.server_info().max_payload;
        // More may be out than we let out: the permits of answers that were given up come back late.
        let out_max = 4 * self.options.unconfirmed_max;
        Ok(ContextBuilder::new().timeout(self.options.timeout).max_ack_inflight(out_max).build(client))
    }

    fn prepare<'a>(&'a self, outgoing: &Outgoing) -> Result<(&'a str, HeaderMap, Bytes), String> {
        let subject = self.options.subject(outgoing.destination);
        let subject = subject.ok_or_else(|| format!("no destination is set for {:?}", outgoing.destination))?;
        let headers = headers::headers(outgoing);
        let body = outgoing.message.value.clone().unwrap_or_default();
        let (bytes, bytes_max) = (headers::bytes(&headers) + body.len(), self.payload_max);
        if bytes > bytes_max {
            return Err(format!("it has {bytes} bytes with its headers, and the server takes {bytes_max}"));
        }
        Ok((subject, headers, body))
    }

    /// Answers, and whether the client is good for more.
    async fn send(&self, context: &Context, messages: &[Outgoing], deadline: Instant) -> (Vec<Published>, bool) {
        let mut flight = Flight::new(self.options.unconfirmed_max, deadline);
        let mut window = Window { answers: vec![Published::NotSent; messages.len()], failed: false, broken: false };
        for (number, outgoing) in messages.iter().enumerate() {
            while let Some(answered) = flight.make_room().await {
                window.settle(answered);
            }
            if window.failed {
                break;
            }
            let (subject, headers, body) = match self.prepare(outgoing) {
                Ok(prepared) => prepared,
                Err(unfit) => {
                    window.answers[number] = Published::Refused(unfit);
                    break;
                }
            };
            let handed = context.publish_with_headers(subject.to_owned(), headers, body);
            match timeout_at(deadline, handed).await {
                Ok(Ok(ack)) => flight.send(number, acknowledged(ack)),
                // It was not handed to the connection: the client is full or has ended.
                Ok(Err(_)) | Err(_) => {
                    window.broken = true;
                    break;
                }
            }
        }
        while let Some(answered) = flight.next().await {
            window.settle(answered);
        }
        (window.answers, !window.broken)
    }
}

async fn acknowledged(ack: PublishAckFuture) -> Result<PublishAck, PublishError> {
    ack.await
}

struct Window {
    answers: Vec<Published>,
    /// Nothing more is to be sent.
    failed: bool,
    /// The client is of no use any more.
    broken: bool,
}

impl Window {
    fn settle(&mut self, (number, answer): Answered<Result<PublishAck, PublishError>>) {
        let answer = match answer {
            Some(Ok(PublishAck { duplicate: true, .. })) => Published::Deduplicated,
            Some(Ok(_)) => Published::Confirmed,
            Some(Err(error)) => {
                self.broken |= is_silence(error.kind());
                judge(&error)
            }
            None => {
                self.broken = true;
                Published::InDoubt(Doubt::silent("not acknowledged in time"))
            }
        };
        self.failed |= !answer.is_stored();
        self.answers[number] = answer;
    }
}

fn is_silence(kind: PublishErrorKind) -> bool {
    matches!(kind, PublishErrorKind::BrokenPipe | PublishErrorKind::TimedOut)
}

fn judge(error: &PublishError) -> Published {
    let told = std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>());
    let reason = match told {
        Some(told) => told.to_string(),
        None => error.to_string(),
    };
    match told {
        Some(told) if is_surely_not_stored(told, &reason) => Published::Refused(reason),
        _ if is_silence(error.kind()) => Published::InDoubt(Doubt::silent(reason)),
        _ => Published::InDoubt(Doubt::answered(reason)),
    }
}

/// A stream that is full says so by the error of its store, which may mean other things too. Its size limit is looked
/// at before anything is stored.
fn is_surely_not_stored(told: &jetstream::Error, reason: &str) -> bool {
    match told.error_code() {
        ErrorCode::STREAM_STORE_FAILED => reason.starts_with("maximum messages") || reason.starts_with("maximum bytes"),
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => true,
        _ => false,
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let deadline = Instant::now() + self.options.timeout;
        let opened = timeout_at(deadline, self.open()).await;
        let context = match opened.unwrap_or_else(|_| Err(SinkError::Lost("no connection in time".into()))) {
            Ok(context) => context,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, messages = messages.len(), "nothing was sent to nats");
                return vec![Published::NotSent; messages.len()];
            }
        };
        let (answers, sound) = self.send(&context, messages, deadline).await;
        self.context = sound.then_some(context);
        answers
    }

    fn unfit(&self, message: &Outgoing) -> Option<String> {
        self.prepare(message).err()
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        let deadline = Instant::now() + self.options.timeout;
        let late = |_| Err(SinkError::Lost("no answer in time".into()));
        let context = timeout_at(deadline, self.open())
            .await
            .unwrap_or_else(|_| Err(SinkError::Lost("no connection in time".into())))?;
        let checked = timeout_at(deadline, streams::check(&context, &self.options)).await.unwrap_or_else(late);
        self.context = Some(context);
        checked
    }
}
