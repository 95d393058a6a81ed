//! Everything that is asked of librdkafka itself: the crate's only unsafe code.
//!
//! Each function states what it owns. Pointers never leave this file except inside a type that frees them.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::types::{RDKafka, RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka_sys as sys;
use sys::rd_kafka_resp_err_t::{RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, RD_KAFKA_RESP_ERR_NO_ERROR};

use super::client::Context;
use crate::protocol::lane::TopicId;

/// `RD_KAFKA_PARTITION_UA`, which the bindings leave out: the partitioner chooses.
const PARTITION_UNASSIGNED: i32 = -1;

fn millis(time: Duration) -> i32 {
    time.as_millis().min(i32::MAX as u128) as i32
}

fn text(chars: *const std::ffi::c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: librdkafka's strings end with NUL and live at least as long as this call.
    unsafe { CStr::from_ptr(chars) }.to_string_lossy().into_owned()
}

/// `rd_kafka_error_t`, read and freed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text} ({code:?})")]
pub struct NativeError {
    pub code: RDKafkaErrorCode,
    pub text: String,
    pub retriable: bool,
    pub fatal: bool,
    pub requires_abort: bool,
}

impl NativeError {
    /// Owns `error`.
    pub(super) fn check(error: *mut sys::rd_kafka_error_t) -> Result<(), NativeError> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: not null, ours, freed once after everything was read.
        unsafe {
            let read = NativeError {
                code: sys::rd_kafka_error_code(error).into(),
                text: text(sys::rd_kafka_error_string(error)),
                retriable: sys::rd_kafka_error_is_retriable(error) != 0,
                fatal: sys::rd_kafka_error_is_fatal(error) != 0,
                requires_abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            sys::rd_kafka_error_destroy(error);
            Err(read)
        }
    }

    fn of(code: RDKafkaRespErr) -> NativeError {
        let code = RDKafkaErrorCode::from(code);
        NativeError { code, text: code.to_string(), retriable: false, fatal: false, requires_abort: false }
    }
}

/// A group membership as it was when it was captured: group, generation, member. Immutable.
pub struct Membership {
    native: NonNull<sys::rd_kafka_consumer_group_metadata_t>,
}

// SAFETY: the object is a plain record that no function used here writes to.
unsafe impl Send for Membership {}
unsafe impl Sync for Membership {}

impl Membership {
    /// The consumer's membership now. None while it is in no group: with generation −1 or an empty member id the broker
    /// checks nothing, so such a membership never leaves this function.
    pub fn of(consumer: &BaseConsumer<Context>) -> Option<Membership> {
        // SAFETY: the client lives; the returned object is ours.
        let native = NonNull::new(unsafe { sys::rd_kafka_consumer_group_metadata(consumer.client().native_ptr()) })?;
        let membership = Membership { native };
        (membership.generation() >= 0 && !membership.member().is_empty()).then_some(membership)
    }

    /// A group that nobody joins, whose offsets are fenced by the producer's epoch alone.
    pub fn without_members(group: &str) -> Option<Membership> {
        let group = CString::new(group).ok()?;
        // SAFETY: the name is copied; the returned object is ours.
        let native = NonNull::new(unsafe { sys::rd_kafka_consumer_group_metadata_new(group.as_ptr()) })?;
        Some(Membership { native })
    }

    pub fn generation(&self) -> i32 {
        // SAFETY: `native` is valid until drop.
        unsafe { sys::rd_kafka_consumer_group_metadata_generation_id(self.native.as_ptr()) }
    }

    pub fn member(&self) -> String {
        // SAFETY: as above; the text is copied at once.
        text(unsafe { sys::rd_kafka_consumer_group_metadata_member_id(self.native.as_ptr()) })
    }

    pub(super) fn as_ptr(&self) -> *const sys::rd_kafka_consumer_group_metadata_t {
        self.native.as_ptr()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // SAFETY: ours, freed once.
        unsafe { sys::rd_kafka_consumer_group_metadata_destroy(self.native.as_ptr()) }
    }
}

/// One element of an offset fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub topic: String,
    pub partition: i32,
    pub offset: Option<i64>,
    /// Whatever was committed with it; lossy where it is not UTF-8, which Semel's own always is.
    pub metadata: String,
}

/// Committed offsets of the client's own group, stable where the client is `read_committed`: the broker answers only
/// when no transaction is pending on them. One round trip.
pub fn committed(
    consumer: &BaseConsumer<Context>,
    partitions: &TopicPartitionList,
    timeout: Duration,
) -> Result<Vec<Committed>, NativeError> {
    let list = partitions.clone();
    // SAFETY: the list is ours and is filled in by the call; elements are read before it is dropped.
    unsafe {
        let code = sys::rd_kafka_committed(consumer.client().native_ptr(), list.ptr(), millis(timeout));
        if code != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(NativeError::of(code));
        }
        elements(list.ptr())
            .iter()
            .map(|element| {
                if element.err != RD_KAFKA_RESP_ERR_NO_ERROR {
                    return Err(NativeError::of(element.err));
                }
                let metadata = if element.metadata.is_null() {
                    String::new()
                } else {
                    let bytes = std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size);
                    String::from_utf8_lossy(bytes).into_owned()
                };
                let offset = (element.offset >= 0).then_some(element.offset);
                Ok(Committed { topic: text(element.topic), partition: element.partition, offset, metadata })
            })
            .collect()
    }
}

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

