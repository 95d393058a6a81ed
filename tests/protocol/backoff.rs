//! Waits grow, are spread, and stay within their bounds.

use std::time::Duration;

use proptest::prelude::*;
use semel::protocol::backoff::Backoff;

const MS: Duration = Duration::from_millis(1);

#[test]
fn it_doubles_to_its_longest_and_begins_again_after_a_success() {
    let mut backoff = Backoff::new(10 * MS, 75 * MS);
    let waits: Vec<Duration> = (0..6).map(|_| backoff.next(255)).collect();
    assert_eq!(waits, [10 * MS, 20 * MS, 40 * MS, 75 * MS, 75 * MS, 75 * MS]);
    assert_eq!(backoff.tries(), 6);
    backoff.reset();
    assert_eq!((backoff.tries(), backoff.next(0)), (0, 5 * MS));
}

proptest! {
    #[test]
    fn a_wait_lies_in_the_upper_half_of_its_step(
        first in 1u64..10_000_000, longest in 1u64..10_000_000_000, tries in 0u32..70, spread: u8,
    ) {
        let (first, longest) = (Duration::from_micros(first), Duration::from_micros(longest));
        let mut backoff = Backoff::new(first, longest);
        for _ in 0..tries {
            backoff.next(0);
        }
        let step = first.saturating_mul(1 << tries.min(20)).min(longest);
        let wait = backoff.next(spread);
        prop_assert!(wait <= step && wait >= step / 2, "{wait:?} of {step:?}");
    }
}
