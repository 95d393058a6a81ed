//! How fast Semel is, always beside its ceilings in the same run: a plain transactional copy, and raw window inserts.
//!
//! Started by tests/bench/run. Everything is measured from the assignment of the partitions to the last commit, on a
//! topic that was filled before; the client settings of the copy are the daemon's own. The first round is not counted.

#[path = "../support/mod.rs"]
mod support;

mod ceilings;
mod ingest;
mod measure;
mod pipe;
mod queues;
mod scenes;

use measure::Table;
use scenes::Scene;

/// The daemon's own, so that the copy has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "tests/bench/run [--rounds N] [--messages N] [SCENE…]

scenes:
  base        copy, raw inserts, Semel over PostgreSQL, Semel embedded (default)
  loaded      the same with 20 million claims in the week already
  partitions  1, 2, 4 partitions
  instances   1, 2 instances over 4 partitions
  duplicates  0, 30, 90 % duplicates
  sizes       values of 100 B, 512 B, 10 KiB
  pipe        semel pipe, file to file
  queues      RabbitMQ to RabbitMQ: copy, Semel over PostgreSQL, Semel embedded; a quarter of the messages
  ingest      semel ingest, over HTTP: windows of 1 and 256, 64 callers, memory
  all         every one of them

Settings in its environment (SEMEL_*) are the daemons' too: SEMEL_WINDOW_MESSAGES=1000 tests/bench/run";

fn main() {
    let (mut rounds, mut messages, mut names) = (3, 400_000, Vec::new());
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, broker, input, output, messages] = &given[..]
        && let Some(copy) = match flag.as_str() {
            "--copy" => Some(ceilings::copy_here as fn(&str, &str, &str, u64)),
            "--copy-queue" => Some(queues::copy_here as _),
            _ => None,
        }
    {
        return copy(broker, input, output, messages.parse().expect("a number"));
    }
    let mut arguments = given.into_iter();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
        match argument.as_str() {
            "--rounds" => rounds = number().unwrap_or(rounds),
            "--messages" => messages = number().unwrap_or(messages),
            "--help" => return println!("{USAGE}"),
            name => names.push(name.to_owned()),
        }
    }
    if names.is_empty() {
        names.push("base".to_owned());
    }
    let all = ["base", "loaded", "partitions", "instances", "duplicates", "sizes", "pipe", "queues", "ingest"];
    if names == ["all"] {
        names = all.map(str::to_owned).to_vec();
    }
    let mut warm = false;
    for name in names {
        if !all.contains(&name.as_str()) {
            eprintln!("no scene {name}\n\n{USAGE}");
            std::process::exit(64);
        }
        if name == "pipe" {
            pipe::run(rounds);
            continue;
        }
        if name == "queues" {
            queues::run(rounds, messages / 4);
            continue;
        }
        if name == "ingest" {
            ingest::run(rounds);
            continue;
        }
        for mut scene in Scene::named(&name, messages) {
            scene.load();
            // A broker that has just been started compiles itself for a while.
            if !std::mem::replace(&mut warm, true) {
                scene.run(&mut Table::new(&scene));
            }
            let mut table = Table::new(&scene);
            for _ in 0..rounds {
                scene.run(&mut table);
            }
            println!("{table}");
        }
    }
}
