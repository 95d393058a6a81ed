//! What brokers tell an administrator: a group's members, all its offsets, what this client may do.

use std::ffi::{CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka_sys as sys;
use sys::rd_kafka_admin_op_t::{
    RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
    RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS,
};
use sys::rd_kafka_resp_err_t::{
    RD_KAFKA_RESP_ERR__INVALID_ARG, RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR_NO_ERROR,
};

use super::{Committed, NativeError, committed_elements, millis, text};
use crate::kafka::client::Context;

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub client: String,
    pub host: String,
}

/// A group as its coordinator describes it. One that nobody knows has no members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub members: Vec<Member>,
    pub allowed: Allowed,
}

/// The operations on a resource that the brokers let this client do, as librdkafka spells them (`READ`).
/// None: they do not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed(pub Option<Vec<String>>);

impl Allowed {
    /// Those of `needed` that surely are not allowed.
    pub fn lacks<'a>(&self, needed: &[&'a str]) -> Vec<&'a str> {
        let Some(allowed) = &self.0 else { return Vec::new() };
        needed.iter().copied().filter(|needed| !allowed.iter().any(|one| one.eq_ignore_ascii_case(needed))).collect()
    }

    /// # Safety
    /// `operations` is null or `count` operations long.
    unsafe fn read(operations: *const sys::rd_kafka_AclOperation_t, count: usize) -> Allowed {
        if operations.is_null() {
            return Allowed(None);
        }
        // SAFETY: as above; names are static.
        let name = |n| unsafe { text(sys::rd_kafka_AclOperation_name(*operations.add(n))) };
        Allowed(Some((0..count).map(name).collect()))
    }
}

/// Members of a group, and what this client may do with it. Two round trips.
pub fn describe_group(consumer: &BaseConsumer<Context>, group: &str, timeout: Duration) -> Result<Group, NativeError> {
    let name = c_string(group)?;
    let mut names = [name.as_ptr()];
    let call = |client, options, queue| {
        // SAFETY: the names live as long as the call, which copies them.
        unsafe { sys::rd_kafka_DescribeConsumerGroups(client, names.as_mut_ptr(), 1, options, queue) };
    };
    // SAFETY: `read` only looks at what the event holds.
    unsafe {
        ask(consumer, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, timeout, with_operations, call, |event| {
            let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event);
            let mut count = 0;
            let groups = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
            let unknown = Group { members: Vec::new(), allowed: Allowed(None) };
            if count == 0 {
                return Ok(unknown);
            }
            let group = *groups;
            match error_of(sys::rd_kafka_ConsumerGroupDescription_error(group)) {
                Some(error) if error.code == RDKafkaErrorCode::GroupIdNotFound => return Ok(unknown),
                Some(error) => return Err(error),
                None => {}
            }
            let member = |n| {
                let member = sys::rd_kafka_ConsumerGroupDescription_member(group, n);
                Member {
                    client: text(sys::rd_kafka_MemberDescription_client_id(member)),
                    host: text(sys::rd_kafka_MemberDescription_host(member)),
                }
            };
            let members = (0..sys::rd_kafka_ConsumerGroupDescription_member_count(group)).map(member).collect();
            let mut count = 0;
            let operations = sys::rd_kafka_ConsumerGroupDescription_authorized_operations(group, &mut count);
            Ok(Group { members, allowed: Allowed::read(operations, count) })
        })
    }
}

/// Every offset that a group has committed, on whatever topic. `stable`: a pending transaction on one of them is an
/// error, [`RDKafkaErrorCode::UnstableOffsetCommit`]. Two round trips.
pub fn group_offsets(
    consumer: &BaseConsumer<Context>,
    group: &str,
    stable: bool,
    timeout: Duration,
) -> Result<Vec<Committed>, NativeError> {
    let name = c_string(group)?;
    let set = |options| {
        // SAFETY: the options are alive.
        unsafe { sys::rd_kafka_AdminOptions_set_require_stable_offsets(options, i32::from(stable)) }
    };
    let call = |client, options, queue| {
        // SAFETY: the question is copied by the call and freed here; no list means every partition.
        unsafe {
            let mut question = sys::rd_kafka_ListConsumerGroupOffsets_new(name.as_ptr(), ptr::null());
            sys::rd_kafka_ListConsumerGroupOffsets(client, &mut question, 1, options, queue);
            sys::rd_kafka_ListConsumerGroupOffsets_destroy(question);
        }
    };
    // SAFETY: as in `describe_group`.
    unsafe {
        ask(consumer, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, timeout, set, call, |event| {
            let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event);
            let mut count = 0;
            let groups = sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &mut count);
            if count == 0 {
                return Ok(Vec::new());
            }
            match error_of(sys::rd_kafka_group_result_error(*groups)) {
                Some(error) if error.code == RDKafkaErrorCode::GroupIdNotFound => return Ok(Vec::new()),
                Some(error) => return Err(error),
                None => {}
            }
            let list = sys::rd_kafka_group_result_partitions(*groups);
            if list.is_null() { Ok(Vec::new()) } else { committed_elements(list.cast_mut()) }
        })
    }
}

