//! From file to file: what is remembered, what goes on, what is refused.

use super::bench::{Bench, end, semel, signal, wait_for};

const DAY_1: &str = "{\"id\":1,\"n\":1}\n{\"id\":2}\n{\"id\":1,\"n\":2}\n{\"id\":3}\n";
const DAY_2: &str = "{\"id\":3}\n{\"id\":4}\n{\"id\":2}\n";
const BY_ID: [&str; 2] = ["--event-id", "json:/id"];

#[test]
fn without_options_each_line_comes_once_and_is_remembered() {
    let bench = Bench::new();
    bench.write("in", "a\nb\na\nc\n");
    let ran = bench.pipe(&["in", "out"]);
    ran.assert_done();
    assert_eq!(bench.read("out"), "a\nb\nc\n");
    assert_eq!((ran.count("read"), ran.count("forwarded")), (4, 3));
    assert_eq!((ran.count("duplicates"), ran.count("rejected")), (1, 0));
    assert!(bench.exists("semel-claims"), "the store's default folder");
    assert!(!bench.exists("out.rejected"), "nothing was rejected");

    let again = bench.pipe(&["in", "out"]);
    again.assert_done();
    assert_eq!((again.count("forwarded"), again.count("duplicates")), (0, 4));
    assert_eq!(bench.read("out"), "a\nb\nc\n");
}

#[test]
fn a_finished_output_takes_a_further_input() {
    let bench = Bench::new();
    bench.write("day1", DAY_1);
    bench.write("day2", DAY_2);
    bench.pipe(&[&BY_ID[..], &["day1", "out"]].concat()).assert_done();
    let second = bench.pipe(&[&BY_ID[..], &["day2", "out"]].concat());
    assert_eq!((second.count("forwarded"), second.count("duplicates")), (1, 2));
    assert_eq!(bench.read("out"), "{\"id\":1,\"n\":1}\n{\"id\":2}\n{\"id\":3}\n{\"id\":4}\n");
    // Another output of the same store knows what was forwarded to this one; another scope does not.
    let other = bench.pipe(&[&BY_ID[..], &["day1", "other"]].concat());
    assert_eq!((other.count("forwarded"), bench.read("other").as_str()), (0, ""));
    let scoped = bench.pipe(&[&BY_ID[..], &["--scope", "audit", "day1", "scoped"]].concat());
    assert_eq!(scoped.count("forwarded"), 3);
}

#[test]
fn an_output_that_was_taken_away_after_its_end_is_begun_anew() {
    let bench = Bench::new();
    bench.write("day1", DAY_1);
    bench.write("day2", DAY_2);
    bench.pipe(&[&BY_ID[..], &["day1", "out"]].concat()).assert_done();
    std::fs::rename(bench.path("out"), bench.path("archive")).expect("renamed");
    bench.pipe(&[&BY_ID[..], &["day2", "out"]].concat()).assert_done();
    assert_eq!(bench.read("out"), "{\"id\":4}\n");
}

