//! Every shape of a line, and what becomes of it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::bench::{Bench, Ran};

const BY_ID: [&str; 2] = ["--event-id", "json:/id"];

struct Case {
    why: &'static str,
    input: &'static [u8],
    out: &'static [u8],
    /// Causes, with the lines' numbers and positions.
    rejected: &'static [(&'static str, u64, u64)],
    duplicates: u64,
    empty: u64,
}

impl Case {
    const fn new(why: &'static str, input: &'static [u8], out: &'static [u8]) -> Case {
        Case { why, input, out, rejected: &[], duplicates: 0, empty: 0 }
    }
}

fn rejected(bench: &Bench, name: &str) -> Vec<Value> {
    if !bench.exists(name) {
        return Vec::new();
    }
    bench.read(name).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn every_shape_of_a_line() {
    let cases = [
        Case::new("nothing at all", b"", b""),
        Case::new("the last line has no end: it gets one", b"{\"id\":1}\n{\"id\":2}", b"{\"id\":1}\n{\"id\":2}\n"),
        Case { duplicates: 1, ..Case::new("\\r\\n is kept", b"{\"id\":1}\r\n{\"id\":1}\r\n", b"{\"id\":1}\r\n") },
        Case {
            empty: 3,
            ..Case::new(
                "empty lines hold no event",
                b"\n{\"id\":1}\n\r\n  \t\n{\"id\":2}\n",
                b"{\"id\":1}\n{\"id\":2}\n",
            )
        },
        Case {
            rejected: &[("not-utf8", 2, 9)],
            ..Case::new("not UTF-8", b"{\"id\":1}\n{\"id\":\"\xff\"}\n{\"id\":2}\n", b"{\"id\":1}\n{\"id\":2}\n")
        },
        Case {
            rejected: &[("not-json", 1, 0), ("not-json", 3, 15)],
            ..Case::new("not JSON", b"hello\n{\"id\":1}\n{\"id\":2", b"{\"id\":1}\n")
        },
        Case {
            rejected: &[("missing-id", 1, 0), ("missing-id", 2, 3), ("missing-id", 3, 15), ("not-an-id", 4, 26)],
            ..Case::new("no id, null, blank, an array", b"{}\n{\"id\":null}\n{\"id\":\" \"}\n{\"id\":[1]}\n", b"")
        },
        Case::new(
            "a NUL byte is a byte",
            b"{\"id\":\"a\\u0000b\"}\n{\"id\":\"a\"}\n",
            b"{\"id\":\"a\\u0000b\"}\n{\"id\":\"a\"}\n",
        ),
        Case { duplicates: 1, ..Case::new("1 and \"1\" are one id", b"{\"id\":1}\n{\"id\":\"1\"}\n", b"{\"id\":1}\n") },
    ];
    for Case { why, input, out, rejected: right, duplicates, empty } in cases {
        let bench = Bench::new();
        bench.write("in", input);
        let ran = bench.pipe(&[&BY_ID[..], &["in", "out"]].concat());
        let all_rejected = out.is_empty() && !right.is_empty();
        assert_eq!(ran.code, Some(i32::from(all_rejected)), "{why}: {ran:?}");
        assert_eq!(std::fs::read(bench.path("out")).expect("an output"), out, "{why}");
        let found = rejected(&bench, "out.rejected");
        let found: Vec<_> =
            found.iter().map(|record| (&record["cause"], &record["line"], &record["position"])).collect();
        let right_json: Vec<_> =
            right.iter().map(|(a, b, c)| (Value::from(*a), Value::from(*b), Value::from(*c))).collect();
        assert_eq!(found, right_json.iter().map(|(a, b, c)| (a, b, c)).collect::<Vec<_>>(), "{why}");
        assert_eq!(ran.count("rejected"), right.len() as u64, "{why}");
        assert_eq!(ran.count("duplicates"), duplicates, "{why}");
        assert_eq!(if empty > 0 { ran.count("empty") } else { 0 }, empty, "{why}: {ran:?}");
    }
}

#[test]
fn a_digest_is_that_of_the_line_without_its_end() {
    let bench = Bench::new();
    bench.write("unix", "a\nb");
    bench.write("dos", "a\r\nb\r\nc\r\n");
    bench.pipe(&["unix", "out"]).assert_done();
    let ran = bench.pipe(&["dos", "out"]);
    assert_eq!((ran.count("forwarded"), ran.count("duplicates")), (1, 2));
    assert_eq!(bench.read("out"), "a\nb\nc\r\n");
}

#[test]
fn a_rejected_line_is_kept_whole_and_tells_its_origin() {
    let bench = Bench::new();
    bench.write("in", b"{\"id\":1}\nno \"id\" here\\\n\xfe\xff\r\n");
    bench.pipe(&[&BY_ID[..], &["in", "out"]].concat()).assert_done();
    let found = rejected(&bench, "out.rejected");
    assert_eq!(found[0]["text"], "no \"id\" here\\");
    assert_eq!(found[0]["input"], bench.path("in").canonicalize().expect("a path").to_str().expect("text"));
    assert_eq!(found[1]["base64"], BASE64_STANDARD.encode(b"\xfe\xff"));
    assert!(found[1].get("text").is_none() && found.len() == 2);

    let again = bench.pipe(&[&BY_ID[..], &["in", "out"]].concat());
    assert_eq!((again.count("rejected"), again.count("duplicates")), (0, 3), "the same lines again");
    bench.write("more", "{}\n");
    assert_eq!(bench.pipe(&[&BY_ID[..], &["more", "out"]].concat()).code, Some(1), "nothing else was in it");
    assert_eq!(rejected(&bench, "out.rejected").len(), 3, "appended by the next feed");
    bench.pipe(&[&BY_ID[..], &["--dead-letter", "dead", "in", "other"]].concat()).assert_done();
    assert_eq!((rejected(&bench, "dead").len(), bench.exists("other.rejected")), (2, false));
}

/// More likely than an input of such lines is a setting that does not fit it.
#[test]
fn an_input_of_nothing_but_rejected_lines_is_a_failure() {
    let old = "{\"id\":1,\"at\":\"1971-01-01T00:00:00Z\"}\n";
    let ahead = "{\"id\":1,\"at\":\"2999-01-01T00:00:00Z\"}\n";
    let by_time = ["--event-id", "json:/id", "--event-time", "json:/at"];
    let cases: [(&str, &[&str], &str); 5] = [
        ("\n{}\n[]\nhello\n", &BY_ID, ", 2 of 3 as missing-id: look at --event-id."),
        ("{\"id\":1}\n", &by_time, ", 1 of 1 as missing-time: look at --event-time."),
        ("{}\n{\"id\":1,\"at\":true}\n", &["--event-id", "key"], ", 2 of 2 as missing-id: look at --event-id."),
        (old, &by_time, ", 1 of 1 as old-event: look at --retention-weeks."),
        (ahead, &by_time, ", 1 of 1 as future-event: look at --weeks-ahead."),
    ];
    for (input, args, words) in cases {
        let bench = Bench::new();
        bench.write("in", input);
        let run = || bench.pipe(&[args, &["in", "out"]].concat());
        let first = run();
        assert_eq!(first.code, Some(1), "{first:?}");
        let told = first.err.lines().last().expect("a line");
        assert!(told.starts_with("semel: every line was rejected, ") && told.contains(words), "{first:?}");
        assert!(told.ends_with("out.rejected"), "{first:?}");
        let again = run();
        assert_eq!((again.code, again.err.lines().last()), (Some(1), Some(told)), "the same lines, the same answer");
    }
    // A single line that is claimed, or known, makes the difference; so does an input without lines.
    let bench = Bench::new();
    bench.write("in", "{}\n{\"id\":1}\n");
    bench.pipe(&[&BY_ID[..], &["in", "out"]].concat()).assert_done();
    bench.write("known", "{}\n{\"id\":1}\n");
    bench.pipe(&[&BY_ID[..], &["known", "out"]].concat()).assert_done();
    bench.write("empty", "\n\n");
    bench.pipe(&[&BY_ID[..], &["empty", "out"]].concat()).assert_done();
    let forwarded = bench.pipe_from(b"{}\n", &["--event-id", "json:/id", "--missing-id", "forward"]);
    assert_eq!((forwarded.code, forwarded.out.as_str()), (Some(0), "{}\n"));
}

/// Memory is bounded, nothing disappears, and the lines around it come through.
#[test]
fn a_line_that_is_too_long_is_rejected_in_pieces() {
    const BOUND: usize = 16 << 20;
    let bench = Bench::new();
    let long = format!("{{\"id\":2,\"x\":\"{}\"}}", "y".repeat(2 * BOUND + 5));
    let just_within = format!("{{\"id\":3,\"x\":\"{}\"}}\n", "z".repeat(BOUND - 16));
    assert_eq!(just_within.len(), BOUND);
    bench.write("in", format!("{{\"id\":1}}\n{long}\r\n{just_within}{{\"id\":4}}\n"));
    let ran = bench.pipe(&[&BY_ID[..], &["in", "out"]].concat());
    ran.assert_done();
    assert_eq!((ran.count("read"), ran.count("forwarded"), ran.count("rejected")), (4, 3, 1));
    assert!(bench.read("out") == format!("{{\"id\":1}}\n{just_within}{{\"id\":4}}\n"));
    let pieces = rejected(&bench, "out.rejected");
    let numbers: Vec<_> = pieces.iter().map(|piece| (piece["piece"].as_u64(), piece["last"].as_bool())).collect();
    assert_eq!(numbers, [(Some(0), Some(false)), (Some(1), Some(false)), (Some(2), Some(true))]);
    assert!(pieces.iter().all(|piece| piece["cause"] == "too-long" && piece["line"] == 2 && piece["position"] == 9));
    let text: String = pieces.iter().map(|piece| piece["text"].as_str().expect("text")).collect();
    assert!(text == long, "put together they are the line");
}

#[test]
fn policies_for_lines_without_an_id() {
    let lines = "{\"id\":1}\n{}\n{\"id\":1}\n{}\n{\"id\":2}\n";
    let run = |policy: &str| -> (Bench, Ran) {
        let bench = Bench::new();
        bench.write("in", lines);
        let ran = bench.pipe(&[&BY_ID[..], &["--missing-id", policy, "in", "out"]].concat());
        (bench, ran)
    };
    let (bench, ran) = run("reject");
    assert_eq!((ran.count("forwarded"), ran.count("rejected"), ran.count("duplicates")), (2, 2, 1));
    assert_eq!(bench.read("out"), "{\"id\":1}\n{\"id\":2}\n");

    let (bench, ran) = run("forward");
    assert_eq!((ran.count("forwarded"), ran.count("unclaimed"), ran.count("duplicates")), (2, 2, 1));
    assert_eq!(bench.read("out"), "{\"id\":1}\n{}\n{}\n{\"id\":2}\n", "never one of them and one duplicate");

    // They have no claim that tells of them, but the file's own record does.
    let again = bench.pipe(&[&BY_ID[..], &["--missing-id", "forward", "in", "out"]].concat());
    assert_eq!((again.count("forwarded"), again.count("duplicates")), (0, 5));
    bench.write("in", format!("{lines}{{}}\n"));
    let grown = bench.pipe(&[&BY_ID[..], &["--missing-id", "forward", "in", "out"]].concat());
    assert_eq!((grown.count("unclaimed"), grown.count("duplicates")), (1, 5));
    assert_eq!(bench.read("out"), "{\"id\":1}\n{}\n{}\n{\"id\":2}\n{}\n");

    let (bench, ran) = run("stop");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(bench.read("out"), "{\"id\":1}\n");
    let again = bench.pipe(&[&BY_ID[..], &["--missing-id", "stop", "in", "out"]].concat());
    assert!(again.code == Some(1) && again.err.contains("line 2"), "it stops there again: {again:?}");
    bench.pipe(&[&BY_ID[..], &["--missing-id", "forward", "in", "out"]].concat()).assert_done();
    assert_eq!(bench.read("out"), "{\"id\":1}\n{}\n{}\n{\"id\":2}\n");
}
