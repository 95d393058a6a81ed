//! What the served OpenAPI document allows, and what it does not, tried by schemathesis on the binary: no answer of 500
//! or above, none that the document does not know, none that is not given in time.

use std::process::Command;
use std::time::{Duration, Instant};

use super::binary::{make_stream, settings};
use crate::support::daemon::{self, Daemon};

/// A caller that waits for a first answer so long takes it for a hang.
const ANSWER_S: &str = "20";
/// The program's exit code where it has found something.
const FOUND: i32 = 1;

/// Where schemathesis is; installs it where it is not. A machine that cannot is told so by a failure, never a skip.
fn schemathesis() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services");
    let found = Command::new(script).arg("schemathesis").output().expect("tests/services runs");
    assert!(found.status.success(), "schemathesis cannot be had: {}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).expect("a path").trim().to_owned()
}

#[test]
fn schemathesis_finds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = r#"[{"name": "all", "key": "k-all", "tenants": ["*"], "tables": ["*"]}]"#;
    std::fs::write(folder.path().join("keys.json"), keys).expect("a file");
    let stream = make_stream(Duration::from_secs(120));
    let listen = daemon::free_port();
    let settings = settings(folder.path(), &stream.url(), listen, &[]);
    let program = schemathesis();
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    let examples = if crate::full() { "3000" } else { "200" };
    let begun = Instant::now();
    let ended = Command::new(program)
        .args(["run", &format!("http://127.0.0.1:{listen}/openapi.json"), "--no-color"])
        .args(["--header", "Authorization: Bearer k-all", "--request-timeout", ANSWER_S])
        .args(["--max-examples", examples, "--seed", &crate::support::random::seed().to_string()])
        // It says of bodies that are not compressed that they are.
        .args(["--exclude-checks", "positive_data_acceptance", "--continue-on-failure"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert_ne!(ended.status.code(), Some(FOUND), "{text}");
    assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(text.contains("Fuzzing") && text.contains("No issues found"), "{text}");
    println!("nothing found in {:?}", begun.elapsed());
    assert!(daemon.metric("semel_ingest_requests_total", &["status=\"200\""]) > 10.0, "some of it was sound");
    assert_eq!(daemon.metric("semel_ingest_requests_total", &["status=\"500\""]), 0.0);
    daemon.stop();
}
