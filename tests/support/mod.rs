//! What the live tests and the benchmark share.
//!
//! | module | does |
//! | --- | --- |
//! | [`generator`] | messages that follow from a seed |
//! | [`feed`] | sends them to Kafka, paced or not |
//! | [`by_hand`] | messages one by one |
//! | [`daemon`] | starts, halts and kills the real binary |
//! | [`services`] | the real services, shared or of a test's own |
//! | [`proxy`] | loses connections and answers at the worst moment |
//! | [`broker`], [`database`] | what the tests themselves ask of Kafka and PostgreSQL |
//! | [`world`] | topics, database and settings of one test, and the evidence at its end |
//! | [`checker`] | judges that evidence |

#![allow(dead_code, reason = "each user takes a part")]

pub mod broker;
pub mod by_hand;
pub mod checker;
pub mod daemon;
pub mod database;
pub mod feed;
pub mod generator;
pub mod proxy;
pub mod random;
pub mod services;
pub mod world;

/// A name that no other test, run or installation has.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
    let (millis, n) = (since.as_millis() % 10_000_000_000, NEXT.fetch_add(1, Ordering::SeqCst));
    format!("{prefix}-{}-{millis}-{n}", std::process::id())
}
