//! The claims that stand at the end, against what came out.

use std::collections::{BTreeMap, HashMap, HashSet};

use semel::protocol::event::EventId;
use semel::protocol::lane::Mark;

use super::forwarded::Outcome;
use super::{Claim, Evidence, Finding, Input};

pub(super) fn judge(evidence: &Evidence, input: &Input<'_>, outcome: &Outcome, findings: &mut Vec<Finding>) {
    let mut claims: BTreeMap<&EventId, Vec<&Claim>> = BTreeMap::new();
    for claim in &evidence.claims {
        claims.entry(&claim.event).or_default().push(claim);
    }
    for event in outcome.forwarded.keys().filter(|event| !claims.contains_key(event)) {
        findings.push(Finding::OutputWithoutClaim { event: event.clone() });
    }
    // An event that has a copy in the input and did not come out is said to be lost already.
    let lost: HashSet<EventId> = findings.iter().filter_map(Finding::lost).cloned().collect();
    for (&event, rows) in &claims {
        match rows[..] {
            [claim] => one(input, outcome, claim, lost.contains(event), findings),
            _ => {
                let weeks = rows.iter().map(|claim| claim.week.clone()).collect();
                findings.push(Finding::ClaimedTwice { event: event.clone(), weeks });
            }
        }
    }
    unsettled(evidence, findings);
}

fn one(input: &Input<'_>, outcome: &Outcome, claim: &Claim, lost: bool, findings: &mut Vec<Finding>) {
    let event = &claim.event;
    let Some(copies) = outcome.forwarded.get(event) else {
        if !lost {
            findings.push(Finding::ClaimWithoutOutput { event: event.clone() });
        }
        return;
    };
    let known = input.copies_of.get(event).map_or(&[][..], Vec::as_slice);
    if !known.iter().any(|copy| owns(claim, input, *copy)) {
        findings.push(Finding::ClaimMisplaced { event: event.clone() });
    } else if let [copy] = copies[..]
        && !owns(claim, input, copy)
    {
        let forwarded = input.by_copy[&copy].0.clone();
        let claimed = (claim.partition.unwrap_or(-1), claim.offset.unwrap_or(-1));
        findings.push(Finding::WrongCopy { event: event.clone(), forwarded, claimed });
    }
}

/// Whether the claim names the place of this copy. A topic made anew has the name of the one before it.
fn owns(claim: &Claim, input: &Input<'_>, copy: u64) -> bool {
    let (place, _) = &input.by_copy[&copy];
    claim.topic == place.topic
        && claim.partition == Some(place.partition)
        && claim.offset == Some(place.offset)
        && (claim.lane.is_none() || claim.position == claim.offset)
}

/// Claims on the lane that the settled offset names, at or above it: made, and never known to be done.
fn unsettled(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let settled: HashMap<i64, (i32, i64)> = evidence
        .offsets
        .iter()
        .filter_map(|offsets| {
            let (settled, metadata) = offsets.settled.as_ref()?;
            Some((Mark::decode(metadata)?.lane.0, (offsets.partition, *settled)))
        })
        .collect();
    for claim in &evidence.claims {
        let (Some(lane), Some(position)) = (claim.lane, claim.position) else { continue };
        if let Some(&(partition, settled)) = settled.get(&lane)
            && position >= settled
        {
            findings.push(Finding::Unsettled { event: claim.event.clone(), partition, position, settled });
        }
    }
}
