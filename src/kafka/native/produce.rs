//! Records on their way out: those that were read, as they are.

use std::ffi::{CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::producer::{BaseProducer, Producer};
use rdkafka_sys as sys;

use super::NativeError;
use super::record::Record;
use crate::kafka::client::Context;

/// `RD_KAFKA_PARTITION_UA`, which the bindings leave out: the partitioner chooses.
const PARTITION_UNASSIGNED: i32 = -1;

/// A topic to produce to, so that its name is looked up once.
pub struct TopicHandle {
    name: Box<str>,
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
        Ok(TopicHandle { name: topic.into(), native, _producer: Arc::clone(producer) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: ours, freed once.
        unsafe { sys::rd_kafka_topic_destroy(self.native.as_ptr()) }
    }
}

/// A record to be produced: one that was read, as it is, with headers of Semel's own behind it. Its headers go with it.
pub struct Outgoing<'a> {
    pub record: &'a mut Record,
    /// None: chosen by the key.
    pub partition: Option<i32>,
    pub added: &'a [(&'static str, String)],
    /// Leave the value out (a dead letter that is too large for its topic).
    pub without_value: bool,
    /// The sender's own number for it, returned with a failed delivery.
    pub number: usize,
}

/// Puts a record into the producer's queue: copies of key and value, and the headers themselves. They are back in the
/// record where it was not taken.
pub fn produce(
    producer: &BaseProducer<Context>,
    topic: &TopicHandle,
    outgoing: &mut Outgoing<'_>,
) -> Result<(), NativeError> {
    use sys::rd_kafka_vtype_t as V;
    use sys::{rd_kafka_vu_s as Field, rd_kafka_vu_s__bindgen_ty_1 as Value};
    let headers = headers_of(outgoing);
    let native = outgoing.record.native();
    let field = |vtype, u| Field { vtype, u };
    let bytes = |ptr, size| Value { mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size } };
    let (value, len) = if outgoing.without_value { (ptr::null_mut(), 0) } else { (native.payload, native.len) };
    // SAFETY: the fields' values match their types; key and value are copied by the call (F_COPY); the headers are ours,
    // and the call takes them over if it succeeds.
    unsafe {
        let mut fields = [
            field(V::RD_KAFKA_VTYPE_RKT, Value { rkt: topic.native.as_ptr() }),
            field(V::RD_KAFKA_VTYPE_PARTITION, Value { i32_: outgoing.partition.unwrap_or(PARTITION_UNASSIGNED) }),
            field(V::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: sys::RD_KAFKA_MSG_F_COPY }),
            field(V::RD_KAFKA_VTYPE_VALUE, bytes(value, len)),
            field(V::RD_KAFKA_VTYPE_KEY, bytes(native.key, native.key_len)),
            field(V::RD_KAFKA_VTYPE_OPAQUE, Value { ptr: outgoing.number as *mut c_void }),
            // 0 is "none".
            field(
                V::RD_KAFKA_VTYPE_TIMESTAMP,
                Value { i64_: outgoing.record.timestamp().map_or(0, |(millis, _)| millis) },
            ),
            field(V::RD_KAFKA_VTYPE_END, Value { i: 0 }),
        ];
        let mut count = fields.len() - 1;
        if !headers.is_null() {
            fields[count] = field(V::RD_KAFKA_VTYPE_HEADERS, Value { headers });
            count += 1;
        }
        let produced = sys::rd_kafka_produceva(producer.client().native_ptr(), fields.as_ptr(), count);
        let checked = NativeError::check(produced);
        if checked.is_err() && !headers.is_null() {
            outgoing.record.put_headers(headers);
        }
        checked
    }
}

/// Waits until nothing is queued or in flight, at most `timeout`. What lingers is sent at once. Failed deliveries are
/// reported only by a poll, and count as in flight until then.
pub fn wait_for_deliveries(producer: &BaseProducer<Context>, timeout: Duration) {
    // SAFETY: the client lives. Whether everything was delivered is asked otherwise.
    unsafe { sys::rd_kafka_flush(producer.client().native_ptr(), super::millis(timeout)) };
}

/// What the record has, and what is added to it. Null where there are none; else they are the caller's.
fn headers_of(outgoing: &mut Outgoing<'_>) -> *mut sys::rd_kafka_headers_t {
    let mut headers = outgoing.record.take_headers();
    // SAFETY: the list is ours, names and values live as long as the calls, which copy them.
    unsafe {
        if headers.is_null() && !outgoing.added.is_empty() {
            headers = sys::rd_kafka_headers_new(outgoing.added.len());
        }
        for (name, value) in outgoing.added {
            // A message that comes round again has the one from the last time: it is replaced, headers do not grow.
            if let Ok(name) = CString::new(*name) {
                sys::rd_kafka_header_remove(headers, name.as_ptr());
            }
            let (name_at, value_at) = (name.as_ptr().cast(), value.as_ptr().cast());
            // Only a read-only list can be refused, and this one is ours.
            sys::rd_kafka_header_add(headers, name_at, name.len() as isize, value_at, value.len() as isize);
        }
        headers
    }
}
