//! `semel run`: the daemon.
//!
//! Order of the start: the configuration is checked before anything is connected to, a port that is taken ends it at
//! once, then the store and the brokers are waited for, however long they take, with `/readyz` telling what is missing.
//! What only a connection shows to be wrong ends it with 64 as a bad configuration does.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{ArgMatches, Command};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{EXIT_USAGE, Subcommand, flags};
use crate::api::{self, Api, Readiness};
use crate::clock::{SharedClock, SystemClock};
use crate::config::{Config, reader};
use crate::pipeline::transactional::{self, PipelineError, Status, wiring};
use crate::pipeline::{chain, counted, preflight, retention};
use crate::protocol::backoff::Backoff;
use crate::shutdown::Shutdown;
use crate::source::kafka::KafkaSource;
use crate::store::{ClaimStore, Recovery, StoreError};
use crate::{store, telemetry};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const ASK: Duration = Duration::from_secs(10);
/// For a question on its way to a broker or the store, when the process is to end and has taken nothing yet.
const LEAVE: Duration = Duration::from_millis(500);

/// What came first. Behind the work there may be something to finish, behind the wish to end there is nothing.
#[derive(Debug)]
enum First {
    Work,
    End,
}

fn declare() -> Command {
    let command = Command::new("run").about("Reads a Kafka topic and forwards each event once");
    flags::with_settings(command, reader::Command::Run)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = flags::config(matches)?;
    let metrics = telemetry::set_up(&config.log)?;
    // Store and HTTP are asked by few at a time; the work is on the workers' own threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let shutdown = Shutdown::default();
    let first = Arc::new(OnceLock::new());
    listen_to_signals(&runtime, &shutdown, &first, config.identity.grace);
    let readiness = Arc::new(Readiness::default());
    readiness.set("store", Err("not connected yet".to_owned()));
    readiness.set("kafka", Err("not connected yet".to_owned()));
    if let Some(address) = config.http {
        let listener = runtime.block_on(api::listen(address))?;
        let api = Api { metrics, readiness: Arc::clone(&readiness) };
        runtime.spawn(api::serve(listener, api, std::future::pending()));
    }
    let ended = serve(&config, &runtime, &shutdown, &first, &readiness);
    // Clients that wait for a broker which is gone must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

fn serve(
    config: &Config,
    runtime: &Runtime,
    shutdown: &Shutdown,
    first: &OnceLock<First>,
    readiness: &Arc<Readiness>,
) -> anyhow::Result<ExitCode> {
    let Some(store) = open_store(config, runtime, shutdown)? else { return Ok(ExitCode::SUCCESS) };
    readiness.set("store", Ok(()));
    let clock: SharedClock = Arc::new(SystemClock);
    let Some(()) = wait_for(shutdown, "weeks of the claim store", is_passing, || {
        runtime.block_on(retention::make_room(&*store, config.retention.bounds, &clock))
    })?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let Some(topics) = look_at_brokers(config, runtime, shutdown, &*store)? else { return Ok(ExitCode::SUCCESS) };
    if !topics.problems.is_empty() {
        topics.problems.iter().for_each(|problem| eprintln!("semel: {problem}"));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    topics.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if first.set(First::Work).is_err() {
        return Ok(ExitCode::SUCCESS);
    }
    runtime.spawn(retention::keep(Arc::clone(&store), config.retention.bounds, Arc::clone(&clock)));
    runtime.spawn(watch_store(Arc::clone(&store), Arc::clone(readiness)));
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
    work(config, &topics, &store, &clock, runtime.handle(), shutdown, readiness)
}

/// Runs the workers until all have ended; the first that fails ends the others.
fn work(
    config: &Config,
    topics: &preflight::Topics,
    store: &Arc<dyn ClaimStore>,
    clock: &SharedClock,
    runtime: &Handle,
    shutdown: &Shutdown,
    readiness: &Arc<Readiness>,
) -> anyhow::Result<ExitCode> {
    let mut workers = Vec::new();
    for worker in 0..config.identity.workers {
        let options = wiring::options(config, topics, worker);
        let (store, clock, runtime) = (Arc::clone(store), Arc::clone(clock), runtime.clone());
        let (own, status) = (shutdown.clone(), Arc::new(Status::default()));
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
        readiness.set("kafka", state);
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = workers.into_iter().map(|(thread, _)| thread.join().unwrap_or(Err(PipelineError::Panicked)));
    let failed = ended.filter_map(Result::err).next();
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => {
            tracing::error!(error = chain(&error), "a worker cannot go on");
            Err(error.into())
        }
    }
}

/// None on the wish to end. Errors that waiting does not mend end the start.
fn wait_for<T, E: std::error::Error + Send + Sync + 'static>(
    shutdown: &Shutdown,
    what: &str,
    is_passing: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> Result<T, E>,
) -> anyhow::Result<Option<T>> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    while !shutdown.is_requested() {
        match ask() {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) if is_passing(&error) => {
                if backoff.tries().is_multiple_of(10) {
                    tracing::warn!(error = chain(&error), "waiting for {what}");
                }
                shutdown.sleep(backoff.next(128));
            }
            Err(error) => return Err(error).with_context(|| what.to_owned()),
        }
    }
    Ok(None)
}

