//! Brokers that are killed in the middle of a window, are away, and stall. Each test has its own.

use std::time::{Duration, Instant};

use semel::sink::nats::{NatsOptions, NatsSink};
use semel::sink::rabbitmq::{RabbitOptions, RabbitSink};
use semel::sink::{Destination, Outgoing, Published, Sink, SinkError};

use super::kit::{all_confirmed, answered, forward, is_in_doubt, numbered, texts};
use super::subjects::{OwnStreams, Queues};
use super::{Broker, run};
use crate::support::broker::wait_until;
use crate::support::services::{OwnServices, Service};

const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest that a call takes whose time is over.
const LATE: Duration = Duration::from_millis(3_500);
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn rabbitmq() {
    run(async {
        let own = start(Service::RabbitMq).await;
        for kind in ["classic", "quorum"] {
            let queues = Queues::make_all(&own.services, kind, None).await;
            // A queue that was just made is lost by a crash: the broker writes down what there is some seconds later.
            own.rabbitmqctl(&["eval", "mnesia:sync_log()."]);
            let mut sink = RabbitSink::new(RabbitOptions { timeout: TIMEOUT, ..queues.options() });
            killed(&own, Service::RabbitMq, &mut sink, &queues).await;
            if kind == "classic" {
                stalled(&own, Service::RabbitMq, &mut sink, &queues).await;
                blocked(&own, &mut sink, &queues).await;
            }
        }
    });
}

#[test]
fn nats() {
    run(async {
        let own = start(Service::Nats).await;
        let streams = OwnStreams::make_all(&own.services, None).await;
        let mut sink = NatsSink::new(NatsOptions { timeout: TIMEOUT, ..streams.options() });
        killed(&own, Service::Nats, &mut sink, &streams).await;
        stalled(&own, Service::Nats, &mut sink, &streams).await;
    });
}

/// What was confirmed is there after the crash, what was not sent is not, and the same sink works on.
async fn killed(own: &OwnServices, service: Service, sink: &mut dyn Sink, broker: &dyn Broker) {
    let warm_up = numbered("warm-up", 2_000);
    let begin = Instant::now();
    all_confirmed(&sink.publish(&warm_up).await);
    let window = numbered("window", 40_000);
    let moment = begin.elapsed();
    let handle = own.handle(service);
    let kill = async {
        tokio::time::sleep(moment).await;
        handle.kill();
        Instant::now()
    };
    let (answers, killed) = tokio::join!(sink.publish(&window), kill);
    assert!(killed.elapsed() < TIMEOUT / 2, "a lost connection is known at once: {:?}", killed.elapsed());

    let mut sent = warm_up.iter().chain(&window).map(super::kit::text_of).collect::<Vec<_>>();
    let confirmed = answered(&window, &answers, |answer| *answer == Published::Confirmed);
    let in_doubt = answered(&window, &answers, is_in_doubt);
    let first_not_sent = answers.iter().position(|answer| *answer == Published::NotSent).expect("some were not sent");
    println!("{} confirmed, {} in doubt, {} not sent", confirmed.len(), in_doubt.len(), 40_000 - first_not_sent);
    assert!(!confirmed.is_empty() && !in_doubt.is_empty(), "in the middle of the window");
    assert!(answers[first_not_sent..].iter().all(|answer| *answer == Published::NotSent), "sending ended there");
    sent.truncate(warm_up.len() + first_not_sent);

    // It is away.
    let begin = Instant::now();
    let answers = sink.publish(&numbered("away", 3)).await;
    assert_eq!(answers, vec![Published::NotSent; 3]);
    let error = sink.check().await.expect_err("it is away");
    assert!(matches!(error, SinkError::Lost(_)), "{error:?}");
    assert!(begin.elapsed() < 2 * LATE);

    // Its end is recorded before it is brought back.
    tokio::task::block_in_place(|| {
        own.stop(service, true);
        own.bring_back(service);
    });
    again(sink, &forward("after")).await;
    let stored = texts(&broker.take(Destination::Forward).await);
    let after = stored.iter().position(|text| text == "after").expect("the last one");
    assert_eq!(after, stored.len() - 1, "in order");
    let stored = &stored[..after];
    let mut rest = sent.iter();
    for text in stored {
        assert!(rest.any(|sent| sent == text), "{text} was not sent, or not in this order, or twice");
    }
    for text in warm_up.iter().map(super::kit::text_of).chain(confirmed) {
        assert!(stored.contains(&text), "{text} was confirmed and is lost");
    }
}

