use std::collections::BTreeMap;

use super::requests::Requests;
use super::semaphore::return_permits;
use super::{
    AcquireOptions, Acquired, Claim, CounterOp, HolderSnapshot, Model, Notification, Now, Owners, PermitId,
    Released, Renewed, Reply, Role, Snapshot, Step,
};
use crate::{Lease, Moment, OwnerId};

/// The state of a permit semaphore: the number of free permits, and the ids and leases of those taken.
///
/// A permit whose lease ended counts as free. The next acquire returns it to the number of free permits and
/// notifies the waiters. A late release by its holder does the same, and replies that the permit was lost.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitSemaphoreState {
    /// `None` until the number of permits is set.
    free: Option<i64>,
    taken: BTreeMap<PermitId, Moment>,
    answers: Requests<i64>,
}

impl PermitSemaphoreState {
    /// Acquires as many permits as the claim asks for, or none. A repeated request changes nothing.
    ///
    /// If part of the hold was lost, only that part is acquired again. No lease is shortened.
    pub fn acquire(&mut self, now: Now, claim: &Claim, options: &AcquireOptions) -> (Acquired, Notification) {
        let notification = self.remove_permits(|_, ends| ends <= now.moment);
        let ids: Vec<_> = PermitId::of_hold(&claim.owner, claim.permits).collect();
        let missing = count(ids.iter().filter(|id| !self.taken.contains_key(id)));
        if missing > 0 {
            match &mut self.free {
                Some(free) if *free >= missing => *free -= missing,
                _ => {
                    let first = self.taken.values().min();
                    return (Acquired::Busy { ttl: first.map(|ends| ends.since(now.moment)) }, notification);
                }
            }
        }
        self.extend(&ids, now.moment + options.lease.as_duration());
        (Acquired::Granted, notification)
    }

    /// Releases all permits of the hold. Replies "freed" only if all of them were held, with unexpired
    /// leases.
    pub fn release(&mut self, now: Now, claim: &Claim) -> (Released, Notification) {
        let is_held = self.held_ids(now.moment, claim).is_some();
        let ids = PermitId::of_hold(&claim.owner, claim.permits);
        let found = count(ids.filter_map(|id| self.taken.remove(&id)));
        let notification = return_permits(&mut self.free, found);
        // If there was no permit to return, or no number to add it to, nothing was held.
        let was_held = is_held && notification == Notification::Subscribers;
        (if was_held { Released::Freed } else { Released::NotHeld }, notification)
    }

    /// Extends the leases of a hold, never shortens them. With `lease` of `None`, only checks that it is
    /// held.
    pub fn renew(&mut self, now: Now, claim: &Claim, lease: Option<Lease>) -> Renewed {
        let Some(ids) = self.held_ids(now.moment, claim) else { return Renewed::NotHeld };
        let Some(lease) = lease else { return Renewed::Renewed };
        self.extend(&ids, now.moment + lease.as_duration());
        let end = ids.iter().filter_map(|id| self.taken.get(id)).max().copied().unwrap_or_default();
        Renewed::until(end, now.moment, lease)
    }

    /// Sets the leases of a hold to exactly `lease`.
    ///
    /// If that shortens one of them, the waiters are notified, since they may sleep until the old end.
    pub fn unlock_after(&mut self, now: Now, claim: &Claim, lease: Lease) -> (Renewed, Notification) {
        let Some(ids) = self.held_ids(now.moment, claim) else {
            return (Renewed::NotHeld, Notification::None);
        };
        let until = now.moment + lease.as_duration();
        let before = ids.iter().filter_map(|id| self.taken.insert(*id, until)).max();
        (Renewed::Renewed, Notification::subscribers_if(before > Some(until)))
    }

    /// Performs an operation on the number of permits. A repeated request gets the reply of the first.
    pub fn perform(&mut self, now: Now, op: CounterOp, request: &OwnerId) -> (i64, Notification) {
        if let Some(reply) = self.answers.outcome(now.moment, request) {
            return (reply, Notification::None);
        }
        let is_new = self.free.is_none();
        let (reply, notification) = match op {
            CounterOp::SetOnce(permits) => {
                self.free = self.free.or_else(|| Some(i64::try_from(permits).unwrap_or(i64::MAX)));
                (i64::from(is_new), Notification::subscribers_if(is_new))
            }
            CounterOp::Add(change) => {
                self.free = Some(self.free.unwrap_or(0).saturating_add(change));
                (self.available(now.moment).unwrap_or(0), Notification::subscribers_if(change > 0))
            }
            CounterOp::SetTotal(permits) => {
                let before = self.free;
                // As in Redisson: if there was no number, taken permits are not counted.
                let taken = if is_new { 0 } else { count(self.taken.iter()) };
                self.free = Some(i64::try_from(permits).unwrap_or(i64::MAX).saturating_sub(taken));
                let has_changed = self.free != before;
                (self.available(now.moment).unwrap_or(0), Notification::subscribers_if(has_changed))
            }
            CounterOp::Delete => {
                let existed = self.free.is_some() || !self.taken.is_empty();
                self.expire();
                (i64::from(existed), Notification::None)
            }
            CounterOp::Release(_) | CounterOp::Drain | CounterOp::CountDown => {
                return (0, Notification::None);
            }
        };
        self.answers.remember(now.moment, request, reply);
        (reply, notification)
    }

