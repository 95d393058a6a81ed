use super::*;
use crate::config::policy::{Duplicates, Oversize, Policies, StoreAway, Unclaimable};
use crate::key::{Bounds, Extraction, Recipe, TimeRecipe};
use crate::message::{Header, Message};
use crate::protocol::event::Scope;
use crate::protocol::lane::Holder;
use crate::protocol::slot::{Conflicting, LaneSeen};
use crate::sink::Destination;

const LANE: LaneId = LaneId(7);
const NOW: EventTime = EventTime::from_micros(1_764_547_200_000_000);

fn keyer(duplicates: Duplicates) -> Keyer {
    let reject = Unclaimable::Reject;
    let policies = Policies {
        missing_id: reject,
        missing_time: reject,
        old_event: reject,
        future_event: reject,
        oversize: Oversize::Reject,
        duplicates,
        store_away: StoreAway::Block,
        observe: false,
    };
    Keyer {
        extraction: Extraction::new(Recipe::parse("header:id").expect("a recipe"), TimeRecipe::None),
        bounds: Bounds { weeks_kept: 5, weeks_ahead: 2 },
        policies,
        scope: Scope::new("billing").expect("a scope"),
        origin: "orders".into(),
    }
}

/// From offset 40 on, a letter each; `-` for one without an id. What is `!` the sink can never take.
fn batch(ids: &str, keyer: &Keyer) -> Batch {
    let item = |(n, id): (usize, char)| {
        let headers = if id == '-' { vec![] } else { vec![Header::new("id", id.to_string().into_bytes())] };
        let message = Message { headers, value: Some("v".into()), ..Message::default() };
        let (name, headers) = (keyer.name(&message), message.headers.len());
        Item { offset: 40 + n as Position, message, headers, name, bytes: 1 }
    };
    let items = ids.chars().enumerate().map(item).collect();
    let unfit = |outgoing: &Outgoing| {
        let is_bad = outgoing.message.headers.iter().any(|header| header.value.as_deref() == Some(b"!"));
        (is_bad && outgoing.destination == Destination::Forward).then(|| "too large".to_owned())
    };
    Batch::new(items, keyer, (&unfit, NOW), "orders/3").expect("a window")
}

fn in_flight() -> Answer {
    let holder = Holder { lane: Some(LaneId(8)), position: 3 };
    Answer::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled: 0, open: true, lapsed: false }) }))
}

/// By letter; the others are inserted.
fn judge(batch: &mut Batch, in_the_way: &[(&str, Answer)]) -> Outcome {
    let (rows, asked) = batch.questions();
    assert!(rows.is_sorted_by(|a, b| (&a.event_id, a.week) < (&b.event_id, b.week)), "{rows:?}");
    let answer = |row: &SlotAsk| {
        let found = in_the_way.iter().find(|(id, _)| *id == row.event_id.as_str());
        found.map_or(Answer::Inserted, |(_, answer)| *answer)
    };
    let answers: Vec<Answer> = rows.iter().map(answer).collect();
    batch.judge(&asked, &answers, LANE)
}

fn ids(messages: &[Outgoing]) -> String {
    let id = |message: &Outgoing| message.message.headers.first().and_then(|header| header.value.clone());
    let text = |message| String::from_utf8(id(message).unwrap_or_default().to_vec()).expect("text");
    messages.iter().map(text).collect()
}

#[test]
fn a_window_goes_out_in_its_order_and_repeats_do_not() {
    let mut batch = batch("bab", &keyer(Duplicates::Drop));
    let outcome = judge(&mut batch, &[]);
    assert!(outcome.wait.is_none() && outcome.later.is_empty() && outcome.give_back.is_empty());
    let (unsent, messages) = batch.unsent();
    assert_eq!((unsent.as_slice(), ids(&messages).as_str(), batch.done()), (&[0, 1][..], "ba", 40));
    assert!(messages.iter().all(|message| message.idempotency_key.is_some()));
    // The first is in doubt, the one behind it is stored: it is settled by itself if the partition goes now.
    let doubt = Published::InDoubt(crate::sink::Doubt::silent("lost"));
    batch.published(&unsent, &[doubt, Published::Confirmed]);
    assert_eq!((batch.done(), batch.beyond()), (40, vec![41]));
    let (unsent, messages) = batch.unsent();
    assert_eq!((unsent.as_slice(), ids(&messages).as_str()), (&[0][..], "b"));
    batch.published(&unsent, &[Published::Deduplicated]);
    assert_eq!((batch.done(), batch.beyond(), batch.unsent().0.len()), (43, vec![], 0));
}

