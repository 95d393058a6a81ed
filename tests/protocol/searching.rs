//! Small worlds, searched state by state.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, Model, Path, Property};

/// A world: what it begins with, what can happen next, and what must be true of it.
pub trait World: Clone + Debug + PartialEq + Hash + Send + Sync + 'static {
    type Setup: Clone + Debug + Send + Sync + 'static;
    type Act: Copy + Debug + PartialEq + Send + Sync + 'static;
    type Wrong: Copy + Debug + PartialEq + 'static;

    fn of(setup: &Self::Setup) -> Self;

    fn acts(&self, setup: &Self::Setup) -> Vec<Self::Act>;

    /// `None` where nothing would come of it.
    fn after(&self, setup: &Self::Setup, act: Self::Act) -> Option<Self>;

    /// What is wrong with the state, or with how it ends when nothing more goes wrong.
    fn wrong(&self, setup: &Self::Setup) -> Option<Self::Wrong>;
}

/// What may go wrong and how often, and which rule is dropped, for worlds that need to be told no more.
#[derive(Debug, Clone)]
pub struct Setup<Faults, Rule> {
    pub faults: Faults,
    pub dropped: Option<Rule>,
}

impl<Faults, Rule: PartialEq> Setup<Faults, Rule> {
    pub fn drops(&self, rule: Rule) -> bool {
        self.dropped == Some(rule)
    }
}

/// Whether the wider worlds are to be searched.
pub fn full() -> bool {
    std::env::var_os("SEMEL_TEST_FULL").is_some_and(|full| full == "1")
}

struct Search<W: World> {
    setup: W::Setup,
    counts: fn(W::Wrong) -> bool,
}

impl<W: World> Search<W> {
    fn wrong(&self, world: &W) -> Option<W::Wrong> {
        world.wrong(&self.setup).filter(|&wrong| (self.counts)(wrong))
    }

    fn found(self, path: Path<W, W::Act>) -> Found<W> {
        let wrong = self.wrong(path.last_state()).expect("found");
        Found { wrong, acts: path.into_actions() }
    }
}

impl<W: World> Model for Search<W> {
    type State = W;
    type Action = W::Act;

    fn init_states(&self) -> Vec<W> {
        vec![W::of(&self.setup)]
    }

    fn actions(&self, world: &W, acts: &mut Vec<W::Act>) {
        acts.extend(world.acts(&self.setup));
    }

    fn next_state(&self, world: &W, act: W::Act) -> Option<W> {
        world.after(&self.setup, act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(RIGHT, |search, world| search.wrong(world).is_none())]
    }
}

const RIGHT: &str = "nothing is lost and nothing doubled";

/// A history that goes wrong.
pub struct Found<W: World> {
    pub wrong: W::Wrong,
    pub acts: Vec<W::Act>,
}

/// Searches a world to its last state: nothing may go wrong.
pub fn holds<W: World>(setup: &W::Setup) {
    let begun = Instant::now();
    let search = || Search::<W> { setup: setup.clone(), counts: |_| true };
    let states = search().checker().threads(2).spawn_dfs().join();
    if let Some(path) = states.discovery(RIGHT) {
        let Found { wrong, acts } = search().found(path);
        panic!("{wrong:?} after {acts:?}, with {setup:?}");
    }
    println!("{} states in {:.1?}", states.unique_state_count(), begun.elapsed());
}

/// Searches breadth first for what `counts`: one of the shortest histories that go wrong, printed. There must be one.
pub fn goes_wrong<W: World>(setup: &W::Setup, counts: fn(W::Wrong) -> bool, how: &str) {
    let begun = Instant::now();
    let search = || Search::<W> { setup: setup.clone(), counts };
    let states = search().checker().threads(1).spawn_bfs().join();
    let path = states.discovery(RIGHT).unwrap_or_else(|| panic!("nothing goes wrong, although {how}: {setup:?}"));
    let Found { wrong, acts } = search().found(path);
    println!("{how}: {wrong:?} in {} steps, {:.1?}\n  {acts:?}", acts.len(), begun.elapsed());
}
