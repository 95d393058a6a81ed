//! The input topic is deleted and made again under its name.

use std::time::Duration;

use crate::support::generator::Recipe;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(90);

/// The new log holds events that were forwarded from the old one, and new ones, from offset 0 on. Old offsets say
/// nothing about it: it is read whole.
#[test]
fn made_anew_while_the_daemon_is_stopped() {
    let mut world = World::new("anew", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    sent.extend(after(&mut world));
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// More messages than before, so that the old offsets lie within the new log: a third of the events are old ones.
fn after(world: &mut World) -> Vec<crate::support::generator::Message> {
    world.make_input_anew(3);
    let again = Recipe { first_copy: 500_000_000, ..world.recipe(0, 2_000) };
    let mut sent = world.send(again.iter());
    sent.extend(world.send(world.recipe(1, 4_000).iter()));
    sent
}
