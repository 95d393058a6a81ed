//! Everything that is asked of librdkafka itself: the crate's only unsafe code.
//!
//! Each function states what it owns. Pointers never leave this folder except inside a type that frees them.

use std::ffi::{CStr, c_void};
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka_sys as sys;

mod admin;
mod group;
mod produce;
mod queue;
mod record;
mod topics;

pub use admin::{Allowed, Group, Member, describe_group, group_offsets, topic_operations};
use group::committed_elements;
pub(super) use group::give_up;
pub use group::{Committed, Membership, committed};
pub use produce::{Outgoing, TopicHandle, produce, wait_for_deliveries};
pub use queue::{Event, Queue};
pub use record::Record;
pub use topics::{known_end, topic_ids};

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
    pub(in crate::kafka) fn check(error: *mut sys::rd_kafka_error_t) -> Result<(), NativeError> {
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

    /// The topic was deleted, or never was.
    pub fn is_unknown_topic(&self) -> bool {
        matches!(self.code, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)
    }

    /// What the crate made of a code.
    pub fn of_client(error: &KafkaError) -> NativeError {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        NativeError { code, text: error.to_string(), retriable: false, fatal: false, requires_abort: false }
    }

    fn of(code: RDKafkaRespErr) -> NativeError {
        let code = RDKafkaErrorCode::from(code);
        NativeError { code, text: code.to_string(), retriable: false, fatal: false, requires_abort: false }
    }
}

/// # Safety
/// `list` is a valid list that outlives the slice and is not written meanwhile.
unsafe fn elements<'a>(list: *mut sys::rd_kafka_topic_partition_list_t) -> &'a [sys::rd_kafka_topic_partition_t] {
    unsafe { if (*list).cnt == 0 { &[] } else { std::slice::from_raw_parts((*list).elems, (*list).cnt as usize) } }
}

fn slice<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: librdkafka gives null, or `len` readable bytes that live as long as the message whose method calls this.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
}
