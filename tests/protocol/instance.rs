//! A window's next step, and what each answer means, row by row.

use semel::protocol::instance::{Answer, Beyond, End, Next, Remedy, Standing, State, Window};
use semel::protocol::lane::{Holder, LaneId, Position};
use semel::protocol::slot::{Conflicting, LaneSeen};

const MINE: LaneId = LaneId(1);
const OTHER: LaneId = LaneId(2);

fn held(lane: LaneId, position: Position, (settled, open, lapsed): (Position, bool, bool)) -> Answer {
    let holder = Holder { lane: Some(lane), position };
    Answer::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled, open, lapsed }) }))
}

/// Three events in four messages: `b`, `a`, `b` again, and one that needs no claim.
fn window() -> (Window, Standing) {
    let standing = Standing { lane: MINE, next: 10, committed: 10, settled: 7 };
    (Window::of(&[Some("b"), Some("a"), Some("b"), None]), standing)
}

/// The window above, `a` and `b` answered so.
fn reserved(a: Answer, b: Answer) -> (Window, Standing) {
    let (mut window, mut standing) = window();
    let rows = window.rows(&standing);
    window.reserved(&mut standing, &rows, &[a, b]);
    (window, standing)
}

#[test]
fn what_is_asked() {
    let (window, standing) = window();
    assert_eq!(window.next(), Next::Reserve);
    let rows: Vec<(usize, Position)> = window.rows(&standing).iter().map(|row| (row.item, row.position)).collect();
    assert_eq!(rows, [(1, 11), (0, 10)], "ascending by key, positions as the messages came, each key once");
}

#[test]
fn what_an_answer_means() {
    let gone = Answer::InTheWay(None);
    let laneless = Conflicting { holder: Holder { lane: None, position: 0 }, lane: None };
    let cases = [
        (Answer::Inserted, State::Mine(11), "claimed just now"),
        (Answer::InTheWay(Some(laneless)), State::Duplicate, "settled for ever"),
        (held(OTHER, 4, (5, true, false)), State::Duplicate, "settled by another"),
        (held(MINE, 9, (7, true, false)), State::Duplicate, "published here, and this very reserve has told the store"),
        (held(MINE, 10, (7, true, false)), State::Later, "its own, and not settled"),
        (held(OTHER, 5, (5, true, false)), State::Later, "another's work"),
        (held(OTHER, 5, (5, false, false)), State::Later, "left in doubt, the lease runs"),
        (held(OTHER, 5, (5, true, true)), State::Orphan(Remedy::TakeOver(OTHER)), "its holder is gone"),
        (held(OTHER, 5, (5, false, true)), State::Orphan(Remedy::Sweep(OTHER)), "left in doubt, the lease is over"),
        (gone, State::Fresh, "released without a publish: no duplicate"),
    ];
    for (answer, right, why) in cases {
        let (window, standing) = reserved(answer, Answer::Inserted);
        assert_eq!(window.states()[1], right, "{why}");
        assert_eq!(window.states()[2], State::Repeat { of: 0 }, "a repeat waits for the first");
        assert_eq!((standing.next, standing.settled), (12, 10), "positions are used up, and the store knows");
    }
}

#[test]
fn what_a_repeat_comes_to() {
    let cases = [
        (held(OTHER, 4, (5, true, false)), State::Duplicate, "the first is a duplicate"),
        (held(OTHER, 5, (5, true, false)), State::Later, "the first is somebody's work"),
        (Answer::InTheWay(None), State::Repeat { of: 0 }, "the first is asked for again"),
    ];
    for (answer, right, why) in cases {
        let (window, _) = reserved(Answer::Inserted, answer);
        assert_eq!(window.states()[2], right, "{why}");
    }
    let ends = [
        (End::Stored, State::Duplicate, "the first is published"),
        (End::NotStored, State::Repeat { of: 0 }, "the first is tried again"),
        (End::InDoubt, State::Repeat { of: 0 }, "never acknowledged for a first in doubt"),
    ];
    for (end, right, why) in ends {
        let (mut window, mut standing) = reserved(Answer::Inserted, Answer::Inserted);
        window.published(&mut standing, &[0], &[end]);
        assert_eq!(window.states()[2], right, "{why}");
    }
}

