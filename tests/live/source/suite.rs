//! The promises of `src/source/mod.rs`, each with what breaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use semel::source::SourceError;

use super::Place;
use super::kit::{gather, number, numbered, numbers, once, rest, sorted, tags, take, until_lost};
use crate::support::random::{Random, seed};

const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

pub async fn comes_as_it_was_sent(place: Box<dyn Place>) {
    let (sent, right): (Vec<_>, Vec<_>) = place.samples().into_iter().unzip();
    place.send(&sent).await;
    let mut source = place.open(100);
    let came = take(&mut *source, sent.len(), SOON).await;
    for (n, (delivery, right)) in came.iter().zip(&right).enumerate() {
        assert_eq!(delivery.message, *right, "sample {n}");
    }
    source.acknowledge(&tags(&came)).await.expect("acknowledged");
}

/// Not acknowledged: what was out, and what the client had received. Acknowledged: some in a run, some single.
pub async fn comes_again_unless_acknowledged(place: Box<dyn Place>) {
    place.send(&numbered(0..40)).await;
    let mut source = place.open(30);
    let came = take(&mut *source, 20, SOON).await;
    assert_eq!(numbers(&came), (0..20).collect::<Vec<_>>(), "in the order of the queue");
    let done = |number: usize| number < 5 || number.is_multiple_of(3);
    source.acknowledge(&tags(came.iter().filter(|delivery| done(number(delivery))))).await.expect("acknowledged");
    drop(source);
    let left: Vec<usize> = (0..40).filter(|number| *number >= 20 || !done(*number)).collect();
    let mut again = place.open(100);
    let came = take(&mut *again, left.len(), place.patience()).await;
    assert_eq!(sorted(&came), left);
    again.acknowledge(&tags(&came)).await.expect("acknowledged");
    drop(again);
    let more = rest(&mut *place.open(100), SHORT).await;
    assert_eq!(numbers(&more), Vec::<usize>::new(), "all are acknowledged");
}

pub async fn comes_again_when_handed_back(place: Box<dyn Place>) {
    place.send(&numbered(0..10)).await;
    let mut source = place.open(10);
    let came = take(&mut *source, 10, SOON).await;
    source.hand_back(&tags(&came[3..6])).await.expect("handed back");
    let again = take(&mut *source, 3, SOON).await;
    assert_eq!(sorted(&again), [3, 4, 5]);
    source.hand_back(&tags(&again[..1])).await.expect("handed back");
    let last = take(&mut *source, 1, SOON).await;
    // Each under its newest tag; the older ones do nothing.
    source.acknowledge(&tags(&came)).await.expect("acknowledged");
    source.acknowledge(&tags(again[1..].iter().chain(&last))).await.expect("acknowledged");
    drop(source);
    let more = rest(&mut *place.open(10), SHORT).await;
    assert_eq!(numbers(&more), Vec::<usize>::new());
}

/// What was handed out under a connection that is lost can neither be acknowledged nor handed back.
pub async fn old_tags_do_nothing(place: Box<dyn Place>) {
    place.send(&numbered(0..6)).await;
    let mut source = place.open(100);
    let old = take(&mut *source, 6, SOON).await;
    place.cut();
    until_lost(&mut *source).await;
    source.acknowledge(&tags(&old[..2])).await.expect("no error");
    let new = take(&mut *source, 6, place.patience()).await;
    assert_eq!(sorted(&new), (0..6).collect::<Vec<_>>(), "all of them again");
    source.acknowledge(&tags(&old)).await.expect("no error");
    source.hand_back(&tags(&old)).await.expect("no error");
    assert_eq!(numbers(&rest(&mut *source, SHORT).await), Vec::<usize>::new(), "nothing was handed back");
    drop(source);
    let mut source = place.open(100);
    let left = take(&mut *source, 6, place.patience()).await;
    assert_eq!(sorted(&left), (0..6).collect::<Vec<_>>(), "nothing was acknowledged");
    source.acknowledge(&tags(&left)).await.expect("acknowledged");
}

pub async fn bounded(place: Box<dyn Place>) {
    place.send(&numbered(0..30)).await;
    let mut source = place.open(7);
    let mut out = take(&mut *source, 7, SOON).await;
    assert_eq!(numbers(&rest(&mut *source, SHORT).await), Vec::<usize>::new(), "seven are out");
    source.acknowledge(&tags(&out[..3])).await.expect("acknowledged");
    out.drain(..3);
    out.extend(take(&mut *source, 3, SOON).await);
    assert_eq!(numbers(&rest(&mut *source, SHORT).await), Vec::<usize>::new(), "seven are out again");
    place.cut();
    until_lost(&mut *source).await;
    let again = take(&mut *source, 7, place.patience()).await;
    assert_eq!(numbers(&rest(&mut *source, SHORT).await), Vec::<usize>::new(), "seven are out on the new connection");
    source.hand_back(&tags(&again)).await.expect("handed back");
    let few = once(&mut *source, gather(2, 2_000)).await.expect("a connection");
    assert_eq!(few.len(), 2, "and no more than are asked for");
}

