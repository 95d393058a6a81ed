//! Rules and promises that the simulation notices when they are broken, each of them alone.

use semel::store::Guard;
use semel::store::memory::MemoryStore;
use semel::store::slots::{Slot, SlotStore};

use super::store::{Statement, now};
use super::world::{Wrong, simulate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A message whose event is in flight elsewhere is taken for a duplicate.
    InFlightIsDuplicate,
    /// So is one whose event nobody holds any more.
    GoneIsDuplicate,
    /// The lease is renewed without the settled position.
    LeaseWithoutSettled,
    /// A cut leaves nothing behind of what is in doubt.
    CutLeavesNothing,
    /// A cut forgets what is published beyond the committed position.
    CutForgetsPublished,
    /// A call of unknown outcome is taken for one that was not carried out, and repeated.
    UnknownIsNothing,
    /// A start does not wait for the lease of the run before it.
    StartDoesNotWait,
    /// The sink confirms what it does not have.
    UnconfirmedIsConfirmed,
    /// The sink says that it surely did not store what it may have stored.
    DoubtIsRefusal,
}

impl Broken {
    pub fn change(self, statement: &mut Statement, store: &MemoryStore) {
        match (self, statement) {
            (Broken::StartDoesNotWait, Statement::Take { slot, former: former @ None, lease, .. })
                if !lease.is_zero() =>
            {
                // As if the run before had given the slot up itself.
                let Some(Slot { owner, open: Some(open) }) = now(store.slot(slot)).expect("always there") else {
                    return;
                };
                *former = Some((Guard { lane: open.lane, token: owner }, open.seen.settled, Vec::new(), Vec::new()));
            }
            (Broken::LeaseWithoutSettled, Statement::Reserve { committed, .. }) => *committed = 0,
            (Broken::CutLeavesNothing, Statement::Take { former: Some((.., in_doubt)), .. }) => in_doubt.clear(),
            (Broken::CutForgetsPublished, Statement::Take { former: Some((_, _, published, _)), .. }) => {
                published.clear();
            }
            _ => {}
        }
    }
}

/// Among so many worlds there is one in which it shows.
const WORLDS: u64 = 5_000;

fn shows(broken: Broken, counts: fn(&Wrong) -> bool) {
    let mut otherwise = 0;
    let found = (0..WORLDS).find_map(|seed| {
        let wrong = simulate(seed, Some(broken), false).err()?;
        otherwise += 1;
        counts(&wrong).then_some((seed, wrong))
    });
    let (seed, wrong) =
        found.unwrap_or_else(|| panic!("{broken:?} goes unnoticed: {otherwise} of {WORLDS} worlds go wrong"));
    println!("{broken:?}: {wrong:?} in world {seed}, {otherwise} worlds gone wrong by then");
}

#[test]
fn what_loses() {
    shows(Broken::InFlightIsDuplicate, |wrong| matches!(wrong, Wrong::Lost(_)));
    shows(Broken::GoneIsDuplicate, |wrong| matches!(wrong, Wrong::Lost(_)));
    shows(Broken::UnknownIsNothing, |wrong| matches!(wrong, Wrong::Lost(_)));
    shows(Broken::UnconfirmedIsConfirmed, |wrong| matches!(wrong, Wrong::Lost(_)));
}

#[test]
fn what_doubles() {
    shows(Broken::LeaseWithoutSettled, |wrong| matches!(wrong, Wrong::Doubled(_)));
    shows(Broken::CutForgetsPublished, |wrong| matches!(wrong, Wrong::Doubled(_)));
    shows(Broken::StartDoesNotWait, |wrong| matches!(wrong, Wrong::Doubled(_)));
    shows(Broken::DoubtIsRefusal, |wrong| matches!(wrong, Wrong::Doubled(_)));
}

#[test]
fn what_is_hasty() {
    shows(Broken::CutLeavesNothing, |wrong| matches!(wrong, Wrong::Hasty(_)));
}
