//! The binary itself, as far as it needs no service.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs it with this environment and no other.
fn semel(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    let Output { status, stdout, stderr } =
        command.args(arguments).env_clear().envs(environment.iter().copied()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}

const VALID: &[(&str, &str)] = &[
    ("SEMEL_SCOPE", "orders"),
    ("SEMEL_SOURCE", "kafka://h/in?group=g"),
    ("SEMEL_SINK", "kafka:///out"),
    ("SEMEL_STORE", "postgres://u:hidden@h/db"),
    ("SEMEL_EVENT_ID", "json:/id"),
    ("SEMEL_DEAD_LETTER", "dead"),
];

fn with<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    VALID.iter().chain(changes).copied().collect()
}

#[test]
fn how_it_ends() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);
    let cases: &[Case<'_>] = &[
        (&["--version"], &[], 0, "asked for"),
        (&["--help"], &[], 0, "asked for"),
        (&["validate", "--help"], &[], 0, "asked for"),
        (&[], &[], 64, "nothing to do"),
        (&["frobnicate"], &[], 64, "no such subcommand"),
        (&["validate", "--frobnicate"], VALID, 64, "no such flag"),
        (&["validate", "--kafka", "nonsense"], VALID, 64, "no property"),
        (&["validate"], VALID, 0, "valid"),
        (&["validate"], &[], 64, "nothing is set"),
        (&["run"], &[], 64, "before anything is connected to"),
        (&["config", "schema"], &[], 0, "needs no setting"),
        (&["config", "show"], &[], 0, "shows what there is"),
        (&["completions", "bash"], &[], 0, "needs no setting"),
        (&["check"], &[], 64, "it checks what `run` would be told"),
        (&["why"], VALID, 64, "why what?"),
        (&["why", " "], VALID, 64, "a blank id"),
        (&["why", "--stored", "a", "b"], VALID, 64, "one id as the table holds it"),
        (&["release"], VALID, 64, "release what?"),
        (&["release", "event", "a"], &[VALID[3]], 64, "in which scope?"),
        (&["release", "event", "a", "--week", "2026-01-06"], VALID, 64, "no Monday"),
        (&["release", "group", "g"], &[VALID[3]], 64, "on which brokers?"),
        (&["recover"], &[VALID[3]], 64, "which group?"),
        (&["partitions"], &[], 64, "in which store?"),
    ];
    for (arguments, environment, right, why) in cases {
        let (code, _, errors) = semel(arguments, environment);
        assert_eq!(code, *right, "{arguments:?}: {why}: {errors}");
    }
}

#[test]
fn every_problem_is_told_in_a_line() {
    let wrong = with(&[
        ("SEMEL_WORKERS", "0"),
        ("SEMEL_SKOPE", "x"),
        ("SEMEL_SINK", "kafka:///in"),
        ("SEMEL_STORE", "mysql://u:hidden@h/db"),
    ]);
    let (code, out, errors) = semel(&["validate", "--linger", "soon"], &wrong);
    assert_eq!((code, out.as_str()), (64, ""));
    assert_eq!(
        errors.lines().collect::<Vec<_>>(),
        [
            "semel: SEMEL_SKOPE (environment): there is no such setting; did you mean SEMEL_SCOPE?",
            "semel: SEMEL_WORKERS (environment): `0` is not a whole number from 1 to 64",
            "semel: SEMEL_STORE (environment): it begins with neither postgres:// nor embedded:",
            "semel: SEMEL_LINGER (flag): `soon` is not a whole number with its unit (ms, s, m, h, d)",
            "semel: SEMEL_SINK (environment): in is read by SEMEL_SOURCE: it would feed itself",
        ]
    );
}

