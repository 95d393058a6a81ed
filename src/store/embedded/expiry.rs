//! Undated claims whose time is over: some at a time, each time in one batch, found in the order of their keys.

use std::ops::Bound;

use super::Trouble;
use super::body;
use super::code::Out;
use super::inner::Inner;
use crate::protocol::event::Week;
use crate::store::slots::{Cursor, Expire, Expired};

impl Inner {
    /// Under the mutex for as long as it takes to look at so many claims, and for one sync where some of them go.
    pub fn expire(&mut self, expire: &Expire<'_>) -> Result<Expired, Trouble> {
        let nothing = Expired { deleted: 0, reached: None };
        let Some(scope) = self.scopes.get(expire.scope) else { return Ok(nothing) };
        let Some(space) = self.weeks.get(&Week::UNDATED) else { return Ok(nothing) };
        let mut begin = Out::default();
        begin.number(u64::from(scope));
        // Numbers end by themselves: none is the beginning of another.
        let of_scope = begin.0.as_slice();
        let from = match expire.after {
            Some(Cursor(key)) => Bound::Excluded(key.to_vec()),
            None => Bound::Included(of_scope.to_vec()),
        };
        let (mut batch, mut reached) = (self.batch(), None);
        for claim in space.range((from, Bound::Unbounded)).take(expire.claims_max) {
            let (key, record) = claim.into_inner().map_err(Trouble::Read)?;
            if !key.starts_with(of_scope) {
                break;
            }
            let body = body::read(&record, &self.origins)?;
            let lane = body.holder.lane.and_then(|lane| self.lane_seen(lane));
            let is_settled = lane.is_none_or(|lane| body.holder.position < lane.settled);
            reached = Some(Cursor(key.to_vec().into()));
            if is_settled && body.first_seen_at < expire.seen_before {
                batch.remove(space, key);
            }
        }
        let deleted = batch.len() as u64;
        if deleted > 0 {
            batch.commit().map_err(Trouble::Write)?;
            super::folder::rotate_if_large(space).map_err(Trouble::Write)?;
        }
        Ok(Expired { deleted, reached })
    }
}
