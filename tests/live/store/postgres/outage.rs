//! What a lost connection, a limit, a refused log-in or a crash of the server is told as.

use std::time::{Duration, Instant};

use semel::protocol::lane::Token;
use semel::protocol::verdict::Claimed;
use semel::store::postgres::PostgresStore;
use semel::store::postgres::options::PostgresOptions;
use semel::store::{ClaimStore, StoreError, Take};

use super::super::kit::{Writer, count, fresh, inserted, of, room};
use super::super::subjects::{blocking, connect};
use super::{Own, run, side, told, while_it_waits};
use crate::support::proxy::{CLAIM, Moment, Proxy, Sight, Then};
use crate::support::services::{OwnServices, Service, Services};

/// The own store's database, through a proxy that can lose what a network loses.
fn through(own: &Own) -> (Proxy, String) {
    let port = Services::shared().postgres_port();
    let proxy = Proxy::of_postgres(port);
    let url = own.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port())) + "?sslmode=disable";
    (proxy, url)
}

/// The connection is cut before the claim, in COMMIT, after COMMIT. The outcome is unknown; the stream is taken again
/// in place of the old token, the same window asked again: and every claim of it is the asker's own.
#[test]
fn a_cut_connection() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let (proxy, url) = through(&own);
        let store = connect(&url).await;
        let cases = [(Moment::Before, 0..=0), (Moment::During, 0..=1), (Moment::After, 1..=1)];
        for (moment, there) in cases {
            let name = format!("{moment:?}");
            let mut writer = Writer::open(&store, &name).await;
            let cut = proxy.on(CLAIM, moment, 1, || Then::Cut);
            let lost = writer.claim(&store, &[&name], 1).await;
            assert!(matches!(lost, Err(StoreError::Unknown(_))), "{moment:?}: {lost:?}");
            cut.wait(Duration::from_secs(1), "the claim");
            let new = Token(fresh());
            let retake = Take { stream: &writer.stream, token: new, instead_of: Some(writer.token) };
            store.take(&retake).await.expect("the stream");
            writer.token = new;
            let landed = count(&*own.store, &name).await;
            assert!(there.contains(&landed), "{moment:?}: {landed} claims");
            let answers = writer.claim(&store, &[&name], 1).await.expect("a claim");
            let expected = if landed == 0 { Claimed::Inserted } else { writer.at(1) };
            assert_eq!(of(&answers, &name), expected, "{moment:?}");
        }
    });
}

/// A process that is halted between its token and the COMMIT does not keep the stream from its successor: the server
/// ends what waits for it.
#[test]
fn a_transaction_that_nobody_goes_on_with() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let (proxy, url) = through(&own);
        let options = PostgresOptions { lock_timeout: Duration::from_secs(1), ..PostgresOptions::new(&url) };
        let halted = PostgresStore::connect_with(&options, &|_| None).await.expect("a connection");
        let mut writer = Writer::open(&*own.store, "stream").await;
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let commit = Sight::Sql(|sql| sql == "COMMIT");
        let seen = proxy.on(commit, Moment::Before, 1, move || {
            let _ = held.recv_timeout(Duration::from_secs(60));
            Then::Pass
        });
        let stream = writer.stream.clone();
        let token = Token(fresh());
        let late = tokio::spawn(async move {
            let take = Take { stream: &stream, token, instead_of: None };
            halted.take(&take).await
        });
        while_it_waits().await;
        assert!(!late.is_finished(), "its COMMIT is held back");
        let begun = Instant::now();
        writer.take(&*own.store).await;
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let _ = let_go.send(());
        let late = late.await.expect("no panic");
        assert!(matches!(late, Err(StoreError::Unknown(_))), "{late:?}");
        seen.wait(Duration::from_secs(1), "the commit");
        assert_eq!(inserted(&writer.claim(&*own.store, &["mine"], 1).await.expect("a claim")), 1);
    });
}

/// Nobody takes the connection: surely nothing was written. When there is somebody again, the same store goes on.
#[test]
fn out_of_reach() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let (proxy, url) = through(&own);
        let store = connect(&url).await;
        let writer = Writer::open(&store, "stream").await;
        proxy.refuse(true);
        // The first call may still find a connection that was cut under it.
        let _ = writer.claim(&store, &["a"], 1).await;
        let away = writer.claim(&store, &["a"], 1).await;
        assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
        proxy.refuse(false);
        assert_eq!(inserted(&writer.claim(&store, &["a"], 1).await.expect("a claim")), 1);
    });
}

/// No answer in time: unknown, within the limit and its grace; the pool gives the connection up.
#[test]
fn no_answer() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let (proxy, url) = through(&own);
        let options = PostgresOptions {
            statement_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            ..PostgresOptions::new(url)
        };
        let store = PostgresStore::connect_with(&options, &|_| None).await.expect("a connection");
        let writer = Writer::open(&store, "stream").await;
        proxy.stall(true);
        let begun = Instant::now();
        let lost = writer.claim(&store, &["a"], 1).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let away = writer.claim(&store, &["a"], 1).await;
        assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
        proxy.stall(false);
        assert!(writer.claim(&store, &["a"], 1).await.is_ok());
    });
}

