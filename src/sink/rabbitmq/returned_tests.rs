//! What a return puts in doubt, wherever the client found it.

use lapin::message::{BasicReturnMessage, Delivery};

use super::{RabbitOptions, RabbitSink, Route, Server, Window};
use crate::message::{Header, Message};
use crate::sink::{Destination, Doubt, Outgoing, Published};

fn message(destination: Destination, value: &'static str, key: &str) -> Outgoing {
    let message =
        Message { value: Some(value.into()), headers: vec![Header::new("h", b"x".as_slice())], ..Message::default() };
    Outgoing { destination, message, idempotency_key: Some(key.into()) }
}

fn returned(sink: &RabbitSink, outgoing: &Outgoing) -> BasicReturnMessage {
    let sent = sink.prepare(outgoing).expect("a form");
    let mut delivery = Delivery::mock(0, sent.exchange, sent.routing_key, false, sent.body.to_vec());
    delivery.properties = sent.properties;
    BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() }
}

#[test]
fn only_what_equals_it_or_all_where_nothing_does() {
    let server = Server::new(Vec::new(), "u", "p", "/");
    let mut options = RabbitOptions::new(server, Route::to_queue("out"));
    options.dead_letter = Some(Route::to_queue("dead"));
    let sink = RabbitSink::new(options);
    let (forward, dead) = (Destination::Forward, Destination::DeadLetter);
    let sent = [
        message(forward, "a", "1"),
        message(dead, "a", "1"),
        message(dead, "b", "1"),
        message(dead, "a", "2"),
        message(dead, "a", "1"),
        message(forward, "never sent", "3"),
    ];
    let cases = [
        (message(dead, "a", "1"), vec![1, 4], "the same twice"),
        (message(dead, "b", "1"), vec![2], "another body"),
        (message(dead, "a", "2"), vec![3], "another key"),
        (message(forward, "a", "1"), vec![0], "another route"),
        (message(dead, "changed on the way", "1"), vec![0, 1, 2, 3, 4], "none: all that were sent"),
    ];
    for (back, right, why) in cases {
        let mut answers = vec![Published::Confirmed; 5];
        answers.push(Published::NotSent);
        let mut window = Window { answers, sent: 5, ..Window::default() };
        sink.doubt(&returned(&sink, &back), &sent, &mut window);
        let in_doubt = Published::InDoubt(Doubt::answered("returned by the broker: 312 NO_ROUTE"));
        let found: Vec<usize> = (0..6).filter(|n| window.answers[*n] == in_doubt).collect();
        assert_eq!(found, right, "{why}");
        assert_eq!(window.answers[5], Published::NotSent, "{why}");
    }
}
