//! Where the two groups stand at the end.

use semel::protocol::lane::Mark;

use super::{Evidence, Finding, Offsets};

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    for offsets in &evidence.offsets {
        partition(offsets, findings);
    }
}

fn partition(offsets: &Offsets, findings: &mut Vec<Finding>) {
    let Offsets { topic, partition, committed, settled, open_lane, end } = offsets;
    let (topic, partition, end) = (topic.clone(), *partition, *end);
    match settled.as_ref().map(|(_, metadata)| Mark::decode(metadata)) {
        None => findings.push(Finding::NoOffset { topic: topic.clone(), partition, settled: true }),
        Some(None) => findings.push(Finding::SettledForeign { topic: topic.clone(), partition }),
        Some(Some(mark)) if *open_lane != Some(mark.lane.0) => {
            let (settled, open) = (mark.lane.0, *open_lane);
            findings.push(Finding::OtherLaneOpen { topic: topic.clone(), partition, settled, open });
        }
        Some(Some(_)) => {}
    }
    let Some(committed) = *committed else {
        return findings.push(Finding::NoOffset { topic, partition, settled: false });
    };
    match settled {
        Some((settled, _)) if *settled != committed => {
            findings.push(Finding::OffsetsApart { topic, partition, committed, settled: *settled });
        }
        _ if committed != end => findings.push(Finding::Lag { topic, partition, committed, end }),
        _ => {}
    }
}
