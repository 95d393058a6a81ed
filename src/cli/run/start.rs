//! What every pipeline's start has in common: waiting for what is not there yet, and telling what is missing.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;

use super::First;
use crate::api::Readiness;
use crate::clock::{SharedClock, SystemClock};
use crate::config::store::Store;
use crate::key::Bounds;
use crate::pipeline::{chain, preflight, retention};
use crate::protocol::backoff::Backoff;
use crate::protocol::event::Scope;
use crate::shutdown::Shutdown;
use crate::sink::{Sink, SinkError};
use crate::source::kafka::KafkaSource;
use crate::store;
use crate::store::slots::SlotStore;
use crate::store::{ClaimStore, Recovery, StoreError};

pub const ASK: Duration = Duration::from_secs(10);

/// What a pipeline is started with.
pub struct Start<'a> {
    pub runtime: &'a Runtime,
    pub shutdown: &'a Shutdown,
    pub first: &'a OnceLock<First>,
    pub readiness: &'a Arc<Readiness>,
    pub clock: SharedClock,
}

impl<'a> Start<'a> {
    pub fn new(
        runtime: &'a Runtime,
        shutdown: &'a Shutdown,
        first: &'a OnceLock<First>,
        readiness: &'a Arc<Readiness>,
    ) -> Start<'a> {
        Start { runtime, shutdown, first, readiness, clock: Arc::new(SystemClock) }
    }

    /// The store. None on the wish to end.
    pub fn open(&self, config: &Store) -> anyhow::Result<Option<Arc<dyn SlotStore>>> {
        let open = || self.runtime.block_on(store::open::open(config));
        let opened = self.wait_for("the claim store", is_passing, open)?;
        Ok(opened.inspect(|_| self.readiness.set("store", Ok(()))))
    }

    /// The store, with room for the weeks of now. None on the wish to end.
    pub fn store(&self, config: &Store, bounds: Bounds) -> anyhow::Result<Option<Arc<dyn SlotStore>>> {
        let Some(store) = self.open(config)? else { return Ok(None) };
        let make = || self.runtime.block_on(retention::make_room(&*store, bounds, &self.clock));
        let made = self.wait_for("weeks of the claim store", is_passing, make)?;
        Ok(made.map(|()| store))
    }

    /// Waits for a sink without transactions. None on the wish to end; inner error: what is wrong with it for good.
    pub fn check_sink(&self, sink: &mut dyn Sink) -> anyhow::Result<Option<Result<(), Vec<String>>>> {
        let check = || match self.runtime.block_on(sink.check()) {
            Err(SinkError::Refused(cause)) => Ok(Err(vec![format!("SEMEL_SINK: {}", chain(&*cause))])),
            checked => checked.map(Ok),
        };
        self.wait_for("the sink", |_: &SinkError| true, check)
    }

    /// Tends the weeks too.
    pub fn begin(&self, store: &Arc<dyn ClaimStore>, bounds: Bounds) -> bool {
        let begins = self.begin_undated(store);
        if begins {
            self.runtime.spawn(retention::keep(Arc::clone(store), bounds, Arc::clone(&self.clock)));
        }
        begins
    }

    /// Keeps `/readyz` right about the store. False where the wish to end came first.
    pub fn begin_undated(&self, store: &Arc<dyn ClaimStore>) -> bool {
        if self.first.set(First::Work).is_err() {
            return false;
        }
        self.runtime.spawn(watch_store(Arc::clone(store), Arc::clone(self.readiness)));
        true
    }

    /// What is wrong with the scope of a group: who else claims under it. `into_kafka`: of the pipeline that asks. None on
    /// the wish to end.
    pub fn who_shares(
        &self,
        source: &KafkaSource,
        store: &dyn ClaimStore,
        (scope, group): (&Scope, &str),
        is_allowed: bool,
        into_kafka: bool,
    ) -> anyhow::Result<Option<Vec<String>>> {
        let asked = self.wait_for("the source's cluster", |_| true, || source.cluster_id(ASK))?;
        let Some(cluster) = asked else { return Ok(None) };
        let Some(ids) = self.wait_for("the topics' ids", |_| true, || source.topic_ids(ASK))? else { return Ok(None) };
        let Some(streams) = self.wait_for("the claim store", is_passing, || self.runtime.block_on(store.streams()))?
        else {
            return Ok(None);
        };
        let mut problems = preflight::of_other_kind(scope, into_kafka, &streams);
        problems.extend(preflight::sharing((scope, group), is_allowed, &cluster, &ids, &streams));
        Ok(Some(problems))
    }

    /// None on the wish to end. Errors that waiting does not mend end the start.
    pub fn wait_for<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        what: &str,
        is_passing: impl Fn(&E) -> bool,
        mut ask: impl FnMut() -> Result<T, E>,
    ) -> anyhow::Result<Option<T>> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        while !self.shutdown.is_requested() {
            match ask() {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if is_passing(&error) => {
                    if backoff.tries().is_multiple_of(10) {
                        tracing::warn!(error = chain(&error), "waiting for {what}");
                    }
                    self.shutdown.sleep(backoff.next(128));
                }
                Err(error) => return Err(error).with_context(|| what.to_owned()),
            }
        }
        Ok(None)
    }
}

/// How the work ended.
pub fn ended<E: std::error::Error + Send + Sync + 'static>(failed: Option<E>) -> anyhow::Result<ExitCode> {
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => {
            tracing::error!(error = chain(&error), "a worker cannot go on");
            Err(error.into())
        }
    }
}

pub fn is_passing(error: &StoreError) -> bool {
    !matches!(error.recovery(), Recovery::ShutDown)
}

/// Keeps `/readyz` right about the store.
async fn watch_store(store: Arc<dyn ClaimStore>, readiness: Arc<Readiness>) {
    loop {
        let state = match tokio::time::timeout(ASK, store.store_id()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err("no answer".to_owned()),
        };
        readiness.set("store", state);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
