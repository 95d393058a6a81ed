//! One test's own topics, group, database and settings; how far the work is; and the evidence at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use semel::protocol::event::EventId;
use semel::protocol::lane::Mark;

use super::broker::Broker;
use super::checker::{Claim, Evidence, Excused, Log, Offsets, Partitioning, Report, Skipped, judge};
use super::daemon::{Daemon, Settings, run_well};
use super::database::Database;
use super::generator::{Message, Recipe};
use super::random;
use super::services::Services;
use super::{feed, unique};

pub struct World {
    pub name: String,
    pub seed: u64,
    pub services: Services,
    pub broker: Broker,
    pub partitions: i32,
    pub input: String,
    pub output: String,
    pub dead: String,
    pub group: String,
    pub scope: String,
    pub database: String,
    /// The daemons' logs.
    pub folder: PathBuf,
    /// What every daemon is started with, unless a test says otherwise.
    pub settings: Settings,
    pub partitioning: Partitioning,
    pub excused: Excused,
    /// Logs of the input topic from before it was made anew.
    pub earlier: Vec<Log>,
    generation: u32,
    /// The latest event time of all its recipes, so that an event keeps its time in each of them.
    newest: i64,
}

/// Claims of a partition that are not known to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    pub settled: i64,
    pub claims: i64,
}

impl World {
    pub fn new(name: &str, partitions: i32) -> World {
        World::on(Services::shared(), name, partitions)
    }

    pub fn on(services: Services, name: &str, partitions: i32) -> World {
        let seed = random::seed();
        println!("{name}: seed {seed}");
        let base = unique(name);
        let broker = Broker(services.kafka.clone());
        let (input, output, dead) = (format!("{base}.in"), format!("{base}.out"), format!("{base}.dead"));
        for (topic, partitions) in [(&input, partitions), (&output, partitions), (&dead, 1)] {
            broker.make_topic(topic, partitions, &[]);
        }
        let database = services.make_database();
        let folder = services.folder.join("live").join(&base);
        std::fs::create_dir_all(&folder).expect("a folder for logs");
        let mut world = World {
            name: name.to_owned(),
            seed,
            broker,
            partitions,
            group: format!("{base}.group"),
            scope: format!("{name}-scope"),
            settings: Settings::new(),
            partitioning: Partitioning::Murmur2,
            excused: Excused::default(),
            earlier: vec![],
            generation: 0,
            newest: Recipe::new(0, 0, 1).newest,
            services,
            input,
            output,
            dead,
            database,
            folder,
        };
        world.settings = world.own_settings();
        run_well(&["migrate"], &world.settings);
        world
    }