/// # Safety
/// `list` is a valid list that outlives the slice and is not written meanwhile.
unsafe fn elements<'a>(list: *mut sys::rd_kafka_topic_partition_list_t) -> &'a [sys::rd_kafka_topic_partition_t] {
    unsafe { if (*list).cnt == 0 { &[] } else { std::slice::from_raw_parts((*list).elems, (*list).cnt as usize) } }
}

/// Gives up `partitions` in whatever way the group's protocol asks.
pub(super) fn give_up(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
    let cooperative = matches!(consumer.rebalance_protocol(), rdkafka::consumer::RebalanceProtocol::Cooperative);
    // SAFETY: client and list are alive; a null list means "nothing assigned".
    unsafe {
        let client = consumer.client().native_ptr();
        if cooperative {
            // An error leaves nothing to do: the consumer is going away.
            let _ = NativeError::check(sys::rd_kafka_incremental_unassign(client, partitions.ptr()));
        } else {
            sys::rd_kafka_assign(client, ptr::null());
        }
    }
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
        let mut found = std::collections::HashMap::new();
        for n in 0..count {
            let description = *descriptions.add(n);
            let error = sys::rd_kafka_TopicDescription_error(description);
            let code = if error.is_null() { RD_KAFKA_RESP_ERR_NO_ERROR } else { sys::rd_kafka_error_code(error) };
            if code != RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(NativeError::of(code));
            }
            let id = text(sys::rd_kafka_Uuid_base64str(sys::rd_kafka_TopicDescription_topic_id(description)));
            found.insert(text(sys::rd_kafka_TopicDescription_name(description)), TopicId(id.into()));
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
                    return Some(Event::Message(Record { message, event, _consumer: Arc::clone(&self.consumer) }));
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
                        use rdkafka::config::RDKafkaLogLevel::{Error, Info, Notice};
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

/// A record as it was fetched, held in the client's own memory until it is dropped.
pub struct Record {
    message: NonNull<sys::rd_kafka_message_t>,
    event: NonNull<sys::rd_kafka_event_t>,
    _consumer: Arc<BaseConsumer<Context>>,
}

// SAFETY: a fetched message is not written by anybody; librdkafka frees it from any thread.
unsafe impl Send for Record {}
unsafe impl Sync for Record {}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: ours, freed once; it owns the message.
        unsafe { sys::rd_kafka_event_destroy(self.event.as_ptr()) }
    }
}

impl Record {
    fn native(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: valid until the event is destroyed in drop.
        unsafe { self.message.as_ref() }
    }

    pub fn partition(&self) -> i32 {
        self.native().partition
    }

    pub fn offset(&self) -> i64 {
        self.native().offset
    }

    /// The topic's name, borrowed from the client's own topic object.
    pub fn topic(&self) -> &str {
        // SAFETY: the topic object lives as long as the client, the name as long as it; Kafka's names are ASCII.
        let name = unsafe { CStr::from_ptr(sys::rd_kafka_topic_name(self.native().rkt)) };
        name.to_str().unwrap_or_default()
    }

    pub fn key(&self) -> Option<&[u8]> {
        slice(self.native().key, self.native().key_len)
    }

    pub fn value(&self) -> Option<&[u8]> {
        slice(self.native().payload, self.native().len)
    }

    /// Milliseconds since the epoch, and whether the broker wrote it (LogAppendTime).
    pub fn timestamp(&self) -> Option<(i64, bool)> {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is valid.
        let millis = unsafe { sys::rd_kafka_message_timestamp(self.message.as_ptr(), &mut kind) };
        match kind {
            sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => None,
            sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME => Some((millis, false)),
            sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => Some((millis, true)),
        }
    }

    fn native_headers(&self) -> Option<NonNull<sys::rd_kafka_headers_t>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is valid and keeps ownership of its headers.
        let code = unsafe { sys::rd_kafka_message_headers(self.message.as_ptr(), &mut headers) };
        if code == RD_KAFKA_RESP_ERR_NO_ERROR { NonNull::new(headers) } else { None }
    }

    /// Every header in order: the name's bytes and the value, null or not.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let headers = self.native_headers();
        (0..).map_while(move |index| {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the headers are valid; name and value live as long as the message.
            unsafe {
                let code = sys::rd_kafka_header_get_all(headers?.as_ptr(), index, &mut name, &mut value, &mut size);
                if code != RD_KAFKA_RESP_ERR_NO_ERROR {
                    return None;
                }
                Some((CStr::from_ptr(name).to_bytes(), slice(value, size)))
            }
        })
    }

    /// Bytes of key, value and headers, without the format's own.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
        self.native().key_len + self.native().len + headers
    }
}

