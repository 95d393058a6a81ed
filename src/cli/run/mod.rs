//! `semel run`: the daemon.
//!
//! Order of the start: the configuration is checked before anything is connected to, a port that is taken ends it at
//! once, then the store and the brokers are waited for, however long they take, with `/readyz` telling what is missing.
//! What only a connection shows to be wrong ends it with 64 as a bad configuration does.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{EXIT_USAGE, Subcommand, flags};
use crate::api::{self, Api, Readiness};
use crate::config::reader;
use crate::config::route::Route;
use crate::shutdown::Shutdown;
use crate::telemetry;

mod kafka;
mod leased;
mod settled;
pub(super) mod start;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

/// For a question on its way to a broker or the store, when the process is to end and has taken nothing yet.
const LEAVE: Duration = Duration::from_millis(500);

/// What came first. Behind the work there may be something to finish, behind the wish to end there is nothing.
#[derive(Debug)]
pub(super) enum First {
    Work,
    End,
}

fn declare() -> Command {
    let command = Command::new("run").about("Reads topics, queues or streams and forwards each event once");
    flags::with_settings(command, reader::Command::Run)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let route = flags::route(matches)?;
    let (log, http, grace) = match &route {
        Route::KafkaToKafka(config) => (&config.log, config.http, config.identity.grace),
        Route::Settled(config) => (&config.log, config.http, config.identity.grace),
        Route::Leased(config) => (&config.log, config.http, config.grace),
    };
    let metrics = telemetry::set_up(log)?;
    // Store and HTTP are asked by few at a time; from Kafka to Kafka the work is on the workers' own threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let shutdown = Shutdown::default();
    let first = Arc::new(OnceLock::new());
    listen_to_signals(&runtime, &shutdown, &first, grace);
    let readiness = Arc::new(Readiness::default());
    readiness.set("store", Err("not connected yet".to_owned()));
    if let Some(address) = http {
        let listener = runtime.block_on(api::listen(address))?;
        let api = Api { metrics, readiness: Arc::clone(&readiness) };
        runtime.spawn(api::serve(listener, api, std::future::pending()));
    }
    let start = start::Start::new(&runtime, &shutdown, &first, &readiness);
    let ended = match &route {
        Route::KafkaToKafka(config) => kafka::serve(config, &start),
        Route::Settled(config) => settled::serve(config, &start),
        Route::Leased(config) => leased::serve(config, &start),
    };
    // Clients that wait for a broker which is gone must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// What only a connection showed to be wrong.
pub(super) fn refused(problems: &[String]) -> ExitCode {
    problems.iter().for_each(|problem| eprintln!("semel: {problem}"));
    ExitCode::from(EXIT_USAGE)
}

/// The first SIGTERM or SIGINT asks for a drain; the second, or the end of the grace period, ends the process at once.
/// Where nothing was taken yet there is nothing to drain, and no broker's answer is waited for.
pub(super) fn listen_to_signals(runtime: &Runtime, shutdown: &Shutdown, first: &Arc<OnceLock<First>>, grace: Duration) {
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
