//! A record as it was fetched.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdkafka::consumer::BaseConsumer;
use rdkafka_sys as sys;
use sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

use super::slice;
use crate::kafka::client::Context;

/// A record as it was fetched, held in the client's own memory until it is dropped.
pub struct Record {
    message: NonNull<sys::rd_kafka_message_t>,
    event: NonNull<sys::rd_kafka_event_t>,
    _consumer: Arc<BaseConsumer<Context>>,
}

// SAFETY: a fetched message is written only by whoever has it alone: its headers are parsed at the first look, by the
// reader, and again by the publisher after they were taken out. librdkafka frees it from any thread.
unsafe impl Send for Record {}
unsafe impl Sync for Record {}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: ours, freed once; it owns the message.
        unsafe { sys::rd_kafka_event_destroy(self.event.as_ptr()) }
    }
}

impl Record {
    /// # Safety
    /// `message` is owned by `event`, which nobody else frees; both are of a client of `consumer`.
    pub(super) unsafe fn new(
        message: NonNull<sys::rd_kafka_message_t>,
        event: NonNull<sys::rd_kafka_event_t>,
        consumer: Arc<BaseConsumer<Context>>,
    ) -> Record {
        Record { message, event, _consumer: consumer }
    }

    pub(super) fn native(&self) -> &sys::rd_kafka_message_t {
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

    pub(super) fn native_headers(&self) -> Option<NonNull<sys::rd_kafka_headers_t>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is valid and keeps ownership of its headers.
        let code = unsafe { sys::rd_kafka_message_headers(self.message.as_ptr(), &mut headers) };
        if code == RD_KAFKA_RESP_ERR_NO_ERROR { NonNull::new(headers) } else { None }
    }

    /// Takes the headers out, which are the caller's then; null where there are none.
    pub(super) fn take_headers(&mut self) -> *mut sys::rd_kafka_headers_t {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is valid, and nobody else looks at it.
        let code = unsafe { sys::rd_kafka_message_detach_headers(self.message.as_ptr(), &mut headers) };
        if code == RD_KAFKA_RESP_ERR_NO_ERROR { headers } else { ptr::null_mut() }
    }

    /// Puts headers back that were taken.
    ///
    /// # Safety
    /// They are the caller's, and the record's from now on.
    pub(super) unsafe fn put_headers(&mut self, headers: *mut sys::rd_kafka_headers_t) {
        // SAFETY: the message is valid, and nobody else looks at it.
        unsafe { sys::rd_kafka_message_set_headers(self.message.as_ptr(), headers) }
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
