use super::*;
use crate::key::testing::{List, message};

fn extraction(recipe: &str, time: &str) -> Extraction {
    Extraction::new(Recipe::parse(recipe).expect("a recipe"), TimeRecipe::parse(time).expect("a recipe"))
}

#[test]
fn id_and_time_of_one_message() {
    let value = r#"{"id":"a","at":{"ms":1767571199999}}"#;
    let headers = [("u", Some(&b"017F22E2-79B0-7CC3-98C4-DC0C0C07398F"[..]))];
    let headers = List(&headers);
    let cases = [
        ("json:/id", "json:/at/ms:ms", "a", "2025-12-29", "both out of one scan, on a Sunday's last millisecond"),
        ("json:/id", "record", "a", "2026-01-05", "the message's own timestamp"),
        ("json:/id", "none", "a", "undated", "by intent"),
        ("json:/id+header:u", "id", "a+017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "2022-02-21", "of the last part"),
    ];
    for (recipe, time, id, week, why) in cases {
        let key = extraction(recipe, time).key(&message(&headers, Some(value))).expect(why);
        assert_eq!((key.event_id.as_str(), key.week.to_string().as_str()), (id, week), "{why}");
    }
}

#[test]
fn the_id_is_judged_first() {
    let view = message(&List(&[]), Some("{}"));
    assert_eq!(extraction("json:/id", "json:/t").key(&view), Err(Unkeyed::Id(KeyError::Missing)));
    assert_eq!(extraction("key", "json:/t").key(&view), Err(Unkeyed::Time(TimeError::Missing)));
}

#[test]
fn the_digest_changes_with_what_is_extracted_and_with_nothing_else() {
    let digest = |recipe, time| extraction(recipe, time).digest();
    let known = digest("header:ce_id|json:/id", "record");
    assert_eq!(known, "7ec31e5256a675b6", "lanes in the field carry it: it must not change between versions");
    assert_eq!(digest(" header:ce_id | json:/id ", " record "), known, "white space means nothing");
    let others = [
        ("json:/id|header:ce_id", "record", "another order"),
        ("header:ce_id+json:/id", "record", "a composite"),
        ("header:ce_id", "record", "an alternative less"),
        ("header:ce_id|json:/id", "id", "another time"),
    ];
    for (recipe, time, why) in others {
        assert_ne!(digest(recipe, time), known, "{why}");
    }
    assert_ne!(digest("key", "json:/t:s"), digest("key", "json:/t:ms"), "another unit");
}
