//! What commands other than run are told.

use super::operator::OperatorConfig;
use super::pipe::PipeConfig;
use super::testing::given;
use super::*;

#[test]
fn pipe_needs_nothing() {
    let config = PipeConfig::of(Given::default()).expect("valid");
    assert_eq!((config.scope.as_str(), config.folder.to_str()), ("default", Some("./semel-claims")));
    assert_eq!(config.keys.extraction.recipe().to_string(), "digest");
    assert_eq!(config.keys.extraction.time().to_string(), "none");
    let mut of_run = given(&[]);
    let ConfigError(problems) = PipeConfig::of(of_run.clone()).expect_err("another store");
    assert_eq!(
        problems,
        ["SEMEL_STORE (environment): semel pipe keeps its claims in an embedded store (embedded:FOLDER)"]
    );
    of_run.environment.insert("SEMEL_STORE".into(), "./claims".into());
    let ConfigError(problems) = PipeConfig::of(of_run.clone()).expect_err("no store at all");
    assert!(problems[0].ends_with("in an embedded store (embedded:FOLDER)"), "{problems:?}");
    of_run.flags.push(("SEMEL_STORE".into(), "embedded:x".into()));
    let config = PipeConfig::of(of_run).expect("the settings of run that pipe does not take do not matter");
    assert_eq!(config.scope.as_str(), "orders", "those that it takes do");
}

#[test]
fn operators_need_a_store() {
    let ConfigError(problems) = OperatorConfig::of(Given::default()).expect_err("no store");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("SEMEL_STORE: it must be given"), "{problems:?}");
    let config = OperatorConfig::of(given(&[])).expect("valid");
    assert_eq!(config.source.map(|source| source.group).as_deref(), Some("g"));
    let only = given(&[("SEMEL_SOURCE", ""), ("SEMEL_SCOPE", ""), ("SEMEL_EVENT_ID", "")]);
    let config = OperatorConfig::of(only).expect("the rest may be missing");
    assert!(config.source.is_none() && config.scope.is_none() && config.keys.is_none());
    let ConfigError(problems) = OperatorConfig::of(given(&[("SEMEL_SCOPE", " ")])).expect_err("but not wrong");
    assert_eq!(problems, ["SEMEL_SCOPE (environment): the scope is blank"]);
}
