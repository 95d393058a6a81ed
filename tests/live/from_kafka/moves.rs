//! A start that is not where the lane is settled: an operator moved the group's offsets, back or forward, or the topic was
//! made anew under its name.

use std::collections::BTreeSet;
use std::time::Duration;

use super::kit::{Plain, To};
use crate::MINUTE;
use crate::support::broker::wait_until;
use crate::support::daemon::Daemon;

fn leave(plain: &Plain, daemon: Daemon) {
    daemon.stop();
    wait_until("the group is empty", MINUTE, || plain.world.broker.members(&plain.world.group) == 0);
}

/// Moved back everything is read again, and all of it is known. What follows comes out once.
#[test]
fn moved_back_nothing_comes_out_again() {
    let mut plain = Plain::new("from-kafka-back", 2, To::RabbitMq);
    let mut sent = plain.world.send(plain.world.recipe(0, 3_000).iter());
    let daemon = plain.world.daemon("a");
    assert_eq!(plain.check(sent.clone(), MINUTE), BTreeSet::new());
    leave(&plain, daemon);
    plain.world.broker.move_offsets(&plain.world.group, &plain.world.input, &[(0, 0), (1, 17)]);
    sent.extend(plain.world.send(plain.world.recipe(1, 1_000).iter()));
    let daemon = plain.world.daemon("a");
    assert_eq!(plain.check(sent, MINUTE), BTreeSet::new(), "what was settled is dropped");
    assert_eq!(daemon.metric("semel_discontinuities_total", &["reason=\"rewind\""]), 2.0);
    daemon.stop();
}

/// Killed in the middle of its windows, and then moved: what was claimed and not settled is released, so that a copy
/// elsewhere, or the same record read again, comes out.
#[test]
fn moved_after_a_kill_nothing_is_lost() {
    for (name, back) in [("from-kafka-kill-back", true), ("from-kafka-kill-forward", false)] {
        let mut plain = Plain::new(name, 2, To::RabbitMq);
        plain.set(&[("SEMEL_WINDOW_SIZE", "1000")]);
        let sent = plain.world.send(plain.world.recipe(0, 24_000).iter());
        let is_read = |plain: &Plain| {
            let stands = plain.world.offsets(false, false).into_iter();
            stands.flatten().filter(|(offset, _)| *offset >= 1_500).count() == 2
        };
        let mut left = 0;
        for _ in 0..6 {
            let daemon = plain.world.daemon_unready("a");
            wait_until("it is in the middle of a window", MINUTE, || is_read(&plain) && !plain.unsettled().is_empty());
            left = plain.kill(daemon);
            if left > 0 {
                break;
            }
        }
        println!("{left} claims unsettled");
        assert!(left > 0, "no kill left a claim unsettled");
        wait_until("the group is empty", MINUTE, || plain.world.broker.members(&plain.world.group) == 0);
        let committed = plain.world.offsets(false, false);
        let stands = |partition: usize| committed[partition].as_ref().map_or(0, |(offset, _)| *offset);
        let to: Vec<(i32, i64)> =
            (0..2).map(|p| (p as i32, if back { stands(p) / 2 } else { stands(p) + 700 })).collect();
        if !back {
            for &(partition, to) in &to {
                plain.world.skipped(partition, stands(partition as usize), to, true);
            }
        }
        plain.world.broker.move_offsets(&plain.world.group, &plain.world.input, &to);
        let daemon = plain.world.daemon("a");
        plain.check_but_for_skipped(sent, MINUTE);
        let reason = if back { "reason=\"rewind\"" } else { "reason=\"skip\"" };
        assert_eq!(daemon.metric("semel_discontinuities_total", &[reason]), 2.0);
        daemon.stop();
    }
}

/// The new log is read from its start, although the old one was settled further on; copies of the old one's events are
/// dropped.
#[test]
fn a_topic_made_anew_is_read_whole() {
    let mut plain = Plain::new("from-kafka-anew", 2, To::RabbitMq);
    let mut sent = plain.world.send(plain.world.recipe(0, 3_000).iter());
    let daemon = plain.world.daemon("a");
    assert_eq!(plain.check(sent.clone(), MINUTE), BTreeSet::new());
    leave(&plain, daemon);
    plain.world.make_input_anew(2);
    sent.extend(plain.world.send(plain.world.recipe(1, 1_500).iter()));
    let daemon = plain.world.daemon("a");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(plain.check(sent, MINUTE), BTreeSet::new());
    assert_eq!(daemon.metric("semel_discontinuities_total", &["reason=\"topic_made_anew\""]), 2.0);
    daemon.stop();
}
