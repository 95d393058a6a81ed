//! Rules of the house that a reader would otherwise have to watch over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use semel::config::schema;

/// Which of the house's rooms each may know. Knowledge goes one way; the pure core knows nothing of the crate.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("clock", &["protocol"]),
    ("shutdown", &[]),
    ("metrics", &[]),
    ("key", &["protocol"]),
    ("message", &["key"]),
    ("config", &["key", "protocol"]),
    ("telemetry", &["config", "metrics"]),
    ("kafka", &["clock", "key", "metrics", "protocol", "shutdown"]),
    ("source", &["clock", "kafka", "key", "message", "metrics", "protocol", "shutdown"]),
    ("sink", &["clock", "kafka", "key", "message", "metrics", "protocol", "shutdown"]),
    ("store", &["clock", "config", "key", "metrics", "protocol", "shutdown"]),
    ("api", &["clock", "config", "key", "message", "metrics", "pipeline", "protocol", "shutdown", "store"]),
    (
        "pipeline",
        &["clock", "config", "kafka", "key", "message", "metrics", "protocol", "shutdown", "sink", "source", "store"],
    ),
    (
        "cli",
        &[
            "api",
            "clock",
            "config",
            "kafka",
            "key",
            "message",
            "metrics",
            "pipeline",
            "protocol",
            "shutdown",
            "sink",
            "source",
            "store",
            "telemetry",
        ],
    ),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// Crates that the pure core may use: no runtime, no client, no randomness.
const CORE_USES: &[&str] = &["chrono", "crate", "sha2", "std", "super", "self"];

/// Where there is unsafe code, and what for.
const UNSAFE: &[(&str, &str)] = &[
    ("src/cli/demo/child.rs", "a child that ends with its parent"),
    ("src/cli/signals.rs", "signal handlers"),
    ("src/kafka/native/", "librdkafka's own interface"),
    ("src/kafka/transaction.rs", "librdkafka's own interface"),
    ("src/pipeline/pipe/input.rs", "waiting for input with a time limit"),
];

/// Files that are longer than a module should be, and why.
const LONG: &[(&str, &str)] = &[("src/pipeline/transactional/reader.rs", "one loop with its states")];
const LINES_MAX: usize = 400;

struct File {
    /// From the repository's root, with `/`.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder whose name ends so.
fn files(folder: &str, ending: &str) -> Vec<File> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), ending, &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a file in UTF-8");
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
        File { path, text }
    };
    found.into_iter().map(read).collect()
}

impl File {
    /// The room: `key` for `src/key/json.rs` and for `src/key.rs`.
    fn room(&self) -> &str {
        let inside = self.path.trim_start_matches("src/");
        inside.split(['/', '.']).next().unwrap_or_default()
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("_tests.rs") || self.path.ends_with("/testing.rs")
    }

    /// Lines of code outside of the tests' module, with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut in_tests = false;
        let lines = self.text.lines().enumerate().filter(move |(_, line)| {
            in_tests |= line.starts_with("mod tests {");
            let inside = in_tests;
            in_tests &= *line != "}";
            !inside
        });
        let lines = lines.map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default()));
        lines.filter(|(_, line)| !self.is_test() && !line.trim().is_empty())
    }
}

/// Rooms that a line names by `crate::room`.
fn named(line: &str) -> Vec<&str> {
    let word = |text: &'static str| move |line| -> Vec<&str> { str::split(line, text).skip(1).collect() };
    let behind: Vec<&str> = word("crate::")(line);
    behind.into_iter().map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")).collect()
}

