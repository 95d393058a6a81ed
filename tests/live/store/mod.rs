//! One suite of promises for every claim store, and what only PostgreSQL has to show.
//!
//! `suite!(name, make)` runs the whole suite for one implementation; `make` is an async function that answers a
//! [`Subject`] with nothing in it. A store joins by that one line, and by one in [`slots`] for lanes of instances.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel::store::ClaimStore;
use semel::store::memory::MemoryStore;

mod claims;
mod histories;
mod kit;
mod lanes;
mod operator;
mod postgres;
mod slots;
pub mod subjects;
mod weeks;

pub type Shared = Arc<dyn ClaimStore>;

/// Ends one handle on a store and opens another on the same claims.
pub type Reopen<S> = Box<dyn Fn(Arc<S>) -> Pin<Box<dyn Future<Output = Arc<S>>>>>;

/// A store under test, empty, with room for undated claims only; by the trait that is tested.
pub struct Subject<S: ?Sized = dyn ClaimStore> {
    pub store: Arc<S>,
    /// None for a store that forgets.
    pub reopen: Option<Reopen<S>>,
    pub lapse: Lapse,
    /// What must live as long as the store: a folder, a server.
    pub keep: Box<dyn Any>,
}

/// How its leases come to lapse.
pub enum Lapse {
    Waited,
    /// The store's clock is set forward.
    Advanced(Arc<MemoryStore>),
}

impl Lapse {
    /// A lease of this length that begins now, or began before, is over then.
    pub async fn of(&self, lease: Duration) {
        match self {
            Lapse::Waited => tokio::time::sleep(lease + Duration::from_millis(20)).await,
            Lapse::Advanced(store) => store.advance(lease),
        }
    }
}

/// Runs one test on a store of its own.
fn run<S: ?Sized>(make: impl AsyncFnOnce() -> Subject<S>, test: impl AsyncFnOnce(Subject<S>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(async { test(make().await).await });
}

macro_rules! suite {
    ($store:ident, $make:expr) => {
        suite!($store, $make;
            claims: one_caller_inserts, the_same_window_again, all_or_nothing, guarded, survives, opposite_orders,
                big_window, odd_names, refuses_bad_windows, empty_window;
            lanes: takes, retakes, opens_and_releases, opens_once, closes_elsewhere, closes, drains,
                a_token_ends_old_claims;
            operator: try_claims, try_claims_at_once, finds, frees_an_event, frees_the_unsettled, forgets_refused,
                lists_streams, knows_its_id;
            weeks: makes_room, boundaries, retires, tells_sizes, under_load;
            histories: one_after_another, at_once;
        );
    };
    ($store:ident, $make:expr; $($part:ident: $($test:ident),*;)*) => {
        mod $store {
            $(mod $part {
                $(#[test]
                fn $test() {
                    let make = async || $make(|store| store as crate::store::Shared).await;
                    crate::store::run(make, crate::store::$part::$test);
                })*
            })*
        }
    };
}

mod conformance {
    suite!(memory, crate::store::subjects::memory);
    suite!(embedded, crate::store::subjects::embedded);
    suite!(postgres, crate::store::subjects::postgres);
    suite!(pgbouncer, crate::store::subjects::pgbouncer);
}
