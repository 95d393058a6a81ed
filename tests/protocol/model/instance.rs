//! One instance, as it follows protocol.md ("Kafka to Kafka"): from an assignment to its start, window by window.
//!
//! Each step is one call to Kafka or PostgreSQL and what the instance concludes from the answer; the two instances'
//! steps, the faults and what was left under way interleave in every order. An instance that has not yet heard of a
//! newer generation goes on in its own: a zombie is nothing else.

use semel::protocol::lane::{Cut, Holder, LaneId, Position, Token};
use semel::protocol::start::{Row, Seen, Settled, Start};

use super::kafka::{Group, Offset, Transaction, mark, store_id, topic_id};
use super::postgres::{Claim, NotOwner, Open, Statement};
use super::variants::{self, Rule};
use super::world::{EVENTS, Known, PARTITIONS, Part, Parts, Places, Setup, World, records};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    pub stage: Stage,
    /// The group's generation, as far as this instance has heard.
    pub generation: u8,
    pub topic: usize,
    pub token: Token,
    /// Tokens and lanes that it drew in this generation.
    drawn: i64,
    /// The assigned partitions.
    pub reads: [Option<Reading>; PARTITIONS],
    /// Windows under way, the first to be committed first.
    pub windows: Vec<Window>,
    /// Of the first window, or of a discontinuity.
    pub transaction: Option<Transaction>,
    pub known: [bool; EVENTS],
    /// Records that the broker refused: they are read as dead letters.
    pub dead: Places,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not a member, or it found that it no longer is: waits for an assignment.
    Out,
    /// It knows its partitions and is about to write its token.
    Taking,
    /// About to fetch one group's offsets, then the other's.
    Fetching,
    FetchingMore,
    /// A discontinuity: its transaction is under way, then the lanes are opened.
    Moving,
    Opening,
    Reading,
    /// The start table asks for an operator.
    Halted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Reading {
    /// The next offset to poll.
    pub position: Position,
    /// What PostgreSQL said when the token was written, and what this instance changed since.
    pub row: Option<Row>,
    /// Fetched for the decision where to start.
    pub committed: Option<Position>,
    pub settled: Option<Offset>,
    /// A lane to be opened.
    opens: Option<(LaneId, Option<Cut>)>,
    /// Only where lanes are dropped: the settled position that this instance knows.
    done: Position,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Window {
    /// Captured before it was polled.
    pub generation: u8,
    pub parts: Parts,
    pub claimed: Option<Claimed>,
    /// A claim of it has an unknown outcome: a new token comes before the next.
    pub in_doubt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claimed {
    publishes: Places,
    dead: Places,
}

impl Instance {
    pub fn out(generation: u8) -> Instance {
        Instance {
            stage: Stage::Out,
            generation,
            topic: 0,
            token: Token(0),
            drawn: 0,
            reads: Default::default(),
            windows: Vec::new(),
            transaction: None,
            known: [false; EVENTS],
            dead: Places::default(),
        }
    }

    /// Stops at once. What is open aborts; nothing is written any more before a new assignment.
    pub fn leave(&mut self, setup: &Setup) {
        self.empty_known(setup, Rule::KnownEmptiedOnRelease);
        *self = Instance { known: self.known, ..Instance::out(self.generation) };
    }

    /// Ids that were learned before their commit was known go on each occasion that may leave them undone.
    fn empty_known(&mut self, setup: &Setup, occasion: Rule) {
        if setup.known != Known::Committed && !setup.drops(occasion) {
            self.known = [false; EVENTS];
        }
    }

    /// A number that nobody else draws: a partition has one assignee in a generation.
    fn draw(&mut self) -> i64 {
        self.drawn += 1;
        i64::from(self.generation) * 100 + self.drawn * 10
    }

    fn draw_lane(&mut self, partition: usize) -> LaneId {
        LaneId(self.draw() + partition as i64)
    }

    /// Discards every window and goes back to where the first of them began.
    pub fn discard_windows(&mut self) {
        for window in std::mem::take(&mut self.windows).iter().rev() {
            for (reading, part) in self.reads.iter_mut().zip(&window.parts) {
                if let (Some(reading), Some(part)) = (reading, part) {
                    reading.position = part.from;
                }
            }
        }
    }

    fn claim_of(&self, setup: &Setup, window: &Window) -> Claim {
        let known = records(&window.parts)
            .map(|(place, _)| place)
            .filter(|&place| self.known[setup.event(self.topic, place)])
            .collect();
        Claim {
            topic: self.topic,
            token: self.token,
            parts: window.parts,
            except: self.dead.or(known),
            done: std::array::from_fn(|p| self.reads[p].as_ref().map_or(0, |reading| reading.done)),
        }
    }

    pub fn open_statement(&self) -> Open {
        let lanes = std::array::from_fn(|p| self.reads[p].as_ref().and_then(|reading| reading.opens));
        Open { topic: self.topic, token: self.token, lanes }
    }

    fn learn(&mut self, setup: &Setup, publishes: Places) {
        for place in publishes.iter() {
            self.known[setup.event(self.topic, place)] = true;
        }
    }
}

impl World {
    /// The group's coordinator names the generation and the partitions: what was held before is discarded.
    pub fn assign(&mut self, setup: &Setup, k: usize) {
        let kafka = &self.kafka;
        let mine = std::array::from_fn(|p| (kafka.assigned[p] == Some(k)).then(Reading::default));
        let (generation, topic) = (kafka.generation, variants::stream(setup, kafka.topic));
        let instance = &mut self.instances[k];
        if variants::keeps_windows(setup, instance, &mine) {
            instance.generation = generation;
            instance.windows.iter_mut().for_each(|window| window.generation = generation);
            instance.reads = std::array::from_fn(|p| mine[p].as_ref().and(instance.reads[p].take()));
            return;
        }
        instance.leave(setup);
        *instance = Instance { stage: Stage::Taking, generation, topic, reads: mine, ..instance.clone() };
    }

    /// Rule 3, before any fetch.
    pub fn take(&mut self, k: usize) {
        let instance = &mut self.instances[k];
        instance.token = Token(instance.draw());
        for (partition, reading) in instance.reads.iter_mut().enumerate() {
            if let Some(reading) = reading {
                reading.row = self.postgres.take(instance.topic, partition, instance.token);
            }
        }
        instance.stage = Stage::Fetching;
    }

    /// Rule 6: the group's own offsets first, then the settled ones, both stable. False where the fetch waits.
    pub fn fetch(&mut self, setup: &Setup, k: usize) -> bool {
        let first = self.instances[k].stage == Stage::Fetching;
        let group = if first != setup.drops(Rule::GroupFetchedFirst) { Group::Own } else { Group::Settled };
        let mine = |p: &usize| self.instances[k].reads[*p].is_some();
        let waits = (0..PARTITIONS).filter(mine).any(|p| self.unstable(p, group));
        if waits && !setup.drops(Rule::StableFetch) {
            return false;
        }
        let instance = &mut self.instances[k];
        for (reading, partition) in instance.reads.iter_mut().zip(&self.kafka.partitions) {
            let Some(reading) = reading else { continue };
            match group {
                Group::Own => reading.committed = partition.committed,
                Group::Settled => reading.settled = partition.settled.clone(),
            }
        }
        instance.stage = Stage::FetchingMore;
        if !first {
            self.start(setup, k);
        }
        true
    }

    /// Rule 7, (a).
    fn start(&mut self, setup: &Setup, k: usize) {
        let mut transaction = Transaction::new(self.instances[k].topic, self.instances[k].generation);
        let mut moves = false;
        for partition in 0..PARTITIONS {
            let Some(seen) = self.seen(setup, k, partition) else { continue };
            let start = variants::decide(setup, seen);
            let (store, instance) = (self.postgres.store, &mut self.instances[k]);
            let (position, opens) = match start {
                Start::Continue { position, .. } => (position, None),
                Start::NewLane { position, cut, .. } => (position, Some((instance.draw_lane(partition), cut))),
                Start::Halt(_) => {
                    instance.leave(setup);
                    instance.stage = Stage::Halted;
                    return;
                }
            };
            if let Some((lane, cut)) = opens {
                let metadata = mark(store, instance.topic, lane, cut);
                transaction.offsets[partition] = Some(Offset { position, metadata });
                moves = true;
            }
            let reading = instance.reads[partition].as_mut().expect("seen");
            let (row, done) = (reading.row, variants::done_at_start(setup, reading));
            *reading = Reading { position, row, opens, done, ..Reading::default() };
        }
        let instance = &mut self.instances[k];
        if !moves {
            instance.stage = Stage::Reading;
            return;
        }
        instance.transaction = Some(transaction);
        instance.stage = if setup.drops(Rule::KafkaStepFirst) { Stage::Opening } else { Stage::Moving };
    }

    fn seen(&self, setup: &Setup, k: usize, partition: usize) -> Option<Seen> {
        let instance = &self.instances[k];
        let reading = instance.reads[partition].as_ref()?;
        let settled = reading.settled.as_ref().map(|offset| Settled {
            position: offset.position,
            mark: semel::protocol::lane::Mark::decode(&offset.metadata),
        });
        let topic = topic_id(instance.topic);
        let former = settled.as_ref().and_then(|s| s.mark.as_ref()).filter(|mark| mark.topic != topic);
        Some(Seen {
            open_elsewhere: former.is_some_and(|mark| self.postgres.is_open(mark.lane)),
            committed: reading.committed,
            settled,
            row: reading.row,
            store: store_id(self.postgres.store),
            topic,
            log_start: self.kafka.partitions[partition].log_start,
            log_end: setup.end(instance.topic, partition),
            reset: setup.reset,
            added_later: false,
        })
    }

    /// Rule 7, (c): only if still the owner.
    pub fn open(&mut self, setup: &Setup, k: usize) {
        let open = self.instances[k].open_statement();
        if let Err(NotOwner) = self.postgres.open(setup, &open) {
            return self.instances[k].leave(setup);
        }
        let instance = &mut self.instances[k];
        instance.empty_known(setup, Rule::KnownEmptiedOnRelease);
        instance.stage = if instance.transaction.is_some() { Stage::Moving } else { Stage::Reading };
        for reading in instance.reads.iter_mut().flatten() {
            if let Some((lane, _)) = reading.opens.take() {
                reading.row = Some(Row { open: lane, drained: None });
            }
        }
    }

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
        if assigned.any(|p| self.postgres.owner(instance.topic, p) != Some(instance.token)) {
            return instance.leave(setup);
        }
        instance.token = Token(instance.draw());
        for partition in (0..PARTITIONS).filter(|&p| instance.reads[p].is_some()) {
            self.postgres.take(instance.topic, partition, instance.token);
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
        if instance.stage == Stage::Moving {
            let opened = instance.reads.iter().flatten().all(|reading| reading.opens.is_none());
            instance.stage = if opened { Stage::Reading } else { Stage::Opening };
            return;
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
        if instance.stage == Stage::Moving {
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

    /// Reads the offsets again and decides anew where to start.
    pub fn start_over(&mut self, k: usize) {
        let instance = &mut self.instances[k];
        instance.windows.clear();
        instance.transaction = None;
        instance.stage = Stage::Fetching;
        for reading in instance.reads.iter_mut().flatten() {
            *reading = Reading { row: reading.row, done: reading.done, ..Reading::default() };
        }
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
