use proptest::prelude::*;

use super::*;
use crate::key::json::Pointers;
use crate::key::testing::{List, message};

fn time(recipe: &str, value: &str, id: &str) -> Result<String, TimeError> {
    let recipe = TimeRecipe::parse(recipe).expect("a recipe");
    let pointers = match &recipe {
        TimeRecipe::Json(pointer, _) => Pointers::of([pointer]),
        _ => Pointers::default(),
    };
    let headers = [("h", Some(value.as_bytes())), ("null", None)];
    let headers = List(&headers);
    let view = message(&headers, Some(value));
    let document = Document::new(&pointers, view.value);
    let time = recipe.time(&view, id.as_bytes(), &document, 0)?;
    Ok(time.map_or("none".into(), |time| time.to_datetime().expect("in range").to_rfc3339()))
}

#[test]
fn times_of_messages() {
    let uuid = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
    let cases = [
        ("record", "", "2026-01-07T12:00:00+00:00", "the message's own timestamp"),
        ("none", "", "none", "by intent"),
        ("id", "", "2022-02-22T19:22:22+00:00", "inside a UUID"),
        ("header:h", "2026-01-05T00:30:00+01:00", "2026-01-04T23:30:00+00:00", "an offset that changes the week"),
        ("header:h", " 2026-01-05T00:30:00Z ", "2026-01-05T00:30:00+00:00", "white space around it"),
        ("header:h:ms", "1767787200000", "2026-01-07T12:00:00+00:00", "milliseconds"),
        ("header:h:s", "1767787200", "2026-01-07T12:00:00+00:00", "seconds"),
        ("header:h:s", "1767787200.5", "2026-01-07T12:00:00.500+00:00", "with a fraction"),
        ("header:h:us", "1767787200000001", "2026-01-07T12:00:00.000001+00:00", "microseconds"),
        ("header:h:ns", "1767787200000001999", "2026-01-07T12:00:00.000001+00:00", "nanoseconds, rounded down"),
        ("header:h:ns", "-1", "1969-12-31T23:59:59.999999+00:00", "rounded down before 1970 too"),
        ("json:/t", r#"{"t":"2026-01-07T12:00:00Z"}"#, "2026-01-07T12:00:00+00:00", "in the value"),
        ("json:/t:ms", r#"{"t":1767787200000}"#, "2026-01-07T12:00:00+00:00", "a number there"),
        ("json:/t:ms", r#"{"t":"1767787200000"}"#, "2026-01-07T12:00:00+00:00", "or its text"),
        (r"json:/t\:s:s", r#"{"t:s":1767787200}"#, "2026-01-07T12:00:00+00:00", "a colon in a name is escaped"),
    ];
    for (recipe, value, right, why) in cases {
        assert_eq!(time(recipe, value, uuid).as_deref(), Ok(right), "{recipe} {value}: {why}");
    }
}

#[test]
fn messages_without_a_time() {
    use Format::{Epoch, Rfc3339};
    let cases = [
        ("header:x", "", TimeError::Missing, "no such header"),
        ("header:null", "", TimeError::Missing, "a null one"),
        ("header:h", " ", TimeError::Missing, "a blank one"),
        ("header:h", "2026-01-07T12:00:00", TimeError::NotATime(Rfc3339), "no offset: whose noon?"),
        ("header:h", "2026-01-07", TimeError::NotATime(Rfc3339), "a date alone"),
        ("header:h", "1767787200", TimeError::NotATime(Rfc3339), "an epoch without its unit is not guessed"),
        ("header:h:s", "1.7e9", TimeError::NotATime(Epoch(Unit::Seconds)), "an exponent"),
        (
            "header:h:s",
            "1.234567890123456789\u{71615}",
            TimeError::NotATime(Epoch(Unit::Seconds)),
            "cut within a letter",
        ),
        ("header:h:s", "1_000", TimeError::NotATime(Epoch(Unit::Seconds)), "no digit"),
        ("header:h:s", "-", TimeError::NotATime(Epoch(Unit::Seconds)), "a sign alone"),
        ("header:h:s", "9999999999999999999", TimeError::NotATime(Epoch(Unit::Seconds)), "out of any range"),
        ("json:/t", r#"{"t":1767787200}"#, TimeError::NotATime(Rfc3339), "a number without its unit"),
        ("json:/t:s", r#"{"t":true}"#, TimeError::NotATime(Epoch(Unit::Seconds)), "a boolean"),
        ("json:/t", r#"{"t":null}"#, TimeError::Missing, "null"),
        ("json:/t", r#"{}"#, TimeError::Missing, "absent"),
        ("id", "", TimeError::NoneInId, "an id without a time inside"),
    ];
    for (recipe, value, right, why) in cases {
        assert_eq!(time(recipe, value, "order-17"), Err(right), "{recipe} {value}: {why}");
    }
    let broken = Fault { line: 1, column: 2, ends_early: false };
    assert_eq!(time("json:/t", "[x]", ""), Err(TimeError::NotJson(broken)));
}

#[test]
fn recipes_that_are_none() {
    let cases = [
        ("", "a source of the time is missing here"),
        ("now", "`now` is none of record, header:NAME, json:/pointer, id, none"),
        ("record:ms", "`record:ms` is none of record, header:NAME, json:/pointer, id, none"),
        ("header", "`header` names a header: `header:NAME`"),
        ("header:", "`header` names a header: `header:NAME`"),
        ("json:/t:h", r"`h` is no unit (s, ms, us, ns); in a name `:` is written `\:`"),
        ("json:t", "a JSON Pointer is empty or begins with /"),
    ];
    for (text, problem) in cases {
        assert_eq!(TimeRecipe::parse(text).expect_err(text).problem, problem, "{text}");
    }
    assert_eq!(TimeRecipe::parse("header:ms"), Ok(TimeRecipe::Header("ms".into(), Format::Rfc3339)), "a name");
}

proptest! {
    #[test]
    fn a_recipe_is_what_it_is_shown_as(
        source in r"(header:|json:/)([a-z]|\\\||\\\+|\\\\|\\:|é){1,5}",
        unit in prop::sample::select(vec!["", ":s", ":ms", ":us", ":ns"]),
    ) {
        let recipe = TimeRecipe::parse(&format!("{source}{unit}")).expect("a recipe");
        prop_assert_eq!(TimeRecipe::parse(&recipe.to_string()), Ok(recipe));
    }

    #[test]
    fn units_agree(millis in -62_000_000_000_000_i64..253_000_000_000_000) {
        let ms = epoch(&millis.to_string(), Unit::Millis).expect("in range");
        let seconds = format!("{}{}.{:03}", if millis < 0 { "-" } else { "" }, millis.abs() / 1000, millis.abs() % 1000);
        prop_assert_eq!(ms, EventTime::from_millis(millis));
        prop_assert_eq!(epoch(&seconds, Unit::Seconds), Some(ms));
        prop_assert_eq!(epoch(&format!("{millis}000"), Unit::Micros), Some(ms));
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,40}", digits in "-?[0-9.]{0,60}", recipe in "(header|json|[:/\\\\a]){0,6}") {
        let _ = TimeRecipe::parse(&recipe);
        for format in [Format::Rfc3339, Format::Epoch(Unit::Seconds), Format::Epoch(Unit::Nanos)] {
            let _ = (format.read(&text), format.read(&digits));
        }
    }
}