/// `b` is at 10, `a` at 11.
#[test]
fn what_a_publish_comes_to() {
    use End::{InDoubt, NotStored, Stored};
    let again = |items: &[usize]| Next::Publish(items.to_vec());
    let cases: [([End; 3], Position, (&[Position], &[Position]), Next, &str); 7] = [
        ([Stored, Stored, Stored], 12, (&[], &[]), Next::Done, "all published"),
        ([Stored, NotStored, NotStored], 11, (&[], &[]), again(&[1, 3]), "the rest again"),
        ([NotStored, Stored, Stored], 10, (&[11], &[]), again(&[0]), "a gap is not committed over"),
        ([NotStored, NotStored, NotStored], 10, (&[], &[]), again(&[0, 1, 3]), "all again"),
        ([Stored, InDoubt, NotStored], 11, (&[], &[11]), Next::Cut, "the claim in doubt stays behind"),
        ([InDoubt, Stored, Stored], 10, (&[11], &[10]), Next::Cut, "what is published beyond it is known"),
        ([Stored, Stored, InDoubt], 12, (&[], &[]), again(&[3]), "without a claim it just goes out again"),
    ];
    for (ends, committed, (published, in_doubt), next, why) in cases {
        let (mut window, mut standing) = reserved(Answer::Inserted, Answer::Inserted);
        assert_eq!(window.next(), again(&[0, 1, 3]), "in the order in which they came");
        window.published(&mut standing, &[0, 1, 3], &ends);
        assert_eq!((standing.committed, window.next()), (committed, next), "{why}");
        let right = Beyond { published: published.to_vec(), in_doubt: in_doubt.to_vec() };
        assert_eq!(window.beyond(&standing), right, "{why}");
        let done: Vec<bool> = [0, 1, 3].iter().map(|&n| window.states()[n].is_done()).collect();
        assert_eq!(done, ends.map(|end| end == Stored), "only what is published is acknowledged: {why}");
        assert_eq!(window.states()[2].is_done(), ends[0] == Stored, "a repeat as its first: {why}");
    }
}

#[test]
fn what_is_given_back_comes_later() {
    let (mut window, mut standing) = reserved(Answer::Inserted, Answer::Inserted);
    window.published(&mut standing, &[0, 1, 3], &[End::NotStored, End::Stored, End::NotStored]);
    window.given_back(&mut standing);
    let right = [State::Later, State::Published(Some(11)), State::Later, State::Later];
    assert_eq!((window.states(), window.next()), (right.as_slice(), Next::Done));
    assert_eq!((standing.committed, standing.owes()), (12, true), "nothing of it is unsettled any more");
}

#[test]
fn what_a_remedy_comes_to() {
    let orphan = held(OTHER, 5, (5, true, true));
    for (again, right) in [(true, Next::Reserve), (false, Next::Publish(vec![3]))] {
        let (mut window, _) = reserved(orphan, orphan);
        assert_eq!(window.next(), Next::Remedy(Remedy::TakeOver(OTHER)));
        window.remedied(Remedy::TakeOver(OTHER), again);
        assert_eq!(window.next(), right, "one takeover serves every claim of the lane");
    }
    let (mut window, mut standing) = reserved(orphan, Answer::Inserted);
    assert_eq!(window.next(), Next::Publish(vec![0, 3]), "what is claimed is published before anything else is asked");
    window.published(&mut standing, &[0, 3], &[End::NotStored, End::Stored]);
    assert_eq!(window.next(), Next::Publish(vec![0]), "the lease that runs is its own");
}

/// What others take and release again and again does not keep a window for ever.
#[test]
fn a_window_ends() {
    for answer in [Answer::InTheWay(None), held(OTHER, 5, (5, true, true))] {
        let (mut window, mut standing) = window();
        let mut steps = 0;
        loop {
            steps += 1;
            match window.next() {
                Next::Reserve => {
                    let rows = window.rows(&standing);
                    window.reserved(&mut standing, &rows, &vec![answer; rows.len()]);
                }
                Next::Remedy(remedy) => window.remedied(remedy, true),
                next => break assert_eq!(next, Next::Publish(vec![3]), "what needs no claim goes out"),
            }
            assert!(steps < 20, "it does not end");
        }
        assert!(window.states()[..3].iter().all(|state| *state == State::Later), "nothing is acknowledged");
    }
}
