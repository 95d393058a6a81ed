//! `semel ingest`: records by HTTP, each published once.
//!
//! The start is that of `semel run`: the configuration is checked first, a port that is taken ends it at once, then the
//! store and the sink are waited for, with `/readyz` telling what is missing. What only a connection shows to be wrong
//! ends it with 64.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tokio::net::TcpListener;

use super::run::start::{ASK, Start};
use super::run::{listen_to_signals, refused};
use super::{Subcommand, flags};
use crate::api::ingest::access::{self, Access};
use crate::api::ingest::{IngestApi, Limits, routes};
use crate::api::server::{self, Bounds};
use crate::api::{self, Api, Readiness};
use crate::clock::SystemClock;
use crate::config::ConfigError;
use crate::config::ingest::IngestConfig;
use crate::config::reader;
use crate::pipeline::chain;
use crate::pipeline::ingest::wiring::{self, Outlets};
use crate::pipeline::ingest::{Ingest, Options};
use crate::pipeline::operator::check::ingest::check;
use crate::shutdown::Shutdown;
use crate::store::ClaimStore;
use crate::telemetry;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

/// Records answers are counted by, at most: each takes a byte until the end of its request.
const RECORDS_MAX: usize = 10_000_000;

fn declare() -> Command {
    let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
    let check =
        check.help("Take no records: check all that the start depends on, as `semel check` does for `semel run`");
    let command = Command::new("ingest").about("Takes records by HTTP and publishes each once").arg(check);
    flags::with_settings(command, reader::Command::Ingest)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = flags::checked(IngestConfig::of(flags::given(matches))?, |config| &config.store)?;
    let options = wiring::options(&config).map_err(|problem| ConfigError(vec![problem.to_string()]))?;
    let access = Access::open(&config.keys).map_err(|error| ConfigError(vec![chain(&error)]))?;
    if matches.get_flag("check") {
        return Ok(super::check::told(&check(&config, &SystemClock)));
    }
    let metrics = telemetry::set_up(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let shutdown = Shutdown::default();
    let first = Arc::new(OnceLock::new());
    listen_to_signals(&runtime, &shutdown, &first, config.grace);
    let readiness = Arc::new(Readiness::default());
    for part in ["store", "sink", "lanes"] {
        readiness.set(part, Err("not connected yet".to_owned()));
    }
    let listener = runtime.block_on(api::listen(config.listen))?;
    if let Some(address) = config.http {
        let listener = runtime.block_on(api::listen(address))?;
        let api = Api { metrics, readiness: Arc::clone(&readiness) };
        runtime.spawn(api::serve(listener, api, std::future::pending()));
    }
    let start = Start::new(&runtime, &shutdown, &first, &readiness);
    let ended = serve(&config, options, access, listener, &start);
    // Clients that wait for a broker which is gone must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

fn serve(
    config: &IngestConfig,
    options: Options,
    access: Access,
    listener: TcpListener,
    start: &Start<'_>,
) -> anyhow::Result<ExitCode> {
    let (runtime, readiness) = (start.runtime, start.readiness);
    let Some(store) = start.open(&config.store)? else { return Ok(ExitCode::SUCCESS) };
    let find = || runtime.block_on(Outlets::find(config, &*store, ASK));
    let outlets = match start.wait_for("the sink", |_| true, find)? {
        Some(Ok(outlets)) => outlets,
        Some(Err(problems)) => return Ok(refused(&problems)),
        None => return Ok(ExitCode::SUCCESS),
    };
    readiness.set("sink", Ok(()));
    let watched: Arc<dyn ClaimStore> = Arc::clone(&store) as Arc<dyn ClaimStore>;
    if !start.begin_undated(&watched) {
        return Ok(ExitCode::SUCCESS);
    }
    runtime.block_on(async {
        let started = Ingest::start(options, store, Arc::clone(&start.clock), |name| outlets.outlet(name)).await;
        let ingest = started.context("ingest does not start")?;
        tokio::spawn(watch_lanes(ingest.clone(), Arc::clone(readiness)));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            scope = %config.scope,
            sink = %config.sink,
            listen = %config.listen,
            promise = wiring::promise(config),
            "semel takes records",
        );
        let access = Arc::new(access);
        tokio::spawn(access::watch(Arc::downgrade(&access)));
        let limits = Limits {
            document_bytes_max: config.document_bytes_max,
            stream_bytes_max: config.stream_bytes_max,
            records_max: RECORDS_MAX,
            request_timeout: config.request_timeout,
        };
        let routes = routes(IngestApi { ingest: ingest.clone(), access, limits });
        server::serve(listener, routes, bounds(config), wish_to_end(start.shutdown)).await;
        ingest.leave().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn bounds(config: &IngestConfig) -> Bounds {
    Bounds {
        connections_max: config.connections_max,
        head_timeout: Duration::from_secs(10),
        head_bytes_max: 64 << 10,
        headers_max: 100,
        life: Duration::from_secs(600),
        // A request that has begun is let come to its end, its windows included.
        last_request: config.request_timeout + config.lease,
    }
}

async fn wish_to_end(shutdown: &Shutdown) {
    while !shutdown.is_requested() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Keeps `/readyz` right about the lanes.
async fn watch_lanes(ingest: Ingest, readiness: Arc<Readiness>) {
    loop {
        let state = match ingest.lanes_ready() {
            0 => Err("no lane is ready".to_owned()),
            _ => Ok(()),
        };
        readiness.set("lanes", state);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
