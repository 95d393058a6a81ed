use super::*;
use crate::config::testing::given;

#[test]
fn the_table_has_every_setting() {
    let table = markdown();
    for setting in settings() {
        let rows = table.lines().filter(|line| line.starts_with(&format!("| `{}`", setting.name))).count();
        assert_eq!(rows, 1, "{}", setting.name);
    }
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(table.lines().all(|line| columns(line) == 5), "a bar inside a cell is escaped");
}

#[test]
fn the_schema_has_every_setting() {
    let schema = json();
    let listed = schema["settings"].as_array().expect("a list");
    for setting in settings() {
        let entry = listed.iter().find(|entry| entry["name"] == setting.name).expect(setting.name);
        assert_eq!(entry["flag"], format!("--{}", setting.flag()));
        assert!(entry["doc"].as_str().is_some_and(|doc| doc.ends_with('.')), "{}: a sentence", setting.name);
    }
    assert_eq!(listed.len(), settings().count(), "and nothing else");
    let scope = listed.iter().find(|entry| entry["name"] == "SEMEL_SCOPE").expect("there");
    assert_eq!(scope["alias"], "IM2BE_DEDUP_DEFAULT_SCOPE_ID");
    assert_eq!((&scope["required"], &scope["pipe"]), (&true.into(), &"default".into()));
    let duplicates = listed.iter().find(|entry| entry["name"] == "SEMEL_DUPLICATES").expect("there");
    assert_eq!(duplicates["values"], serde_json::json!(["drop", "route", "mark"]));
}

/// Lines go from file to file: neither Kafka nor a database is spoken of.
#[test]
fn what_pipe_takes_is_told_in_its_own_words() {
    for setting in settings().filter(|setting| setting.pipe != Pipe::No) {
        let told = format!("{} {}", setting.form_in(Command::Pipe), setting.doc_in(Command::Pipe));
        for foreign in ["opic", "essage", "afka", "ostgre", "header:"] {
            assert!(!told.contains(foreign), "{}: `{foreign}` in {told}", setting.name);
        }
        assert!(told.ends_with('.'), "{}: a sentence", setting.name);
    }
    let schema = json();
    let entry = |name: &str| {
        let mut listed = schema["settings"].as_array().expect("a list").iter();
        listed.find(|entry| entry["name"] == name).expect(name).clone()
    };
    let store = entry("SEMEL_STORE");
    assert_eq!((&store["pipe"], &store["pipe_form"]), (&"embedded:./semel-claims".into(), &"embedded:FOLDER".into()));
    let rejects = entry("SEMEL_DEAD_LETTER");
    assert!(rejects["pipe"] == true && rejects["pipe_otherwise"].is_string() && rejects["pipe_doc"].is_string());
}

#[test]
fn what_holds_and_where_it_comes_from() {
    let mut given = given(&[
        ("SEMEL_SCOPE", ""),
        ("IM2BE_DEDUP_DEFAULT_SCOPE_ID", "s-${WHO}"),
        ("WHO", "me"),
        ("SEMEL_KAFKA_SASL_PASSWORD", "hidden"),
    ]);
    given.flags.push(("SEMEL_WORKERS".into(), "2".into()));
    let (values, _) = Values::gather(given);
    let shown = show(&values, Command::Run);
    let found = |name: &str| {
        let shown = shown.iter().find(|shown| shown.name == name);
        shown.map(|shown| format!("{} ({})", shown.value, shown.origin))
    };
    let cases = [
        ("SEMEL_SCOPE", Some("s-me (environment by IM2BE_DEDUP_DEFAULT_SCOPE_ID)"), "by another name, resolved"),
        ("SEMEL_WORKERS", Some("2 (flag)"), "given"),
        ("SEMEL_LINGER", Some("5ms (default)"), "not given"),
        ("SEMEL_STORE", Some("postgres://u:***@db/claims (environment)"), "a password in a URL"),
        ("SEMEL_KAFKA_SASL_PASSWORD", Some("*** (environment)"), "a password"),
        ("SEMEL_PIPELINE", Some("g (SEMEL_SOURCE)"), "follows from another"),
        ("SEMEL_INSTANCE", Some("this-host (host's name)"), "follows from where it runs"),
        ("SEMEL_DUPLICATES_TOPIC", None, "nothing holds"),
    ];
    for (name, right, why) in cases {
        assert_eq!(found(name).as_deref(), right, "{name}: {why}");
    }
}
