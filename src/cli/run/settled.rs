//! Kafka into a sink without transactions: each worker on a thread of its own.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::refused;
use super::start::{ASK, Start, ended};
use crate::config::settled::SettledConfig;
use crate::pipeline::leased::Status;
use crate::pipeline::preflight;
use crate::pipeline::settled::{self, Parts, SettledError, wiring};
use crate::source::kafka::KafkaSource;
use crate::store::ClaimStore;
use crate::store::slots::SlotStore;

pub fn serve(config: &SettledConfig, start: &Start<'_>) -> anyhow::Result<ExitCode> {
    start.readiness.set("pipeline", Err("not connected yet".to_owned()));
    let Some(store) = start.store(&config.store, config.retention.bounds)? else { return Ok(ExitCode::SUCCESS) };
    let Some(topics) = look_at_brokers(config, start, &*store)? else { return Ok(ExitCode::SUCCESS) };
    if !topics.problems.is_empty() {
        return Ok(refused(&topics.problems));
    }
    topics.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let mut sinks = Vec::new();
    for worker in 0..config.identity.workers {
        let Some(mut sink) = wiring::sink(config, worker) else { return Ok(ExitCode::SUCCESS) };
        match start.check_sink(&mut *sink)? {
            Some(Ok(())) => sinks.push(sink),
            Some(Err(problems)) => return Ok(refused(&problems)),
            None => return Ok(ExitCode::SUCCESS),
        }
    }
    if !start.begin(&(Arc::clone(&store) as Arc<dyn ClaimStore>), config.retention.bounds) {
        return Ok(ExitCode::SUCCESS);
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        scope = %config.scope,
        source = config.source.topics.join(","),
        group = config.source.group,
        sink = %config.sink,
        workers = config.identity.workers,
        promise = wiring::promise(config),
        "semel runs",
    );
    let mut workers = Vec::new();
    for (worker, sink) in sinks.into_iter().enumerate() {
        let (options, own, status) = (wiring::options(config), start.shutdown.clone(), Arc::new(Status::default()));
        let parts = Parts {
            store: Arc::clone(&store),
            sink,
            clock: Arc::clone(&start.clock),
            runtime: start.runtime.handle().clone(),
            shutdown: own.clone(),
            status: Arc::clone(&status),
        };
        let run = move || {
            let ended = settled::run(options, parts);
            own.request();
            ended
        };
        workers.push((std::thread::Builder::new().name(format!("worker-{worker}")).spawn(run)?, status));
    }
    while workers.iter().any(|(thread, _)| !thread.is_finished()) {
        let missing = workers.iter().find_map(|(_, status)| status.missing());
        start.readiness.set("pipeline", missing.map_or(Ok(()), Err));
        std::thread::sleep(Duration::from_millis(10));
    }
    let all = workers.into_iter().map(|(thread, _)| thread.join().unwrap_or(Err(SettledError::Panicked)));
    ended(all.filter_map(Result::err).next())
}

/// The topics, and who else uses the scope.
fn look_at_brokers(
    config: &SettledConfig,
    start: &Start<'_>,
    store: &dyn SlotStore,
) -> anyhow::Result<Option<preflight::Topics>> {
    let look = || start.runtime.block_on(preflight::source_topics(config, ASK));
    let Some(mut topics) = start.wait_for("the brokers", |_| true, look)? else { return Ok(None) };
    if !topics.problems.is_empty() {
        return Ok(Some(topics));
    }
    let source = KafkaSource::without_settled(&wiring::options(config).source)?;
    let (who, is_allowed) = ((&config.scope, config.source.group.as_str()), config.identity.allow_shared_scope);
    let Some(problems) = start.who_shares(&source, store, who, is_allowed, false)? else { return Ok(None) };
    topics.problems.extend(problems);
    Ok(Some(topics))
}
