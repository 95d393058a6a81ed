//! Two processes of one instance name: who was first leaves and says which name it is. One that was only overtaken after
//! its lease stays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::MINUTE;
use crate::into_kafka::Into;
use crate::rabbitmq::Between;
use crate::support::broker::wait_until;
use crate::support::daemon::Daemon;

/// Another process under the instance name of `a`, with a log of its own.
fn namesake(between: &Between) -> Daemon {
    let folder = between.folder.join("namesake");
    std::fs::create_dir_all(&folder).expect("a folder");
    Daemon::start(&folder, "a", &between.settings)
}

/// Sends until one of them has left; answers what was sent, and the one that stayed.
fn one_leaves(between: &mut Between, mut first: Daemon, mut second: Daemon) -> (Vec<String>, Daemon) {
    let begun = Instant::now();
    let mut sent = Vec::new();
    let status = loop {
        assert!(begun.elapsed() < MINUTE, "nobody leaves: {}\n{}", first.tail(), second.tail());
        let some: Vec<String> = (0..20).map(|n| format!("event-{}", sent.len() + n)).collect();
        between.send(&some);
        sent.extend(some);
        std::thread::sleep(Duration::from_millis(100));
        assert!(second.has_ended().is_none(), "the second one left: {}", second.tail());
        if let Some(status) = first.has_ended() {
            break status;
        }
    };
    println!("the first one left after {:?}, with {status}", begun.elapsed());
    assert_eq!(status.code(), Some(1), "{}", first.tail());
    let log = first.log_text();
    assert!(log.contains("another process runs under the instance name a ("), "{}", first.tail());
    assert!(log.contains("SEMEL_INSTANCE"), "{}", first.tail());
    (sent, second)
}

#[test]
fn of_one_name() {
    let mut between = Between::new("clash");
    let mut first = between.daemon("a");
    first.wait_ready();
    let mut second = namesake(&between);
    // It waits for the lease of the first one, which renews none while it has nothing to do.
    second.wait_ready();
    let (sent, second) = one_leaves(&mut between, first, second);
    between.wait_forwarded(sent.len());
    wait_until("everything is acknowledged", MINUTE, || between.waiting(&between.input) == 0);
    second.stop();
    let doubled = between.check(&sent);
    let told = between.told(&sent);
    assert!(doubled.is_subset(&told), "twice without a word: {:?}", doubled.difference(&told));
}

#[test]
fn of_one_name_into_kafka() {
    let mut into = Into::new("clash-kafka");
    let mut first = into.between.daemon("a");
    first.wait_ready();
    let mut second = namesake(&into.between);
    second.wait_ready();
    let (sent, second) = one_leaves(&mut into.between, first, second);
    into.wait_done(sent.len() as u64);
    second.stop();
    into.check(&sent);
}

/// Halted in the middle of a window for longer than its lease, until another instance takes its slot: that is no clash.
#[test]
fn a_pause_is_no_clash() {
    let mut between = Between::new("clash-pause");
    let mut a = between.daemon("a");
    let mut b = between.daemon("b");
    a.wait_ready();
    b.wait_ready();
    let mut sent: Vec<String> = Vec::new();
    let mut excused: BTreeSet<String> = BTreeSet::new();
    let begun = Instant::now();
    while !b.log_text().contains("took over a slot whose lease was over") {
        assert!(begun.elapsed() < 2 * MINUTE, "no pause hit a window that another needed");
        // Each event twice in a row: the copies go to both instances.
        let some: Vec<String> = (0..2_000).map(|n| format!("event-{}-{}", sent.len(), n / 2)).collect();
        between.send(&some);
        sent.extend(some);
        std::thread::sleep(Duration::from_millis(between.random.among(0..100)));
        a.halt();
        // What it had published and not settled by then comes out again, too, like after a crash.
        let unsettled = between.unsettled("a");
        if !unsettled.is_empty() {
            std::thread::sleep(Duration::from_secs(6));
        }
        excused.extend(unsettled);
        a.go_on();
    }
    println!("overtaken after {:?}", begun.elapsed());
    let distinct: BTreeSet<&String> = sent.iter().collect();
    between.wait_forwarded(distinct.len());
    wait_until("everything is acknowledged", MINUTE, || between.waiting(&between.input) == 0);
    std::thread::sleep(Duration::from_secs(4));
    assert!(a.has_ended().is_none(), "{}", a.tail());
    a.stop();
    b.stop();
    let (doubled, told) = (between.check(&sent), between.told(&sent));
    println!("{} events, {} twice, {} told of", distinct.len(), doubled.len(), told.len());
    excused.extend(told);
    assert!(doubled.is_subset(&excused), "twice without a word: {:?}", doubled.difference(&excused));
}
