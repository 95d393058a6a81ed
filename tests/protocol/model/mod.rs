//! A model of protocol.md, "Kafka to Kafka", that is searched state by state.
//!
//! The world is small: two instances, two partitions, at most three events with copies on both. What can go wrong is
//! chosen per test, each fault at most so many times; how everything interleaves is not chosen but searched in full.
//! Wherever the daemon decides something, the model asks the daemon's own code: the verdicts are
//! [`Questions`](semel::protocol::window::Questions)', the start is [`decide`](semel::protocol::start::decide)'s, the
//! settled offset's metadata is a [`Mark`](semel::protocol::lane::Mark) as the broker would keep it.
//!
//! Two things are asked of every state. No event is published twice. And the state, left to itself, ends well: nothing
//! is lost and nothing doubled ([`ending`]), whichever way the open transactions end and whatever was under way lands.
//!
//! Where the model and protocol.md differ, the model is right:
//!
//! - A takeover is more than one step, so an instance may write its token when a newer owner has written its own. The
//!   first start after an assignment is therefore confirmed by a transaction, even where nothing is moved
//!   (`Rule::StartConfirmed`).
//! - The release before the Kafka step is said to lose. What the search finds is that it doubles.
//! - Settled fetched before the group's own is said to double. It does only where the group's own is also sent first.
//! - The deletion of a refused record's claim before its dead letter is said to lose when a late statement lands. It
//!   does where a claim of unknown outcome is repeated under the same token; else it only doubles, when the broker takes
//!   the record after all.
//! - Kafka deletes the offsets of both groups with a topic: what was in doubt on it is known only if an instance has
//!   recorded where it left off.
//!
//! Not modelled: assignments that add partitions to those that are kept, the statement that reads a claim's losers as a
//! step of its own, more than one scope.
//!
//! | module | holds |
//! | --- | --- |
//! | [`world`] | the setup and the state |
//! | [`kafka`], [`postgres`] | the two systems, by the properties that the protocol builds on |
//! | [`instance`], [`start`], [`windows`] | what an instance does, step by step |
//! | [`faults`] | what goes wrong |
//! | [`act`] | which of all this can happen next |
//! | [`ending`] | what must be true |
//! | [`variants`] | the rules, and what is done where one is dropped |

pub mod act;
pub mod ending;
pub mod faults;
pub mod instance;
pub mod kafka;
pub mod postgres;
pub mod start;
pub mod variants;
pub mod windows;
pub mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use stateright::{Checker, Model, Property};

use act::Act;
use ending::Wrong;
use world::{Setup, World};

/// A model for the search: a state is wrong where [`ending`] finds something wrong that `counts`.
pub struct Protocol {
    setup: Setup,
    counts: fn(Wrong) -> bool,
    /// Endings that were read and found right: many states differ only in what the instances hold in memory.
    right: Mutex<HashSet<u64>>,
}

impl Protocol {
    fn new(setup: Setup, counts: fn(Wrong) -> bool) -> Protocol {
        Protocol { setup, counts, right: Mutex::default() }
    }

    /// What is wrong with a state, if anything is.
    fn wrong(&self, world: &World) -> Option<Wrong> {
        let at_once = ending::doubled(&world.kafka).filter(|&wrong| (self.counts)(wrong));
        at_once.or_else(|| world.endings(&self.setup).find_map(|ending| self.wrong_at_end(ending)))
    }

    fn wrong_at_end(&self, ending: World) -> Option<Wrong> {
        let print = print_of(&ending);
        if self.right.lock().unwrap().contains(&print) {
            return None;
        }
        let wrong = ending.wrong_at_end(&self.setup, self.counts);
        if wrong.is_none() {
            self.right.lock().unwrap().insert(print);
        }
        wrong
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::of(&self.setup)]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        acts.extend(world.acts(&self.setup));
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        world.after(&self.setup, &act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(RIGHT, |protocol, world| protocol.wrong(world).is_none())]
    }
}

const RIGHT: &str = "nothing is lost and nothing doubled";

/// A history that goes wrong.
pub struct Found {
    pub wrong: Wrong,
    pub acts: Vec<Act>,
}

/// Searches a world in full, in no particular order. Answers how many states it has, or what is wrong with one.
pub fn search(setup: &Setup) -> Result<usize, Found> {
    let anything = |_| true;
    let protocol = Protocol::new(setup.clone(), anything);
    let states = protocol.checker().threads(2).symmetry_fn(representative).spawn_dfs().join();
    match states.discovery(RIGHT) {
        None => Ok(states.unique_state_count()),
        Some(path) => Err(found(setup, anything, path)),
    }
}

/// Searches breadth first, on one thread: one of the shortest histories that go wrong in the way that `counts`.
pub fn shortest_wrong(setup: &Setup, counts: fn(Wrong) -> bool) -> Option<Found> {
    let states = Protocol::new(setup.clone(), counts).checker().threads(1).spawn_bfs().join();
    states.discovery(RIGHT).map(|path| found(setup, counts, path))
}

fn found(setup: &Setup, counts: fn(Wrong) -> bool, path: stateright::Path<World, Act>) -> Found {
    let wrong = Protocol::new(setup.clone(), counts).wrong(path.last_state()).expect("found");
    Found { wrong, acts: path.into_actions() }
}

fn print_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Of two worlds that differ only in the instances' names, always the same one.
fn representative(world: &World) -> World {
    let [first, second] = world.instances.each_ref().map(print_of);
    if first <= second { world.clone() } else { world.mirrored() }
}
