//! A model of protocol.md, "Lanes of an instance", that is searched state by state: a queue without offsets, the store,
//! a sink with or without transactions, and two instances, or two runs of one.
//!
//! Verdicts and cuts are the core's own ([`semel::protocol::slot`]). With Kafka nothing is doubled and nothing is lost,
//! whatever happens. With a plain sink nothing is lost, and a second copy comes only after a publish in doubt, a crash
//! between publish and settle, or a holder that outlived its lease.
//!
//! | module | holds |
//! | --- | --- |
//! | [`world`] | the setup and the state |
//! | [`store`] | the store, statement by statement |
//! | [`instance`], [`takeover`] | what a run does |
//! | [`act`] | what can happen next |
//! | [`ending`] | what must be true |
//! | [`rules`] | what can be dropped |
//! | [`holds`], [`dropped`] | the tests |

mod act;
mod dropped;
mod ending;
mod holds;
mod instance;
mod rules;
mod store;
mod takeover;
mod world;

use stateright::{Checker, Model, Property};

use act::Act;
use ending::Wrong;
use world::{Setup, World};

struct Slots {
    setup: Setup,
    counts: fn(Wrong) -> bool,
}

impl Slots {
    fn wrong(&self, world: &World) -> Option<Wrong> {
        world.wrong(&self.setup).filter(|&wrong| (self.counts)(wrong))
    }
}

impl Model for Slots {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::of(&self.setup)]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        acts.extend(world.acts(&self.setup));
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        world.after(&self.setup, act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(RIGHT, |slots, world| slots.wrong(world).is_none())]
    }
}

const RIGHT: &str = "nothing is lost and nothing doubled";

struct Found {
    wrong: Wrong,
    acts: Vec<Act>,
}

/// Searches a world in full. Answers how many states it has, or what is wrong with one.
fn search(setup: &Setup) -> Result<usize, Found> {
    let states = Slots { setup: setup.clone(), counts: |_| true }.checker().threads(2).spawn_dfs().join();
    match states.discovery(RIGHT) {
        None => Ok(states.unique_state_count()),
        Some(path) => Err(found(setup, |_| true, path)),
    }
}

/// One of the shortest histories that go wrong in the way that `counts`.
fn shortest_wrong(setup: &Setup, counts: fn(Wrong) -> bool) -> Option<Found> {
    let states = Slots { setup: setup.clone(), counts }.checker().threads(1).spawn_bfs().join();
    states.discovery(RIGHT).map(|path| found(setup, counts, path))
}

fn found(setup: &Setup, counts: fn(Wrong) -> bool, path: stateright::Path<World, Act>) -> Found {
    let slots = Slots { setup: setup.clone(), counts };
    let wrong = slots.wrong(path.last_state()).expect("found");
    Found { wrong, acts: path.into_actions() }
}
