use super::*;

fn form(text: &str) -> Result<String, Uncanonical> {
    canonical(text.as_bytes()).map(|form| String::from_utf8(form).expect("text"))
}

/// RFC 8785, appendix B: the bits of a double, and its form.
#[test]
fn numbers_of_the_rfc() {
    let cases: &[(u64, &str)] = &[
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];
    for (bits, right) in cases {
        let mut form = String::new();
        write_number(f64::from_bits(*bits), &mut form);
        assert_eq!(form, *right, "{bits:016x}");
    }
}

/// RFC 8785, section 3.2.
#[test]
fn the_examples_of_the_rfc() {
    let cases = [
        (
            r#"{
                "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
                "literals": [null, true, false]
            }"#,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        ),
        (
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
                "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
             \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\
             \"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
    ];
    for (text, right) in cases {
        assert_eq!(form(text).as_deref(), Ok(right));
    }
}

#[test]
fn what_has_no_form() {
    use Uncanonical::{Deep, Inexact, NotJson, Repeated};
    let deep = |n: usize| [&"[".repeat(n)[..], "1", &"]".repeat(n)].concat();
    let cases = [
        (r#"{"a":1,"b":2,"a":1}"#.to_owned(), Err(Repeated), "a name twice"),
        (r#"{"a":1,"\u0061":1}"#.to_owned(), Err(Repeated), "the same name written in another way"),
        (r#"{"a":{"a":1},"b":{"a":1}}"#.to_owned(), Ok(()), "in different objects"),
        (deep(DEPTH_MAX), Ok(()), "as deep as may be"),
        (deep(DEPTH_MAX + 1), Err(Deep), "one deeper"),
        ("9007199254740993".to_owned(), Err(Inexact), "2^53 + 1"),
        ("-9007199254740993".to_owned(), Err(Inexact), "below zero"),
        ("9007199254740994".to_owned(), Ok(()), "an even one is held"),
        ("1e400".to_owned(), Err(Inexact), "beyond the doubles"),
        ("0.1".to_owned(), Ok(()), "fractions are near enough by the RFC"),
        (r#""\ud800""#.to_owned(), Err(NotJson), "half a pair"),
        (r#""\udc00\ud800""#.to_owned(), Err(NotJson), "a pair the wrong way round"),
        (r#""\u+12f""#.to_owned(), Err(NotJson), "a sign among the digits"),
        ("\"\u{1}\"".to_owned(), Err(NotJson), "a control character as it is"),
        ("01".to_owned(), Err(NotJson), "a leading zero"),
        ("1.".to_owned(), Err(NotJson), "no digit behind the point"),
        ("[1,]".to_owned(), Err(NotJson), "a comma too many"),
        ("{} {}".to_owned(), Err(NotJson), "two texts"),
        ("{\"a\":1".to_owned(), Err(NotJson), "it ends early"),
        (String::new(), Err(NotJson), "nothing"),
    ];
    for (text, right, why) in cases {
        assert_eq!(form(&text).map(drop), right, "{why}");
    }
    assert_eq!(canonical(b"\"\xff\""), Err(NotJson), "not UTF-8");
}

proptest::proptest! {
    /// Every double reads back as itself, and its form is its own form.
    #[test]
    fn numbers_read_back(bits in proptest::num::u64::ANY) {
        let number = f64::from_bits(bits);
        if number.is_finite() {
            let mut form = String::new();
            write_number(number, &mut form);
            proptest::prop_assert_eq!(form.parse::<f64>(), Ok(number));
        }
    }

    /// What is taken is what serde_json takes, as far as depth, repeats and large numbers do not come in.
    #[test]
    fn any_text_is_read_as_others_read_it(
        text in r#"[ \t]{0,2}([\[{]?("[a-z\\u0-9]{0,6}"|[-0-9.eE+]{1,5}|null|tru?e|[:,]){0,5}[\]}]?){1,3}"#
    ) {
        let ours = canonical(text.as_bytes());
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match ours {
            Ok(form) => {
                let again: serde_json::Value = serde_json::from_slice(&form).expect("JSON");
                proptest::prop_assert_eq!(canonical(&form), Ok(form), "its own form");
                proptest::prop_assert!(theirs.is_ok_and(|value| same(&value, &again)));
            }
            Err(Uncanonical::NotJson) => proptest::prop_assert!(theirs.is_err(), "{text}"),
            Err(_) => {}
        }
    }
}

/// Numbers as doubles: 1 and 1.0 are one.
fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (a, b) {
        (Number(a), Number(b)) => {
            // The other reader may be off by the last bit.
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            a == b || (a - b).abs() <= a.abs() * f64::EPSILON
        }
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Object(a), Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (a, b) => a == b,
    }
}
