//! A model of protocol.md, "Lanes of an instance", that is searched state by state: a queue without offsets, the store,
//! a sink with or without transactions, and two instances, or two runs of one.
//!
//! Verdicts and cuts are the core's own ([`semel::protocol::slot`]). With Kafka nothing is doubled and nothing is lost,
//! whatever happens. With a plain sink nothing is lost, and a second copy comes only after a publish in doubt, a crash
//! between publish and settle, or a holder that outlived its lease.
//!
//! Beyond protocol.md: the transaction of a cut that leaves a claim in doubt behind may be of unknown outcome, too, and a
//! position of which the store answered that it was not used may be used again (else no search would end).
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

use crate::searching;
use act::Act;
use ending::Wrong;
use world::{Setup, World};

impl searching::World for World {
    type Setup = Setup;
    type Act = Act;
    type Wrong = Wrong;

    fn of(setup: &Setup) -> World {
        World::begin(setup)
    }

    fn acts(&self, setup: &Setup) -> Vec<Act> {
        World::acts(self, setup)
    }

    fn after(&self, setup: &Setup, act: Act) -> Option<World> {
        World::after(self, setup, act)
    }

    fn wrong(&self, setup: &Setup) -> Option<Wrong> {
        World::wrong(self, setup)
    }
}
