//! `semel check` where the source has no offsets.

use super::expect;
use crate::rabbitmq::Between;
use crate::support::services::Services;
use crate::support::unique;

#[test]
fn finds_nothing_wrong_between_queues() {
    let mut between = Between::new("check-queues");
    expect(&["partitions", "--ensure"], &between.settings, 0, &["made the week of "]);
    between.send(&["a".to_owned(), "b".to_owned()]);
    let source = format!("queue {}", between.input);
    let lines = [
        "ok    promise",
        "never lost; twice, with the same message_id",
        "ok    schema",
        "ok    weeks",
        "no pipeline from Kafka to Kafka claims under it",
        "no lane of this scope was opened for another",
        &source,
        "messages ready: 2, consumers: 0",
        "it is there, with every other destination that is set",
    ];
    let text = expect(&["check"], &between.settings, 0, &lines);
    assert!(!text.contains("FAIL") && !text.contains("warn"), "{text}");
    assert_eq!(between.waiting(&between.input), 2, "nothing was taken");
    // Its lane is of this recipe, and then not.
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    daemon.stop();
    between.settings.insert("SEMEL_EVENT_ID".to_owned(), "header:other".to_owned());
    expect(&["check"], &between.settings, 1, &["FAIL  recipe", "SEMEL_ACCEPT_RECIPE="]);
}

#[test]
fn tells_everything_that_is_missing_at_once() {
    let mut between = Between::new("check-missing");
    let url = between.settings["SEMEL_SOURCE"].clone();
    let missing = unique("missing");
    between.settings.insert("SEMEL_SOURCE".to_owned(), url.replace(&between.input, &missing));
    between
        .settings
        .insert("SEMEL_SINK".to_owned(), format!("{}?queue={missing}-out", url.split('?').next().expect("a server")));
    let [source, sink] = ["", "-out"].map(|end| format!("FAIL  queue {missing}{end}"));
    let text = expect(&["check"], &between.settings, 1, &[&source, &sink, "no queue", "ok    schema"]);
    let password = url.split([':', '@']).nth(2).expect("a password");
    assert!(!text.contains(password), "{text}");

    // From Kafka it is a topic and a group.
    let kafka = Services::shared().kafka;
    let of_queue = between.settings.clone();
    between.settings.insert("SEMEL_SOURCE".to_owned(), format!("kafka://{kafka}/{missing}?group={missing}"));
    let topic = format!("FAIL  topic {missing}");
    expect(&["check"], &between.settings, 1, &[&topic, &sink, "ok    kafka", "ok    group", "ok    schema"]);
    between.settings = of_queue;

    // Into Kafka it is topics and transactions.
    between.settings.insert("SEMEL_SINK".to_owned(), format!("kafka://{kafka}/{missing}"));
    between.settings.remove("SEMEL_PUBLISH_TIMEOUT");
    between.settings.insert("SEMEL_TRANSACTION_TIMEOUT".to_owned(), "2s".to_owned());
    let lines = [&topic, "into kafka exactly once", "ok    kafka", "transactional ids semel."];
    expect(&["check"], &between.settings, 1, &lines);
}
