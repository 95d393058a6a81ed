//! The checker, end to end: a run that went well, and what was done to it afterwards is found.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::feed;
use crate::support::world::World;

#[test]
fn what_is_tampered_with_is_found() {
    let world = World::new("tampered", 2);
    let sent = world.send(world.recipe(0, 2_000).iter());
    let daemon = world.daemon("a");
    world.check(sent.clone(), Duration::from_secs(60));
    daemon.stop();
    let kinds = || -> Vec<&str> {
        let mut kinds: Vec<_> = world.judge(sent.clone()).findings.iter().map(|finding| finding.kind()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    // A copy that was forwarded is sent again past Semel.
    let outputs = world.broker.read(&world.output);
    let log = outputs.iter().find(|log| !log.records.is_empty()).expect("something came out");
    let copy = log.records[0].copy().expect("a copy's number");
    let mut again = sent.iter().find(|message| message.copy == copy).expect("it was sent").clone();
    again.partition = log.partition;
    feed::send(&world.services.kafka, &world.output, [again], None);
    assert_eq!(kinds(), ["doubled"]);

    let database = Database::open(&world.database);
    let gone = "DELETE FROM processed_kafka_events WHERE position = (SELECT max(position) FROM processed_kafka_events)";
    assert!(database.execute(gone) > 0);
    assert_eq!(kinds(), ["doubled", "output without a claim"]);

    let back: Vec<(i32, i64)> =
        world.ends().into_iter().zip(0..).map(|(end, partition)| (partition, end - 1)).collect();
    world.broker.move_offsets(&world.group, &world.input, &back);
    assert_eq!(kinds(), ["doubled", "offsets apart", "output without a claim"]);
}
