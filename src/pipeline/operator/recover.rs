//! Lets halted partitions go on: the operator's word where the protocol has none of its own.
//!
//! **Guarantee.** Nothing doubles that this store has a claim of. The window that was in doubt when the settled offset
//! was lost may be lost: no claim is released, since nothing tells which of them were forwarded. Partitions that are
//! not halted are not touched.
//!
//! **Order**, as in a discontinuity: the owner token in the store, then both offsets in Kafka, then the new lane in the
//! store. Interrupted before Kafka, the partition is halted as before. Interrupted after it, the offsets' metadata names a
//! lane that is not open, and the next start opens one of its own, with no cut either. Within Kafka the group's own
//! offset goes first: the settled one alone beside an offset of a log that is gone would be taken for a skip.
//!
//! **Guards.** The group is empty: looked at before and after the token is written, and the broker refuses an offset
//! from outside to a group with members. What was read is read again under the token, and what was committed is read
//! back. *Not handled:* a member that joins within the milliseconds between the last look and the settled offset's
//! commit, whose own first commit would then be overwritten; reading back finds it, and says so.

use std::collections::BTreeMap;

use super::settled::settled_group;
use super::standing::{Known, Partitions, Standing, known, standings};
use super::{ASK, Claims, OperatorError, refuse_members};
use crate::kafka::TopicPartition;
use crate::kafka::groups::{Groups, NewOffset};
use crate::pipeline::transactional::{draw_lane, draw_token};
use crate::protocol::event::EventTime;
use crate::protocol::lane::{Cut, LaneId, Mark, Position, StreamId, Token};
use crate::protocol::recovery::{Recovered, recovered};
use crate::protocol::start::{Halt, Reset, Seen, Settled, Start};
use crate::source::kafka::{KafkaSource, KafkaSourceOptions};
use crate::store::{LaneFor, OpenLane, Take};

/// A group and its topics, as this command sees them.
pub struct Recover<'a> {
    claims: &'a Claims,
    groups: Groups,
    source: KafkaSource,
    partitions: Partitions,
    group: String,
    reset: Reset,
    /// What the present settings mean by a claim, for partitions whose lane is not known.
    lane_for: LaneFor,
}

/// A partition, and what there is to recover of it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub standing: Standing,
    pub recovered: Option<Recovered>,
}

/// What was done to a partition.
#[derive(Debug, Clone)]
pub struct Done {
    pub topic: String,
    pub partition: i32,
    pub lane: LaneId,
    pub position: Position,
}

struct New<'a> {
    standing: &'a Standing,
    recovered: Recovered,
    token: Token,
    lane: LaneId,
    mark: Mark,
}