#[test]
fn knowledge_goes_one_way() {
    let sources = files("src", ".rs");
    let mut wrong = Vec::new();
    for file in &sources {
        let Some((room, known)) = MAY_KNOW.iter().find(|(room, _)| *room == file.room()) else {
            wrong.push(format!("{}: a room that the table does not have", file.path));
            continue;
        };
        for (n, line) in file.code() {
            // Braces after `crate::` would hide names from this test.
            let hidden = line.contains("crate::{") && file.path != "src/cli/run.rs";
            let names = named(line).into_iter().filter(|name| !name.is_empty() && name != room);
            let foreign = names.filter(|name| MAY_KNOW.iter().any(|(room, _)| room == name) && !known.contains(name));
            wrong.extend(foreign.map(|name| format!("{}:{n}: {room} may not know {name}", file.path)));
            if hidden {
                wrong.push(format!("{}:{n}: one `use` for each room", file.path));
            }
        }
    }
    assert!(sources.len() > 40 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_core_is_pure() {
    let mut wrong = Vec::new();
    for file in files("src/protocol", ".rs") {
        for (n, line) in file.code() {
            let used = line.trim().trim_start_matches("pub ").strip_prefix("use ");
            let name = used.map(|rest| rest.split([':', ';', ' ']).next().unwrap_or_default());
            if name.is_some_and(|name| !CORE_USES.contains(&name)) || line.contains("std::time::Instant") {
                wrong.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Times that are written down or decided by come from one place. Spans of time may be measured where something waits.
#[test]
fn the_clock_is_read_in_one_place() {
    let wall = ["SystemTime::now", "Utc::now", "Local::now"];
    let may_measure = ["api", "cli", "kafka", "pipeline", "shutdown", "sink", "source", "store"];
    let mut wrong = Vec::new();
    for file in files("src", ".rs").iter().filter(|file| file.room() != "clock") {
        for (n, line) in file.code() {
            let reads = wall.iter().any(|call| line.contains(call));
            let measures = line.contains("Instant::now") && !may_measure.contains(&file.room());
            if reads || measures {
                wrong.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_unsafe_is_known() {
    let is_unsafe = |line: &str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "unsafe");
    let files = files("src", ".rs");
    let there: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.code().any(|(_, line)| is_unsafe(line)))
        .map(|file| file.path.as_str())
        .collect();
    let known = |path: &str| UNSAFE.iter().any(|(beginning, _)| path.starts_with(beginning));
    let unknown: Vec<&&str> = there.iter().filter(|path| !known(path)).collect();
    assert!(!there.is_empty() && unknown.is_empty(), "{unknown:?}");
}

#[test]
fn modules_are_short() {
    let long: BTreeSet<String> = files("src", ".rs")
        .into_iter()
        .filter(|file| file.text.lines().count() > LINES_MAX)
        .map(|file| file.path)
        .filter(|path| !LONG.iter().any(|(known, _)| known == path))
        .collect();
    assert_eq!(long, BTreeSet::new(), "past {LINES_MAX} lines: split, or say why not");
    let main = std::fs::read_to_string(root().join("src/main.rs")).expect("there");
    assert!(main.lines().count() < 80, "main only wires");
}

/// What is unfinished, what was left behind while searching a fault, and what names the machine it was written on.
#[test]
fn nothing_is_left_lying_about() {
    let left = [
        concat!("to", "do!("),
        concat!("unimplemented", "!("),
        concat!("db", "g!("),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
    ];
    let mut everywhere = files("src", "");
    everywhere.extend(files("tests", ""));
    everywhere.extend(files("migrations", ""));
    for name in ["README.md", "Cargo.toml", "Justfile"] {
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            everywhere.push(File { path: name.into(), text });
        }
    }
    let mut wrong = Vec::new();
    for file in &everywhere {
        for (n, line) in file.text.lines().enumerate() {
            let found = left.iter().filter(|word| line.contains(**word));
            wrong.extend(found.map(|word| format!("{}:{}: {word}", file.path, n + 1)));
        }
    }
    assert!(everywhere.len() > 60 && wrong.is_empty(), "{wrong:#?}");
}

/// Lower case and no full stop, so that they can be told in one line, cause behind cause.
#[test]
fn errors_read_like_parts_of_a_sentence() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in files("src", ".rs") {
        for (n, line) in file.code() {
            let Some(text) = line.split("#[error(\"").nth(1).and_then(|rest| rest.rsplit_once("\")]")) else {
                continue;
            };
            seen += 1;
            let text = text.0;
            let first = text.split(' ').next().unwrap_or_default();
            // A name may keep its capitals.
            let capital = first.chars().next().is_some_and(char::is_uppercase)
                && first.chars().skip(1).any(char::is_lowercase)
                && !first.starts_with("Kafka")
                && !first.starts_with("Postgre");
            if capital || text.ends_with('.') {
                wrong.push(format!("{}:{n}: {text}", file.path));
            }
        }
    }
    assert!(seen > 20 && wrong.is_empty(), "{seen} seen, {wrong:#?}");
}

/// Between two marks of README stands what the code says. `SEMEL_TEST_BLESS=1` writes it there.
fn stands_in_readme(mark: &str, right: &str) {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("there");
    let (opening, closing) = (format!("<!-- {mark}"), format!("<!-- /{mark} -->"));
    let from = readme.find(&opening).and_then(|at| Some(at + readme[at..].find('\n')? + 1)).expect("an opening mark");
    let to = from + readme[from..].find(&closing).expect("a closing mark");
    if readme[from..to] == *right {
        return;
    }
    if std::env::var_os("SEMEL_TEST_BLESS").is_some() {
        let blessed = [&readme[..from], right, &readme[to..]].concat();
        return std::fs::write(&path, blessed).expect("written");
    }
    let written: BTreeSet<&str> = readme[from..to].lines().collect();
    let missing: Vec<&str> = right.lines().filter(|line| !written.contains(line)).collect();
    panic!("README's {mark} are not those of the code (SEMEL_TEST_BLESS=1 mends it); it lacks {missing:#?}");
}

#[test]
fn every_setting_stands_in_readme() {
    stands_in_readme("settings", &schema::markdown());
}

#[test]
fn every_metric_stands_in_readme() {
    let metrics = std::fs::read_to_string(root().join("src/metrics.rs")).expect("there");
    let described = described_metrics(&metrics);
    assert!(described.len() > 15, "{described:?}");
    let rows = described.iter().map(|(name, text)| format!("| `{name}` | {text} |\n"));
    stands_in_readme("metrics", &format!("| metric | tells |\n| --- | --- |\n{}", rows.collect::<String>()));
}

/// Name and description of every constant with a metric's name. One without a description is an error.
fn described_metrics(source: &str) -> Vec<(String, String)> {
    let constants = source.lines().filter_map(|line| {
        let (name, text) = line.strip_prefix("pub const ")?.split_once(": &str = \"")?;
        Some((name, text.strip_suffix("\";")?))
    });
    let calls: Vec<&str> = source.split("describe_").skip(1).filter(|call| call.contains("!(")).collect();
    let describe = |constant: &str| {
        let call = calls.iter().find(|call| {
            let inside = call.split_once("!(").map_or("", |(_, inside)| inside.trim_start());
            inside.starts_with(&format!("{constant},"))
        });
        let text = call.and_then(|call| call.split('"').nth(1));
        text.unwrap_or_else(|| panic!("{constant} has no description")).to_owned()
    };
    constants.map(|(constant, name)| (name.to_owned(), describe(constant))).collect()
}
