//! The claim store: whether it is there, what it is, what may be done with it, which weeks it has.

use std::sync::Arc;

use super::Facts;
use crate::clock::Clock;
use crate::config::mask;
use crate::config::store::{Postgres, Store};
use crate::key::Bounds;
use crate::pipeline::operator::Claims;
use crate::pipeline::{chain, counted};
use crate::protocol::event::{EventTime, Week};
use crate::store::open;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::health::ServerFacts;
use crate::store::postgres::migrate::SCHEMA_VERSION;

/// A clock that differs by more puts claims into weeks too early or too late, and makes `first_seen_at` hard to read.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 2_000;

/// The store, where it is fit for claims. `bounds`: none where claims have no weeks.
pub(super) fn check(
    facts: &mut Facts,
    store: &Store,
    workers: usize,
    bounds: Option<Bounds>,
    clock: &dyn Clock,
) -> Option<Claims> {
    let claims = match store {
        Store::Embedded { folder } => {
            let opened = Claims::open(store);
            match &opened {
                Ok(_) => facts.ok("store", format!("embedded in {}", folder.display())),
                Err(_) if !folder.exists() => {
                    facts.ok("store", format!("embedded; {} is made by the first start", folder.display()));
                }
                // Another process has it, or it is broken: the text says which.
                Err(error) => facts.fail("store", chain(error)),
            }
            opened.ok()?
        }
        Store::Postgres(postgres) => {
            let (claims, may_tend) = server(facts, postgres, workers, clock)?;
            if let Some(bounds) = bounds {
                weeks(facts, &claims, bounds, clock.now(), may_tend);
            }
            return Some(claims);
        }
    };
    if let Some(bounds) = bounds {
        weeks(facts, &claims, bounds, clock.now(), true);
    }
    Some(claims)
}

fn server(facts: &mut Facts, postgres: &Postgres, workers: usize, clock: &dyn Clock) -> Option<(Claims, bool)> {
    let url = mask::url(&postgres.url);
    let failed =
        |facts: &mut Facts, error: &dyn std::error::Error| facts.fail("store", format!("{url}: {}", chain(error)));
    let runtime = match super::super::claims::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            failed(facts, &error);
            return None;
        }
    };
    let connected = runtime.block_on(PostgresStore::connect(&open::options(postgres)));
    let store = connected.map_err(|error| failed(facts, &error)).ok()?;
    let asked = clock.now();
    match runtime.block_on(store.server_facts()) {
        Ok(server) => {
            let here = EventTime::from_micros(asked.micros().midpoint(clock.now().micros()));
            durability(facts, &url, &server);
            clocks(facts, here, server.now);
            connections(facts, postgres, workers, &server);
        }
        Err(error) => {
            failed(facts, &error);
            return None;
        }
    }
    if let Err(error) = runtime.block_on(store.check_schema()) {
        // Its cause is what is to be done.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        facts.fail("schema", cause);
        return None;
    }
    facts.ok("schema", format!("version {SCHEMA_VERSION}"));
    let may_tend = match runtime.block_on(store.privileges()) {
        Err(error) => {
            facts.fail("privileges", chain(&error));
            false
        }
        Ok(privileges) => {
            match &privileges.missing[..] {
                [] => facts.ok("privileges", "all that claims need"),
                missing => facts.fail("privileges", format!("missing: {}. grant them", missing.join(", "))),
            }
            if !privileges.may_tend_weeks {
                facts.warn(
                    "privileges",
                    "this role may neither make nor retire weeks: it does not own processed_kafka_events, or may not CREATE \
                     in its schema. run `semel partitions --ensure --retire` as the owner, at least weekly",
                );
            }
            privileges.may_tend_weeks
        }
    };
    Some((Claims::new(runtime, Arc::new(store)), may_tend))
}

fn durability(facts: &mut Facts, url: &str, server: &ServerFacts) {
    let ServerFacts { version, user, database, .. } = server;
    facts.ok("store", format!("PostgreSQL {version}, database {database} as {user} ({url})"));
    if server.in_recovery {
        facts.fail("store", "it is a standby and takes no claim: name the primary in SEMEL_STORE");
    }
    if !server.fsync {
        facts.fail(
            "store",
            "fsync is off: a claim may be gone after a crash, and its event is forwarded again. turn it on",
        );
    }
    if server.synchronous_commit == "off" {
        facts.fail(
            "store",
            "synchronous_commit is off: claims may be gone after a crash, and their events are forwarded again. turn it on \
             for this role",
        );
    }
    if server.standbys > 0 && server.synchronous_standbys.is_empty() {
        facts.warn(
            "store",
            "its standbys are asynchronous: after a failover the last claims may be gone, and their events are forwarded \
             again. name them in synchronous_standby_names to rule that out",
        );
    }
}

fn clocks(facts: &mut Facts, here: EventTime, there: EventTime) {
    let ahead_ms = (there.micros() - here.micros()) / 1_000;
    let found =
        format!("the database is {} ms {} this host", ahead_ms.abs(), if ahead_ms < 0 { "behind" } else { "ahead of" });
    if ahead_ms.abs() > CLOCK_DIFFERENCE_MS_MAX {
        facts.warn("clock", format!("{found}. let both follow one time server"));
    } else {
        facts.ok("clock", found);
    }
}

fn connections(facts: &mut Facts, postgres: &Postgres, workers: usize, server: &ServerFacts) {
    if postgres.connections < workers {
        facts.warn(
            "store",
            format!(
                "{workers} workers share {}: raise SEMEL_STORE_CONNECTIONS",
                counted(postgres.connections as u64, "connection")
            ),
        );
    }
    if postgres.connections as i64 > server.connections_max {
        facts.warn(
            "store",
            format!(
                "SEMEL_STORE_CONNECTIONS is {}, the server takes {} in all (max_connections)",
                postgres.connections, server.connections_max
            ),
        );
    }
}

fn weeks(facts: &mut Facts, claims: &Claims, bounds: Bounds, now: EventTime, may_tend: bool) {
    let made = match claims.ask(|store| async move { store.weeks().await }) {
        Ok(made) => made,
        Err(error) => return facts.fail("weeks", chain(&error)),
    };
    let (first, last) = bounds.weeks(now);
    let wanted = std::iter::successors(Some(first), |week| Some(week.plus(1))).take_while(|week| *week <= last);
    let missing: Vec<String> = wanted.filter(|week| !made.contains(week)).map(|week| week.to_string()).collect();
    let old = made.iter().filter(|week| **week < first && **week != Week::UNDATED).count();
    match (&missing[..], may_tend) {
        ([], _) => facts.ok("weeks", format!("made from {first} to {last}")),
        (missing, true) => facts.warn(
            "weeks",
            format!(
                "not made: {}. `semel run` makes them at its start, or `semel partitions --ensure` now",
                missing.join(", ")
            ),
        ),
        (missing, false) => facts.fail(
            "weeks",
            format!("not made: {}. run `semel partitions --ensure` as the owner of the table", missing.join(", ")),
        ),
    }
    if old > 0 {
        facts.ok(
            "weeks",
            format!("{old} older than what is kept; `semel run` retires them, or `semel partitions --retire`"),
        );
    }
}
