//! One suite of promises for every claim store, and what only PostgreSQL has to show.
//!
//! `suite!(name, make)` runs the whole suite for one implementation; `make` is an async function that answers a
//! [`Subject`] with nothing in it. A store joins by that one line.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use semel::store::ClaimStore;

mod claims;
mod histories;
mod kit;
mod lanes;
mod operator;
mod postgres;
mod subjects;
mod weeks;

pub type Shared = Arc<dyn ClaimStore>;

/// Ends one handle on a store and opens another on the same claims.
pub type Reopen = Box<dyn Fn(Shared) -> Pin<Box<dyn Future<Output = Shared>>>>;

/// A store under test, empty, with room for undated claims only.
pub struct Subject {
    pub store: Shared,
    /// None for a store that forgets.
    pub reopen: Option<Reopen>,
    /// What must live as long as the store: a folder, a server.
    pub keep: Box<dyn Any>,
}

/// Runs one test on a store of its own.
fn run<M: AsyncFnOnce() -> Subject>(make: M, test: impl AsyncFnOnce(Subject)) {
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
                    crate::store::run($make, crate::store::$part::$test);
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