/// A broker that says nothing: in doubt when the time is over, and not before; then the sink works on.
async fn stalled(own: &OwnServices, service: Service, sink: &mut dyn Sink, broker: &dyn Broker) {
    again(sink, &forward("before the stall")).await;
    let handle = own.handle(service);
    handle.signal(libc::SIGSTOP);
    wait_until("all its threads stand still", PATIENCE, || handle.stands_still());
    let window = numbered("stalled", 500);
    let begin = Instant::now();
    let answers = sink.publish(&window).await;
    let took = begin.elapsed();
    let unknown = |answer: &Published| matches!(answer, Published::InDoubt(_) | Published::NotSent);
    let begin = Instant::now();
    let next = sink.publish(&numbered("next", 3)).await;
    let next_took = begin.elapsed();
    handle.signal(libc::SIGCONT);
    assert!((TIMEOUT..LATE).contains(&took), "{took:?}");
    assert!(answers.iter().all(unknown) && answers.iter().any(is_in_doubt), "{answers:?}");
    assert_eq!(next, vec![Published::NotSent; 3], "a new connection says nothing either");
    assert!(next_took < LATE, "{next_took:?}");
    again(sink, &forward("after the stall")).await;
    let stored = texts(&broker.take(Destination::Forward).await);
    let ours = ["before the stall".to_owned(), "after the stall".to_owned()];
    let sent = window.iter().map(super::kit::text_of).collect::<Vec<_>>();
    let late = stored.iter().filter(|text| !ours.contains(text)).collect::<Vec<_>>();
    assert!(late.iter().all(|text| sent.contains(text)), "nothing else was sent: {late:?}");
    assert!(ours.iter().all(|text| stored.contains(text)), "{stored:?}");
}

/// A broker without memory takes nothing: what was under way is in doubt once, and then nothing is sent.
async fn blocked(own: &OwnServices, sink: &mut dyn Sink, broker: &dyn Broker) {
    again(sink, &forward("before the block")).await;
    own.rabbitmqctl(&["set_vm_memory_high_watermark", "0"]);
    let first = sink.publish(&numbered("first", 500)).await;
    let unknown = |answer: &Published| matches!(answer, Published::InDoubt(_) | Published::NotSent);
    assert!(first.iter().all(unknown), "{first:?}");
    let begin = Instant::now();
    assert_eq!(sink.publish(&numbered("next", 3)).await, vec![Published::NotSent; 3]);
    assert!(begin.elapsed() < LATE);
    own.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]);
    again(sink, &forward("after the block")).await;
    let stored = texts(&broker.take(Destination::Forward).await);
    assert!(!stored.iter().any(|text| text.starts_with("next")), "{stored:?}");
    // What was in doubt may be there too, and even last: the broker had it in hand.
    assert!(
        ["before the block", "after the block"].iter().all(|text| stored.iter().any(|stored| stored == text)),
        "{stored:?}"
    );
}

/// Until it is confirmed; a node that just came back may be choosing leaders.
async fn again(sink: &mut dyn Sink, outgoing: &Outgoing) {
    let begin = Instant::now();
    loop {
        let answers = sink.publish(std::slice::from_ref(outgoing)).await;
        if answers[0].is_stored() {
            return;
        }
        if begin.elapsed() > PATIENCE {
            panic!("{}: {answers:?}, and the check says {:?}", super::kit::text_of(outgoing), sink.check().await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn start(service: Service) -> OwnServices {
    tokio::task::spawn_blocking(move || OwnServices::start(&[service])).await.expect("it starts")
}