fn is_passing(error: &StoreError) -> bool {
    !matches!(error.recovery(), Recovery::ShutDown)
}

fn open_store(config: &Config, runtime: &Runtime, shutdown: &Shutdown) -> anyhow::Result<Option<Arc<dyn ClaimStore>>> {
    wait_for(shutdown, "the claim store", is_passing, || runtime.block_on(store::open::open(&config.store)))
}

/// The topics, and who else uses the scope.
fn look_at_brokers(
    config: &Config,
    runtime: &Runtime,
    shutdown: &Shutdown,
    store: &dyn ClaimStore,
) -> anyhow::Result<Option<preflight::Topics>> {
    let looked = wait_for(shutdown, "the brokers", |_| true, || runtime.block_on(preflight::topics(config, ASK)))?;
    let Some(mut topics) = looked else { return Ok(None) };
    if !topics.problems.is_empty() {
        return Ok(Some(topics));
    }
    let source = KafkaSource::new(&wiring::source(config))?;
    let asked = wait_for(shutdown, "the source's cluster", |_| true, || source.cluster_id(ASK))?;
    let Some(cluster) = asked else { return Ok(None) };
    let Some(ids) = wait_for(shutdown, "the topics' ids", |_| true, || source.topic_ids(ASK))? else { return Ok(None) };
    let Some(streams) = wait_for(shutdown, "the claim store", is_passing, || runtime.block_on(store.streams()))? else {
        return Ok(None);
    };
    topics.problems.extend(preflight::sharing(config, &cluster, &ids, &streams));
    Ok(Some(topics))
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

/// The first SIGTERM or SIGINT asks for a drain; the second, or the end of the grace period, ends the process at once.
/// Where nothing was taken yet there is nothing to drain, and no broker's answer is waited for.
fn listen_to_signals(runtime: &Runtime, shutdown: &Shutdown, first: &Arc<OnceLock<First>>, grace: Duration) {
    let (shutdown, first) = (shutdown.clone(), Arc::clone(first));
    runtime.spawn(async move {
        let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
            tracing::error!("cannot listen to signals: the process will end without a drain");
            return;
        };
        next_of(&mut term, &mut int).await;
        let asked = Instant::now();
        shutdown.request();
        if first.set(First::End).is_ok() {
            let _ = tokio::time::timeout(LEAVE, next_of(&mut term, &mut int)).await;
            tracing::info!("ended before anything was taken");
            std::process::exit(0);
        }
        let late = tokio::time::timeout(grace, next_of(&mut term, &mut int)).await.is_err();
        let after_ms = asked.elapsed().as_millis() as u64;
        tracing::warn!(late, after_ms, "leaving without a finished drain");
        std::process::exit(1);
    });
}

async fn next_of(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