    /// Ends the leases of these permits without returning them. For tests.
    pub fn expire_permits(&mut self, owner: &OwnerId, permits: u32) {
        for id in PermitId::of_hold(owner, permits) {
            if let Some(ends) = self.taken.get_mut(&id) {
                *ends = Moment::default();
            }
        }
    }

    /// Removes the number of free permits and nothing else. For tests.
    pub fn delete_count(&mut self) {
        self.free = None;
    }

    /// Removes everything except the memory of requests, without a notification.
    ///
    /// That is what an expiry set by a user on the keys would do.
    pub fn expire(&mut self) {
        self.free = None;
        self.taken.clear();
    }

    /// Forgets a request. No copy of it may be under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.answers.forget(request);
    }

    /// Returns the ids of a hold, if all of them are held with unexpired leases.
    fn held_ids(&self, now: Moment, claim: &Claim) -> Option<Vec<PermitId>> {
        let is_held = |id: &PermitId| self.taken.get(id).is_some_and(|ends| *ends > now);
        PermitId::of_hold(&claim.owner, claim.permits).map(|id| is_held(&id).then_some(id)).collect()
    }

    /// Free permits, including expired ones that were not returned yet.
    fn available(&self, now: Moment) -> Option<i64> {
        self.free.map(|free| free.saturating_add(count(self.taken.values().filter(|ends| **ends <= now))))
    }

    fn extend(&mut self, ids: &[PermitId], until: Moment) {
        for id in ids {
            let ends = self.taken.entry(*id).or_insert(until);
            *ends = until.max(*ends);
        }
    }

    /// Returns permits to the free ones.
    fn remove_permits(&mut self, is_returned: impl Fn(PermitId, Moment) -> bool) -> Notification {
        let before = count(self.taken.iter());
        self.taken.retain(|id, ends| !is_returned(*id, *ends));
        return_permits(&mut self.free, before - count(self.taken.iter()))
    }
}

impl Model for PermitSemaphoreState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        Some(match step {
            Step::Acquire(claim, options) => Reply::of(Reply::Acquired, self.acquire(now, claim, options)),
            Step::Release(claim) => Reply::of(Reply::Released, self.release(now, claim)),
            Step::Renew(claim, lease) => Reply::Renewed(self.renew(now, claim, *lease)).quiet(),
            Step::SetLease { claim, lease, .. } => {
                Reply::of(Reply::Renewed, self.unlock_after(now, claim, *lease))
            }
            Step::Perform(_, op, request) => Reply::of(Reply::Number, self.perform(now, *op, request)),
            Step::Forget(_, request) => {
                self.forget(request);
                Reply::Forgotten.quiet()
            }
            _ => return None,
        })
    }

    /// Returns the state as seen from outside. Permits whose leases ended are free.
    fn snapshot(&mut self, now: Now) -> Snapshot {
        let unexpired = self.taken.iter().filter(|(_, ends)| **ends > now.moment);
        let holder = |(id, ends): (&PermitId, &Moment)| {
            HolderSnapshot::new(id.to_owner(), 1, Role::Permit, Some(ends.since(now.moment)))
        };
        let holders = unexpired.map(holder).collect();
        Snapshot { holders, number: self.available(now.moment), ..Snapshot::default() }
    }

    /// Returns the ids of all permits that are taken.
    fn owners(&self) -> Owners {
        Owners { holders: self.taken.keys().map(|id| id.to_owner()).collect(), waiters: Vec::new() }
    }

    fn remove_owners(&mut self, _: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        self.remove_permits(|id, _| is_gone(&id.to_owner()))
    }

    fn forget_all(&mut self) {
        self.answers = Requests::default();
    }

    fn is_free(&mut self, now: Now) -> bool {
        let is_taken = self.taken.values().any(|ends| *ends > now.moment);
        self.free.is_none() && !is_taken && self.answers.is_empty(now.moment)
    }
}

fn count(items: impl Iterator) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
