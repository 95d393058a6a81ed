//! Rules 1, 2, 4 and 5: a window from its poll to its end.

use semel::protocol::lane::{Holder, Position, Token};

use super::instance::{Claimed, Stage, Window};
use super::kafka::{Offset, Transaction, mark};
use super::postgres::{NotOwner, Statement};
use super::variants::{self, Rule};
use super::world::{Known, PARTITIONS, Part, Places, Setup, World, records};

impl World {
    /// Rule 4: the window keeps the generation in which it is polled.
    pub fn poll(&mut self, k: usize, counts: [Position; PARTITIONS]) {
        let instance = &mut self.instances[k];
        let parts = std::array::from_fn(|p| {
            let reading = instance.reads[p].as_mut().filter(|_| counts[p] > 0)?;
            let row = reading.row.as_mut().expect("reading on an open lane");
            row.drained = None;
            let from = reading.position;
            reading.position += counts[p];
            Some(Part { lane: row.open, from, to: reading.position })
        });
        instance.windows.push(Window { generation: instance.generation, parts, claimed: None, in_doubt: false });
    }

    pub fn claim_statement(&self, setup: &Setup, k: usize, n: usize) -> Statement {
        Statement::Claim(self.instances[k].claim_of(setup, &self.instances[k].windows[n]))
    }

    /// Rules 1 and 2. Whoever is no longer the owner stops.
    pub fn claim(&mut self, setup: &Setup, k: usize, n: usize) {
        let instance = &mut self.instances[k];
        let claim = instance.claim_of(setup, &instance.windows[n]);
        match self.postgres.claim(setup, &claim) {
            Err(NotOwner) => instance.leave(setup),
            Ok(publishes) => {
                let dead = records(&claim.parts).map(|(place, _)| place).filter(|&p| instance.dead.contains(p));
                instance.windows[n].claimed = Some(Claimed { publishes, dead: dead.collect() });
                if setup.known == Known::Claimed {
                    instance.learn(setup, publishes);
                }
            }
        }
    }

    /// A new token in place of the own old one, before a claim of unknown outcome is repeated.
    pub fn retake(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        let mut assigned = (0..PARTITIONS).filter(|&p| instance.reads[p].is_some());
        if assigned.any(|p| self.postgres.owner(setup, instance.topic, p) != Some(instance.token)) {
            return instance.leave(setup);
        }
        instance.token = Token(instance.draw());
        for partition in (0..PARTITIONS).filter(|&p| instance.reads[p].is_some()) {
            self.postgres.take(setup, instance.topic, partition, instance.token);
        }
        instance.windows.iter_mut().for_each(|window| window.in_doubt = false);
    }

    /// Rule 5: produce and send the offsets to the settled group; then, with the captured metadata, to the own one.
    pub fn send(&mut self, setup: &Setup, k: usize) {
        let refused = if self.healed { Places::default() } else { setup.refused() };
        let (generation, store) = (self.kafka.generation, self.postgres.store);
        let instance = &mut self.instances[k];
        let transaction = instance.transaction.get_or_insert_with(|| {
            let window = &instance.windows[0];
            let claimed = window.claimed.expect("claimed");
            let offset =
                |part: Part| Offset { position: part.to, metadata: mark(store, instance.topic, part.lane, None) };
            Transaction {
                offsets: window.parts.map(|part| part.map(offset)),
                publishes: claimed.publishes,
                dead: claimed.dead,
                refused: !claimed.publishes.and(refused).is_empty(),
                ..Transaction::new(instance.topic, window.generation)
            }
        });
        let first = !transaction.sent_to_settled && !transaction.sent_to_group;
        if first != setup.drops(Rule::SettledSentFirst) {
            transaction.sent_to_settled = true;
            return;
        }
        let at_send = setup.drops(Rule::MetadataCaptured) && self.kafka.assigned.contains(&Some(k));
        if transaction.generation == generation || at_send || setup.drops(Rule::GenerationFence) {
            transaction.sent_to_group = true;
        } else {
            instance.leave(setup);
        }
    }

    pub fn commit(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        let transaction = instance.transaction.take().expect("open");
        self.kafka.commit(setup, &transaction);
        if instance.stage == Stage::Starting {
            return self.started(k);
        }
        let window = instance.windows.remove(0);
        if setup.known == Known::Committed {
            instance.learn(setup, transaction.publishes);
        }
        for (reading, part) in instance.reads.iter_mut().zip(&window.parts) {
            if let (Some(reading), Some(part)) = (reading, part) {
                reading.done = variants::done_after(setup, reading.done, part.to);
            }
        }
        if setup.drops(Rule::RefusedForgottenLast) {
            return;
        }
        // Only now are the claims of dead letters deleted, each only if event, lane and position are the same.
        for (place, at) in records(&window.parts).filter(|&(place, _)| transaction.dead.contains(place)) {
            let holder = Holder { lane: Some(at.lane), position: at.position };
            self.late.push(Statement::Forget { event: setup.event(transaction.topic, place), holder });
        }
    }

    /// A known abort: every window that is under way is discarded and read again from the start of the first.
    pub fn abort(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        instance.transaction = None;
        if instance.stage == Stage::Starting {
            instance.stage = Stage::Fetching;
            instance.reads.iter_mut().flatten().for_each(|reading| reading.opens = None);
        } else {
            instance.empty_known(setup, Rule::KnownEmptiedOnAbort);
            variants::discard(setup, instance);
        }
    }

    /// The broker refused a record: the abort is known, and the record is a dead letter when it is read again.
    pub fn abort_refused(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        let transaction = instance.transaction.take().expect("open");
        let refused = transaction.publishes.and(setup.refused());
        instance.dead = instance.dead.or(refused);
        if setup.drops(Rule::RefusedForgottenLast) {
            for (place, at) in records(&instance.windows[0].parts).filter(|&(place, _)| refused.contains(place)) {
                let holder = Holder { lane: Some(at.lane), position: at.position };
                self.late.push(Statement::Forget { event: setup.event(transaction.topic, place), holder });
            }
        }
        instance.empty_known(setup, Rule::KnownEmptiedOnAbort);
        instance.discard_windows();
    }

    /// The outcome is unknown: everything is discarded, and the offsets are fetched again once it is resolved.
    pub fn lose_outcome(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        let transaction = instance.transaction.take().expect("open");
        self.kafka.loose.push(transaction);
        self.kafka.loose.sort();
        if setup.drops(Rule::UnknownResolved) {
            return self.abort(setup, k);
        }
        instance.empty_known(setup, Rule::KnownEmptiedOnAbort);
        self.start_over(k);
    }
}