impl crate::key::Headers for Record {
    fn last(&self, name: &str) -> Option<Option<&[u8]>> {
        self.headers().filter(|(found, _)| *found == name.as_bytes()).last().map(|(_, value)| value)
    }
}

fn slice<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: librdkafka gives null, or `len` readable bytes that live as long as the message whose method calls this.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

/// A topic to produce to, so that its name is looked up once.
pub struct TopicHandle {
    native: NonNull<sys::rd_kafka_topic_t>,
    _producer: Arc<BaseProducer<Context>>,
}

// SAFETY: librdkafka's topic objects may be used from any thread.
unsafe impl Send for TopicHandle {}

impl TopicHandle {
    pub fn new(producer: &Arc<BaseProducer<Context>>, topic: &str) -> Result<TopicHandle, NativeError> {
        let invalid = || NativeError::of(sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION);
        let name = CString::new(topic).map_err(|_| invalid())?;
        // SAFETY: the client lives as long as the Arc beside the object; no configuration is handed over.
        let native = unsafe { sys::rd_kafka_topic_new(producer.client().native_ptr(), name.as_ptr(), ptr::null_mut()) };
        let native = NonNull::new(native).ok_or_else(invalid)?;
        Ok(TopicHandle { native, _producer: Arc::clone(producer) })
    }
}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: ours, freed once.
        unsafe { sys::rd_kafka_topic_destroy(self.native.as_ptr()) }
    }
}

/// A record to be produced: one that was read, as it is, with headers of Semel's own behind it.
pub struct Outgoing<'a> {
    pub record: &'a Record,
    /// None: chosen by the key.
    pub partition: Option<i32>,
    pub added: &'a [(&'static str, String)],
    /// Leave the value out (a dead letter that is too large for its topic).
    pub without_value: bool,
    /// The sender's own number for it, returned with a failed delivery.
    pub number: usize,
}

/// Puts a copy of a record into the producer's queue.
pub fn produce(
    producer: &BaseProducer<Context>,
    topic: &TopicHandle,
    outgoing: &Outgoing<'_>,
) -> Result<(), NativeError> {
    use sys::rd_kafka_vtype_t as V;
    use sys::{rd_kafka_vu_s as Field, rd_kafka_vu_s__bindgen_ty_1 as Value};
    let native = outgoing.record.native();
    let field = |vtype, u| Field { vtype, u };
    let bytes = |ptr, size| Value { mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size } };
    let (value, len) = if outgoing.without_value { (ptr::null_mut(), 0) } else { (native.payload, native.len) };
    // SAFETY: the fields' values match their types; key and value are copied by the call (F_COPY); the headers are a
    // copy that the call takes over if it succeeds and that is freed here if it does not.
    unsafe {
        let headers = copied_headers(outgoing);
        let mut fields = vec![
            field(V::RD_KAFKA_VTYPE_RKT, Value { rkt: topic.native.as_ptr() }),
            field(V::RD_KAFKA_VTYPE_PARTITION, Value { i32_: outgoing.partition.unwrap_or(PARTITION_UNASSIGNED) }),
            field(V::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: sys::RD_KAFKA_MSG_F_COPY }),
            field(V::RD_KAFKA_VTYPE_VALUE, bytes(value, len)),
            field(V::RD_KAFKA_VTYPE_KEY, bytes(native.key, native.key_len)),
            field(V::RD_KAFKA_VTYPE_OPAQUE, Value { ptr: outgoing.number as *mut c_void }),
        ];
        if let Some((millis, _)) = outgoing.record.timestamp() {
            fields.push(field(V::RD_KAFKA_VTYPE_TIMESTAMP, Value { i64_: millis }));
        }
        if !headers.is_null() {
            fields.push(field(V::RD_KAFKA_VTYPE_HEADERS, Value { headers }));
        }
        let produced = sys::rd_kafka_produceva(producer.client().native_ptr(), fields.as_ptr(), fields.len());
        let checked = NativeError::check(produced);
        if checked.is_err() && !headers.is_null() {
            sys::rd_kafka_headers_destroy(headers);
        }
        checked
    }
}

/// # Safety
/// The result is the caller's to free; null where there are no headers.
unsafe fn copied_headers(outgoing: &Outgoing<'_>) -> *mut sys::rd_kafka_headers_t {
    unsafe {
        let mut headers = match outgoing.record.native_headers() {
            Some(native) => sys::rd_kafka_headers_copy(native.as_ptr()),
            None => ptr::null_mut(),
        };
        if headers.is_null() && !outgoing.added.is_empty() {
            headers = sys::rd_kafka_headers_new(outgoing.added.len());
        }
        for (name, value) in outgoing.added {
            let (name_at, value_at) = (name.as_ptr().cast(), value.as_ptr().cast());
            // Only a read-only list can be refused, and this is our own copy.
            sys::rd_kafka_header_add(headers, name_at, name.len() as isize, value_at, value.len() as isize);
        }
        headers
    }
}
