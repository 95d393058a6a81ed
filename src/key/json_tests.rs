use proptest::prelude::*;

use super::*;

/// What a pointer finds, in a short spelling.
fn find(text: &str, pointers: &[&str]) -> Vec<String> {
    let parsed: Vec<Pointer> = pointers.iter().map(|pointer| Pointer::parse(pointer).expect("a pointer")).collect();
    let tree = Pointers::of(&parsed);
    let document = Document::new(&tree, Some(text.as_bytes()));
    (0..parsed.len())
        .map(|n| match document.get(n) {
            Ok(None) => "-".into(),
            Ok(Some(Found::Text(text))) => format!("\"{text}\""),
            Ok(Some(Found::Number(text))) => text.into(),
            Ok(Some(other)) => format!("{other:?}"),
            Err(fault) => format!("fault {fault}"),
        })
        .collect()
}

#[test]
fn what_a_pointer_finds() {
    let cases: &[(&str, &str, &str, &str)] = &[
        (r#"{"id":"a"}"#, "/id", "\"a\"", "a member"),
        (r#" { "x" : [1,{"id":2}], "id" : 3 } "#, "/id", "3", "the same name deeper down is another place"),
        (r#"{"a":{"b":{"c":7}}}"#, "/a/b/c", "7", "nested"),
        (r#"{"a":[10,11,[12]]}"#, "/a/2/0", "12", "into arrays"),
        (r#"{"a":[10]}"#, "/a/00", "-", "an index has no leading zero"),
        (r#"{"a":[10]}"#, "/a/-", "-", "RFC 6901's place behind the last element"),
        (r#"{"a":{"0":5}}"#, "/a/0", "5", "a member may be named like an index"),
        (r#"{"a/b":1,"m~n":2}"#, "/a~1b", "1", "escaped slash"),
        (r#"{"a/b":1,"m~n":2}"#, "/m~0n", "2", "escaped tilde"),
        (r#"{"":3}"#, "/", "3", "the empty name"),
        (r#""whole""#, "", "\"whole\"", "the whole document"),
        (r#"{"\u0069d":"x"}"#, "/id", "\"x\"", "a name that is written with an escape"),
        (r#"{"id":"a\u00e9\n"}"#, "/id", "\"aé\n\"", "text is decoded"),
        (r#"{"id":1,"id":2}"#, "/id", "2", "the last occurrence counts"),
        (r#"{"a":{"b":1},"a":{}}"#, "/a/b", "-", "and replaces what the first held"),
        (r#"{"id":1.0}"#, "/id", "1.0", "exact text of a number"),
        (r#"{"id":12345678901234567890123}"#, "/id", "12345678901234567890123", "past 64 bits"),
        (r#"{"id":1E400}"#, "/id", "1E400", "past what a float holds"),
        (r#"{"x":1E400,"id":5}"#, "/id", "5", "skipped numbers may be of any size"),
        (r#"{"id":-0}"#, "/id", "-0", "exact"),
        (r#"{"id":null}"#, "/id", "Null", "null"),
        (r#"{"id":true}"#, "/id", "Boolean", "a boolean"),
        (r#"{"id":[1]}"#, "/id", "Array", "an array"),
        (r#"{"id":{}}"#, "/id", "Object", "an object"),
        (r#"{"a":5}"#, "/a/b", "-", "no place inside a number"),
        (r#"5"#, "/a", "-", "a scalar document"),
        ("", "/a", "-", "an empty text has no places"),
        (r#"{"id":1"#, "/id", "fault it ends early at line 1, column 7", "cut off behind the place"),
        (r#"{"id":1} x"#, "/id", "fault at line 1, column 10", "something behind the document"),
        (r#"{"id":1}{"id":2}"#, "/id", "fault at line 1, column 9", "two documents"),
        (r#"{"id":01}"#, "/id", "fault at line 1, column 8", "no JSON number"),
        ("{\"x\":\"\u{1}\",\"id\":1}", "/id", "fault at line 1, column 6", "a raw control character, skipped or not"),
        (r#"{"id":"\ud800"}"#, "/id", "fault at line 1, column 8", "half a surrogate pair is no text"),
    ];
    for (text, pointer, right, why) in cases {
        assert_eq!(find(text, &[pointer]), [*right], "{text} {pointer}: {why}");
    }
}

#[test]
fn several_places_in_one_scan() {
    let text = r#"{"a":{"b":1,"c":[2,3]},"d":4}"#;
    assert_eq!(find(text, &["/d", "/a/b", "/a/c/1", "/a", "/d"]), ["4", "1", "3", "Object", "4"]);
    assert_eq!(find(text, &["", "/a/b"]), ["Object", "1"], "whole and in parts");
}

#[test]
fn deep_nesting_costs_no_stack() {
    let deep = format!("{{\"x\":{}{},\"id\":1}}", "[".repeat(500_000), "]".repeat(500_000));
    assert_eq!(find(&deep, &["/id"]), ["1"]);
}

#[test]
fn pointers_that_are_none() {
    let long = "/a".repeat(POINTER_TOKENS_MAX + 1);
    let cases = [
        ("id", BadPointer::NoSlash, "no slash in front"),
        ("/a~2", BadPointer::Tilde, "an escape that does not exist"),
        ("/a~", BadPointer::Tilde, "an escape cut off"),
        (&long, BadPointer::Long, "one step too many"),
    ];
    for (text, right, why) in cases {
        assert_eq!(Pointer::parse(text), Err(right), "{text}: {why}");
    }
    assert!(Pointer::parse(&long[2..]).is_ok(), "as many steps as are allowed");
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-c~/\"\\\\é\n]{0,4}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::hash_map("[ab01~/]{0,2}", inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_pointer() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "0", "1", "ab", "~0", "~1", ""]), 0..4)
        .prop_map(|steps| steps.iter().map(|step| format!("/{step}")).collect())
}

proptest! {
    #[test]
    fn finds_what_a_tree_finds(json in any_json(), places in prop::collection::vec(any_pointer(), 1..5)) {
        let text = json.to_string();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        for (place, found) in places.iter().zip(find(&text, &places)) {
            let right = match json.pointer(place) {
                None => "-".into(),
                Some(serde_json::Value::Null) => "Null".into(),
                Some(serde_json::Value::Bool(_)) => "Boolean".into(),
                Some(serde_json::Value::Number(number)) => number.to_string(),
                Some(serde_json::Value::String(text)) => format!("\"{text}\""),
                Some(serde_json::Value::Array(_)) => "Array".into(),
                Some(serde_json::Value::Object(_)) => "Object".into(),
            };
            prop_assert_eq!(found, right, "{} in {}", place, text);
        }
    }

    #[test]
    fn numbers_keep_their_text(number in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?") {
        prop_assert_eq!(find(&format!("{{\"a\":[{number}]}}"), &["/a/0"]), [number]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), place in any_pointer()) {
        let tree = Pointers::of(&[Pointer::parse(&place).expect("a pointer")]);
        let _ = Document::new(&tree, Some(&bytes)).get(0);
    }

    #[test]
    fn broken_json_is_read_without_a_panic(json in any_json(), place in any_pointer(), cut in any::<usize>(), byte: u8) {
        let mut bytes = json.to_string().into_bytes();
        let at = cut % bytes.len();
        bytes[at] = byte;
        let tree = Pointers::of(&[Pointer::parse(&place).expect("a pointer")]);
        let _ = Document::new(&tree, Some(&bytes)).get(0);
        let _ = Document::new(&tree, Some(&bytes[..at])).get(0);
    }
}
