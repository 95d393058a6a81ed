//! Messages that a quorum queue is about to drop.
//!
//! A quorum queue counts the deliveries of a message that were not acknowledged: those of a consumer that was killed, or
//! whose connection was cut, count like those that were handed back. Past its limit (20 from RabbitMQ 4 on, unless a
//! policy says otherwise) the message is dropped, or dead-lettered, whoever it was that failed. Nothing that a consumer
//! says takes a count back. So a message that has come [`RENEW_AT`] times is sent to the end of its own queue as a new
//! one, and the old one is acknowledged when the broker has confirmed that. What ends between the two leaves both, which
//! are copies of one event: only one of them is forwarded.
//!
//! *Not handled.* A limit below [`RENEW_AT`]. A user without the right to write to the default exchange, and a message
//! with the `user_id` of another: they are delivered as they came, which is logged once a connection.

use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::AMQPValue;
use lapin::{Channel, Confirmation, Connection};

use crate::message::Message;

/// Far enough below 20, so that what takes the process down while it is renewed finds it renewed the next time.
const RENEW_AT: i64 = 10;

/// How often a delivery was made before, as quorum queues count.
fn count(delivery: &Delivery) -> i64 {
    let headers = delivery.properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get("x-delivery-count")) {
        Some(AMQPValue::LongLongInt(count)) => *count,
        Some(AMQPValue::LongInt(count)) => i64::from(*count),
        Some(AMQPValue::LongUInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortShortInt(count)) => i64::from(*count),
        _ => 0,
    }
}

pub(super) fn is_due(delivery: &Delivery) -> bool {
    count(delivery) >= RENEW_AT
}

/// The channel on which messages are renewed, of one connection.
#[derive(Default)]
pub(super) struct Renewal {
    channel: Option<Channel>,
    fails: bool,
}

impl Renewal {
    /// Whether the broker has confirmed that it has the message anew.
    pub(super) async fn renew(
        &mut self,
        connection: &Connection,
        queue: &str,
        message: &Message,
        timeout: Duration,
    ) -> bool {
        if self.fails {
            return false;
        }
        let renewed = tokio::time::timeout(timeout, self.publish(connection, queue, message)).await;
        let why = match renewed {
            Ok(Ok(Confirmation::Ack(None))) => return true,
            Ok(Ok(confirmation)) => format!("{confirmation:?}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.fails = true;
        let id = message.amqp.as_ref().and_then(|amqp| amqp.message_id().as_ref().map(ToString::to_string));
        tracing::warn!(
            queue,
            why,
            message_id = id,
            "a message that came often could not be sent to its queue anew: past the queue's delivery limit it is dropped"
        );
        false
    }

    async fn publish(
        &mut self,
        connection: &Connection,
        queue: &str,
        message: &Message,
    ) -> Result<Confirmation, lapin::Error> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => {
                let channel = connection.create_channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                channel
            }
        };
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let properties = message.amqp.as_deref().cloned().unwrap_or_default();
        let body = message.value.as_deref().unwrap_or_default();
        let confirmation = channel.basic_publish("".into(), queue.into(), options, body, properties).await?.await?;
        self.channel = Some(channel);
        Ok(confirmation)
    }
}
