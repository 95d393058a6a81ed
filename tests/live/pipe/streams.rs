//! Streams on one side or both: never lost, at most the last window twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use super::bench::{Bench, end, signal, wait_for};

#[test]
fn from_the_standard_input_to_the_standard_output() {
    let bench = Bench::new();
    let ran = bench.pipe_from(b"a\nb\na\n", &[]);
    ran.assert_done();
    assert_eq!(ran.out, "a\nb\n");
    let again = bench.pipe_from(b"b\nc\n\xff\n", &["-", "-"]);
    assert_eq!((again.out.as_str(), again.count("rejected")), ("c\n", 1));
    assert!(bench.read("semel-rejected.ndjson").contains("not-utf8"));
    assert_eq!(bench.pipe_from(b"\xfe\n", &[]).code, Some(1), "nothing else came");
    assert_eq!(bench.read("semel-rejected.ndjson").lines().count(), 2, "appended");
    bench.write("in", "c\nd\n");
    assert_eq!(bench.pipe(&["in"]).out, "d\n");
    assert_eq!(bench.pipe_from(b"d\ne\n", &["-", "out"]).count("forwarded"), 1);
    assert_eq!(bench.read("out"), "e\n");
    bench.pipe(&["in", "/dev/null"]).assert_done();
}

#[test]
fn a_slow_stream_is_not_kept_waiting() {
    let bench = Bench::new();
    let mut child = bench.piped(&[]);
    let (mut input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let mut output = BufReader::new(output);
    for n in 0..5 {
        writeln!(input, "line {n}").and_then(|()| input.flush()).expect("taken");
        let mut line = String::new();
        output.read_line(&mut line).expect("an answer without more input");
        assert_eq!(line, format!("line {n}\n"));
    }
    drop(input);
    end(child).assert_done();
}

#[test]
fn a_reader_that_leaves_ends_it() {
    let bench = Bench::new();
    let mut child = bench.piped(&[]);
    let mut input = child.stdin.take().expect("piped");
    drop(child.stdout.take());
    writeln!(input, "a line that nobody takes").expect("taken");
    // The input stays open and quiet: the other side alone must be enough.
    let begin = Instant::now();
    wait_for("the end", || child.try_wait().expect("a child").is_some());
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert_eq!(child.wait().expect("an end").code(), Some(1));
    // It was not answered for, so it is not claimed.
    assert_eq!(bench.pipe_from(b"a line that nobody takes\n", &[]).out, "a line that nobody takes\n");
    drop(input);
}

#[test]
fn a_signal_ends_a_quiet_stream() {
    let bench = Bench::new();
    let mut child = bench.piped(&["-", "out"]);
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "a\nb").expect("taken");
    wait_for("the lines", || std::fs::read(bench.path("out")).is_ok_and(|out| out == b"a\nb\n"));
    signal(&child, libc::SIGTERM);
    let ran = end(child);
    assert_eq!(ran.code, Some(128 + libc::SIGTERM), "{ran:?}");
    drop(input);
}

/// The stream is sent again from its beginning after each kill: the file is exact all the same.
#[test]
fn a_stream_that_is_sent_again_comes_out_once_in_a_file() {
    let bench = Bench::new();
    let lines: Vec<u8> = (0..60_000).flat_map(|n| format!("event {}\n", n % 50_000).into_bytes()).collect();
    let right: Vec<u8> = (0..50_000).flat_map(|n| format!("event {n}\n").into_bytes()).collect();
    for part in [5_000, 20_000, 40_000] {
        let mut child = bench.piped(&["--window-size", "500", "-", "out"]);
        let mut input = child.stdin.take().expect("piped");
        let cut = lines.split_inclusive(|&byte| byte == b'\n').take(part).map(<[u8]>::len).sum::<usize>();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(input.write_all(&lines[..cut])));
            wait_for("half of it", || std::fs::metadata(bench.path("out")).is_ok_and(|out| out.len() > cut as u64 / 2));
            child.kill().expect("killed");
        });
        child.wait().expect("an end");
    }
    bench.pipe_from(&lines, &["--window-size", "500", "-", "out"]).assert_done();
    assert!(std::fs::read(bench.path("out")).expect("an output") == right, "exact");
}

/// Killed with lines on their way out: none is missing, and only lines of one window come twice.
#[test]
fn a_killed_stream_repeats_at_most_a_window() {
    const WINDOW: usize = 200;
    let bench = Bench::new();
    let lines: String = (0..50_000).map(|n| format!("event {n}\n")).collect();
    bench.write("in", &lines);
    let window = WINDOW.to_string();
    let args = ["--window-size", window.as_str(), "in"];
    let mut seen = String::new();
    for lines_before_kill in [1_000, 3_000, 9_000] {
        let mut child = bench.piped(&args);
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        for _ in 0..lines_before_kill {
            output.read_line(&mut seen).expect("a line");
        }
        child.kill().expect("killed");
        child.wait().expect("an end");
        // What it wrote before it died stands in the pipe. A torn line is the last.
        output.read_to_string(&mut seen).expect("the rest");
        seen.truncate(seen.rfind('\n').map_or(0, |end| end + 1));
    }
    let rest = bench.pipe(&args);
    rest.assert_done();
    seen.push_str(&rest.out);
    let mut copies = std::collections::HashMap::<&str, usize>::new();
    seen.lines().for_each(|line| *copies.entry(line).or_default() += 1);
    assert_eq!(copies.len(), 50_000, "none is lost");
    let twice = copies.values().filter(|&&copies| copies > 1).count();
    assert!(twice <= 3 * WINDOW, "{twice} lines came twice in three kills");
}