#[test]
fn what_waits_and_what_is_behind_it_comes_again_as_it_was_read() {
    let keyer = keyer(Duplicates::Drop);
    let mut batch = batch("ax-bx", &keyer);
    let outcome = judge(&mut batch, &[("x", in_flight())]);
    assert_eq!(outcome.wait, Some(Wait::Holder));
    let given_back: Vec<_> = outcome.give_back.iter().map(|row| (row.event_id.as_str(), row.position)).collect();
    assert_eq!(given_back, [("b", 43)]);
    let later: Vec<_> = outcome.later.iter().map(|item| (item.offset, item.message.headers.len())).collect();
    assert_eq!(later, [(41, 1), (42, 0), (43, 1), (44, 1)], "without what was added to a dead letter");
    assert_eq!((batch.len(), batch.done_at_most(), ids(&batch.unsent().1).as_str()), (1, 41, "a"));
    let unsent = batch.unsent().0;
    batch.published(&unsent, &[Published::Confirmed]);
    assert_eq!(batch.done(), 41, "the one that waits is not passed over");
}

#[test]
fn its_own_claim_counts_as_found_again() {
    let mut batch = batch("ab", &keyer(Duplicates::Drop));
    let own = |settled| {
        let holder = Holder { lane: Some(LANE), position: 40 };
        Answer::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled, open: true, lapsed: false }) }))
    };
    assert_eq!(judge(&mut batch, &[("a", own(40))]).again, 1);
    assert_eq!(ids(&batch.unsent().1), "ab");
}

#[test]
fn what_cannot_be_claimed_goes_in_its_place_and_says_where_it_was() {
    let keyer = keyer(Duplicates::Route);
    let mut batch = batch("a-!a", &keyer);
    assert_eq!(batch.questions().0.len(), 1, "only what can be forwarded is claimed");
    judge(&mut batch, &[]);
    batch.send_duplicates_on(&keyer, "orders/3");
    let (_, messages) = batch.unsent();
    let of = |message: &Outgoing, name: &str| {
        let found = message.message.headers.iter().rfind(|header| &*header.name == name);
        found.map(|header| String::from_utf8(header.value.clone().unwrap_or_default().to_vec()).expect("text"))
    };
    let shown: Vec<_> = messages
        .iter()
        .map(|message| (message.destination, of(message, "semel-cause"), of(message, "semel-origin")))
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        shown,
        [
            (Destination::Forward, None, None),
            (Destination::DeadLetter, some("missing_id"), some("orders/3/41")),
            (Destination::DeadLetter, some("too_large"), some("orders/3/42")),
            (Destination::Duplicates, None, some("orders/3/43")),
        ]
    );
    assert!(messages[3].idempotency_key.is_none(), "a sink that deduplicates would drop it");
}

#[test]
fn without_the_store_it_goes_out_unclaimed_and_marked() {
    let keyer = keyer(Duplicates::Drop);
    let mut batch = batch("ab", &keyer);
    batch.send_unclaimed(&keyer, "orders/3");
    let (unsent, messages) = batch.unsent();
    assert!(!batch.is_claimed(&unsent));
    assert!(messages.iter().all(|message| message.message.headers.iter().any(|h| &*h.name == "semel-unclaimed")));
    batch.published(&unsent, &[Published::Confirmed, Published::Confirmed]);
    assert_eq!((batch.done(), batch.beyond()), (42, vec![]));
}