impl<'a> Recover<'a> {
    pub fn new(
        claims: &'a Claims,
        options: &KafkaSourceOptions,
        reset: Reset,
        lane_for: LaneFor,
    ) -> Result<Recover<'a>, OperatorError> {
        let groups = Groups::new(&options.cluster)?;
        groups.cluster(ASK)?;
        let source = KafkaSource::new(options)?;
        let partitions = Partitions::of(&source, &options.topics)?;
        Ok(Recover { claims, groups, source, partitions, group: options.group.clone(), reset, lane_for })
    }

    /// What there is to do. Changes nothing. Refuses a group that has members.
    pub fn plan(&self) -> Result<Vec<Plan>, OperatorError> {
        refuse_members(&self.groups, &self.group)?;
        self.look(&self.partitions.places, &known(self.claims)?)
    }

    fn look(&self, places: &[TopicPartition], known: &BTreeMap<StreamId, Known>) -> Result<Vec<Plan>, OperatorError> {
        let of = (self.group.as_str(), self.reset);
        let found = standings(self.claims, &self.source, &self.partitions, places, known, of)?;
        let plan = |standing: Standing| Plan { recovered: recovered(&standing.seen), standing };
        Ok(found.into_iter().map(plan).collect())
    }

    /// Carries a plan out for the partitions that are still halted.
    pub fn carry_out(&self, plans: &[Plan], now: EventTime) -> Result<Vec<Done>, OperatorError> {
        let halted: Vec<&Plan> = plans.iter().filter(|plan| plan.recovered.is_some()).collect();
        if halted.is_empty() {
            return Ok(Vec::new());
        }
        let mut tokens = BTreeMap::new();
        let mut known = known(self.claims)?;
        for plan in &halted {
            let (stream, token) = (&plan.standing.stream, draw_token()?);
            let take = &Take { stream, token, instead_of: None };
            let taken = self.claims.ask(|store| async move { store.take(take).await })?;
            tokens.insert(plan.standing.place, token);
            known.insert(stream.clone(), (taken.row, taken.opened_for));
        }
        refuse_members(&self.groups, &self.group)?;
        let places: Vec<TopicPartition> = tokens.keys().copied().collect();
        let again = self.look(&places, &known)?;
        let mut news = Vec::new();
        for plan in &again {
            let Some(recovered) = plan.recovered else { continue };
            let (standing, lane) = (&plan.standing, draw_lane()?);
            let (store, topic) = (standing.seen.store.clone(), standing.seen.topic.clone());
            let mark = Mark { store, topic, lane, cut: cut_of(standing) };
            news.push(New { standing, recovered, token: tokens[&standing.place], lane, mark });
        }
        self.commit(&news)?;
        news.iter().map(|new| self.open(new, now)).collect()
    }

    fn commit(&self, news: &[New<'_>]) -> Result<(), OperatorError> {
        for new in news {
            let (stream, token) = (&new.standing.stream, new.token);
            // Only where it still stands there.
            let take = &Take { stream, token, instead_of: Some(token) };
            self.claims.ask(|store| async move { store.take(take).await })?;
        }
        refuse_members(&self.groups, &self.group)?;
        let offset = |new: &New<'_>, metadata: String| {
            let Standing { topic, place, .. } = new.standing;
            NewOffset { topic: topic.clone(), partition: place.partition, offset: new.recovered.position, metadata }
        };
        let own = news.iter().filter(|new| new.recovered.moves_own).map(|new| offset(new, String::new()));
        self.groups.commit(&self.group, &own.collect::<Vec<_>>())?;
        let settled: Vec<NewOffset> = news.iter().map(|new| offset(new, new.mark.encode())).collect();
        self.groups.commit(&settled_group(&self.group), &settled)?;
        self.read_back(news)
    }

    fn read_back(&self, news: &[New<'_>]) -> Result<(), OperatorError> {
        let places: Vec<TopicPartition> = news.iter().map(|new| new.standing.place).collect();
        let found = self.source.offsets(&places, ASK)?;
        for new in news {
            let Standing { topic, place, .. } = new.standing;
            let settled = found.get(place).and_then(|offsets| offsets.settled.as_ref());
            let stands = |settled: &&Settled| {
                settled.position == new.recovered.position && settled.mark.as_ref() == Some(&new.mark)
            };
            if settled.filter(stands).is_none() {
                return Err(OperatorError::Overwritten { topic: topic.clone(), partition: place.partition });
            }
        }
        Ok(())
    }

    fn open(&self, new: &New<'_>, now: EventTime) -> Result<Done, OperatorError> {
        let New { standing, recovered, token, lane, .. } = new;
        // A change of what claims mean is acknowledged elsewhere: the new lane carries on what the old one meant.
        let lane_for = standing.opened_for.as_ref().unwrap_or(&self.lane_for);
        let open =
            &OpenLane { stream: &standing.stream, token: *token, lane: *lane, cut: cut_of(standing), lane_for, now };
        self.claims.ask(|store| async move { store.open_lane(open).await })?;
        let (topic, partition) = (standing.topic.clone(), standing.place.partition);
        Ok(Done { topic, partition, lane: *lane, position: recovered.position })
    }
}

/// Closes the lane of a topic's former self without releasing a claim of it.
fn cut_of(standing: &Standing) -> Option<Cut> {
    let Seen { row: None, former: Some(former), .. } = standing.seen else { return None };
    Some(Cut { prev: former.open, cut: Position::MAX })
}

impl Plan {
    /// What was found and what will be done, in words.
    pub fn words(&self) -> String {
        let seen = &self.standing.seen;
        let Some(Recovered { halt, position, moves_own }) = self.recovered else {
            return match &self.standing.start {
                Start::Continue { position, .. } => format!("nothing to recover: goes on at {position}"),
                Start::NewLane { position, why, .. } => {
                    format!("nothing to recover: the next start opens a lane at {position} by itself ({})", why.label())
                }
                Start::Halt(_) => "halted".to_owned(),
            };
        };
        let found = match halt {
            Halt::SettledMissing { open } => {
                format!("the settled offset is gone, lane {open} was not closed by a drain")
            }
            Halt::SettledForeign => "the settled offset is not semel's".to_owned(),
            Halt::OtherStore => "the settled offset belongs to claims in another store".to_owned(),
        };
        let own = match (moves_own, seen.committed) {
            (false, _) => "the group's own offset stays".to_owned(),
            (true, None) => "the group's own offset, which is missing, becomes the same".to_owned(),
            (true, Some(was)) => format!("the group's own offset, {was}, cannot be read from and becomes the same"),
        };
        format!("{found}. it will go on at {position} on a new lane; {own}")
    }

    /// Messages that will be forwarded a second time, where the claims of the first are in another store.
    pub fn repeated(&self) -> Option<(Position, Position)> {
        let recovered = self.recovered.filter(|recovered| recovered.halt == Halt::OtherStore)?;
        let settled = self.standing.seen.settled.as_ref()?.position;
        (recovered.position < settled).then_some((recovered.position, settled))
    }
}
