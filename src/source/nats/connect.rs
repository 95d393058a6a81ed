//! A connection with a consumer and its subscriptions, from which nothing is pulled yet.

use std::collections::{BTreeMap, VecDeque};

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, FromConsumer, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::watch;

use super::{Live, NatsSourceOptions};
use crate::source::{Cause, Seen, SourceError};

const NOT_EXPLICIT: &str = "it does not acknowledge messages one by one (its ack policy is not explicit)";

pub(super) async fn connect(options: &NatsSourceOptions) -> Result<Live, SourceError> {
    match tokio::time::timeout(options.timeout, open(options)).await {
        Ok(opened) => opened,
        Err(_) => Err(SourceError::Lost(format!("{} does not answer", options.hosts.join(", ")).into())),
    }
}

/// What is there, with nothing made or changed.
pub(super) async fn look(options: &NatsSourceOptions) -> Result<Seen, SourceError> {
    let looked = async {
        let (client, _) = client(options).await?;
        let stream = stream(&client, options).await?;
        let messages = stream.cached_info().state.messages;
        let mut seen = Seen { found: format!("messages: {messages}"), warnings: Vec::new() };
        match stream.get_consumer::<pull::Config>(&options.consumer).await {
            Ok(consumer) => {
                let info = consumer.cached_info();
                let waiting = info.num_pending + info.num_ack_pending as u64;
                seen.found = format!("{}, not acknowledged by consumer {}: {waiting}", seen.found, options.consumer);
                if info.config.ack_policy != AckPolicy::Explicit {
                    return Err(fate(true, format!("consumer {}", options.consumer), NOT_EXPLICIT.into()));
                }
                if info.config.max_deliver > 0 {
                    seen.warnings.push(format!(
                        "the server gives a message up after {} deliveries (max_deliver of {}): set it to -1",
                        info.config.max_deliver, options.consumer
                    ));
                }
            }
            // It is not told apart from one that may not be asked for.
            Err(_) => seen.found = format!("{}, consumer {} is made by the first start", seen.found, options.consumer),
        }
        Ok(seen)
    };
    match tokio::time::timeout(options.timeout, looked).await {
        Ok(looked) => looked,
        Err(_) => Err(SourceError::Lost(format!("{} does not answer", options.hosts.join(", ")).into())),
    }
}

async fn stream(client: &Client, options: &NatsSourceOptions) -> Result<Stream, SourceError> {
    let mut context = jetstream::new(client.clone());
    context.set_timeout(options.timeout);
    context.get_stream(&options.stream).await.map_err(|error| {
        let refused = matches!(error.kind(), GetStreamErrorKind::JetStream(told) if told.code() == 404);
        fate(refused, format!("stream {}", options.stream), error.into())
    })
}

async fn open(options: &NatsSourceOptions) -> Result<Live, SourceError> {
    let (client, lost) = client(options).await?;
    let stream = stream(&client, options).await?;
    let consumer = consumer(&stream, options).await?;
    let (inbox, answers_to) = (client.new_inbox(), client.new_inbox());
    let lost_now = |error: async_nats::SubscribeError| SourceError::Lost(error.into());
    let messages = client.subscribe(inbox.clone()).await.map_err(lost_now)?;
    let answers = client.subscribe(format!("{answers_to}.*")).await.map_err(lost_now)?;
    let (ready, out) = (VecDeque::new(), BTreeMap::new());
    Ok(Live { client, consumer, inbox, messages, answers_to, answers, answer: 0, lost, pull: None, ready, out })
}

/// A client that tells when its connection is lost. Its own repairs come too late: it is dropped then.
async fn client(options: &NatsSourceOptions) -> Result<(Client, watch::Receiver<bool>), SourceError> {
    let (tell, lost) = watch::channel(false);
    let mut made = ConnectOptions::new()
        .name(format!("semel {}", options.client))
        .connection_timeout(options.timeout)
        .request_timeout(Some(options.timeout))
        .ping_interval(options.timeout)
        .require_tls(options.tls)
        .event_callback(move |event| {
            if matches!(event, Event::Disconnected | Event::Closed) {
                tell.send_replace(true);
            }
            std::future::ready(())
        });
    made = match (options.user.clone(), options.password.clone()) {
        (Some(user), password) => made.user_and_password(user, password.unwrap_or_default()),
        (None, Some(token)) => made.token(token),
        (None, None) => made,
    };
    match made.connect(&options.hosts).await {
        Ok(client) => Ok((client, lost)),
        Err(error) => {
            let refused = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
            Err(fate(refused.contains(&error.kind()), options.hosts.join(", "), error.into()))
        }
    }
}

/// The consumer that is there with the limit and the wait that are asked for, or a new one from the oldest message on.
async fn consumer(stream: &Stream, options: &NatsSourceOptions) -> Result<PullConsumer, SourceError> {
    let what = || format!("consumer {}", options.consumer);
    let limit = i64::try_from(options.prefetch).unwrap_or(i64::MAX);
    let new = pull::Config {
        durable_name: Some(options.consumer.clone()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        max_ack_pending: limit,
        ..pull::Config::default()
    };
    let failed = |error: async_nats::jetstream::stream::ConsumerError| {
        let refused = match error.kind() {
            ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName => true,
            ConsumerErrorKind::JetStream(told) => matches!(told.code(), 400 | 404),
            _ => false,
        };
        fate(refused, what(), error.into())
    };
    let found = stream.get_or_create_consumer(&options.consumer, new).await.map_err(failed)?;
    let there = &found.cached_info().config;
    if there.ack_policy != AckPolicy::Explicit {
        return Err(fate(true, what(), NOT_EXPLICIT.into()));
    }
    if there.max_deliver > 0 {
        let consumer = options.consumer.as_str();
        tracing::warn!(
            consumer,
            max_deliver = there.max_deliver,
            "the server gives messages up after so many deliveries"
        );
    }
    if there.ack_wait == options.ack_wait && there.max_ack_pending == limit {
        return Ok(found);
    }
    let as_asked = |mut config: pull::Config| {
        (config.ack_wait, config.max_ack_pending) = (options.ack_wait, limit);
        config
    };
    let config = pull::Config::try_from_consumer_config(there.clone()).map_err(|error| fate(true, what(), error))?;
    stream.update_consumer(as_asked(config)).await.map_err(|error| fate(false, what(), error.into()))
}

fn fate(refused: bool, what: String, cause: Cause) -> SourceError {
    let cause = format!("{what}: {cause}").into();
    if refused { SourceError::Refused(cause) } else { SourceError::Lost(cause) }
}