    fn own_settings(&self) -> Settings {
        let World { input, output, dead, group, scope, database, .. } = self;
        let kafka = &self.services.kafka;
        let settings = [
            ("SEMEL_SOURCE", format!("kafka://{kafka}/{input}?group={group}")),
            ("SEMEL_SINK", format!("kafka://{kafka}/{output}")),
            ("SEMEL_STORE", format!("{database}?sslmode=disable")),
            ("SEMEL_SCOPE", scope.clone()),
            ("SEMEL_EVENT_ID", "header:ce_id".to_owned()),
            ("SEMEL_EVENT_TIME", "record".to_owned()),
            ("SEMEL_DEAD_LETTER", dead.clone()),
            // Failures show at the pace of a test.
            ("SEMEL_SESSION_TIMEOUT", "3s".to_owned()),
            ("SEMEL_TRANSACTION_TIMEOUT", "5s".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    /// Puts proxies in the place of Kafka and PostgreSQL.
    pub fn through(&mut self, kafka: Option<u16>, postgres: Option<u16>) {
        self.settings = self.proxied(kafka, postgres);
    }

    /// The settings of a daemon that reaches its services through proxies, beside others that do not.
    pub fn proxied(&self, kafka: Option<u16>, postgres: Option<u16>) -> Settings {
        let mut settings = self.settings.clone();
        let mut move_to = |name: &str, real: u16, port: u16| {
            let moved = settings[name].replace(&format!(":{real}/"), &format!(":{port}/"));
            settings.insert(name.to_owned(), moved);
        };
        if let Some(port) = kafka {
            ["SEMEL_SOURCE", "SEMEL_SINK"].iter().for_each(|name| move_to(name, self.services.kafka_port(), port));
        }
        if let Some(port) = postgres {
            move_to("SEMEL_STORE", self.services.postgres_port(), port);
        }
        settings
    }

    /// The same once more, for who needs it beside: a feed that runs while this one is changed.
    pub fn beside(&self) -> World {
        World {
            name: self.name.clone(),
            services: self.services.clone(),
            broker: Broker(self.broker.0.clone()),
            input: self.input.clone(),
            output: self.output.clone(),
            dead: self.dead.clone(),
            group: self.group.clone(),
            scope: self.scope.clone(),
            database: self.database.clone(),
            folder: self.folder.clone(),
            settings: self.settings.clone(),
            excused: self.excused.clone(),
            earlier: self.earlier.clone(),
            ..*self
        }
    }

    /// Starts an instance and waits until it is ready.
    pub fn daemon(&self, instance: &str) -> Daemon {
        let mut daemon = self.daemon_unready(instance);
        daemon.wait_ready();
        daemon
    }

    pub fn daemon_unready(&self, instance: &str) -> Daemon {
        Daemon::start(&self.folder, instance, &self.settings)
    }

    /// The n-th recipe of this test: other events than those of the others.
    pub fn recipe(&self, n: u64, messages: u64) -> Recipe {
        let seed = self.seed.wrapping_mul(31).wrapping_add(n);
        let recipe = Recipe::new(seed, messages, self.partitions);
        Recipe { first_copy: n * 100_000_000, newest: self.newest, ..recipe }
    }

    pub fn send(&self, messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
        feed::send(&self.services.kafka, &self.input, messages, None)
    }

    pub fn offsets(&self, settled: bool, stable: bool) -> Vec<Option<(i64, String)>> {
        let group = if settled { format!("{}.settled", self.group) } else { self.group.clone() };
        self.broker.offsets(&group, &self.input, stable)
    }

    pub fn ends(&self) -> Vec<i64> {
        (0..self.partitions).map(|partition| self.broker.bounds(&self.input, partition, false).1).collect()
    }

    /// Waits until both groups stand at the end of the input.
    pub fn wait_done(&self, within: Duration) {
        let begun = Instant::now();
        let ends: Vec<_> = self.ends().into_iter().map(Some).collect();
        let mut stands;
        loop {
            stands = [false, true].map(|settled| {
                self.offsets(settled, false).into_iter().map(|found| Some(found?.0)).collect::<Vec<_>>()
            });
            if stands.iter().all(|stand| *stand == ends) {
                return;
            }
            let logs = self.folder.display();
            assert!(
                begun.elapsed() < within,
                "{}: not done within {within:?}: group and settled stand at {stands:?} of {ends:?}; logs in {logs}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until so many records are in the output and visible.
    pub fn wait_forwarded(&self, at_least: i64, within: Duration) {
        let what = format!("{}: {at_least} forwarded", self.name);
        super::broker::wait_until(&what, within, || {
            (0..self.partitions).map(|p| self.broker.bounds(&self.output, p, true).1).sum::<i64>() >= at_least
        });
    }

    /// For each partition, the claims on its lane at or above its settled offset, as it is visible now.
    pub fn unsettled(&self) -> BTreeMap<i32, Unsettled> {
        let database = Database::open(&self.database);
        let settled = self.offsets(true, false).into_iter().zip(0..);
        let lanes: Vec<(i32, i64, i64)> = settled
            .filter_map(|(found, partition)| {
                let (offset, metadata) = found?;
                Some((partition, offset, Mark::decode(&metadata)?.lane.0))
            })
            .collect();
        let column = |pick: fn(&(i32, i64, i64)) -> i64| lanes.iter().map(pick).collect::<Vec<i64>>();
        let (ids, from) = (column(|lane| lane.2), column(|lane| lane.1));
        let rows = database.query(
            "SELECT c.lane, count(*) FROM processed_kafka_events AS c
             JOIN unnest($1::bigint[], $2::bigint[]) AS l(lane, settled) ON c.lane = l.lane AND c.position >= l.settled
             GROUP BY c.lane",
            &[&ids, &from],
        );
        let counts: BTreeMap<i64, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        lanes
            .into_iter()
            .map(|(partition, settled, lane)| {
                (partition, Unsettled { settled, claims: counts.get(&lane).copied().unwrap_or(0) })
            })
            .collect()
    }

    /// Kills an instance, and answers how many claims it left unsettled: those of the partitions whose settled offset
    /// then stands still. Whoever else works meanwhile moves its own.
    pub fn kill_and_count(&self, daemon: Daemon) -> i64 {
        daemon.kill();
        self.left_unsettled()
    }

    pub fn left_unsettled(&self) -> i64 {
        std::thread::sleep(Duration::from_millis(100));
        let first = self.unsettled();
        std::thread::sleep(Duration::from_millis(700));
        let second = self.unsettled();
        let stood =
            first.iter().filter(|(partition, at)| second.get(partition).is_some_and(|to| to.settled == at.settled));
        stood.map(|(_, at)| at.claims).sum()
    }

    /// Remembers the input as it lies in the topic, before something of it is deleted.
    pub fn remember_input(&mut self) {
        let logs = self.broker.read(&self.input).into_iter();
        self.earlier.extend(logs.map(|log| Log { generation: self.generation, ..log }));
    }

    /// Deletes the input topic and makes it anew; its logs are kept for the judgement.
    pub fn make_input_anew(&mut self, partitions: i32) {
        self.remember_input();
        self.generation += 1;
        self.broker.delete_topic(&self.input);
        self.broker.make_topic(&self.input, partitions, &[]);
        self.partitions = partitions;
    }

    /// Says that these offsets of a partition were never read.
    pub fn skipped(&mut self, partition: i32, from: i64, to: i64, unsettled: bool) {
        let (topic, generation) = (self.input.clone(), self.generation);
        self.excused.skipped.push(Skipped { topic, generation, partition, from, to, unsettled });
    }

    /// Says that the log before this one may have been read up to this offset only, and claimed beyond it.
    pub fn lost_with_its_log(&mut self, partition: i32, from: i64) {
        let (topic, generation) = (self.input.clone(), self.generation - 1);
        self.excused.skipped.push(Skipped { topic, generation, partition, from, to: i64::MAX, unsettled: true });
    }

    /// The input of all generations, with what was deleted since it was remembered.
    fn whole_input(&self) -> Vec<Log> {
        let mut input = self.earlier.clone();
        for log in self.broker.read(&self.input) {
            let same = |known: &&mut Log| known.generation == self.generation && known.partition == log.partition;
            match input.iter_mut().find(same) {
                None => input.push(Log { generation: self.generation, ..log }),
                Some(known) => {
                    let behind = known.records.last().map_or(-1, |record| record.offset);
                    known.records.extend(log.records.into_iter().filter(|record| record.offset > behind));
                    (known.end, known.stable_end) = (log.end, log.stable_end);
                }
            }
        }
        input
    }

    pub fn evidence(&self, sent: Vec<Message>) -> Evidence {
        let input = self.whole_input();
        Evidence {
            partitioning: self.partitioning,
            sent,
            output: self.broker.read(&self.output),
            dead: self.broker.read(&self.dead),
            claims: self.claims(),
            offsets: self.both_offsets(&input),
            input,
            excused: self.excused.clone(),
        }
    }

    pub fn judge(&self, sent: Vec<Message>) -> Report {
        judge(&self.evidence(sent))
    }

    /// Waits for the end of the work, and finds nothing wrong.
    pub fn check(&self, sent: Vec<Message>, within: Duration) {
        self.wait_done(within);
        let report = self.judge(sent);
        println!("{}: seed {}, {report}", self.name, self.seed);
        assert!(report.findings.is_empty(), "{}: seed {}, {report}", self.name, self.seed);
    }

    fn claims(&self) -> Vec<Claim> {
        let rows = Database::open(&self.database).query(
            r#"SELECT event_id, week_start::text, lane, position, topic, "partition", "offset"
               FROM processed_kafka_events WHERE consumer_scope_id = $1"#,
            &[&self.scope],
        );
        rows.iter()
            .map(|row| Claim {
                event: EventId::from_stored(row.get::<_, String>(0)),
                week: row.get(1),
                lane: row.get(2),
                position: row.get(3),
                topic: row.get::<_, Option<String>>(4).unwrap_or_default(),
                partition: row.get(5),
                offset: row.get(6),
            })
            .collect()
    }

    fn both_offsets(&self, input: &[Log]) -> Vec<Offsets> {
        let (committed, settled) = (self.offsets(false, true), self.offsets(true, true));
        let rows = Database::open(&self.database).query("SELECT stream, open_lane FROM semel_streams", &[]);
        let open: BTreeMap<String, Option<i64>> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let current = input.iter().filter(|log| log.generation == self.generation);
        current
            .zip(committed)
            .zip(settled)
            .map(|((log, committed), settled)| {
                let mark = settled.as_ref().and_then(|(_, metadata)| Mark::decode(metadata));
                let stream =
                    mark.map(|mark| format!("/{}/{}/{}/{}", self.group, self.input, mark.topic, log.partition));
                let found = stream.and_then(|stream| open.iter().find(|(name, _)| name.ends_with(&stream)));
                Offsets {
                    topic: log.topic.clone(),
                    partition: log.partition,
                    committed: committed.map(|(offset, _)| offset),
                    settled,
                    open_lane: found.and_then(|(_, lane)| *lane),
                    end: log.end,
                }
            })
            .collect()
    }
}
