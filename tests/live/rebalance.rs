//! Members that come and go without end. Every event comes through once, and committed offsets never go back.

use std::time::{Duration, Instant};

use crate::load::Endless;
use crate::support::daemon::Daemon;
use crate::support::random::Random;
use crate::support::world::World;
use crate::{MINUTE, full};

fn come_and_go(name: &str, strategy: &str) {
    let mut world = World::new(name, 12);
    world.set("SEMEL_ASSIGNMENT", strategy);
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, 10_000, 600);
    let mut members: Vec<Daemon> = vec![world.daemon("m0")];
    let (for_so_long, pause) = if full() { (240, 5_000) } else { (30, 2_500) };
    let begun = Instant::now();
    let mut last = vec![0; 12];
    let mut named = 1;
    while begun.elapsed() < Duration::from_secs(for_so_long) {
        feed.keep_on();
        let leaves = members.len() >= 4 || (members.len() >= 2 && random.percent(50));
        if leaves {
            let member = members.remove(random.among(0..members.len() as u64) as usize);
            if random.percent(30) { member.kill() } else { member.stop() }
        } else {
            members.push(world.daemon_unready(&format!("m{named}")));
            named += 1;
        }
        let until = Instant::now() + Duration::from_millis(random.among(pause / 2..pause));
        while Instant::now() < until {
            let now: Vec<i64> = world.offsets(false, false).into_iter().map(|found| found.map_or(0, |o| o.0)).collect();
            for (partition, (was, is)) in last.iter().zip(&now).enumerate() {
                assert!(was <= is, "the committed offset of partition {partition} went back from {was} to {is}");
            }
            last = now;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    world.check(feed.finish(), 2 * MINUTE);
    // Only then does a member keep partitions while others move.
    let logs = std::fs::read_dir(&world.folder).expect("logs").map(|entry| entry.expect("a log").path());
    let kept = logs.map(|log| std::fs::read_to_string(log).expect("a log")).any(|log| {
        let lines = log.lines().filter(|line| line.contains("partitions were"));
        lines.into_iter().any(|line| !line.contains(r#""retained":0,"#))
    });
    assert_eq!(kept, strategy == "cooperative");
    members.into_iter().for_each(Daemon::stop);
}

#[test]
fn eager() {
    come_and_go("eager", "eager");
}

#[test]
fn cooperative() {
    come_and_go("coop", "cooperative");
}