#[test]
fn a_database_url_is_read_before_it_is_used() {
    let cases = [
        ("postgres://u:hidden@h/db?sslmode=sometimes", "sslmode is \"sometimes\""),
        ("postgres://u:hidden@h:port/db", "the database URL is not valid"),
        ("postgres://u:hidden@h/db?frobnicate=1", "the database URL is not valid"),
    ];
    for command in ["validate", "run"] {
        for (url, right) in cases {
            let (code, _, errors) = semel(&[command], &with(&[("SEMEL_STORE", url), ("SEMEL_HTTP", "off")]));
            assert_eq!(code, 64, "{command} {url}: {errors}");
            assert!(errors.contains(right) && !errors.contains("hidden"), "{url}: {errors}");
        }
    }
}

#[test]
fn flags_are_taken_and_secrets_are_not_shown() {
    let flags = ["config", "show", "--workers", "3", "--broadcast", "--kafka", "sasl.password=hidden"];
    let (code, out, errors) = semel(&flags, VALID);
    assert_eq!((code, errors.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        ["SEMEL_WORKERS", "3", "flag"],
        ["SEMEL_BROADCAST", "true", "flag"],
        ["SEMEL_KAFKA_SASL_PASSWORD", "***", "flag"],
        ["SEMEL_STORE", "postgres://u:***@h/db", "environment"],
        ["SEMEL_LINGER", "5ms", "default"],
    ] {
        assert!(rows.iter().any(|found| found[..] == row), "{row:?} in {out}");
    }
    assert!(!out.contains("hidden"), "{out}");
}

#[test]
fn what_is_valid_is_told() {
    let (_, out, _) = semel(&["validate"], VALID);
    for line in ["the configuration is valid", "event id     json:/id", "recipe       1c1cce40c33439d7"] {
        assert!(out.lines().any(|found| found == line), "{line} in {out}");
    }
    assert!(out.contains("note: the event time is the record's timestamp"), "{out}");
    let (_, out, _) = semel(&["validate"], &with(&[("SEMEL_EVENT_TIME", "json:/at")]));
    assert!(!out.contains("note:"), "{out}");
}

#[test]
fn the_schema_is_json_and_a_table() {
    let (_, out, _) = semel(&["config", "schema"], &[]);
    let schema: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(schema["settings"].as_array().is_some_and(|settings| settings.len() > 40));
    let (_, out, _) = semel(&["config", "schema", "--markdown"], &[]);
    assert!(out.starts_with("| setting | form | default | meaning |\n| --- |"), "{out}");
}

#[test]
fn shells_complete_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let (_, out, _) = semel(&["completions", shell], &[]);
        assert!(["validate", "event-id", "completions"].iter().all(|word| out.contains(word)), "{shell}");
    }
}

fn help_of(command: &[&str]) -> String {
    let (code, help, _) = semel(&[command, &["--help"]].concat(), &[("COLUMNS", "100")]);
    assert_eq!(code, 0, "{command:?}");
    help
}

/// Lines go from file to file, and their claims into a folder: nothing else is spoken of.
#[test]
fn the_help_of_pipe_is_about_lines_and_files() {
    let help = help_of(&["pipe"]);
    for foreign in ["postgres", "PostgreSQL", "PG*", "opic", "Kafka", "kafka", "essage", "header:", "_FILE", "daemon"] {
        assert!(!help.contains(foreign), "`{foreign}` in {help}");
    }
    for own in ["<embedded:FOLDER>", "OUT.rejected", "its name before Semel, IM2BE_DEDUP_DEFAULT_SCOPE_ID"] {
        assert!(help.contains(own), "no `{own}` in {help}");
    }
    let (paragraphs, _) = help.split_once("\nExit codes: ").expect("they are told");
    let notes = paragraphs.rsplit_once("[default: none]").expect("the last setting").1;
    let short = |pair: &[&str]| pair[0].len() < 60 && !pair[0].is_empty() && !pair[1].is_empty();
    let lines: Vec<&str> = notes.lines().collect();
    assert!(lines.len() > 8 && !lines.windows(2).any(short), "folded at one width: {notes}");
}

