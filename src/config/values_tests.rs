use std::io::Write;

use super::*;
use crate::config::testing::{given, problems};
use crate::config::{Config, ConfigError};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("a path in UTF-8")
}

#[test]
fn what_goes_over_what() {
    let file = file("SEMEL_WORKERS=3\nSEMEL_LOG=debug\n# a comment\nSEMEL_GRACE=\"1m\"\n");
    let flag = || vec![("SEMEL_WORKERS".to_owned(), "1".to_owned())];
    let environment = [("SEMEL_CONFIG", path(&file)), ("SEMEL_WORKERS", "2"), ("SEMEL_GRACE", "")];
    let cases = [
        (flag(), true, true, "1", "flag", "a flag over all"),
        (vec![], true, true, "2", "environment", "the environment over the file"),
        (vec![], false, true, "3", "file", "the file over the default"),
        (vec![], false, false, "", "default", "the default under all"),
    ];
    for (flags, in_environment, in_file, right, origin, why) in cases {
        let mut given = given(&environment);
        given.flags = flags;
        if !in_environment {
            given.environment.remove("SEMEL_WORKERS");
        }
        if !in_file {
            given.environment.remove("SEMEL_CONFIG");
        }
        let (values, problems) = Values::gather(given);
        assert_eq!(problems, Vec::<String>::new(), "{why}");
        let value = values.settings.get("SEMEL_WORKERS");
        assert_eq!(value.map_or("", |value| value.text.as_str()), right, "{why}");
        let found = match value.map(|value| &value.origin) {
            Some(Origin::Flag) => "flag",
            Some(Origin::Environment) => "environment",
            Some(Origin::File { line: 1, .. }) => "file",
            _ => "default",
        };
        assert_eq!(found, origin, "{why}");
    }
    let config = Config::of(given(&environment)).expect("valid");
    assert_eq!(config.identity.grace.as_secs(), 60, "an empty variable does not hide the file's value");
}

#[test]
fn a_file_may_be_named_by_a_flag() {
    let file = file("SEMEL_SCOPE=from-file\n");
    let mut given = given(&[("SEMEL_SCOPE", "")]);
    given.flags.push(("SEMEL_CONFIG".into(), path(&file).into()));
    assert_eq!(Config::of(given).expect("valid").scope.as_str(), "from-file");
}

#[test]
fn names_that_are_refused() {
    let other = file("SEMEL_CONFIG=/elsewhere\nSEMEL_WORKRS=2\nnonsense\nSEMEL_LOG=info\nSEMEL_LOG=debug\nPATH=/bin\n");
    let other = path(&other);
    assert_eq!(
        problems(&[("SEMEL_CONFIG", other)]),
        [
            format!("{other}, line 3: a line is NAME=VALUE"),
            format!("SEMEL_CONFIG ({other}, line 1): a file cannot name another"),
            format!("SEMEL_WORKRS ({other}, line 2): there is no such setting; did you mean SEMEL_WORKERS?"),
            format!("SEMEL_LOG is given twice ({other}, line 4 and {other}, line 5)"),
            format!("PATH ({other}, line 6): there is no such setting"),
        ]
    );
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SEMEL_EVENTID", "key")],
            "SEMEL_EVENTID (environment): there is no such setting; did you mean SEMEL_EVENT_ID?",
        ),
        (&[("SEMEL_FROBNICATE", "1")], "SEMEL_FROBNICATE (environment): there is no such setting"),
        (
            &[("SEMEL_SCOPE_FILE", "/x")],
            "SEMEL_SCOPE_FILE (environment): there is no such setting; only a secret may be held by a file",
        ),
        (
            &[("IM2BE_DEDUP_DEFAULT_SCOPE_ID", "others")],
            "IM2BE_DEDUP_DEFAULT_SCOPE_ID and SEMEL_SCOPE are both given and differ",
        ),
        (
            &[("SEMEL_STORE_FILE", "/does/not/exist")],
            "SEMEL_STORE_FILE (environment): cannot read /does/not/exist: No such file or directory (os error 2)",
        ),
        (
            &[("SEMEL_CONFIG", "/does/not/exist")],
            "SEMEL_CONFIG: cannot read /does/not/exist: No such file or directory (os error 2)",
        ),
        (
            &[("SEMEL_INSTANCE", "${NOWHERE}")],
            "SEMEL_INSTANCE (environment): `${NOWHERE}`: there is no such environment variable",
        ),
        (&[("SEMEL_INSTANCE", "a${B")], "SEMEL_INSTANCE (environment): there is a `${` without its `}` in it"),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), [*right], "{changes:?}");
    }
    let mut given = given(&[]);
    given.not_text.push("SEMEL_SCOPE".into());
    let ConfigError(problems) = Config::of(given).expect_err("no text");
    assert_eq!(problems, ["SEMEL_SCOPE (environment): the value is not UTF-8"]);
}

#[test]
fn names_that_are_not_ours() {
    let cases = [
        ("SEMEL_TEST_SEED", "1", "the tests' own"),
        ("SEMEL_SERVICE_HOST", "10.0.0.1", "Kubernetes puts it beside a service named semel"),
        ("SEMEL_PORT", "tcp://10.0.0.1:80", "and this"),
        ("SEMELX", "1", "no prefix of ours"),
        ("semel_scope", "1", "names are in capitals"),
    ];
    for (name, value, why) in cases {
        assert_eq!(problems(&[(name, value)]), Vec::<String>::new(), "{name}: {why}");
    }
}

#[test]
fn other_ways_to_give_a_value() {
    let secret = file("postgres://u:hidden@db/claims\n");
    let password = file("pass word\r\n");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("SEMEL_SCOPE", ""), ("IM2BE_DEDUP_DEFAULT_SCOPE_ID", "orders")], "by its other name"),
        (&[("IM2BE_DEDUP_DEFAULT_SCOPE_ID", "orders")], "by both names, alike"),
        (&[("SEMEL_STORE", ""), ("SEMEL_STORE_FILE", path(&secret))], "by a file that holds it"),
        (&[("SEMEL_STORE_FILE", path(&secret))], "by both, alike"),
        (&[("SEMEL_SCOPE", "${WHO}"), ("WHO", "orders")], "by reference"),
    ];
    let right = Config::of(given(&[])).expect("valid");
    for (changes, why) in cases {
        let config = Config::of(given(changes)).expect(why);
        assert_eq!((&config.scope, &config.store), (&right.scope, &right.store), "{why}");
    }
    let config = Config::of(given(&[
        ("SEMEL_KAFKA_SASL_PASSWORD_FILE", path(&password)),
        ("SEMEL_KAFKA_SASL_USERNAME", "u"),
        ("SEMEL_KAFKA_SASL_MECHANISM", "SCRAM-SHA-512"),
        ("SEMEL_KAFKA_SECURITY_PROTOCOL", "sasl_ssl"),
    ]))
    .expect("valid");
    assert_eq!(config.sink.properties.0["sasl.password"], "pass word", "without the line's end");
}

#[test]
fn references_are_resolved_once() {
    let given = given(&[("A", "${B}"), ("B", "b"), ("SEMEL_SCOPE", "x-${A}-${B}")]);
    assert_eq!(Config::of(given).expect("valid").scope.as_str(), "x-${B}-b");
}
