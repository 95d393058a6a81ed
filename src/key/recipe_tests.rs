use proptest::prelude::*;

use super::*;
use crate::key::testing::{List, message};

type Headers = &'static [(&'static str, Option<&'static [u8]>)];

fn id(recipe: &str, headers: Headers, value: Option<&str>) -> Result<String, KeyError> {
    let recipe = Recipe::parse(recipe).expect("a recipe");
    recipe.event_id(&message(&List(headers), value)).map(|id| id.as_str().to_owned())
}

#[test]
fn ids_of_messages() {
    const NONE: Headers = &[];
    const STRUCTURED: Headers = &[("content-type", Some(b"Application/CloudEvents+JSON; charset=utf-8"))];
    let digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let cases: &[(&str, Headers, Option<&str>, &str, &str)] = &[
        ("header:h", &[("h", Some(b"x"))], None, "x", "a header"),
        ("header:h", &[("h", Some(b"x")), ("h", Some(b"y"))], None, "y", "the last of that name"),
        ("header:h", &[("h", Some(b"\x00\xff"))], None, "~x00ff", "any bytes may be an id"),
        ("key", NONE, None, "the-key", "the message's key"),
        ("json:/id", NONE, Some(r#"{"id":"a"}"#), "a", "a string"),
        ("json:/id", NONE, Some(r#"{"id":1.50}"#), "1.50", "a number's exact text"),
        ("json:/n|json:/id", NONE, Some(r#"{"id":"a","n":null}"#), "a", "null makes an alternative missing"),
        ("json:/n|json:/id", NONE, Some(r#"{"id":"a","n":" "}"#), "a", "so does blank"),
        ("json:/n|json:/id", NONE, Some("{\"id\":\"a\",\"n\":\"\u{a0}\"}"), "a", "whatever the white space"),
        ("header:h|json:/id", &[("h", None)], Some(r#"{"id":"a"}"#), "a", "so does a null header"),
        ("header:h|json:/id", &[("h", Some(b"x"))], Some("no json"), "x", "the value is read only when it is needed"),
        ("header:h+json:/id", &[("h", Some(b"t"))], Some(r#"{"id":7}"#), "t+7", "a composite"),
        ("header:h+json:/id|key", NONE, Some(r#"{"id":7}"#), "the-key", "one part missing, all missing"),
        ("header:h+key|header:h", &[("h", Some(b"a+b"))], None, r"a\+b+the-key", "separators in parts are escaped"),
        ("header:x+key|header:h", &[("h", Some(b"a+b"))], None, r"a\+b", "in a single part beside a composite too"),
        ("header:h", &[("h", Some(b"a+b"))], None, "a+b", "without a composite they stand for themselves"),
        ("digest", NONE, Some("foo"), digest, "SHA-256"),
        ("cloudevents", &[("ce_source", Some(b"/s")), ("ce_id", Some(b"1"))], None, "/s+1", "binary, Kafka's"),
        ("cloudevents", &[("ce-source", Some(b"/s")), ("ce-id", Some(b"1"))], None, "/s+1", "binary, HTTP's"),
        ("cloudevents", STRUCTURED, Some(r#"{"source":"/s","id":"1"}"#), "/s+1", "structured"),
        ("cloudevents+key", STRUCTURED, Some(r#"{"source":"/s","id":"1"}"#), "/s+1+the-key", "within a composite"),
        ("cloudevents|key", NONE, Some(r#"{"source":"/s","id":"1"}"#), "the-key", "the type decides, not the look"),
        (r"header:a\+b", &[("a+b", Some(b"x"))], None, "x", "an escaped separator in a name"),
        (r"json:/a\|b", NONE, Some(r#"{"a|b":5}"#), "5", "and in a pointer"),
        (" header:h | key ", NONE, None, "the-key", "white space between parts means nothing"),
    ];
    for (recipe, headers, value, right, why) in cases {
        assert_eq!(id(recipe, headers, *value).as_deref(), Ok(*right), "{recipe}: {why}");
    }
}

#[test]
fn messages_without_an_id() {
    const NONE: Headers = &[];
    let not = |found| KeyError::NotAnId { found };
    let json = |line, column, ends_early| KeyError::NotJson(Fault { line, column, ends_early });
    let cases: &[(&str, Headers, Option<&str>, KeyError, &str)] = &[
        ("header:h", NONE, None, KeyError::Missing, "no such header"),
        ("header:a+header:b", &[("a", None), ("b", None)], None, KeyError::Missing, "all parts null"),
        ("json:/id", NONE, None, KeyError::Missing, "a tombstone has no value to look into"),
        ("json:/id", NONE, Some(""), KeyError::Missing, "nor has an empty one"),
        ("digest", NONE, None, KeyError::Missing, "tombstones must not share a digest"),
        ("digest", NONE, Some(""), KeyError::Missing, "nor empty values"),
        ("json:/id|key", NONE, Some("{\"id\":"), json(1, 6, true), "a defect is not passed over to the key"),
        ("json:/id|key", NONE, Some("secret"), json(1, 1, false), "neither is what is not JSON at all"),
        ("json:/id|key", NONE, Some(r#"{"id":true}"#), not("true or false"), "a boolean tells nothing apart"),
        ("json:/id|key", NONE, Some(r#"{"id":{"$oid":"1"}}"#), not("an object"), "an object has no one spelling"),
        ("json:/id|key", NONE, Some(r#"{"id":["a"]}"#), not("an array"), "nor has an array"),
        ("cloudevents", &[("ce_id", Some(b"1"))], None, KeyError::Missing, "an id without its source is not unique"),
    ];
    for (recipe, headers, value, right, why) in cases {
        let error = id(recipe, headers, *value).expect_err(why);
        assert_eq!(error, *right, "{recipe}: {why}");
        assert!(!error.to_string().contains("secret"), "no payload in an error");
    }
}

#[test]
fn recipes_that_are_none() {
    let cases = [
        ("", 1, "a part is missing here"),
        ("header:h|", 10, "a part is missing here"),
        ("key++digest", 5, "a part is missing here"),
        ("jsn:/id", 1, "`jsn:/id` is none of header:NAME, key, json:/pointer, cloudevents, digest"),
        ("key | Header:x", 7, "`Header:x` is none of header:NAME, key, json:/pointer, cloudevents, digest"),
        ("header:", 1, "`header` names a header: `header:NAME`"),
        ("header", 1, "`header` names a header: `header:NAME`"),
        ("json", 1, "`json` names a place: `json:/pointer`"),
        ("é|json:id", 1, "`é` is none of header:NAME, key, json:/pointer, cloudevents, digest"),
        ("header:é|x", 10, "`x` is none of header:NAME, key, json:/pointer, cloudevents, digest"),
        ("key|json:id", 10, "a JSON Pointer is empty or begins with /"),
        (r"header:a\b", 9, r"`\` is followed by `|`, `+`, `:` or `\`"),
        ("key:x", 1, "`key:x` is none of header:NAME, key, json:/pointer, cloudevents, digest"),
    ];
    for (text, column, problem) in cases {
        let error = Recipe::parse(text).expect_err(text);
        assert_eq!((error.column, error.problem.as_str()), (column, problem), "{text}");
    }
    let many = vec!["key"; PARTS_MAX + 1].join("+");
    assert!(Recipe::parse(&many).is_err(), "one part too many");
    assert!(Recipe::parse(&many[4..]).is_ok(), "as many as are allowed");
}

#[test]
fn an_operator_finds_the_id_by_its_parts() {
    let composite = Recipe::parse("header:a+json:/b|key").expect("a recipe");
    let parts: [&[u8]; 2] = [b"a+", b"b"];
    assert_eq!(composite.id_of(&parts).expect("an id").as_str(), r"a\++b");
    assert_eq!(composite.id_of(&[b"a+b"]).expect("an id").as_str(), r"a\+b");
    let single = Recipe::parse("key").expect("a recipe");
    assert_eq!(single.id_of(&[b"a+b"]).expect("an id").as_str(), "a+b");
    assert_eq!(single.id_of(&[b" "]), Err(KeyError::Missing));
}

fn any_recipe() -> impl Strategy<Value = String> {
    let name = r"([a-z]|\\\||\\\+|\\\\|\\:|é){1,5}";
    let part = prop_oneof![
        name.prop_map(|name| format!("header:{name}")),
        name.prop_map(|name| format!("json:/{name}")),
        prop::sample::select(vec!["key", "digest", "cloudevents"]).prop_map(str::to_owned),
    ];
    let alternative = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join(" + "));
    prop::collection::vec(alternative, 1..4).prop_map(|alternatives| alternatives.join(" | "))
}

proptest! {
    #[test]
    fn a_recipe_is_what_it_is_shown_as(text in any_recipe()) {
        let shown = Recipe::parse(&text).expect("a recipe").to_string();
        let again = Recipe::parse(&shown).expect("what is shown parses");
        prop_assert_eq!(again.to_string(), shown);
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in ".{0,40}", near in "(header|json|key|[:|+\\\\/~é ]){0,12}") {
        let _ = Recipe::parse(&text);
        let _ = Recipe::parse(&near);
    }
}

/// Every list of up to three parts of up to three letters that hold the separator and the escape.
#[test]
fn composites_are_injective() {
    let longer = |words: &[String]| -> Vec<String> {
        words.iter().flat_map(|word| ["a", "+", "\\"].iter().map(move |letter| format!("{word}{letter}"))).collect()
    };
    let one = longer(&[String::new()]);
    let two = longer(&one);
    let words: Vec<String> = [longer(&two), two, one].concat();
    let mut lists: Vec<Vec<&[u8]>> = vec![vec![]];
    let mut seen = std::collections::HashMap::new();
    let recipe = Recipe::parse("header:a+key|key").expect("a recipe");
    for _ in 0..3 {
        let mut with_one_more: Vec<Vec<&[u8]>> = Vec::with_capacity(lists.len() * words.len());
        for list in &lists {
            with_one_more.extend(words.iter().map(|word| [&list[..], &[word.as_bytes()]].concat()));
        }
        lists = with_one_more;
        for list in &lists {
            let other = seen.insert(recipe.id_of(list).expect("an id"), list.clone());
            assert_eq!(other, None, "it shares its id with {list:?}");
        }
    }
    assert_eq!(seen.len(), 39 + 39 * 39 + 39 * 39 * 39);
}