/// What a command does not look at is taken, but does not fill its help.
#[test]
fn help_lists_what_a_command_reads() {
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["run"], &["--store ", "--workers", "--sink-kafka"], &[]),
        (&["why"], &["--store ", "--source ", "--event-id", "--kafka"], &["--workers", "--linger", "--sink-kafka"]),
        (&["release", "event"], &["--store ", "--scope"], &["--workers", "--retention-weeks"]),
        (&["release", "group"], &["--store ", "--source "], &["--scope", "--event-id"]),
        (&["recover"], &["--source ", "--event-time"], &["--workers", "--sink "]),
        (&["partitions"], &["--store ", "--weeks-ahead"], &["--scope", "--kafka"]),
        (&["migrate"], &["--store ", "--store-file"], &["--scope", "--retention-weeks"]),
        (&["check"], &["--config"], &["--store ", "--workers"]),
        (&["validate"], &["--config"], &["--store ", "--workers"]),
        (&["config", "show"], &["--config"], &["--store ", "--workers"]),
    ];
    for (command, listed, hidden) in cases {
        let help = help_of(command);
        listed.iter().for_each(|flag| assert!(help.contains(flag), "{command:?} lacks {flag}: {help}"));
        hidden.iter().for_each(|flag| assert!(!help.contains(flag), "{command:?} lists {flag}: {help}"));
        assert_eq!(help.contains("semel run --help"), *command != ["run"], "{command:?}: {help}");
    }
    for command in [&["why", "a"][..], &["release", "event", "a"], &["recover"], &["partitions"], &["migrate"]] {
        let (code, _, errors) = semel(&[command, &["--workers", "2", "--linger", "1ms"]].concat(), &[]);
        assert_eq!(code, 64, "{command:?}");
        assert!(errors.starts_with("semel: SEMEL_STORE: it must be given"), "the flags are taken: {errors}");
    }
}

#[test]
fn what_is_missing_is_shown_as_missing() {
    let missing = |environment: &[(&str, &str)]| {
        let (code, out, errors) = semel(&["config", "show"], environment);
        assert_eq!((code, errors.as_str()), (0, ""));
        let rows = out.lines().filter(|line| line.contains("missing: it must be given"));
        rows.map(|line| line.split_whitespace().next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let all = ["SEMEL_SCOPE", "SEMEL_SOURCE", "SEMEL_SINK", "SEMEL_DEAD_LETTER", "SEMEL_STORE", "SEMEL_EVENT_ID"];
    assert_eq!(missing(&[]), all);
    assert_eq!(missing(VALID), [""; 0]);
    assert_eq!(missing(&with(&[("SEMEL_DUPLICATES", "route")])), ["SEMEL_DUPLICATES_TOPIC"]);
}

/// Brokers that do not answer are waited for; nothing was taken by then, so there is nothing to finish.
#[test]
fn a_signal_ends_the_wait_for_brokers_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let claims = folder.path().join("claims");
    let store = format!("embedded:{}", claims.display());
    let away =
        [("SEMEL_SOURCE", "kafka://127.0.0.1:1/in?group=g"), ("SEMEL_HTTP", "off"), ("SEMEL_STORE", store.as_str())];
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    let child = command.arg("run").env_clear().envs(with(&away)).stderr(Stdio::piped()).spawn().expect("it starts");
    // Made behind the handlers of signals, and before the brokers are asked.
    let begun = Instant::now();
    while !claims.join("semel.db").exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not open its store");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    // SAFETY: a child of this process that was not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let Output { status, stderr, .. } = child.wait_with_output().expect("an end");
    let log = String::from_utf8_lossy(&stderr);
    assert!(status.success() && asked.elapsed() < Duration::from_secs(5), "{status}, {:?}: {log}", asked.elapsed());
    assert!(!log.contains("drain"), "{log}");
}