/// What this client may do with each topic, in the order of `names`; an error of its own where there is no such topic.
/// One round trip.
pub fn topic_operations(
    consumer: &BaseConsumer<Context>,
    names: &[String],
    timeout: Duration,
) -> Result<Vec<(String, Result<Allowed, NativeError>)>, NativeError> {
    let c_names = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>, _>>()?;
    let mut pointers: Vec<*const c_char> = c_names.iter().map(|name| name.as_ptr()).collect();
    let call = |client, options, queue| {
        // SAFETY: the names live as long as the call, which copies the collection.
        unsafe {
            let topics = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            sys::rd_kafka_DescribeTopics(client, topics, options, queue);
            sys::rd_kafka_TopicCollection_destroy(topics);
        }
    };
    // SAFETY: as in `describe_group`.
    unsafe {
        ask(consumer, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout, with_operations, call, |event| {
            let result = sys::rd_kafka_event_DescribeTopics_result(event);
            let mut count = 0;
            let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
            let describe = |n| {
                let topic = *topics.add(n);
                let name = text(sys::rd_kafka_TopicDescription_name(topic));
                let mut count = 0;
                let operations = sys::rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
                let allowed = Allowed::read(operations, count);
                (name, error_of(sys::rd_kafka_TopicDescription_error(topic)).map_or(Ok(allowed), Err))
            };
            Ok((0..count).map(describe).collect())
        })
    }
}

/// One administrator's call, from its options to its event, all of which are freed here.
///
/// # Safety
/// `read` takes nothing out of the event but copies.
unsafe fn ask<T>(
    consumer: &BaseConsumer<Context>,
    operation: sys::rd_kafka_admin_op_t,
    timeout: Duration,
    set: impl FnOnce(*mut sys::rd_kafka_AdminOptions_t) -> *mut sys::rd_kafka_error_t,
    call: impl FnOnce(*mut sys::rd_kafka_t, *const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
    read: impl FnOnce(*mut sys::rd_kafka_event_t) -> Result<T, NativeError>,
) -> Result<T, NativeError> {
    let client = consumer.client().native_ptr();
    unsafe {
        let options = sys::rd_kafka_AdminOptions_new(client, operation);
        let code = sys::rd_kafka_AdminOptions_set_request_timeout(options, millis(timeout), ptr::null_mut(), 0);
        let prepared = if code == RD_KAFKA_RESP_ERR_NO_ERROR {
            NativeError::check(set(options))
        } else {
            Err(NativeError::of(code))
        };
        if let Err(error) = prepared {
            sys::rd_kafka_AdminOptions_destroy(options);
            return Err(error);
        }
        let queue = sys::rd_kafka_queue_new(client);
        call(client, options, queue);
        // The request's own time-out comes first and says more.
        let event = sys::rd_kafka_queue_poll(queue, millis(timeout + Duration::from_secs(1)));
        let answer = if event.is_null() {
            Err(NativeError::of(RD_KAFKA_RESP_ERR__TIMED_OUT))
        } else {
            let code = sys::rd_kafka_event_error(event);
            let answer = if code == RD_KAFKA_RESP_ERR_NO_ERROR {
                read(event)
            } else {
                let said = text(sys::rd_kafka_event_error_string(event));
                Err(NativeError { text: said, ..NativeError::of(code) })
            };
            sys::rd_kafka_event_destroy(event);
            answer
        };
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        answer
    }
}

fn with_operations(options: *mut sys::rd_kafka_AdminOptions_t) -> *mut sys::rd_kafka_error_t {
    // SAFETY: called by `ask` with options that are alive.
    unsafe { sys::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1) }
}

/// # Safety
/// `error` is null or valid; it stays its event's.
unsafe fn error_of(error: *const sys::rd_kafka_error_t) -> Option<NativeError> {
    if error.is_null() {
        return None;
    }
    unsafe {
        let code = sys::rd_kafka_error_code(error);
        let said = text(sys::rd_kafka_error_string(error));
        (code != RD_KAFKA_RESP_ERR_NO_ERROR).then(|| NativeError { text: said, ..NativeError::of(code) })
    }
}

fn c_string(name: &str) -> Result<CString, NativeError> {
    CString::new(name).map_err(|_| NativeError::of(RD_KAFKA_RESP_ERR__INVALID_ARG))
}

#[cfg(test)]
mod tests {
    use super::Allowed;

    #[test]
    fn what_is_lacking() {
        let told = |operations: &[&str]| Allowed(Some(operations.iter().map(|one| (*one).to_owned()).collect()));
        let cases = [
            (told(&["Read", "DESCRIBE", "WRITE"]), vec![], "everything, however it is spelt"),
            (told(&["DESCRIBE"]), vec!["READ"], "one of two"),
            (told(&[]), vec!["READ", "DESCRIBE"], "nothing is allowed"),
            (Allowed(None), vec![], "brokers that do not tell are not taken to refuse"),
        ];
        for (allowed, lacks, why) in cases {
            assert_eq!(allowed.lacks(&["READ", "DESCRIBE"]), lacks, "{why}");
        }
    }
}
