//! Messages without end, and the moment at which a daemon is at work on them.

use crate::MINUTE;
use crate::support::broker::wait_until;
use crate::support::daemon::Daemon;
use crate::support::feed::Feed;
use crate::support::generator::Message;
use crate::support::world::World;

/// Messages in the background for as long as a test needs them.
pub struct Endless<'a> {
    world: &'a World,
    rate: u32,
    slice: u64,
    next: u64,
    running: Option<Feed>,
    sent: Vec<Message>,
}

impl<'a> Endless<'a> {
    /// The first slice is of `first` messages, those after it of 5,000.
    pub fn start(world: &'a World, first: u64, rate: u32) -> Endless<'a> {
        let mut feed = Endless { world, rate, slice: first, next: 0, running: None, sent: vec![] };
        feed.keep_on();
        feed
    }

    /// Starts the next slice where the last has ended.
    pub fn keep_on(&mut self) {
        if self.running.as_ref().is_some_and(|feed| !feed.is_done()) {
            return;
        }
        if let Some(feed) = self.running.take() {
            self.sent.extend(feed.finish());
        }
        let messages = self.world.recipe(self.next, self.slice).all();
        let (kafka, topic) = (&self.world.services.kafka, &self.world.input);
        self.running = Some(Feed::start(kafka, topic, messages, self.rate));
        (self.next, self.slice) = (self.next + 1, 5_000);
    }

    /// Ends with the slice that is being sent; the first one is always sent whole.
    pub fn finish(mut self) -> Vec<Message> {
        let feed = self.running.take().expect("a feed");
        self.sent.extend(if self.next > 1 { feed.enough() } else { feed.finish() });
        self.sent
    }
}

/// Waits until an instance that was started just now has claimed something.
pub fn wait_busy(daemon: &Daemon, feed: &mut Endless<'_>) {
    wait_until(&format!("{} claims: {}", daemon.instance, daemon.tail()), MINUTE, || {
        feed.keep_on();
        daemon.metric("im2be_dedup_claims_total", &[]) > 0.0
    });
}
