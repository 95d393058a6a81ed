//! What the client knows or can find out of topics.

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka_sys as sys;
use sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

use super::{NativeError, millis, text};
use crate::kafka::client::Context;
use crate::protocol::lane::TopicId;

/// Where the log ends, as the client's last fetch said. No round trip.
pub fn known_end(consumer: &BaseConsumer<Context>, topic: &str, partition: i32) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the client is alive; the numbers are ours.
    let code = unsafe {
        let client = consumer.client().native_ptr();
        sys::rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &mut low, &mut high)
    };
    (code == RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(high)
}

/// Ids of topics, in the order of `names`. One admin round trip.
pub fn topic_ids(
    consumer: &BaseConsumer<Context>,
    names: &[String],
    timeout: Duration,
) -> Result<Vec<TopicId>, NativeError> {
    let c_names: Vec<CString> = names.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    let mut pointers: Vec<*const std::ffi::c_char> = c_names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: every object made here is freed here; results are copied before their event is freed.
    unsafe {
        let client = consumer.client().native_ptr();
        let queue = sys::rd_kafka_queue_new(client);
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        sys::rd_kafka_DescribeTopics(client, topics, ptr::null(), queue);
        let event = sys::rd_kafka_queue_poll(queue, millis(timeout));
        let answer = if event.is_null() {
            Err(NativeError::of(sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT))
        } else {
            described(event, names)
        };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_TopicCollection_destroy(topics);
        sys::rd_kafka_queue_destroy(queue);
        answer
    }
}

/// # Safety
/// `event` is a valid event.
unsafe fn described(event: *mut sys::rd_kafka_event_t, names: &[String]) -> Result<Vec<TopicId>, NativeError> {
    unsafe {
        let code = sys::rd_kafka_event_error(event);
        if code != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(NativeError::of(code));
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0;
        let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        let mut found = HashMap::new();
        for n in 0..count {
            let description = *descriptions.add(n);
            let error = sys::rd_kafka_TopicDescription_error(description);
            let code = if error.is_null() { RD_KAFKA_RESP_ERR_NO_ERROR } else { sys::rd_kafka_error_code(error) };
            if code != RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(NativeError::of(code));
            }
            let id = text(sys::rd_kafka_Uuid_base64str(sys::rd_kafka_TopicDescription_topic_id(description)));
            found.insert(text(sys::rd_kafka_TopicDescription_name(description)), url_safe(&id));
        }
        names
            .iter()
            .map(|name| {
                let unknown = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
                found.remove(name).ok_or_else(|| NativeError::of(unknown))
            })
            .collect()
    }
}

/// librdkafka writes ids in the usual base64, the broker and its tools in the URL-safe one: without slashes, which part
/// the names of streams.
fn url_safe(id: &str) -> TopicId {
    TopicId(id.replace('+', "-").replace('/', "_").trim_end_matches('=').into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_the_broker_writes_them() {
        let cases = [
            ("bjcaSKAkR6um/vsx/GtvwQ", "bjcaSKAkR6um_vsx_GtvwQ", "slashes"),
            ("Uhf5Mb0xQN6ruMA1f4++0w==", "Uhf5Mb0xQN6ruMA1f4--0w", "pluses and padding"),
        ];
        for (id, right, why) in cases {
            assert_eq!(url_safe(id), TopicId(right.into()), "{why}");
        }
    }
}
