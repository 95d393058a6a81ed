//! How a failure of an ingest window settles: one table, from what failed to what becomes of the window's records and
//! of the whole request.
//!
//! A window is reserved, published in the order of its records and committed. `k` is the first of its records that was
//! not published. What is surely published is committed, what surely is not is released, and what may be keeps its
//! claim until the lease is over, so that a retry either finds it done or publishes it again under the same idempotency
//! key. A failure answers the request as a whole, and names when a retry makes sense.

use std::time::Duration;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failed {
    Reserve(Reserve),
    Publish { k: K, how: Publish },
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// Not open, throttled, out of reach.
    Unavailable,
    Otherwise,
    /// A key is reserved by someone else, and the lease has not lapsed.
    InFlight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Publish {
    /// The broker refused it: the queue is full.
    Refused,
    /// The broker is out of reach, or did not answer in time: it may have been stored.
    OutOfReach,
    /// In any other way: it may have been stored too.
    Otherwise,
}

/// The first record that was not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct K {
    /// In the window, from 0.
    pub record: usize,
    /// It held a claim.
    pub claimed: bool,
}

/// A part of the window's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Nothing,
    All,
    Below(usize),
    From(usize),
    Above(usize),
}

impl Part {
    pub fn has(self, record: usize) -> bool {
        match self {
            Part::Nothing => false,
            Part::All => true,
            Part::Below(k) => record < k,
            Part::From(k) => record >= k,
            Part::Above(k) => record > k,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settlement {
    pub committed: Part,
    /// Their claims are given back, those of the window only.
    pub released: Part,
    /// This record's claim stays behind until its lease has lapsed.
    pub left: Option<usize>,
    /// None: the request succeeds all the same.
    pub answer: Option<Answer>,
}

/// What the whole request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Answer {
    pub status: u16,
    /// The body is `{"error":"…"}` with this.
    pub error: &'static str,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
}

const STORE_RETRY_S: u64 = 5;
const REFUSED_RETRY_S: u64 = 30;
const UNCLAIMED_RETRY_S: u64 = 5;

/// The table, row by row.
pub fn settle(failed: Failed, lease: Duration) -> Settlement {
    let lease_s = whole_seconds(lease);
    let answer = |status, error, retry_after_s| Some(Answer { status, error, retry_after_s });
    let unpublished = |released, answer| Settlement { committed: Part::Nothing, released, left: None, answer };
    match failed {
        Failed::Reserve(Reserve::Unavailable) => {
            unpublished(Part::Nothing, answer(503, "dedupe store unavailable", Some(STORE_RETRY_S)))
        }
        Failed::Reserve(Reserve::Otherwise) => unpublished(Part::Nothing, answer(500, "dedupe failed", None)),
        Failed::Reserve(Reserve::InFlight) => {
            unpublished(Part::All, answer(503, "an event is in flight", Some(lease_s)))
        }
        Failed::Publish { k: K { record: k, .. }, how: Publish::Refused } => Settlement {
            committed: Part::Below(k),
            released: Part::From(k),
            left: None,
            answer: answer(503, "the broker refused a record", Some(REFUSED_RETRY_S)),
        },
        Failed::Publish { k: K { record: k, claimed }, how: Publish::OutOfReach } => Settlement {
            committed: Part::Below(k),
            released: Part::Above(k),
            left: claimed.then_some(k),
            answer: answer(503, "the broker is out of reach", Some(if claimed { lease_s } else { UNCLAIMED_RETRY_S })),
        },
        Failed::Publish { k: K { record: k, claimed }, how: Publish::Otherwise } => Settlement {
            committed: Part::Below(k),
            released: Part::Above(k),
            left: claimed.then_some(k),
            answer: answer(500, "publish failed", None),
        },
        Failed::Commit => Settlement { committed: Part::Nothing, released: Part::Nothing, left: None, answer: None },
    }
}

/// The next whole second: a retry before the end of a lease would be in vain.
pub fn whole_seconds(lease: Duration) -> u64 {
    lease.as_secs() + u64::from(lease.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn answer(status: u16, error: &'static str, retry_after_s: Option<u64>) -> Option<Answer> {
        Some(Answer { status, error, retry_after_s })
    }

    /// Requirements, system 2, point 4. The first column is the table's own text.
    #[test]
    fn the_failure_table() {
        use Part::{Above, All, Below, From, Nothing};
        let publish = |record, claimed, how| Failed::Publish { k: K { record, claimed }, how };
        let rows: &[(&str, Failed, Part, Part, Option<usize>, Option<Answer>)] = &[
            (
                "reserve: the store is unavailable (not open, throttled, out of reach): 503 `{\"error\":\"dedupe store \
                 unavailable\"}`, `Retry-After: 5`; nothing of this window is published",
                Failed::Reserve(Reserve::Unavailable),
                Nothing,
                Nothing,
                None,
                answer(503, "dedupe store unavailable", Some(5)),
            ),
            (
                "reserve: any other error: 500 `dedupe failed`",
                Failed::Reserve(Reserve::Otherwise),
                Nothing,
                Nothing,
                None,
                answer(500, "dedupe failed", None),
            ),
            (
                "reserve: a key is in flight: the window's own claims are released; 503 with the lease, in whole seconds, \
                 as `Retry-After`",
                Failed::Reserve(Reserve::InFlight),
                Nothing,
                All,
                None,
                answer(503, "an event is in flight", Some(8)),
            ),
            (
                "publish fails at record k, definite: records < k are committed, records ≥ k released; 503, \
                 `Retry-After: 30`",
                publish(100, true, Publish::Refused),
                Below(100),
                From(100),
                None,
                answer(503, "the broker refused a record", Some(30)),
            ),
            (
                "the same where k held no claim",
                publish(100, false, Publish::Refused),
                Below(100),
                From(100),
                None,
                answer(503, "the broker refused a record", Some(30)),
            ),
            (
                "publish fails at k, uncertain: records < k committed, k's claim is left to lapse with its lease, records \
                 > k released; 503, `Retry-After` = the lease in whole seconds where k held a claim",
                publish(0, true, Publish::OutOfReach),
                Below(0),
                Above(0),
                Some(0),
                answer(503, "the broker is out of reach", Some(8)),
            ),
            (
                "else 5",
                publish(7, false, Publish::OutOfReach),
                Below(7),
                Above(7),
                None,
                answer(503, "the broker is out of reach", Some(5)),
            ),
            (
                "publish fails at k in any other way (uncertain too): as the row above, but 500 `publish failed` and no \
                 `Retry-After`",
                publish(255, true, Publish::Otherwise),
                Below(255),
                Above(255),
                Some(255),
                answer(500, "publish failed", None),
            ),
            (
                "as the row above, where k held no claim",
                publish(255, false, Publish::Otherwise),
                Below(255),
                Above(255),
                None,
                answer(500, "publish failed", None),
            ),
            (
                "commit fails after the publishes: the records still succeed",
                Failed::Commit,
                Nothing,
                Nothing,
                None,
                None,
            ),
        ];
        for (row, failed, committed, released, left, answer) in rows {
            let right = Settlement { committed: *committed, released: *released, left: *left, answer: *answer };
            assert_eq!(settle(*failed, Duration::from_millis(7_400)), right, "{row}");
        }
    }

    #[test]
    fn a_record_is_committed_released_or_left_and_only_one_of_them() {
        for how in [Publish::Refused, Publish::OutOfReach, Publish::Otherwise] {
            for k in 0..4 {
                let failed = Failed::Publish { k: K { record: k, claimed: true }, how };
                let settled = settle(failed, Duration::from_secs(30));
                for record in 0..4 {
                    let fates =
                        [settled.committed.has(record), settled.released.has(record), settled.left == Some(record)];
                    assert_eq!(fates.iter().filter(|fate| **fate).count(), 1, "{how:?} at {k}: record {record}");
                }
            }
        }
    }

    #[test]
    fn a_lease_in_whole_seconds() {
        let cases = [(30_000, 30), (30_001, 31), (1, 1), (999, 1), (1_000, 1)];
        for (millis, right) in cases {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), right, "{millis} ms");
        }
    }
}
