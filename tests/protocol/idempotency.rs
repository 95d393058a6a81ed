//! What a message is called towards brokers.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use semel::protocol::event::{EventId, Scope};
use semel::protocol::idempotency::{KEY_DIGITS, joined, of_event, of_row};

fn event(scope: &str, id: &str) -> Box<str> {
    of_event(&Scope::new(scope).expect("a scope"), &EventId::encode(id.as_bytes()).expect("an id"))
}

/// Readers and brokers hold keys over releases: they never change. Computed by another program.
#[test]
fn known_values() {
    assert_eq!(&*event("billing", "order-1"), "ad62da33a2859c8bdb381bd5d07d0206");
    assert_eq!(&*event("billing", "größe €"), "c6df67eb09caf69c294d8cec49493b69");
    assert_eq!(&*of_row("t1", "orders", "7"), "2b39e37bb5895db767208ee7ef41df16");
}

#[test]
fn each_part_counts_and_where_it_ends() {
    let keys = [
        event("a", "bc"),
        event("ab", "c"),
        event("a", "b"),
        event("b", "a"),
        of_row("a", "b", "c"),
        of_row("a", "bc", ""),
        of_row("ab", "", "c"),
        of_row("", "ab", "c"),
        of_row("a", "bc", "\0"),
    ];
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
    assert_eq!(event("billing", &"long ".repeat(500)).len(), KEY_DIGITS);
    let digits = |key: &str| key.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    assert!(keys.iter().all(|key| key.len() == 32 && digits(key)), "{keys:?}");
}

fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Few bytes, and among them those of lengths: collisions would be found.
    vec(vec(prop_oneof![Just(0), Just(1), Just(8), Just(b'a')], 0..10), 0..4)
}

fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    joined(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn distinct_parts_are_joined_distinctly(one in parts(), other in parts()) {
        prop_assert_eq!(one == other, join(&one) == join(&other));
    }

    /// The parts can be read back, so no other parts give the same bytes.
    #[test]
    fn parts_can_be_read_back(parts in parts()) {
        let bytes = join(&parts);
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk::<8>() {
            let (part, behind) = behind.split_at(u64::from_be_bytes(*length) as usize);
            read.push(part.to_vec());
            rest = behind;
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(read, parts);
    }
}