/// Locks and statements that last too long are ended by the server: rolled back, so surely nothing was written.
#[test]
fn limits() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let writer = Writer::open(&*own.store, "stream").await;
        let (short, long) = (Duration::from_millis(200), Duration::from_secs(20));
        for (lock_timeout, statement_timeout, code) in [(short, long, "55P03"), (long, short, "57014")] {
            let options = PostgresOptions { lock_timeout, statement_timeout, ..PostgresOptions::new(&own.url) };
            let store = PostgresStore::connect_with(&options, &|_| None).await.expect("a connection");
            let side = own.side().await;
            side.batch_execute("BEGIN; SELECT FROM semel_streams FOR UPDATE").await.expect("a lock");
            let begun = Instant::now();
            let refused = writer.claim(&store, &["a"], 1).await.expect_err("a refusal");
            assert!(
                matches!(refused, StoreError::Unavailable(_)) && told(&refused).contains(code),
                "{}",
                told(&refused)
            );
            assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
            side.batch_execute("ROLLBACK").await.expect("an end");
            assert_eq!(count(&store, "a").await, 0);
        }
        assert_eq!(inserted(&writer.claim(&*own.store, &["a"], 1).await.expect("a claim")), 1);
    });
}

/// A statement that may read every claim has a limit of its own.
#[test]
fn a_limit_for_scans() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let writer = Writer::open(&*own.store, "stream").await;
        let (short, long) = (Duration::from_millis(200), Duration::from_secs(20));
        let options = PostgresOptions { lock_timeout: long, scan_timeout: short, ..PostgresOptions::new(&own.url) };
        let store = PostgresStore::connect_with(&options, &|_| None).await.expect("a connection");
        let side = own.side().await;
        side.batch_execute("BEGIN; LOCK TABLE processed_kafka_events IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        let begun = Instant::now();
        let all = semel::store::Free::Unsettled { lane: writer.lane, from: 0 };
        let refused = store.free(&all, true).await.expect_err("a refusal");
        assert!(told(&refused).contains("57014"), "{}", told(&refused));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        side.batch_execute("ROLLBACK").await.expect("an end");
        store.free(&all, true).await.expect("a count");
    });
}

/// Refused at once, in words that say who refused what, and never the password.
#[test]
fn a_refused_log_in() {
    run(async || {
        let own = Own::empty().await;
        let (before, after) = own.url.split_once('@').expect("a URL with a password");
        let user = before.rsplit_once(':').expect("a password").0;
        let cases = [
            format!("{user}:not-the-secret@{after}"),
            format!("{before}@{after}-which-is-not-there"),
            format!("{user}:not-the-secret@{after}?sslmode=not-the-secret-mode"),
            format!("{user}:not-the-secret@{after}?connect_timeout=not-the-secret"),
            "postgres://user:not-the-secret@[::1".to_owned(),
        ];
        let secret = before.rsplit_once(':').expect("a password").1;
        for url in cases {
            let options = PostgresOptions::new(&url);
            let error = PostgresStore::connect_with(&options, &|_| None).await.expect_err("a refusal");
            assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
            for text in [told(&error), format!("{error:?}"), format!("{options:?}")] {
                assert!(!text.contains("not-the-secret@") && !text.contains(secret), "{text}");
            }
            assert!(!told(&error).contains("not-the-secret") || url.contains("mode"), "{}", told(&error));
        }
    });
}

/// A server that turns read-only under the pool, crashes, and comes back: no claim that was answered is lost, and none
/// is made up.
#[test]
fn a_server_that_fails() {
    run(async || {
        let own = blocking(|| OwnServices::start(&[Service::Postgres])).await;
        let url = own.services.postgres.clone();
        connect(&url).await.migrate().await.expect("a schema");
        // Its pool has one connection, since it is asked one thing at a time.
        let store = std::sync::Arc::new(connect(&url).await);
        room(&*store).await;
        let writer = Writer::open(&*store, "stream").await;

        let admin = side(&url.replace("//semel:", "//postgres:")).await;
        let connections = async || {
            let query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel'";
            let rows = admin.query(query, &[]).await.expect("rows");
            rows.iter().map(|row| row.get(0)).collect::<std::collections::BTreeSet<i32>>()
        };
        let before = connections().await;
        for (setting, expected) in [("on", false), ("off", true)] {
            admin
                .batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {setting}"))
                .await
                .expect("set");
            admin.batch_execute("SELECT pg_reload_conf()").await.expect("a reload");
            tokio::time::sleep(Duration::from_millis(200)).await;
            let claim = writer.claim(&*store, &["a"], 1).await;
            match expected {
                true => assert_eq!(inserted(&claim.expect("a claim")), 1),
                false => assert!(matches!(claim, Err(StoreError::Unavailable(_))), "{claim:?}"),
            }
            // A connection to a server that was demoted must not stay in the pool: it may be another by now.
            let closed = async {
                while !before.is_disjoint(&connections().await) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(5), closed).await.expect("the refused connection is closed");
        }

        let (claims, claimer) = (store.clone(), writer.clone());
        let load = tokio::spawn(async move {
            for n in 0.. {
                let ids: Vec<String> = (0..10).map(|k| format!("{n}/{k}")).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                if let Err(error) = claimer.claim(&*claims, &ids, 10 * (n + 1)).await {
                    return (n, error);
                }
            }
            unreachable!("the server is stopped")
        });
        tokio::time::sleep(Duration::from_millis(400)).await;
        let own = blocking(move || {
            own.stop(Service::Postgres, true);
            own
        })
        .await;
        let (answered, error) = load.await.expect("no panic");
        assert!(matches!(error, StoreError::Unknown(_) | StoreError::Unavailable(_)), "{error:?}");
        let away = writer.claim(&*store, &["z"], 0).await;
        assert!(matches!(away, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))), "{away:?}");
        let own = blocking(move || {
            own.bring_back(Service::Postgres);
            own
        })
        .await;
        let mut writer = writer;
        writer.take(&*store).await;
        let free = semel::store::Free::Unsettled { lane: writer.lane, from: 10 };
        let there = store.free(&free, true).await.expect("a count") as i64;
        // The one window whose answer was lost may be there, whole.
        assert!([answered * 10, (answered + 1) * 10].contains(&there), "{answered} windows answered, {there} claims");
        blocking(move || drop(own)).await;
    });
}
