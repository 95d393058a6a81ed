//! The time inside an id: UUID versions 1, 6 and 7, and ULID, in their text forms.
//!
//! It makes the week a function of the id alone, so that no two copies of an event can differ in it.

use uuid::{Uuid, Variant};

use crate::protocol::event::EventTime;

/// None where the id is of another kind.
pub(super) fn time_inside(id: &[u8]) -> Option<EventTime> {
    ulid(id).or_else(|| uuid(&Uuid::try_parse_ascii(id).ok()?))
}

fn uuid(id: &Uuid) -> Option<EventTime> {
    if id.get_variant() != Variant::RFC4122 {
        return None;
    }
    let bits = id.as_u128();
    match id.get_version_num() {
        // time_low, time_mid, version, time_high
        1 => Some(gregorian((bits >> 64 & 0xfff) << 48 | (bits >> 80 & 0xffff) << 32 | bits >> 96)),
        // time_high, time_mid, version, time_low
        6 => Some(gregorian(bits >> 80 << 12 | bits >> 64 & 0xfff)),
        7 => Some(EventTime::from_millis((bits >> 80) as i64)),
        _ => None,
    }
}

/// 60 bits of 100 ns since 1582-10-15.
fn gregorian(ticks: u128) -> EventTime {
    const EPOCH_TICKS: i64 = 0x01B2_1DD2_1381_4000;
    EventTime::from_micros((ticks as i64 - EPOCH_TICKS).div_euclid(10))
}

/// 26 characters of Crockford's base 32, of which the first ten are milliseconds.
fn ulid(id: &[u8]) -> Option<EventTime> {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    if id.len() != 26 || id[0] > b'7' {
        return None;
    }
    let mut millis = 0;
    for (n, byte) in id.iter().enumerate() {
        let digit = ALPHABET.iter().position(|letter| *letter == byte.to_ascii_uppercase())?;
        if n < 10 {
            millis = millis << 5 | digit as i64;
        }
    }
    Some(EventTime::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::time_inside;

    #[test]
    fn the_time_inside_an_id() {
        let cases: &[(&str, Option<&str>, &str)] = &[
            ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", Some("2022-02-22T19:22:22Z"), "RFC 9562's version 7"),
            ("C232AB00-9414-11EC-B3C8-9F6BDECED846", Some("2022-02-22T19:22:22Z"), "RFC 9562's version 1"),
            ("1EC9414C-232A-6B00-B3C8-9F6BDECED846", Some("2022-02-22T19:22:22Z"), "RFC 9562's version 6"),
            ("017f22e279b07cc398c4dc0c0c07398f", Some("2022-02-22T19:22:22Z"), "without hyphens"),
            ("urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f", Some("2022-02-22T19:22:22Z"), "as a URN"),
            ("00000000-0000-1000-8000-000000000000", Some("1582-10-15T00:00:00Z"), "before 1970"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", Some("2016-07-30T23:54:10.259Z"), "the ULID specification's example"),
            ("01arz3ndektsv4rrffq69g5fav", Some("2016-07-30T23:54:10.259Z"), "lower case is the same ULID"),
            ("81ARZ3NDEKTSV4RRFFQ69G5FAV", None, "a ULID has 128 bits"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAU", None, "U is no digit of Crockford's"),
            ("919108F7-52D1-4320-9BAC-F847DB4148A8", None, "version 4 has no time"),
            ("017F22E2-79B0-7CC3-18C4-DC0C0C07398F", None, "another variant"),
            ("1712345678", None, "a bare number"),
            ("", None, "nothing"),
        ];
        for (id, time, why) in cases {
            let found = time_inside(id.as_bytes()).map(|time| time.to_datetime().expect("in range"));
            let right = time.map(|time| time.parse().expect("a time"));
            assert_eq!(found, right, "{id}: {why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..48),
            near in "[0-9a-zA-Z{}:-]{20,40}",
            bits: u128,
        ) {
            let _ = (time_inside(&bytes), time_inside(near.as_bytes()), super::uuid(&super::Uuid::from_u128(bits)));
        }
    }
}