/// Everything is handed back, also what was received and not handed out, and nothing is received until the next call:
/// neither by one that holds something nor by one that still waited.
pub async fn pauses(place: Box<dyn Place>) {
    let mut idle = place.open(10);
    assert!(once(&mut *idle, gather(10, 100)).await.expect("a connection").is_empty());
    idle.pause().await.expect("paused");
    place.send(&numbered(0..20)).await;
    let mut source = place.open(10);
    // At once: not only after what the idle one had taken comes again.
    let old = take(&mut *source, 5, Duration::from_millis(1_500)).await;
    source.pause().await.expect("paused");
    source.acknowledge(&tags(&old)).await.expect("no error");
    let mut other = place.open(100);
    let came = take(&mut *other, 20, Duration::from_secs(1)).await;
    assert_eq!(sorted(&came), (0..20).collect::<Vec<_>>(), "each once");
    assert_eq!(numbers(&rest(&mut *other, SHORT).await), Vec::<usize>::new(), "and not twice");
    other.acknowledge(&tags(&came)).await.expect("acknowledged");
    drop(other);
    source.pause().await.expect("paused twice");
    place.send(&numbered(20..25)).await;
    let came = take(&mut *source, 5, SOON).await;
    assert_eq!(sorted(&came), (20..25).collect::<Vec<_>>(), "and it goes on");
    source.acknowledge(&tags(&came)).await.expect("acknowledged");
}

pub async fn a_dropped_call_loses_nothing(place: Box<dyn Place>) {
    let mut source = place.open(1_000);
    assert_eq!(numbers(&rest(&mut *source, SHORT).await), Vec::<usize>::new());
    let mut came = Vec::new();
    for round in 0..20 {
        place.send(&numbered(round * 10..round * 10 + 10)).await;
        for micros in [50, 200, 1_000] {
            // It would wait for more than there is.
            let receive = once(&mut *source, gather(1_000, 5_000));
            if let Ok(taken) = tokio::time::timeout(Duration::from_micros(micros), receive).await {
                came.extend(taken.expect("a connection"));
            }
        }
    }
    // Well before anything would be delivered a second time.
    let left = take(&mut *source, 200 - came.len(), Duration::from_secs(1)).await;
    came.extend(left);
    assert_eq!(numbers(&came), (0..200).collect::<Vec<_>>());
    source.acknowledge(&tags(&came)).await.expect("acknowledged");
}

pub async fn out_of_reach(place: Box<dyn Place>) {
    place.refuse(true);
    let mut source = place.open(10);
    let begun = Instant::now();
    let told = once(&mut *source, gather(1, 100)).await;
    assert!(matches!(told, Err(SourceError::Lost(_))) && begun.elapsed() < SOON, "{told:?}");
    place.refuse(false);
    place.send(&numbered(0..1)).await;
    let came = take(&mut *source, 1, SOON).await;
    source.acknowledge(&tags(&came)).await.expect("acknowledged");
}

/// Ten thousand messages over connections that are cut again and again. Each comes, and so does again what was handed back
/// or held when a connection was cut; in the end none is left.
pub async fn connections_are_cut(place: Box<dyn Place>) {
    const MESSAGES: usize = 10_000;
    const CUTS: usize = 4;
    let seed = seed();
    let mut random = Random::new(seed);
    place.send(&numbered(0..MESSAGES)).await;
    let mut source = place.open(500);
    let (mut seen, mut owed, mut cuts) = (BTreeMap::<usize, u32>::new(), BTreeSet::<usize>::new(), 0);
    let mut since = Instant::now();
    while seen.len() < MESSAGES || !owed.is_empty() || since.elapsed() < place.patience() / 2 {
        assert!(since.elapsed() < place.patience(), "seed {seed}: {} came, {owed:?} do not", seen.len());
        let Ok(came) = once(&mut *source, gather(500, 200)).await else { continue };
        if came.is_empty() {
            continue;
        }
        since = Instant::now();
        for number in numbers(&came) {
            *seen.entry(number).or_default() += 1;
            owed.remove(&number);
        }
        // Nothing goes back in the end, which would have no end.
        let percent = if seen.len() < MESSAGES { 2 } else { 0 };
        let (back, done): (Vec<_>, Vec<_>) = came.into_iter().partition(|_| random.percent(percent));
        owed.extend(numbers(&back));
        let cut_now = cuts < CUTS && seen.len() > (cuts + 1) * MESSAGES / (CUTS + 2);
        let some = if cut_now { random.among(0..done.len() as u64 + 1) as usize } else { done.len() };
        let (done, held) = done.split_at(some);
        drop(source.acknowledge(&tags(done)).await);
        if cut_now {
            // Some acknowledgements are on their way, and some messages are held.
            place.cut();
            owed.extend(numbers(held));
            cuts += 1;
        }
        drop(source.hand_back(&tags(&back)).await);
    }
    drop(source);
    let left = rest(&mut *place.open(100), SHORT).await;
    let twice = seen.values().filter(|times| **times > 1).count();
    println!("seed {seed}: {cuts} cuts, {twice} came more than once");
    assert_eq!(numbers(&left), Vec::<usize>::new(), "seed {seed}: left at the end");
    assert!(cuts == CUTS && twice > 0, "seed {seed}: the cuts came too late to matter");
}

/// A sink of one protocol and a source of the other mean the same headers.
#[test]
fn headers_of_sinks_are_undone() {
    use semel::{sink, source};
    assert_eq!((source::names::KEY, source::names::NULL), (sink::names::KEY, sink::names::NULL));
}
