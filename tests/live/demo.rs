//! `semel demo`: README's first command. Needs no services.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::pipe::bench::{end, semel, signal, wait_for};
use crate::support::random::seed;

fn demo(temporary: &Path, args: &[&str]) -> Command {
    let mut command = semel(temporary, &[&["demo"], args].concat());
    command.env("TMPDIR", temporary).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").next().is_none()
}

/// Processes that have this folder on their command line.
fn users_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("text");
    let processes = std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let command_lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let command_lines = command_lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    command_lines.filter(|line| line.contains(folder)).collect()
}

#[test]
fn it_proves_what_it_shows_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let seed = seed().to_string();
    let ran =
        end(demo(folder.path(), &["--messages", "150000", "--kills", "4", "--seed", &seed]).spawn().expect("runs"));
    ran.assert_done();
    let count = |name: &str| {
        let line = ran.out.lines().map(str::trim).find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().last()).unwrap_or_else(|| panic!("{name}: {ran:?}"));
        number.replace(',', "").parse::<u64>().expect("a number")
    };
    assert_eq!(count("sent"), 150_000);
    assert!((100_000..110_000).contains(&count("distinct")), "about 30 % repeat: {ran:?}");
    assert_eq!(count("forwarded"), count("distinct"));
    assert_eq!((count("lost"), count("doubled")), (0, 0));
    assert_eq!(ran.out.matches("killed      with").count(), 4, "{ran:?}");
    assert!(is_empty(folder.path()), "left behind");
}

#[test]
fn interrupted_it_leaves_nothing_behind() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let child = at_work(folder.path());
        signal(&child, number);
        let ran = end(child);
        assert_eq!(ran.code, Some(128 + number), "{ran:?}");
        assert!(is_empty(folder.path()), "left behind");
        assert_eq!(users_of(folder.path()), [""; 0]);
    }
}

#[test]
fn its_child_does_not_outlive_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = at_work(folder.path());
    child.kill().expect("killed");
    child.wait().expect("an end");
    wait_for("the child to go too", || users_of(folder.path()).is_empty());
}

/// Of what lies beside it, only what a dead demo left is the next one's to remove.
#[test]
fn the_next_one_removes_what_a_killed_one_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = at_work(folder.path());
    let killed = std::fs::read_dir(folder.path()).expect("a folder").next().expect("one").expect("an entry").path();
    let lock = File::open(killed.join("semel-demo.lock")).expect("a lock");
    assert!(lock.try_lock().is_err(), "held by a demo that lives");
    child.kill().expect("killed");
    child.wait().expect("an end");
    wait_for("the child to go too", || users_of(folder.path()).is_empty());
    assert!(killed.join("sent.ndjson").exists(), "left behind");
    let [of_the_living, of_somebody] = ["semel-demo-1-living", "semel-demo-data"].map(|name| folder.path().join(name));
    for other in [&of_the_living, &of_somebody] {
        std::fs::create_dir(other).and_then(|()| std::fs::write(other.join("sent.ndjson"), "mine")).expect("made");
    }
    let held = File::create(of_the_living.join("semel-demo.lock")).expect("a lock");
    held.try_lock().expect("nobody has it");
    end(demo(folder.path(), &["--messages", "1000", "--kills", "0"]).spawn().expect("runs")).assert_done();
    assert!(!killed.exists(), "removed");
    assert!([of_the_living, of_somebody].iter().all(|other| other.join("sent.ndjson").exists()), "and nothing else");
}

/// A demo whose job has begun to write.
fn at_work(folder: &Path) -> Child {
    let child = demo(folder, &["--messages", "1000000", "--kills", "0"]).spawn().expect("runs");
    wait_for("the job", || {
        let demos = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
        let lengths =
            demos.map(|demo| std::fs::metadata(demo.path().join("forwarded.ndjson")).map_or(0, |out| out.len()));
        lengths.sum::<u64>() > 0
    });
    assert!(!users_of(folder).is_empty(), "a child is at work");
    child
}
