//! What is run: a topic, and who competes on it.

use std::time::{Duration, Instant};

use crate::ceilings;
use crate::measure::{COPY, EMBEDDED, INSERTS, POSTGRES, Run, Table, cpu_of, idle_of_machine, memory_of};
use crate::support::broker::Broker;
use crate::support::daemon::{Daemon, Settings, run_well};
use crate::support::database::Database;
use crate::support::feed;
use crate::support::generator::{Recipe, Spread};
use crate::support::services::Services;
use crate::support::unique;

#[derive(Debug, Clone)]
pub struct Scene {
    pub title: String,
    pub messages: u64,
    pub partitions: i32,
    pub instances: usize,
    pub duplicates_percent: u32,
    pub value_bytes: usize,
    /// Claims that are in the present week before.
    pub loaded: u64,
    /// URL of the database that every store is a copy of: what [`Scene::load`] made.
    template: Option<String>,
    pub ceilings: bool,
}

/// A topic that was filled.
pub struct Topic {
    pub kafka: String,
    pub name: String,
    pub messages: u64,
}

impl Scene {
    pub fn named(name: &str, messages: u64) -> Vec<Scene> {
        let base = Scene {
            title: String::new(),
            messages,
            partitions: 4,
            instances: 1,
            duplicates_percent: 30,
            value_bytes: 512,
            loaded: 0,
            template: None,
            ceilings: true,
        };
        let titled = |scene: Scene, title: String| Scene { title, ..scene };
        match name {
            "loaded" => {
                let loaded = Scene { loaded: 20_000_000, ..base };
                vec![titled(loaded, "20 million claims in the week already".to_owned())]
            }
            "partitions" => [1, 2, 4]
                .map(|partitions| titled(Scene { partitions, ..base.clone() }, format!("{partitions} partitions")))
                .to_vec(),
            "instances" => [1, 2]
                .map(|instances| titled(Scene { instances, ..base.clone() }, format!("{instances} instances")))
                .to_vec(),
            "duplicates" => [0, 30, 90]
                .map(|percent| {
                    titled(Scene { duplicates_percent: percent, ..base.clone() }, format!("{percent} % duplicates"))
                })
                .to_vec(),
            "sizes" => [(100, messages), (512, messages), (10_240, messages / 8)]
                .map(|(value_bytes, messages)| {
                    titled(Scene { value_bytes, messages, ..base.clone() }, format!("values of {value_bytes} bytes"))
                })
                .to_vec(),
            _ => {
                let title = format!("{messages} messages of 512 bytes, 4 partitions, 30 % duplicates");
                vec![titled(base, title)]
            }
        }
    }

    pub fn recipe(&self) -> Recipe {
        let mut recipe = Recipe::new(7, self.messages, self.partitions);
        recipe.duplicates_percent = self.duplicates_percent;
        recipe.spread = Spread::SamePartition;
        recipe.value_bytes = self.value_bytes;
        recipe
    }

    /// One round: each contender once, on one topic, each with an output, a group and a store of its own.
    pub fn run(&self, table: &mut Table) {
        let services = Services::shared();
        let broker = Broker(services.kafka.clone());
        let name = unique("bench");
        broker.make_topic(&name, self.partitions, &[]);
        feed::stream_all(&services.kafka, &name, self.recipe().iter());
        let topic = Topic { kafka: services.kafka.clone(), name, messages: self.messages };
        let output = || {
            let name = unique("bench-out");
            broker.make_topic(&name, self.partitions, &[]);
            name
        };
        if self.ceilings {
            table.add(COPY, ceilings::copy(&topic, &output()));
            let database = self.database(&services);
            table.add(INSERTS, ceilings::inserts(self, &database));
        }
        let database = self.database(&services);
        table.add(POSTGRES, self.daemon(&services, &topic, &output(), &format!("{database}?sslmode=disable")));
        if self.instances == 1 && self.loaded == 0 {
            let folder = tempfile::tempdir().expect("a folder");
            let store = format!("embedded:{}", folder.path().join("claims").display());
            table.add(EMBEDDED, self.daemon(&services, &topic, &output(), &store));
        }
        broker.delete_topic(&topic.name);
    }

    /// A fresh database, migrated, with its weeks made and what is to be in them.
    fn database(&self, services: &Services) -> String {
        let Some(template) = &self.template else {
            let url = services.make_database();
            let mut settings = Settings::new();
            settings.insert("SEMEL_STORE".to_owned(), format!("{url}?sslmode=disable"));
            run_well(&["migrate"], &settings);
            run_well(&["partitions", "--ensure"], &settings);
            return url;
        };
        let (base, name) = template.rsplit_once('/').expect("a URL with a database");
        let copy = unique("bench").replace('-', "_");
        Database::open(&services.postgres).execute(&format!("CREATE DATABASE {copy} TEMPLATE {name}"));
        format!("{base}/{copy}")
    }