/// Unfinished, because a line without an id stops it.
fn unfinished(bench: &Bench) {
    bench.write("in", "{\"id\":1}\n{\"id\":2}\n{}\n{\"id\":3}\n");
    let ran = bench.pipe(&["--event-id", "json:/id", "--missing-id", "stop", "in", "out"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("line 3") && ran.err.contains("byte 18"), "{ran:?}");
    assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n");
}

#[test]
fn an_unfinished_job_goes_on_with_its_own_input_alone() {
    let bench = Bench::new();
    unfinished(&bench);
    bench.write("other", DAY_2);
    let refused = bench.pipe(&["--event-id", "json:/id", "other", "out"]);
    refused.assert_refused(&["/out", "/in", "/other", "line 3"]);
    let from_stream = bench.pipe_from(b"{\"id\":9}\n", &["--event-id", "json:/id", "-", "out"]);
    from_stream.assert_refused(&["/out", "/in", "standard input"]);
    assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n", "refusals change nothing");

    let elsewhere =
        bench.pipe(&["--event-id", "json:/id", "--missing-id", "reject", "--dead-letter", "dead", "in", "out"]);
    elsewhere.assert_done();
    let elsewhere = bench.read("dead");
    assert_eq!(elsewhere.lines().count(), 1);
}

#[test]
fn rejected_lines_of_one_job_stay_together() {
    let bench = Bench::new();
    bench.write("in", "{}\n{\"id\":1}\n[]\n".repeat(2) + "{\"id\":2,\"at\":3}\n");
    let by_time = ["--event-id", "json:/id", "--event-time", "json:/at", "--missing-time", "stop"];
    let stopped = bench.pipe(&[&by_time[..], &["in", "out"]].concat());
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert_eq!(bench.read("out.rejected").lines().count(), 1);
    let elsewhere = bench.pipe(&[&by_time[..], &["--dead-letter", "dead", "in", "out"]].concat());
    elsewhere.assert_refused(&["/out.rejected", "/dead"]);
}

#[test]
fn an_input_may_be_renamed_while_its_job_is_unfinished() {
    let bench = Bench::new();
    unfinished(&bench);
    bench.write("other", DAY_2);
    // Under another name it is the same file.
    std::fs::rename(bench.path("in"), bench.path("moved")).expect("renamed");
    let rest = bench.pipe(&["--event-id", "json:/id", "moved", "out"]);
    rest.assert_done();
    assert_eq!((rest.count("read"), rest.count("forwarded"), rest.count("rejected")), (2, 1, 1));
    assert_eq!(rest.count("in all"), 4);
    assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n");
    bench.pipe(&["--event-id", "json:/id", "other", "out"]).assert_done();
}

#[test]
fn an_input_that_was_changed_before_its_position_is_refused() {
    type Deed = fn(&Bench);
    let deeds: [(&str, Deed, &str); 3] = [
        ("changed in place", |bench| bench.write("in", "{\"id\":1}\n{\"id\":7}\n{}\n{\"id\":3}\n"), "was changed"),
        ("cut short", |bench| bench.write("in", "{\"id\":1}\n"), "was changed"),
        (
            "replaced by its copy",
            |bench| {
                std::fs::copy(bench.path("in"), bench.path("copy")).expect("copied");
                std::fs::rename(bench.path("copy"), bench.path("in")).expect("replaced");
            },
            "another input",
        ),
    ];
    for (what, deed, words) in deeds {
        let bench = Bench::new();
        unfinished(&bench);
        deed(&bench);
        let ran = bench.pipe(&["--event-id", "json:/id", "in", "out"]);
        assert_eq!(ran.code, Some(64), "{what}: {ran:?}");
        assert!(ran.err.contains(words), "{what}: {ran:?}");
        assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n", "{what}");
    }
}

#[test]
fn an_output_that_is_not_the_recorded_one_is_never_touched() {
    type Deed = fn(&Bench);
    let deeds: [(&str, bool, Deed, &str); 7] = [
        ("shorter", false, |bench| bench.write("out", "{\"id\":1}\n"), "fewer"),
        ("shorter, finished", true, |bench| bench.write("out", "{\"id\":1}\n"), "fewer"),
        ("emptied", true, |bench| bench.write("out", ""), "fewer"),
        ("other bytes", false, |bench| bench.write("out", "{\"id\":1}\n{\"ID\":2}\n"), "was changed"),
        (
            "longer, finished",
            true,
            |bench| bench.write("out", "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\nmine\n"),
            "more than",
        ),
        (
            "replaced by its copy",
            false,
            |bench| {
                std::fs::copy(bench.path("out"), bench.path("copy")).expect("copied");
                std::fs::rename(bench.path("copy"), bench.path("out")).expect("replaced");
            },
            "replaced",
        ),
        ("gone", false, |bench| std::fs::remove_file(bench.path("out")).expect("removed"), "is gone"),
    ];
    for (what, finished, deed, words) in deeds {
        let bench = Bench::new();
        unfinished(&bench);
        if finished {
            bench.pipe(&["--event-id", "json:/id", "in", "out"]).assert_done();
        }
        deed(&bench);
        let before = std::fs::read(bench.path("out")).ok();
        let ran = bench.pipe(&["--event-id", "json:/id", "in", "out"]);
        ran.assert_refused(&["/out", words]);
        assert_eq!(std::fs::read(bench.path("out")).ok(), before, "{what}");
    }
}

/// An unfinished job whose output was taken away: what the refusal names helps, and nothing was lost by it.
#[test]
fn an_unfinished_job_is_gone_on_with_or_given_up() {
    let by_id = ["--event-id", "json:/id"];
    let run = |bench: &Bench, rest: &[&str]| bench.pipe(&[&by_id[..], rest].concat());
    let taken_away = || {
        let bench = Bench::new();
        unfinished(&bench);
        std::fs::rename(bench.path("out"), bench.path("elsewhere")).expect("renamed");
        let refused = run(&bench, &["in", "out"]);
        refused.assert_refused(&["/out is gone", "move the former file back", "name another output", "--store"]);
        bench
    };
    let bench = taken_away();
    std::fs::rename(bench.path("elsewhere"), bench.path("out")).expect("renamed");
    run(&bench, &["in", "out"]).assert_done();
    assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n");

    let bench = taken_away();
    run(&bench, &["in", "other"]).assert_done();
    assert_eq!(bench.read("other"), "{\"id\":3}\n", "what was not claimed yet");

    let bench = taken_away();
    run(&bench, &["--store", "embedded:./second", "in", "other"]).assert_done();
    assert_eq!(bench.read("other"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n", "everything");

    let bench = Bench::new();
    unfinished(&bench);
    bench.write("out", "{\"id\":1}\n");
    run(&bench, &["in", "out"]).assert_refused(&["fewer", "write the former bytes into it again"]);
    bench.write("out", "{\"id\":1}\n{\"id\":2}\n");
    run(&bench, &["in", "out"]).assert_done();
}

/// Once its job is finished, an output may be anywhere: the next run begins a new one.
#[test]
fn a_finished_output_that_was_changed_is_moved_away_or_cut_back() {
    let bench = Bench::new();
    let run = |input: &str| bench.pipe(&["--event-id", "json:/id", input, "out"]);
    bench.write("day1", DAY_1);
    bench.write("day2", DAY_2);
    run("day1").assert_done();
    let right = bench.read("out");
    bench.write("out", format!("{right}mine\n"));
    let length = right.len();
    run("day2").assert_refused(&["more than", &format!("cut it back to {length} bytes"), "move it away"]);
    bench.write("out", &right);
    run("day1").assert_done();
    bench.write("out", "mine\n");
    run("day2").assert_refused(&["fewer", "move it away, and a new one is begun with what is new"]);
    std::fs::rename(bench.path("out"), bench.path("mine")).expect("renamed");
    run("day2").assert_done();
    assert_eq!(bench.read("out"), "{\"id\":4}\n");
}

#[test]
fn a_job_is_gone_on_with_in_the_scope_it_was_begun_in() {
    let bench = Bench::new();
    unfinished(&bench);
    let run = |args: &[&str]| bench.pipe(&[&["--event-id", "json:/id"], args, &["in", "out"]].concat());
    run(&["--scope", "audit"]).assert_refused(&["scope `default`", "say --scope default"]);
    std::fs::copy(bench.path("in"), bench.path("copy")).expect("copied");
    std::fs::rename(bench.path("copy"), bench.path("in")).expect("replaced");
    run(&["--scope", "default"]).assert_refused(&["was replaced", "name another output"]);
}

#[test]
fn a_file_of_somebody_else_is_never_overwritten() {
    let bench = Bench::new();
    bench.write("in", DAY_1);
    bench.write("out", "precious\n");
    bench.pipe(&["in", "out"]).assert_refused(&["/out", "nothing is overwritten"]);
    assert_eq!(bench.read("out"), "precious\n");
    // Written by Semel, but with another store.
    bench.pipe(&["in", "fresh"]).assert_done();
    bench.pipe(&["--store", "embedded:./second", "in", "fresh"]).assert_refused(&["/fresh"]);
    // The file of rejected lines is no different.
    bench.write("new.rejected", "precious\n");
    bench.pipe(&["in", "new"]).assert_refused(&["/new.rejected"]);
    assert_eq!(bench.read("new.rejected"), "precious\n");
}

#[test]
fn one_file_in_two_parts_is_refused() {
    let bench = Bench::new();
    bench.write("in", DAY_1);
    std::fs::hard_link(bench.path("in"), bench.path("hard")).expect("linked");
    std::os::unix::fs::symlink("in", bench.path("soft")).expect("linked");
    for output in ["in", "./in", "hard", "soft"] {
        bench.pipe(&["in", output]).assert_refused(&["same file"]);
    }
    bench.pipe(&["--dead-letter", "in", "in", "out"]).assert_refused(&["same file"]);
    bench.pipe(&["--dead-letter", "out", "in", "out"]).assert_refused(&["same file"]);
    bench.pipe(&["in", "new"]).assert_done();
    bench.pipe(&["in", "semel-claims/out"]).assert_refused(&["own folder"]);
    assert_eq!(bench.read("in"), DAY_1);
}

#[test]
fn the_folder_and_the_output_have_one_user_at_a_time() {
    let bench = Bench::new();
    let mut first = bench.piped(&["-", "out"]);
    wait_for("the first to begin", || bench.exists("out"));
    let second = bench.pipe_from(b"x\n", &["-", "other"]);
    assert_eq!(second.code, Some(1), "{second:?}");
    let process = first.id().to_string();
    assert!(second.err.contains("semel-claims is in use") && second.err.contains(&process), "{second:?}");
    let elsewhere = bench.pipe_from(b"x\n", &["--store", "embedded:./second", "-", "out"]);
    elsewhere.assert_refused(&["/out", "another process"]);
    drop(first.stdin.take());
    end(first).assert_done();
}

#[test]
fn claims_are_not_read_with_another_meaning() {
    let bench = Bench::new();
    bench.write("in", DAY_1);
    bench.pipe(&["in", "out"]).assert_done();
    let refused = bench.pipe(&["--event-id", "json:/id", "in", "other"]);
    refused.assert_refused(&["`default`", "digest", "json:/id", "--accept-recipe"]);
    let digest = refused.err.trim().rsplit(' ').next().expect("a word").to_owned();
    bench.pipe(&["--event-id", "json:/id", "--accept-recipe", &digest, "in", "other"]).assert_done();
    bench.pipe(&["--event-id", "json:/id", "in", "other"]).assert_done();
    bench.pipe(&["--scope", "new", "in", "third"]).assert_done();
}

#[test]
fn the_week_is_part_of_the_key_and_bad_times_are_rejected() {
    let bench = Bench::new();
    let (this, last) = (chrono::Utc::now(), chrono::Utc::now() - chrono::Duration::days(7));
    let line = |id: &str, at: &str| format!("{{\"id\":\"{id}\",\"at\":\"{at}\"}}\n");
    let (this, last) = (this.to_rfc3339(), last.to_rfc3339());
    let lines = [line("a", &this), line("a", &last), line("a", &this)].concat();
    let bad = [line("b", "yesterday"), line("c", "1971-01-01T00:00:00Z"), line("d", "2999-01-01T00:00:00Z")].concat();
    bench.write("in", lines + &bad + "{\"id\":\"e\"}\n");
    let ran = bench.pipe(&["--event-id", "json:/id", "--event-time", "json:/at", "in", "out"]);
    ran.assert_done();
    assert_eq!((ran.count("forwarded"), ran.count("duplicates"), ran.count("rejected")), (2, 1, 4));
    let rejected = bench.read("out.rejected");
    let causes = ["not-a-time", "old-event", "future-event", "missing-time"];
    for (line, cause) in rejected.lines().zip(causes) {
        assert!(line.starts_with(&format!("{{\"cause\":\"{cause}\"")), "{line}");
    }
}

#[test]
fn weeks_that_are_no_longer_kept_are_dropped() {
    let bench = Bench::new();
    let days_ago = |days| (chrono::Utc::now() - chrono::Duration::days(days)).to_rfc3339();
    bench.write("in", format!("{{\"id\":1,\"at\":\"{}\"}}\n{{\"id\":2,\"at\":\"{}\"}}\n", days_ago(22), days_ago(1)));
    bench.write("empty", "");
    let run = |weeks: &str, input: &str, output: &str| {
        let recipe = ["--event-id", "json:/id", "--event-time", "json:/at"];
        bench.pipe(&[&recipe[..], &["--retention-weeks", weeks, input, output]].concat())
    };
    assert_eq!(run("5", "in", "a").count("forwarded"), 2);
    assert_eq!(run("5", "in", "b").count("forwarded"), 0);
    run("2", "empty", "c").assert_done();
    assert_eq!(run("5", "in", "d").count("forwarded"), 1, "the older one was forgotten, the younger one was not");
}

#[test]
fn a_signal_ends_it_after_the_window() {
    let bench = Bench::new();
    let lines: String = (0..400_000).map(|n| format!("{{\"id\":{n},\"pad\":\"{:0>80}\"}}\n", n)).collect();
    bench.write("in", &lines);
    let args = ["--event-id", "json:/id", "--window-size", "1000", "in", "out"];
    for number in [libc::SIGTERM, libc::SIGINT] {
        let begun = std::fs::metadata(bench.path("out")).map_or(0, |found| found.len());
        let child = bench.piped(&args);
        wait_for("work to be done", || std::fs::metadata(bench.path("out")).is_ok_and(|found| found.len() > begun));
        signal(&child, number);
        let ran = end(child);
        assert_eq!(ran.code, Some(128 + number), "{ran:?}");
        assert!(ran.err.contains("interrupted"), "{ran:?}");
        assert!(lines.starts_with(&bench.read("out")) && bench.read("out").ends_with('\n'), "whole windows");
    }
    bench.pipe(&args).assert_done();
    assert!(bench.read("out") == lines, "everything, once and in order");
}

#[test]
fn the_help_tells_what_is_promised() {
    let ran = semel(&std::env::temp_dir(), &["pipe", "--help"]).output().expect("the binary runs");
    let help = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success());
    for word in ["exactly once", "may come out twice", "OUT.rejected", "--event-id", "default: digest", "every one was"]
    {
        assert!(help.contains(word), "`{word}` is missing in {help}");
    }
}
