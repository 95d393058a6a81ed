//! Kafka to Kafka: each worker on threads of its own.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::refused;
use super::start::{ASK, Start, ended};
use crate::config::Config;
use crate::pipeline::transactional::{self, PipelineError, Status, wiring};
use crate::pipeline::{counted, preflight};
use crate::source::kafka::KafkaSource;
use crate::store::ClaimStore;

pub fn serve(config: &Config, start: &Start<'_>) -> anyhow::Result<ExitCode> {
    start.readiness.set("kafka", Err("not connected yet".to_owned()));
    let opened = start.store(&config.store, config.retention.bounds)?;
    let Some(store) = opened.map(|store| store as Arc<dyn ClaimStore>) else { return Ok(ExitCode::SUCCESS) };
    let Some(topics) = look_at_brokers(config, start, &*store)? else { return Ok(ExitCode::SUCCESS) };
    if !topics.problems.is_empty() {
        return Ok(refused(&topics.problems));
    }
    topics.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if !start.begin(&store, config.retention.bounds) {
        return Ok(ExitCode::SUCCESS);
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        scope = %config.scope,
        source = config.source.topics.join(","),
        group = config.source.group,
        sink = config.sink.topic,
        workers = config.identity.workers,
        promise = "kafka to kafka: exactly once, as seen by a read_committed reader",
        "semel runs",
    );
    work(config, &topics, &store, start)
}

/// Runs the workers until all have ended; the first that fails ends the others.
fn work(
    config: &Config,
    topics: &preflight::Topics,
    store: &Arc<dyn ClaimStore>,
    start: &Start<'_>,
) -> anyhow::Result<ExitCode> {
    let mut workers = Vec::new();
    for worker in 0..config.identity.workers {
        let options = wiring::options(config, topics, worker);
        let (store, clock, runtime) = (Arc::clone(store), Arc::clone(&start.clock), start.runtime.handle().clone());
        let (own, status) = (start.shutdown.clone(), Arc::new(Status::default()));
        let told = Arc::clone(&status);
        let run = move || {
            let ended = transactional::run(options, store, clock, runtime, own.clone(), told);
            own.request();
            ended
        };
        let thread = std::thread::Builder::new().name(format!("reader-{worker}")).spawn(run)?;
        workers.push((thread, status));
    }
    while workers.iter().any(|(thread, _)| !thread.is_finished()) {
        let waiting = workers.iter().filter(|(_, status)| !status.is_assigned()).count() as u64;
        let state = if waiting == 0 {
            Ok(())
        } else {
            Err(format!("the group has not answered to {}", counted(waiting, "worker")))
        };
        start.readiness.set("kafka", state);
        std::thread::sleep(Duration::from_millis(10));
    }
    let all = workers.into_iter().map(|(thread, _)| thread.join().unwrap_or(Err(PipelineError::Panicked)));
    ended(all.filter_map(Result::err).next())
}

/// The topics, and who else uses the scope.
fn look_at_brokers(
    config: &Config,
    start: &Start<'_>,
    store: &dyn ClaimStore,
) -> anyhow::Result<Option<preflight::Topics>> {
    let looked = start.wait_for("the brokers", |_| true, || start.runtime.block_on(preflight::topics(config, ASK)))?;
    let Some(mut topics) = looked else { return Ok(None) };
    if !topics.problems.is_empty() {
        return Ok(Some(topics));
    }
    let source = KafkaSource::new(&wiring::source(config))?;
    let (who, is_allowed) = ((&config.scope, config.source.group.as_str()), config.identity.allow_shared_scope);
    let Some(problems) = start.who_shares(&source, store, who, is_allowed, true)? else { return Ok(None) };
    topics.problems.extend(problems);
    Ok(Some(topics))
}
