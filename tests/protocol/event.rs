//! What an event is called: the week, the stored id, the scope.

use std::collections::HashMap;

use chrono::{DateTime, Datelike, Days, NaiveDate, Weekday};
use proptest::collection::vec;
use proptest::prelude::*;
use semel::protocol::event::{BadName, EVENT_ID_BYTES_MAX, EventId, EventTime, SCOPE_BYTES_MAX, Scope, Week};

fn time(text: &str) -> EventTime {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc().into()
}

fn date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

#[test]
fn the_week_is_the_monday_at_or_before_the_event() {
    let cases = [
        ("2024-12-31T00:00:00Z", "2024-12-30", "a Tuesday at the year's end"),
        ("2025-12-28T00:00:00Z", "2025-12-22", "a Sunday in ISO week 52"),
        ("2026-01-01T00:00:00Z", "2025-12-29", "a Thursday in week 1 that began the year before"),
        ("2027-01-03T23:59:59Z", "2026-12-28", "the last second of week 53"),
        ("2021-01-01T00:00:00Z", "2020-12-28", "a Friday in week 53 of the year before"),
        ("1970-01-01T00:00:00Z", "1969-12-29", "the epoch"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-29", "the microsecond before the epoch: rounded down, not to zero"),
        ("1969-12-28T23:59:59.999999Z", "1969-12-22", "the end of the week before that"),
        ("2026-01-04T23:30:00Z", "2025-12-29", "Sunday 23:30 is still that week"),
        ("2026-01-05T00:30:00Z", "2026-01-05", "Monday 00:30 is the next"),
        ("2026-01-04T23:59:59.999999Z", "2025-12-29", "the last microsecond of a week"),
        ("2026-01-05T00:00:00Z", "2026-01-05", "its first is its own Monday"),
        ("2026-01-05T00:30:00+02:00", "2025-12-29", "the time zone it is written in says nothing: Sunday in UTC"),
        ("2024-02-29T12:00:00Z", "2024-02-26", "a leap day"),
    ];
    for (at, monday, why) in cases {
        assert_eq!(Week::of(time(at)).monday(), Some(date(monday)), "{at}: {why}");
        assert_eq!(Week::of(time(at)).to_string(), monday, "{at}: {why}");
        assert_eq!(Week::starting(date(monday)), Some(Week::of(time(at))), "{at}: {why}");
    }
}

#[test]
fn the_undated_week_is_a_monday_before_any_event() {
    assert_eq!(Week::UNDATED.monday(), Some(date("0001-01-01")));
    assert_eq!(Week::starting(date("0001-01-01")), Some(Week::UNDATED));
    assert_eq!(Week::from_day_number(Week::UNDATED.day_number()), Some(Week::UNDATED));
    assert_eq!(Week::UNDATED.to_string(), "undated");
}

#[test]
fn times_beyond_any_calendar_have_a_week_and_no_date() {
    for micros in [i64::MIN, i64::MAX] {
        let week = Week::of(EventTime::from_micros(micros));
        assert_eq!(Week::from_day_number(week.day_number()), Some(week));
        assert_eq!(week.monday(), None);
    }
    assert_eq!(EventTime::from_millis(i64::MAX).micros(), i64::MAX);
    assert_eq!(EventTime::from_millis(i64::MIN).micros(), i64::MIN);
}

proptest! {
    #[test]
    fn a_week_begins_on_the_monday_that_the_calendar_names(micros in -62_000_000_000_000_000i64..253_000_000_000_000_000) {
        let at = EventTime::from_micros(micros).to_datetime().unwrap();
        let monday = at.date_naive() - Days::new(u64::from(at.weekday().num_days_from_monday()));
        prop_assert_eq!(Week::of(EventTime::from_micros(micros)).monday(), Some(monday));
    }

    #[test]
    fn only_mondays_begin_weeks(day in -700_000i32..3_000_000) {
        let date = NaiveDate::from_num_days_from_ce_opt(day + 719_163).unwrap();
        let monday = date.weekday() == Weekday::Mon;
        prop_assert_eq!(Week::starting(date).is_some(), monday);
        prop_assert_eq!(Week::from_day_number(day).is_some(), monday);
    }

    #[test]
    fn weeks_follow_each_other(micros: i64, weeks in -1_000i32..1_000) {
        let week = Week::of(EventTime::from_micros(micros));
        let later = week.plus(weeks);
        prop_assert_eq!(later.plus(-weeks), week);
        prop_assert_eq!(later.day_number() - week.day_number(), 7 * weeks);
    }
}

#[test]
fn readable_ids_are_stored_as_they_are() {
    let long = "ä".repeat(EVENT_ID_BYTES_MAX / 2);
    let cases = [
        ("order-17", "plain text"),
        ("0190f5b0-7d2e-7cc0-98c5-5b2ad7b8a5f3", "a UUID"),
        (" a b ", "spaces belong to the id"),
        ("häuser/東京", "text of any script"),
        ("a~b", "the escape counts only in front"),
        ("x7e", "what follows an escape does not count without it"),
        (long.as_str(), "as long as it may be"),
    ];
    for (id, why) in cases {
        assert_eq!(EventId::encode(id.as_bytes()).unwrap().as_str(), id, "{why}");
    }
}

#[test]
fn other_ids_are_escaped() {
    let too_long = "a".repeat(EVENT_ID_BYTES_MAX + 1);
    let tilde = format!("~{}", "a".repeat(128));
    let cases: [(&[u8], &str, &str); 8] = [
        (b"~a", "~x7e61", "text that begins with the escape"),
        (b"~x7e61", "~x7e7837653631", "text that is another's stored form"),
        (b"a\0b", "~x610062", "PostgreSQL refuses NUL"),
        (b"a\tb", "~x610962", "control characters spoil what is printed"),
        (b"a\xffb", "~x61ff62", "not text"),
        (&[0x80; 128], &format!("~x{}", "80".repeat(128)), "as long as is shown in hexadecimal"),
        (too_long.as_bytes(), "~h", "text that is too long"),
        (tilde.as_bytes(), "~h", "too long in hexadecimal"),
    ];
    for (id, right, why) in cases {
        let stored = EventId::encode(id).unwrap();
        match right {
            "~h" => assert!(stored.as_str().starts_with("~h") && stored.as_str().len() == 66, "{why}: {stored}"),
            right => assert_eq!(stored.as_str(), right, "{why}"),
        }
    }
}

#[test]
fn a_blank_id_is_no_id() {
    for id in ["", " ", "\t\r\n ", "\u{a0}", "\u{2003} "] {
        assert_eq!(EventId::encode(id.as_bytes()), Err(BadName::BlankEventId), "{id:?}");
    }
}

/// Bytes in which what the encoding looks at is frequent: escapes, hexadecimal, controls, the bounds of length.
fn ids() -> impl Strategy<Value = Vec<u8>> {
    let telling = prop::sample::select(b"~~xh0a7e61+\\ \0\xff".to_vec());
    prop_oneof![
        4 => vec(telling.clone(), 0..6),
        2 => vec(any::<u8>(), 0..20),
        1 => (telling, 125usize..132).prop_map(|(byte, length)| [vec![byte], vec![b'a'; length]].concat()),
        1 => (any::<u8>(), 508usize..516).prop_map(|(byte, length)| [vec![b'a'; length], vec![byte]].concat()),
    ]
}

proptest! {
    /// Every id of a crowd, and every stored form taken for an id in its turn.
    #[test]
    fn no_two_ids_share_a_stored_form(crowd in vec(ids(), 1..40)) {
        let mut stored: HashMap<EventId, Vec<u8>> = HashMap::new();
        let mut ids = crowd;
        ids.extend(ids.clone().iter().filter_map(|id| Some(EventId::encode(id).ok()?.as_str().as_bytes().to_vec())));
        for id in ids {
            let Ok(form) = EventId::encode(&id) else { continue };
            let earlier = stored.entry(form).or_insert_with(|| id.clone());
            prop_assert_eq!(earlier, &id);
        }
    }

    #[test]
    fn a_stored_form_is_bounded_and_printable(id in ids()) {
        if let Ok(stored) = EventId::encode(&id) {
            prop_assert!(stored.as_str().len() <= EVENT_ID_BYTES_MAX);
            prop_assert!(!stored.as_str().trim().is_empty());
            prop_assert!(!stored.as_str().chars().any(char::is_control));
            prop_assert_eq!(EventId::from_stored(stored.as_str()), stored);
        }
    }

    #[test]
    fn composites_of_other_parts_differ(crowd in vec(parts(), 1..60)) {
        let mut joined: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
        for parts in crowd {
            let id = EventId::join(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let earlier = joined.entry(id).or_insert_with(|| parts.clone());
            prop_assert_eq!(earlier, &parts);
        }
    }
}

/// Two parts and more, of few letters, so that wrong joins meet.
fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(prop::sample::select(b"a+\\".to_vec()), 0..3), 2..4)
}