    /// Makes, once, the database with the claims that are to be there before: the rows first, then their index. They are
    /// of the same scope, so that new claims fall between them.
    pub fn load(&mut self) {
        if self.loaded == 0 {
            return;
        }
        let url = self.database(&Services::shared());
        let database = Database::open(&url);
        let name =
            "SELECT to_char(date_trunc('week', now() AT TIME ZONE 'UTC'), '\"processed_kafka_events_\"YYYYMMDD')";
        let week: String = database.query(name, &[])[0].get(0);
        let loaded = self.loaded;
        for statement in [
            format!("ALTER TABLE processed_kafka_events DETACH PARTITION {week}"),
            format!("ALTER TABLE {week} DROP CONSTRAINT {week}_pkey"),
            format!(
                r#"INSERT INTO {week}
                       (consumer_scope_id, first_seen_at, event_id, week_start, lane, position, topic, "partition", "offset")
                   SELECT 'bench', now(), gen_random_uuid()::text, date_trunc('week', now() AT TIME ZONE 'UTC')::date,
                          1, n, 'loaded', 0, n
                   FROM generate_series(1, {loaded}) AS n"#
            ),
            format!("ALTER TABLE {week} ADD PRIMARY KEY (consumer_scope_id, event_id, week_start)"),
            format!(
                "DO $$ DECLARE monday date := date_trunc('week', now() AT TIME ZONE 'UTC')::date; BEGIN
                     EXECUTE format('ALTER TABLE processed_kafka_events ATTACH PARTITION {week}
                         FOR VALUES FROM (%L) TO (%L)', monday, monday + 7);
                 END $$"
            ),
        ] {
            database.execute(&statement);
        }
        self.template = Some(url);
    }

    fn daemon(&self, services: &Services, topic: &Topic, output: &str, store: &str) -> Run {
        let folder = tempfile::tempdir().expect("a folder");
        let group = unique("bench-group");
        let kafka = &services.kafka;
        let dead = unique("bench-dead");
        Broker(kafka.clone()).make_topic(&dead, 1, &[]);
        let mut settings: Settings = [
            ("SEMEL_SOURCE", format!("kafka://{kafka}/{}?group={group}", topic.name)),
            ("SEMEL_SINK", format!("kafka://{kafka}/{output}")),
            ("SEMEL_STORE", store.to_owned()),
            ("SEMEL_SCOPE", "bench".to_owned()),
            ("SEMEL_EVENT_ID", "header:ce_id".to_owned()),
            ("SEMEL_EVENT_TIME", "record".to_owned()),
            ("SEMEL_DEAD_LETTER", dead),
            ("SEMEL_LOG", "warn".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        settings.extend(std::env::vars().filter(|(name, _)| tried(name)));
        let mut daemons: Vec<Daemon> =
            (0..self.instances).map(|n| Daemon::start(folder.path(), &format!("bench-{n}"), &settings)).collect();
        let begun = daemons.iter_mut().map(ready_at).min().expect("an instance");
        let cpu: Duration = daemons.iter().map(|daemon| cpu_of(daemon.pid())).sum();
        let idle = idle_of_machine();
        let total = |name: &str| daemons.iter().map(|daemon| daemon.metric(name, &[])).sum::<f64>();
        while total("semel_read_messages_total") < self.messages as f64 {
            assert!(begun.elapsed() < Duration::from_secs(600), "the daemon is stuck:\n{}", daemons[0].tail());
            // Asked seldom: to answer costs the daemon time that is counted.
            std::thread::sleep(Duration::from_millis(50));
        }
        let time = begun.elapsed();
        let phases = ["gather", "reserve", "publish", "commit"].map(|phase| {
            let label = format!(r#"phase="{phase}""#);
            let spent = |daemon: &Daemon| daemon.metric("semel_phase_seconds_sum", &[&label]);
            format!("{phase} {:.1} s", daemons.iter().map(spent).sum::<f64>())
        });
        let idle = (idle_of_machine() - idle).as_secs_f64();
        eprintln!(
            "busy: {} of {:.1} s; the machine's processors idle {idle:.1} s",
            phases.join(", "),
            time.as_secs_f64()
        );
        Run {
            messages: self.messages,
            time,
            cpu: daemons.iter().map(|daemon| cpu_of(daemon.pid())).sum::<Duration>() - cpu,
            memory_kib: daemons.iter().map(|daemon| memory_of(daemon.pid())).max().unwrap_or(0),
            commits: total("semel_store_commits_total") as u64,
            windows: total("semel_windows_total") as u64,
        }
    }
}

/// A setting of the benchmark's caller, to be measured.
pub fn tried(name: &str) -> bool {
    name.starts_with("SEMEL_") && !name.starts_with("SEMEL_TEST_")
}

/// When a daemon was given its partitions, to a few milliseconds.
pub fn ready_at(daemon: &mut Daemon) -> Instant {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let asked = Instant::now();
        if daemon.get("/readyz").is_some_and(|(status, _)| status == 200) {
            return asked;
        }
        assert!(asked < patience && daemon.has_ended().is_none(), "the daemon does not start:\n{}", daemon.tail());
        std::thread::sleep(Duration::from_millis(2));
    }
}
