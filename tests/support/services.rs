//! The real services: those that `tests/run` started for everybody, or an installation of a test's own, which it may
//! stop and start without harm to others.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::daemon::Handle;
use super::database::Database;
use super::unique;

#[derive(Debug, Clone)]
pub struct Services {
    /// The services' state and logs.
    pub folder: PathBuf,
    /// host:port
    pub kafka: String,
    /// URL of a role that may make databases, at a database that is there.
    pub postgres: String,
    pub rabbitmq: RabbitMq,
    /// `nats://USER:PASSWORD@HOST:PORT`
    pub nats: String,
}

#[derive(Debug, Clone)]
pub struct RabbitMq {
    /// `amqp://USER:PASSWORD@HOST:PORT/%2f`
    pub url: String,
    /// The management interface: `http://USER:PASSWORD@HOST:PORT`
    pub management: String,
}

impl Services {
    /// Those of the environment.
    pub fn shared() -> Services {
        Services::told(|_| None)
    }

    /// What is not told is the environment's. Empty is what was not started: a part of the tests needs a part of them.
    fn told(told: impl Fn(&str) -> Option<String>) -> Services {
        let variable = |name: &str| told(name).or_else(|| std::env::var(name).ok()).unwrap_or_default();
        Services {
            folder: self::variable("SEMEL_TEST_SERVICES").into(),
            kafka: variable("SEMEL_TEST_KAFKA"),
            postgres: variable("SEMEL_TEST_POSTGRES"),
            rabbitmq: RabbitMq {
                url: variable("SEMEL_TEST_RABBITMQ"),
                management: variable("SEMEL_TEST_RABBITMQ_MANAGEMENT"),
            },
            nats: variable("SEMEL_TEST_NATS"),
        }
    }

    pub fn kafka_port(&self) -> u16 {
        port_of(&self.kafka)
    }

    pub fn postgres_port(&self) -> u16 {
        port_of(&self.postgres)
    }

    /// Makes an empty database and answers its URL.
    pub fn make_database(&self) -> String {
        let name = unique("t").replace('-', "_");
        Database::open(&self.postgres).execute(&format!("CREATE DATABASE {name}"));
        let (base, _) = self.postgres.rsplit_once('/').expect("a URL with a database");
        format!("{base}/{name}")
    }
}

/// An installation of a test's own; gone with it, whether it passes, panics or is killed.
pub struct OwnServices {
    pub services: Services,
    dir: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy)]
pub enum Service {
    /// Kafka's controller as a process of its own: for tests that kill the broker, see tests/services.d/kafka.py.
    Controller,
    Kafka,
    Postgres,
    RabbitMq,
    Nats,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Controller => "controller",
            Service::Kafka => "kafka",
            Service::Postgres => "postgres",
            Service::RabbitMq => "rabbitmq",
            Service::Nats => "nats",
        }
    }
}

impl OwnServices {
    /// Starts these, and takes the others from the environment.
    pub fn start(own: &[Service]) -> OwnServices {
        let dir = tempfile::Builder::new().prefix("semel-own-").tempdir().expect("a temporary folder");
        let owner = std::process::id().to_string();
        let names = own.iter().map(|service| format!("--{}", service.name()));
        let arguments = ["--owner".to_owned(), owner].into_iter().chain(names).collect::<Vec<_>>();
        // There before the first of them, so that whatever fails from here on ends them, and before their folder goes.
        let mut own = OwnServices { services: Services::shared(), dir };
        let answer = command("up", own.dir.path(), &arguments);
        own.services = Services::told(|name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            line.map(|value| value.trim_matches('\'').to_owned())
        });
        own
    }

    /// Ends a service: hard (as a crash does), or in its own time.
    pub fn stop(&self, service: Service, hard: bool) {
        let hard =
            if hard { vec![service.name().to_owned(), "--hard".to_owned()] } else { vec![service.name().into()] };
        command("stop", self.dir.path(), &hard);
    }

    /// The process that runs now, for who has to end it at a certain moment. Its end may go unnoticed here.
    pub fn handle(&self, service: Service) -> Handle {
        let env = std::fs::read_to_string(self.dir.path().join("env")).expect("services that run");
        let name = format!("export SEMEL_TEST_{}_PID=", service.name().to_uppercase());
        Handle(env.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("a service that runs"))
    }

    /// RabbitMQ's own tool, on this installation's node.
    pub fn rabbitmqctl(&self, arguments: &[&str]) {
        let state = std::fs::read_to_string(self.dir.path().join("state.json")).expect("services");
        let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
        let debian = Path::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        let output = Command::new(if debian.exists() { debian } else { Path::new("rabbitmqctl") })
            .args(["--node", state["rabbitmq"]["node"].as_str().expect("a name")])
            .args(arguments)
            .env("HOME", self.dir.path().join("rabbitmq"))
            .env("ERL_EPMD_PORT", state["epmd"]["port"].to_string())
            .output()
            .expect("rabbitmqctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Brings it back on its port with its data, and waits until it answers.
    pub fn bring_back(&self, service: Service) {
        command("start", self.dir.path(), &[service.name().to_owned()]);
    }
}

impl Drop for OwnServices {
    fn drop(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services");
        drop(Command::new(script).arg("down").arg(self.dir.path()).output());
    }
}

fn command(what: &str, dir: &Path, arguments: &[String]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services");
    let output = Command::new(script).arg(what).arg(dir).args(arguments).output().expect("tests/services runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tests/services {what}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run tests/run"))
}

/// The port in host:port or in a URL that names one.
pub fn port_of(address: &str) -> u16 {
    let (_, after) = address.rsplit_once(':').expect("an address with a port");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}