#[test]
fn composites_keep_where_a_part_ends() {
    let cases: [(&[&[u8]], &[u8], &str); 6] = [
        (&[b"a-b", b"c"], b"a-b+c", "the usual separators mean nothing"),
        (&[b"a", b"b-c"], b"a+b-c", "so this one differs from the one above"),
        (&[b"a+b", b"c"], b"a\\+b+c", "the separator inside a part"),
        (&[b"a\\", b"c"], b"a\\\\+c", "the escape inside a part"),
        (&[b"", b"a"], b"+a", "an empty part is a part"),
        (&[b"a+b"], b"a+b", "one part alone is itself"),
    ];
    for (parts, right, why) in cases {
        assert_eq!(EventId::join(parts), right, "{why}");
    }
}

#[test]
fn scopes() {
    let (longest, longer) = ("s".repeat(SCOPE_BYTES_MAX), "s".repeat(SCOPE_BYTES_MAX + 1));
    let cases = [
        ("notification-service-pod-7", None, "a pod's own"),
        (longest.as_str(), None, "as long as it may be"),
        (longer.as_str(), Some(BadName::LongScope), "an index row ends somewhere"),
        ("", Some(BadName::BlankScope), "nothing"),
        (" \u{a0}", Some(BadName::BlankScope), "nothing that is seen"),
        ("a\nb", Some(BadName::ScopeControl), "it is a label"),
        ("a\0", Some(BadName::ScopeControl), "PostgreSQL refuses NUL"),
    ];
    for (text, wrong, why) in cases {
        assert_eq!(Scope::new(text).err(), wrong, "{why}");
    }
}
