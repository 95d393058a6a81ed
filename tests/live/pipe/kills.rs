//! Killed over and over at random moments, from file to file: exact all the same.

use std::collections::HashSet;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use super::bench::Bench;
use crate::support::random::{Random, seed};

/// Lines of every shape; what is to come out; the numbers of those that are rejected.
fn feed(random: &mut Random, lines: u64) -> (String, String, Vec<u64>) {
    let (mut sent, mut right, mut rejected) = (String::new(), String::new(), Vec::new());
    let (mut claimed, mut events) = (HashSet::new(), 0);
    for n in 1..=lines {
        let end = if random.percent(10) { "\r\n" } else { "\n" };
        if random.percent(1) {
            sent.push_str(end);
            continue;
        }
        if random.percent(2) {
            write!(sent, "{{\"n\":{n}}}{end}").expect("memory");
            rejected.push(n);
            continue;
        }
        let event = if events > 0 && random.percent(30) { random.among(0..events) } else { events };
        events = events.max(event + 1);
        let line =
            format!("{{\"id\":\"event-{event}\",\"n\":{n},\"pad\":\"{}\"}}{end}", "p".repeat((n % 120) as usize));
        if claimed.insert(event) {
            right.push_str(&line);
        }
        sent.push_str(&line);
    }
    (sent, right, rejected)
}

/// Lines that a start does on average before it is killed.
const LINES_PER_START: u64 = 5_000;

#[test]
fn at_least_twenty_kills_at_random_moments() {
    let lines = if crate::full() { 1_500_000 } else { 300_000 };
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let bench = Bench::new();
    let (sent, right, rejected) = feed(&mut random, lines);
    bench.write("in", &sent);
    let length = || std::fs::metadata(bench.path("out")).map_or(0, |out| out.len());
    let (mut struck, mut early, mut cuts) = (0, 0, 0);
    loop {
        let before = length();
        // Windows of many sizes, so that every step has its share of the time.
        let size = ["200", "1000", "5000"][random.among(0..3) as usize];
        let args = ["--event-id", "json:/id", "--window-size", size, "--log", "info", "in", "out"];
        let mut command = bench.command(&args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        // Now and then in its first moments; else after some lines.
        let share = right.len() as u64 * LINES_PER_START / lines;
        let goal = if random.percent(10) { 0 } else { before + random.among(0..2 * share) };
        while goal > 0 && length() <= goal && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_micros(300));
        }
        std::thread::sleep(Duration::from_micros(random.among(0..8_000)));
        child.kill().expect("a child");
        let ended = child.wait_with_output().expect("an end");
        let log = String::from_utf8_lossy(&ended.stderr).into_owned();
        cuts += u64::from(log.contains("cut off what was not committed"));
        if ended.status.success() {
            break;
        }
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "it did not die of the kill: {log}");
        // At work: past its preparations, not at its end.
        if length() != before { struck += 1 } else { early += 1 }
    }
    println!("{struck} kills at work, {early} before that, {cuts} starts that cut off a window's rest");
    assert!(struck >= 20, "{struck} kills are too few");
    assert!(cuts > 0, "no kill hit a window between its write and its commit");
    let out = bench.read("out");
    let place = out.lines().zip(right.lines()).position(|(out, right)| out != right);
    assert!(out == right, "differs first in line {place:?}; {} bytes, should be {}", out.len(), right.len());
    let found: Vec<u64> = bench.read("out.rejected").lines().map(number).collect();
    assert_eq!(found, rejected, "the rejected lines are exact too");
    assert_eq!(bench.pipe(&["--event-id", "json:/id", "in", "out"]).count("forwarded"), 0);
}

fn number(record: &str) -> u64 {
    let record: serde_json::Value = serde_json::from_str(record).expect("JSON");
    record["line"].as_u64().expect("a number")
}
