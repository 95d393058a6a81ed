//! A consumer's event queue.

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::{RDKafka, RDKafkaErrorCode};
use rdkafka_sys as sys;
use sys::rd_kafka_resp_err_t::{RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, RD_KAFKA_RESP_ERR_NO_ERROR};

use super::record::Record;
use super::{elements, millis, text};
use crate::kafka::client::Context;

/// What a consumer's queue had for its owner.
pub enum Event {
    Message(Record),
    /// Partitions are offered; librdkafka waits until they are assigned.
    Assigned(TopicPartitionList),
    /// Partitions are taken away; librdkafka waits until they are unassigned.
    Revoked(TopicPartitionList),
    /// The end of a partition's log was reached: every position below this one was handed over or holds no message.
    End {
        topic: String,
        partition: i32,
        next: i64,
    },
    Error {
        code: RDKafkaErrorCode,
        text: String,
        fatal: bool,
        topic: Option<(String, i32)>,
    },
}

/// A consumer's event queue, polled here so that events keep their offsets and messages their bytes.
pub struct Queue {
    native: NonNull<sys::rd_kafka_queue_t>,
    consumer: Arc<BaseConsumer<Context>>,
}

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Queue {}

impl Queue {
    pub fn of(consumer: Arc<BaseConsumer<Context>>) -> Option<Queue> {
        // SAFETY: the client lives as long as the Arc beside the queue.
        let native = NonNull::new(unsafe { sys::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) })?;
        Some(Queue { native, consumer })
    }

    /// The next event, or none within `timeout`. Also serves the client's own callbacks.
    pub fn poll(&self, timeout: Duration) -> Option<Event> {
        // SAFETY: the queue is valid until drop; the event is ours and either kept in a record or freed here.
        unsafe {
            let event = sys::rd_kafka_queue_poll(self.native.as_ptr(), millis(timeout));
            if event.is_null() {
                return None;
            }
            if sys::rd_kafka_event_type(event) == sys::RD_KAFKA_EVENT_FETCH {
                let message = sys::rd_kafka_event_message_next(event);
                if let Some(message) = NonNull::new(message.cast_mut())
                    && message.as_ref().err == RD_KAFKA_RESP_ERR_NO_ERROR
                {
                    let event = NonNull::new_unchecked(event);
                    return Some(Event::Message(Record::new(message, event, Arc::clone(&self.consumer))));
                }
            }
            let read = self.read(event);
            sys::rd_kafka_event_destroy(event);
            read
        }
    }

    /// # Safety
    /// `event` is valid.
    unsafe fn read(&self, event: *mut sys::rd_kafka_event_t) -> Option<Event> {
        unsafe {
            match sys::rd_kafka_event_type(event) {
                sys::RD_KAFKA_EVENT_REBALANCE => {
                    let partitions = copied(sys::rd_kafka_event_topic_partition_list(event));
                    if sys::rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
                        Some(Event::Assigned(partitions))
                    } else {
                        Some(Event::Revoked(partitions))
                    }
                }
                sys::RD_KAFKA_EVENT_ERROR => Some(error_event(event)),
                sys::RD_KAFKA_EVENT_LOG => {
                    let (mut facility, mut line, mut level) = (ptr::null(), ptr::null(), 0);
                    if sys::rd_kafka_event_log(event, &mut facility, &mut line, &mut level) == 0 {
                        use RDKafkaLogLevel::{Error, Info, Notice};
                        // syslog's numbers: up to 3 are errors, 4 and 5 warnings and notices.
                        let level = if level <= 3 {
                            Error
                        } else if level <= 5 {
                            Notice
                        } else {
                            Info
                        };
                        let context = self.consumer.client().context();
                        rdkafka::ClientContext::log(context.as_ref(), level, &text(facility), &text(line));
                    }
                    None
                }
                sys::RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH => {
                    refresh_token(self.consumer.client().native_ptr(), self.consumer.client().context());
                    None
                }
                _ => None,
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: ours, freed once, before the consumer (field order).
        unsafe { sys::rd_kafka_queue_destroy(self.native.as_ptr()) }
    }
}

/// # Safety
/// `event` is a valid error event.
unsafe fn error_event(event: *mut sys::rd_kafka_event_t) -> Event {
    unsafe {
        let code = sys::rd_kafka_event_error(event);
        let place = sys::rd_kafka_event_topic_partition(event);
        let mut at = None;
        if !place.is_null() {
            at = Some((text((*place).topic), (*place).partition, (*place).offset));
            sys::rd_kafka_topic_partition_destroy(place);
        }
        if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF
            && let Some((topic, partition, next)) = at
        {
            return Event::End { topic, partition, next };
        }
        Event::Error {
            code: code.into(),
            text: text(sys::rd_kafka_event_error_string(event)),
            fatal: sys::rd_kafka_event_error_is_fatal(event) != 0,
            topic: at.map(|(topic, partition, _)| (topic, partition)),
        }
    }
}

/// # Safety
/// `list` is null or valid; it is copied.
unsafe fn copied(list: *mut sys::rd_kafka_topic_partition_list_t) -> TopicPartitionList {
    let mut copy = TopicPartitionList::new();
    if !list.is_null() {
        for element in unsafe { elements(list) } {
            copy.add_partition(&text(element.topic), element.partition);
        }
    }
    copy
}

fn refresh_token(client: *mut RDKafka, context: &Context) {
    let fail = |reason: String| {
        let reason = CString::new(reason).unwrap_or_default();
        // SAFETY: the client is alive, the text is copied.
        unsafe { sys::rd_kafka_oauthbearer_set_token_failure(client, reason.as_ptr()) };
    };
    let token = match rdkafka::ClientContext::generate_oauth_token(context, None) {
        Ok(token) => token,
        Err(error) => return fail(error.to_string()),
    };
    let (Ok(value), Ok(principal)) = (CString::new(token.token), CString::new(token.principal_name)) else {
        return fail("the token has a NUL in it".to_owned());
    };
    let mut reason = [0; 512];
    // SAFETY: all strings end with NUL and are copied; the buffer's length is given.
    let code = unsafe {
        sys::rd_kafka_oauthbearer_set_token(
            client,
            value.as_ptr(),
            token.lifetime_ms,
            principal.as_ptr(),
            ptr::null_mut(),
            0,
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    if code != RD_KAFKA_RESP_ERR_NO_ERROR {
        fail(text(reason.as_ptr()));
    }
}
