//! Rules 6 and 7: where an instance starts to read, and what it does first where that is a discontinuity.

use semel::protocol::lane::{LaneId, Mark, Token};
use semel::protocol::recovery::recovered;
use semel::protocol::start::{Row, Seen, Settled, Start};

use super::instance::{Reading, Stage};
use super::kafka::{Group, Offset, Transaction, mark, store_id, topic_id};
use super::postgres::{NotOwner, Open};
use super::variants::{self, Rule};
use super::world::{PARTITIONS, Setup, World};

impl World {
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

    /// Rule 7, (a). The transaction of (b) also confirms the partitions that simply go on, once after each assignment:
    /// it fails for a zombie whose token came late, over that of the present owner.
    fn start(&mut self, setup: &Setup, k: usize) {
        let instance = &self.instances[k];
        let mut transaction = Transaction::new(instance.topic, instance.generation);
        let confirms = !instance.confirmed && !setup.drops(Rule::StartConfirmed) && !variants::without_lanes(setup);
        for partition in 0..PARTITIONS {
            let Some(seen) = self.seen(setup, k, partition) else { continue };
            let instance = &mut self.instances[k];
            let (position, lane, opens) = match variants::decide(setup, seen) {
                Start::Continue { lane, position } => (position, lane, None),
                Start::NewLane { position, cut, .. } => {
                    let lane = instance.draw_lane(partition);
                    (position, lane, Some((lane, cut)))
                }
                Start::Halt(_) => {
                    instance.leave(setup);
                    instance.stage = Stage::Halted;
                    return;
                }
            };
            if opens.is_some() || confirms {
                let metadata = mark(self.postgres.store, instance.topic, lane, opens.and_then(|(_, cut)| cut));
                transaction.offsets[partition] = Some(Offset { position, metadata });
            }
            let reading = instance.reads[partition].as_mut().expect("seen");
            let (row, done) = (reading.row, variants::done_at_start(setup, reading));
            *reading = Reading { position, row, opens, done, ..Reading::default() };
        }
        let instance = &mut self.instances[k];
        instance.stage = if instance.opens() && setup.drops(Rule::KafkaStepFirst) {
            Stage::Opening
        } else if transaction.offsets.iter().all(Option::is_none) {
            Stage::Reading
        } else {
            Stage::Starting
        };
        instance.transaction = Some(transaction).filter(|_| instance.stage != Stage::Reading);
    }

    fn seen(&self, setup: &Setup, k: usize, partition: usize) -> Option<Seen> {
        let instance = &self.instances[k];
        let reading = instance.reads[partition].as_ref()?;
        Some(self.seen_with(setup, instance.topic, partition, reading))
    }

    fn seen_with(&self, setup: &Setup, topic: usize, partition: usize, reading: &Reading) -> Seen {
        let settled = reading.settled.as_ref();
        let settled = settled.map(|at| Settled { position: at.position, mark: Mark::decode(&at.metadata) });
        let log_end = setup.end(topic, partition);
        let topic_now = topic_id(topic);
        let other = settled.as_ref().and_then(|s| s.mark.as_ref()).filter(|mark| mark.topic != topic_now);
        Seen {
            open_elsewhere: other.is_some_and(|mark| self.postgres.is_open(mark.lane)),
            former: topic.checked_sub(1).and_then(|former| self.postgres.row(setup, former, partition)),
            committed: reading.committed,
            settled,
            row: reading.row,
            store: store_id(self.postgres.store),
            topic: topic_now,
            log_start: self.kafka.partitions[partition].log_start,
            log_end,
            reset: setup.reset,
            added_later: false,
        }
    }

    /// `semel recover`, while the group has no members: a halted partition goes on, on a lane without a cut.
    pub fn recover(&mut self, setup: &Setup) {
        self.kafka.rebalance([None; PARTITIONS]);
        let topic = self.kafka.topic;
        for p in 0..PARTITIONS {
            let token = Token(i64::from(self.kafka.generation) * 100);
            let row = self.postgres.take(setup, topic, p, token);
            let partition = &self.kafka.partitions[p];
            let (committed, settled) = (partition.committed, partition.settled.clone());
            let seen = self.seen_with(setup, topic, p, &Reading { row, committed, settled, ..Reading::default() });
            let Some(recovered) = recovered(&seen) else { continue };
            let (position, lane) = (recovered.position, LaneId(token.0 + p as i64));
            let metadata = mark(self.postgres.store, topic, lane, None);
            let partition = &mut self.kafka.partitions[p];
            partition.settled = Some(Offset { position, metadata });
            if recovered.moves_own {
                partition.committed = Some(position);
            }
            let mut open = Open { topic, token, lanes: [None; PARTITIONS] };
            open.lanes[p] = Some((lane, None));
            self.postgres.open(setup, &open).expect("the token was just written");
        }
    }

    /// The start's transaction has committed.
    pub fn started(&mut self, k: usize) {
        let instance = &mut self.instances[k];
        instance.confirmed = true;
        instance.stage = if instance.opens() { Stage::Opening } else { Stage::Reading };
    }

    /// Rule 7, (c): only if still the owner.
    pub fn open(&mut self, setup: &Setup, k: usize) {
        let open = self.instances[k].open_statement();
        if let Err(NotOwner) = self.postgres.open(setup, &open) {
            return self.instances[k].leave(setup);
        }
        let instance = &mut self.instances[k];
        instance.empty_known(setup, Rule::KnownEmptiedOnRelease);
        instance.stage = if instance.transaction.is_some() { Stage::Starting } else { Stage::Reading };
        for reading in instance.reads.iter_mut().flatten() {
            if let Some((lane, _)) = reading.opens.take() {
                reading.row = Some(Row { open: lane, drained: None });
            }
        }
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
}
