//! From a source without offsets: one worker, on the runtime.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::refused;
use super::start::{ASK, Start, ended, is_passing};
use crate::config::ends::Sink;
use crate::config::leased::LeasedConfig;
use crate::pipeline::leased::{self, Outlet, Parts, Status, System, wiring};
use crate::pipeline::preflight;
use crate::protocol::lane::StreamId;
use crate::store::ClaimStore;
use crate::store::slots::SlotStore;

pub fn serve(config: &LeasedConfig, start: &Start<'_>) -> anyhow::Result<ExitCode> {
    start.readiness.set("pipeline", Err("not connected yet".to_owned()));
    let Some(store) = start.store(&config.store, config.retention.bounds)? else { return Ok(ExitCode::SUCCESS) };
    let ask = || start.runtime.block_on(store.streams());
    let Some(streams) = start.wait_for("the claim store", is_passing, ask)? else { return Ok(ExitCode::SUCCESS) };
    let foreign = preflight::of_other_kind(&config.scope, false, &streams);
    if !foreign.is_empty() {
        return Ok(refused(&foreign));
    }
    let (sink, slot) = match outlet(config, start, &store)? {
        Some(Ok(found)) => found,
        Some(Err(problems)) => return Ok(refused(&problems)),
        None => return Ok(ExitCode::SUCCESS),
    };
    if !start.begin(&(Arc::clone(&store) as Arc<dyn ClaimStore>), config.retention.bounds) {
        return Ok(ExitCode::SUCCESS);
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        scope = %config.scope,
        source = %config.source,
        sink = %config.sink,
        slot = %slot,
        promise = wiring::promise(config),
        "semel runs",
    );
    let status = Arc::new(Status::default());
    let parts = Parts {
        store,
        source: wiring::source(config),
        sink,
        clock: Arc::clone(&start.clock),
        machine: Arc::new(System::default()),
        shutdown: start.shutdown.clone(),
        status: Arc::clone(&status),
    };
    let readiness = Arc::clone(start.readiness);
    start.runtime.spawn(async move {
        loop {
            readiness.set("pipeline", status.missing().map_or(Ok(()), Err));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    ended(start.runtime.block_on(leased::run(wiring::options(config, slot), parts)).err())
}

type Found = (Outlet, StreamId);

/// None on the wish to end; inner error: what is wrong with the sink for good.
fn outlet(
    config: &LeasedConfig,
    start: &Start<'_>,
    store: &Arc<dyn SlotStore>,
) -> anyhow::Result<Option<Result<Found, Vec<String>>>> {
    if let Sink::Kafka(kafka) = &config.sink {
        let look = || start.runtime.block_on(wiring::kafka_outlet(config, kafka, &**store, ASK));
        return start.wait_for("the sink", |_| true, look);
    }
    let Some(mut sink) = wiring::sink(config) else { return Ok(None) };
    let checked = start.check_sink(&mut *sink)?;
    Ok(checked.map(|checked| checked.map(|()| (Outlet::Plain(sink), wiring::slot(config)))))
}
