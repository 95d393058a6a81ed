//! What may go wrong, each at most so many times in one history.

use semel::protocol::lane::Position;

use super::instance::{Instance, Stage};
use super::kafka::Transaction;
use super::postgres::{Postgres, Statement};
use super::variants::Rule;
use super::world::{INSTANCES, PARTITIONS, Places, Setup, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults {
    /// An instance is gone between any two of its steps, or with a statement to PostgreSQL under way.
    pub crashes: u8,
    pub rebalances: u8,
    /// The group's own offset is set to any value, back or (with `skips`) forward.
    pub moves: u8,
    pub skips: bool,
    /// A claim's answer does not come: it was carried out, or it will be at any later time, or never.
    pub claims_unanswered: u8,
    /// The answer to a commit does not come: it commits or aborts at any later time.
    pub commits_unanswered: u8,
    pub aborts: u8,
    /// The log loses its beginning.
    pub retentions: u8,
    /// The group's own offset expires, or is deleted.
    pub own_lost: u8,
    /// The settled offset expires, or is deleted.
    pub settled_lost: u8,
    /// An instance ends cleanly and records where it left off.
    pub drains: u8,
    /// The topic is deleted and made anew; its offsets stay, or (with `offsets_go`) go with it.
    pub topics_anew: u8,
    pub offsets_go: bool,
    /// The database is replaced by an empty one.
    pub new_stores: u8,
    /// The broker takes the records that it refused before.
    pub heals: u8,
}

impl Faults {
    pub const NONE: Faults = Faults {
        crashes: 0,
        rebalances: 0,
        moves: 0,
        skips: false,
        claims_unanswered: 0,
        commits_unanswered: 0,
        aborts: 0,
        retentions: 0,
        own_lost: 0,
        settled_lost: 0,
        drains: 0,
        topics_anew: 0,
        offsets_go: false,
        new_stores: 0,
        heals: 0,
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Crash(usize),
    /// Its statements to PostgreSQL are under way: each is carried out later, or never.
    CrashInCall(usize),
    Rebalance([Option<usize>; PARTITIONS]),
    Move(usize, Position),
    ClaimUnanswered(usize, usize),
    ClaimDelayed(usize, usize),
    CommitUnanswered(usize),
    Abort(usize),
    Retention(usize, Position),
    OwnLost(usize),
    SettledLost(usize),
    Drain(usize),
    TopicAnew,
    NewStore,
    Heal,
}

impl World {
    pub fn faults(&self, setup: &Setup) -> Vec<Fault> {
        let mut faults = Vec::new();
        let left = &self.left;
        if left.rebalances > 0 {
            let everywhere = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|owners| owners.map(Some));
            faults.extend(everywhere.into_iter().filter(|to| *to != self.kafka.assigned).map(Fault::Rebalance));
        }
        for p in 0..PARTITIONS {
            self.faults_of_partition(setup, p, &mut faults);
        }
        for k in 0..INSTANCES {
            self.faults_of_instance(k, &mut faults);
        }
        if left.topics_anew > 0 {
            faults.push(Fault::TopicAnew);
        }
        if left.new_stores > 0 {
            faults.push(Fault::NewStore);
        }
        if left.heals > 0 && !self.healed {
            faults.push(Fault::Heal);
        }
        faults
    }

    fn faults_of_partition(&self, setup: &Setup, p: usize, faults: &mut Vec<Fault>) {
        let left = &self.left;
        let partition = &self.kafka.partitions[p];
        let end = setup.end(self.kafka.topic, p);
        if left.moves > 0 {
            let now = partition.committed.unwrap_or(0);
            let to = (0..=end).filter(|&to| to < now || left.skips && to > now);
            faults.extend(to.map(|to| Fault::Move(p, to)));
        }
        if left.retentions > 0 {
            faults.extend((partition.log_start + 1..=end).map(|to| Fault::Retention(p, to)));
        }
        if left.own_lost > 0 && partition.committed.is_some() {
            faults.push(Fault::OwnLost(p));
        }
        if left.settled_lost > 0 && partition.settled.is_some() {
            faults.push(Fault::SettledLost(p));
        }
    }

    fn faults_of_instance(&self, k: usize, faults: &mut Vec<Fault>) {
        let (left, instance) = (&self.left, &self.instances[k]);
        if left.crashes > 0 && instance.stage != Stage::Out {
            faults.push(Fault::Crash(k));
            if self.has_calls(k) {
                faults.push(Fault::CrashInCall(k));
            }
        }
        if left.claims_unanswered > 0 {
            for n in unclaimed(instance) {
                faults.extend([Fault::ClaimUnanswered(k, n), Fault::ClaimDelayed(k, n)]);
            }
        }
        if let Some(transaction) = &instance.transaction {
            if left.commits_unanswered > 0 && transaction.may_commit() {
                faults.push(Fault::CommitUnanswered(k));
            }
            if left.aborts > 0 && transaction.sent_to_group {
                faults.push(Fault::Abort(k));
            }
        }
        if left.drains > 0 && instance.stage == Stage::Reading && instance.windows.is_empty() {
            faults.push(Fault::Drain(k));
        }
    }

    pub fn has_calls(&self, k: usize) -> bool {
        self.instances[k].stage == Stage::Opening || unclaimed(&self.instances[k]).next().is_some()
    }

    /// Calls to PostgreSQL that are under way, or about to be.
    pub fn calls_of(&self, setup: &Setup, k: usize) -> Vec<Statement> {
        let instance = &self.instances[k];
        if instance.stage == Stage::Opening {
            return vec![Statement::Open(instance.open_statement())];
        }
        unclaimed(instance).map(|n| self.claim_statement(setup, k, n)).collect()
    }

    pub fn suffer(&mut self, setup: &Setup, fault: &Fault) {
        match *fault {
            Fault::Rebalance(to) => {
                self.left.rebalances -= 1;
                self.kafka.rebalance(to);
            }
            Fault::Crash(k) => self.crash(k),
            Fault::CrashInCall(k) => {
                let calls = self.calls_of(setup, k);
                self.late.extend(calls);
                self.crash(k);
            }
            Fault::Move(partition, to) => self.operator_moves(setup, partition, to),
            Fault::ClaimUnanswered(k, n) => {
                let statement = self.claim_statement(setup, k, n);
                self.postgres.carry_out(setup, &statement);
                self.doubt(setup, k, n);
            }
            Fault::ClaimDelayed(k, n) => {
                self.late.push(self.claim_statement(setup, k, n));
                self.doubt(setup, k, n);
            }
            Fault::CommitUnanswered(k) => {
                self.left.commits_unanswered -= 1;
                self.lose_outcome(setup, k);
            }
            Fault::Abort(k) => {
                self.left.aborts -= 1;
                self.abort(setup, k);
            }
            Fault::Retention(partition, to) => {
                self.left.retentions -= 1;
                self.kafka.partitions[partition].log_start = to;
            }
            Fault::OwnLost(partition) => {
                self.left.own_lost -= 1;
                self.overtake(partition);
                self.kafka.move_group(partition, None);
            }
            Fault::SettledLost(partition) => {
                self.left.settled_lost -= 1;
                self.kafka.partitions[partition].settled = None;
            }
            Fault::Drain(k) => self.drain(setup, k),
            Fault::TopicAnew => self.topic_anew(),
            Fault::NewStore => {
                self.left.new_stores -= 1;
                self.postgres = Postgres::new(self.postgres.store + 1);
            }
            Fault::Heal => {
                self.left.heals -= 1;
                self.healed = true;
            }
        }
    }

    fn crash(&mut self, k: usize) {
        self.left.crashes -= 1;
        self.vanish(k);
    }

    /// The instance is gone; its transaction, if it has one, stays open.
    pub fn vanish(&mut self, k: usize) {
        let instance = std::mem::replace(&mut self.instances[k], Instance::out(self.kafka.generation));
        if let Some(transaction) = instance.transaction.filter(Transaction::is_begun) {
            self.kafka.loose.push(transaction);
            self.kafka.loose.sort();
        }
        for owner in &mut self.kafka.assigned {
            *owner = owner.filter(|&owner| owner != k);
        }
    }

    fn doubt(&mut self, setup: &Setup, k: usize, n: usize) {
        self.left.claims_unanswered -= 1;
        self.instances[k].windows[n].in_doubt = !setup.drops(Rule::NewTokenBeforeRepeat);
    }

    fn operator_moves(&mut self, setup: &Setup, partition: usize, to: Position) {
        self.left.moves -= 1;
        let from = self.kafka.partitions[partition].committed.unwrap_or(0);
        for place in setup.places(self.kafka.topic).filter(|place| place.partition == partition) {
            if place.offset >= to {
                self.skipped.remove(place);
            } else if place.offset >= from {
                self.skipped.insert(place);
            }
        }
        self.overtake(partition);
        self.kafka.move_group(partition, Some(to));
    }

    fn drain(&mut self, setup: &Setup, k: usize) {
        self.left.drains -= 1;
        self.record_left(setup, k);
        self.vanish(k);
    }

    fn record_left(&mut self, setup: &Setup, k: usize) {
        let instance = &self.instances[k];
        for (partition, reading) in instance.reads.iter().enumerate() {
            if let Some(reading) = reading {
                self.postgres.record_drain(setup, instance.topic, partition, instance.token, reading.position);
            }
        }
    }

    /// Kafka deletes the offsets of both groups with a topic, so the instance that knows where the lanes were left
    /// records it; not where a claim of its own may still land.
    pub fn leave_topic(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        let in_doubt = instance.windows.iter().any(|window| window.in_doubt);
        instance.discard_windows();
        if !in_doubt {
            self.record_left(setup, k);
        }
        self.instances[k].leave(setup);
    }

    fn topic_anew(&mut self) {
        self.left.topics_anew -= 1;
        self.kafka.rebalance([None; PARTITIONS]);
        self.kafka.topic = 1;
        self.skipped = Places::default();
        for p in 0..PARTITIONS {
            let partition = &mut self.kafka.partitions[p];
            partition.log_start = 0;
            if self.left.offsets_go {
                (partition.committed, partition.settled) = (None, None);
            }
        }
    }
}

/// The windows of which a claim is about to be sent.
pub fn unclaimed(instance: &Instance) -> impl Iterator<Item = usize> + use<'_> {
    let reading = instance.stage == Stage::Reading;
    (0..instance.windows.len()).filter(move |&n| {
        let window = &instance.windows[n];
        reading && window.claimed.is_none() && !instance.windows.iter().any(|window| window.in_doubt)
    })
}
