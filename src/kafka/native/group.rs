//! A group's membership and its offsets.

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka_sys as sys;
use sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

use super::{NativeError, elements, millis, text};
use crate::kafka::client::Context;

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

    pub(in crate::kafka) fn as_ptr(&self) -> *const sys::rd_kafka_consumer_group_metadata_t {
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
        committed_elements(list.ptr())
    }
}

/// # Safety
/// `list` is a valid list that is not written meanwhile.
pub(super) unsafe fn committed_elements(
    list: *mut sys::rd_kafka_topic_partition_list_t,
) -> Result<Vec<Committed>, NativeError> {
    let read = |element: &sys::rd_kafka_topic_partition_t| {
        if element.err != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(NativeError::of(element.err));
        }
        let metadata = if element.metadata.is_null() {
            String::new()
        } else {
            // SAFETY: the metadata is as long as the element says, and lives as long as the list.
            let bytes = unsafe { std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size) };
            String::from_utf8_lossy(bytes).into_owned()
        };
        let offset = (element.offset >= 0).then_some(element.offset);
        Ok(Committed { topic: text(element.topic), partition: element.partition, offset, metadata })
    };
    unsafe { elements(list) }.iter().map(read).collect()
}

/// Gives up `partitions` in whatever way the group's protocol asks.
pub fn give_up(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
    let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
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
