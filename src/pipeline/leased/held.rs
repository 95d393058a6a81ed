//! Messages that come again later: their events are somebody's work, or their claims were given back.
//!
//! They are kept unacknowledged rather than handed back, because a broker that is handed a message back delivers it at
//! once, and counts. Only what is kept for long is handed back.

use std::time::Duration;

use super::keyer::Item;
use crate::protocol::backoff::Backoff;

const FIRST: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Held {
    item: Item,
    due: Duration,
}

/// Bounded by what the source lets out at a time.
#[derive(Debug)]
pub struct Holding {
    held: Vec<Held>,
    /// Longest wait between two tries: well below a lease, since that is what most of it waits for.
    longest: Duration,
}

impl Holding {
    pub fn new(lease: Duration) -> Holding {
        Holding { held: Vec::new(), longest: lease / 4 }
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// `spread`: for [`Backoff`].
    pub fn hold(&mut self, items: Vec<Item>, now: Duration, spread: u8) {
        for mut item in items {
            let backoff = item.backoff.get_or_insert(Backoff::new(FIRST, self.longest));
            let due = now + backoff.next(spread);
            self.held.push(Held { item, due });
        }
    }

    /// When the next one is due.
    pub fn due(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.due).min()
    }

    /// Up to so many of those that are due, in the order in which they came.
    pub fn take_due(&mut self, now: Duration, most: usize) -> Vec<Item> {
        let mut taken = 0;
        let mut due: Vec<Item> = self
            .held
            .extract_if(.., |held| {
                let takes = held.due <= now && taken < most;
                taken += usize::from(takes);
                takes
            })
            .map(|held| held.item)
            .collect();
        due.sort_by_key(|item| item.tag);
        due
    }

    /// Those that were received before this.
    pub fn take_older(&mut self, than: Duration) -> Vec<Item> {
        self.held.extract_if(.., |held| held.item.received < than).map(|held| held.item).collect()
    }

    /// Everything that was handed out before this connection is void.
    pub fn keep_connection(&mut self, connection: u64) {
        self.held.retain(|held| held.item.tag.connection >= connection);
    }

    pub fn clear(&mut self) -> Vec<Item> {
        self.held.drain(..).map(|held| held.item).collect()
    }
}
