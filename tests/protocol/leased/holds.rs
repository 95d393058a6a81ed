//! What must be true is true of many worlds.

use super::world::{Seen, simulate};
use crate::random;
use crate::searching::full;

#[test]
fn worlds_hold() {
    if std::env::var_os("SEMEL_TEST_SEED").is_some() {
        let seed = random::seed();
        println!("world {seed}");
        return println!("{:?}", simulate(seed, None, true).expect("it holds"));
    }
    let first = random::seed();
    let worlds = if full() { 100_000 } else { 3_000 };
    let mut all = Seen::default();
    for seed in (0..worlds).chain(first..first + worlds) {
        match simulate(seed, None, false) {
            Ok(seen) => {
                all.events += seen.events;
                all.excused += seen.excused;
                all.doubled += seen.doubled;
            }
            Err(wrong) => panic!("world {seed}: {wrong:?} (SEMEL_TEST_SEED={seed} tells how)"),
        }
    }
    println!("{} worlds from 0 and from {first}: {all:?}", 2 * worlds);
    assert!(all.events > 1_000 && all.excused > 100, "something happened: {all:?}");
    assert!(all.doubled * 3 < all.events, "second copies are the exception: {all:?}");
}
