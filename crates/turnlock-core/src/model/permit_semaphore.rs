use std::collections::BTreeMap;

use super::requests::Requests;
use super::{
    Acquired, Claim, Deed, HolderPicture, Now, Parties, PermitId, Released, Renewed, Role, Snapshot, Wake,
    Wish,
};
use crate::{Lease, Moment, OwnerId};

/// The state of one permit semaphore: a number of free permits, those that are taken, and until when.
///
/// A permit whose lease ran out counts as free. It is put back into the number by the next acquire, which tells those
/// who wait; a late holder who gives it back before that does the same, and learns that it had lost it.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitSemaphoreState {
    /// `None` until somebody says how many there are.
    free: Option<i64>,
    taken: BTreeMap<PermitId, Moment>,
    answers: Requests<i64>,
}

impl PermitSemaphoreState {
    /// Takes as many permits as the claim says, or none. A copy of the request finds them there, and counts no more.
    ///
    /// Where a part of the hold was lost, only that part is taken again. No lease is shortened.
    pub fn acquire(&mut self, now: Now, claim: &Claim<'_>, wish: &Wish) -> (Acquired, Wake) {
        let wake = self.take_back_expired(now.moment);
        let ids: Vec<_> = PermitId::of_hold(claim.owner, claim.permits).collect();
        let missing = count(ids.iter().filter(|id| !self.taken.contains_key(id)));
        if missing > 0 {
            match &mut self.free {
                Some(free) if *free >= missing => *free -= missing,
                _ => {
                    let first = self.taken.values().min();
                    return (Acquired::Busy { ttl: first.map(|ends| ends.since(now.moment)) }, wake);
                }
            }
        }
        self.extend(&ids, now.moment + wish.lease.as_duration());
        (Acquired::Granted, wake)
    }

    /// Gives back what is there of the hold. The owner held it only if all of it was there, with leases that run.
    pub fn release(&mut self, now: Now, claim: &Claim<'_>) -> (Released, Wake) {
        let ids: Vec<_> = PermitId::of_hold(claim.owner, claim.permits).collect();
        let is_held = self.is_held(now.moment, &ids);
        let found = count(ids.iter().filter_map(|id| self.taken.remove(id)));
        let wake = self.put_back(found);
        // Where there was nothing to put back, or no number to add it to, nothing was held.
        let answer = if is_held && wake == Wake::Listeners { Released::Freed } else { Released::NotHeld };
        (answer, wake)
    }

    /// Extends the leases of a hold, or only looks whether it stands (`lease` of `None`). Never shortens.
    pub fn renew(&mut self, now: Now, claim: &Claim<'_>, lease: Option<Lease>) -> Renewed {
        let ids: Vec<_> = PermitId::of_hold(claim.owner, claim.permits).collect();
        if !self.is_held(now.moment, &ids) {
            return Renewed::NotHeld;
        }
        let Some(lease) = lease else { return Renewed::Renewed };
        self.extend(&ids, now.moment + lease.as_duration());
        let end = ids.iter().filter_map(|id| self.taken.get(id)).max().copied().unwrap_or_default();
        Renewed::until(end, now.moment, lease)
    }

    /// Sets the leases of a hold to just this, which may be less than is left of one: then those who wait are told, who may
    /// count on more.
    pub fn keep(&mut self, now: Now, claim: &Claim<'_>, lease: Lease) -> (Renewed, Wake) {
        let ids: Vec<_> = PermitId::of_hold(claim.owner, claim.permits).collect();
        if !self.is_held(now.moment, &ids) {
            return (Renewed::NotHeld, Wake::Nobody);
        }
        let until = now.moment + lease.as_duration();
        let before = ids.iter().filter_map(|id| self.taken.insert(*id, until)).max();
        (Renewed::Renewed, Wake::if_so(before > Some(until)))
    }

    /// A step on the numbers. A copy of a request gets the first one's answer.
    pub fn perform(&mut self, now: Now, deed: Deed, request: &OwnerId) -> (i64, Wake) {
        if let Some(answer) = self.answers.outcome(now.moment, request) {
            return (answer, Wake::Nobody);
        }
        let is_new = self.free.is_none();
        let told = |condition| if condition { Wake::Listeners } else { Wake::Nobody };
        let (answer, wake) = match deed {
            Deed::SetOnce(permits) => {
                self.free = self.free.or_else(|| Some(i64::try_from(permits).unwrap_or(i64::MAX)));
                (i64::from(is_new), told(is_new))
            }
            Deed::Add(change) => {
                self.free = Some(self.free.unwrap_or(0).saturating_add(change));
                (self.available(now.moment).unwrap_or(0), told(change > 0))
            }
            Deed::SetTotal(permits) => {
                let before = self.free;
                // As Redisson has it: where there was no number, what may be taken is not counted.
                let taken = if is_new { 0 } else { count(self.taken.iter()) };
                self.free = Some(i64::try_from(permits).unwrap_or(i64::MAX).saturating_sub(taken));
                (self.available(now.moment).unwrap_or(0), told(self.free != before))
            }
            Deed::Delete => {
                let was_there = self.free.is_some() || !self.taken.is_empty();
                self.expire();
                (i64::from(was_there), Wake::Nobody)
            }
            Deed::Release(_) | Deed::Drain | Deed::CountDown => return (0, Wake::Nobody),
        };
        self.answers.remember(now.moment, request, answer);
        (answer, wake)
    }

    /// What the permit semaphore looks like: permits whose leases ran out are free.
    pub fn snapshot(&mut self, now: Now) -> Snapshot {
        let living = self.taken.iter().filter(|(_, ends)| **ends > now.moment);
        let picture = |(id, ends): (&PermitId, &Moment)| HolderPicture {
            owner: id.to_owner(),
            count: 1,
            role: Role::Permit,
            ttl: Some(ends.since(now.moment)),
            since: None,
        };
        let holders = living.map(picture).collect();
        Snapshot { holders, number: self.available(now.moment), ..Snapshot::default() }
    }

    /// Ends the leases of these permits, which are not put back yet.
    pub fn expire_permits(&mut self, owner: &OwnerId, permits: u32) {
        for id in PermitId::of_hold(owner, permits) {
            if let Some(ends) = self.taken.get_mut(&id) {
                *ends = Moment::default();
            }
        }
    }

    /// Removes the number of free permits and nothing else, as one who deletes a key by hand may do.
    pub fn lose_number(&mut self) {
        self.free = None;
    }

    /// Removes everything but the memory of requests, as an expiry that a user gave it would: nobody is told.
    pub fn expire(&mut self) {
        self.free = None;
        self.taken.clear();
    }

    /// Forgets a request, as time would: no copy of it is under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.answers.forget(request);
    }

    /// Who has something of it: the ids of the permits that are out.
    pub fn parties(&self) -> Parties {
        Parties { holding: self.taken.keys().map(|id| id.to_owner()).collect(), waiting: Vec::new() }
    }

    /// Gives back the permits of those who are gone.
    pub fn void(&mut self, is_gone: impl Fn(&OwnerId) -> bool) -> Wake {
        let before = self.taken.len();
        self.taken.retain(|id, _| !is_gone(&id.to_owner()));
        let found = before - self.taken.len();
        self.put_back(i64::try_from(found).unwrap_or(i64::MAX))
    }

    /// Forgets every request: of those who sent them, nobody is left.
    pub fn forget_all(&mut self) {
        self.answers.clear();
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Now) -> bool {
        let is_taken = self.taken.values().any(|ends| *ends > now.moment);
        self.free.is_none() && !is_taken && self.answers.is_empty(now.moment)
    }

    fn is_held(&self, now: Moment, ids: &[PermitId]) -> bool {
        ids.iter().all(|id| self.taken.get(id).is_some_and(|ends| *ends > now))
    }

    /// Free permits, and those that are free but not put back.
    fn available(&self, now: Moment) -> Option<i64> {
        self.free.map(|free| free.saturating_add(count(self.taken.values().filter(|ends| **ends <= now))))
    }

    fn extend(&mut self, ids: &[PermitId], until: Moment) {
        for id in ids {
            let ends = self.taken.entry(*id).or_insert(until);
            *ends = until.max(*ends);
        }
    }

    fn take_back_expired(&mut self, now: Moment) -> Wake {
        let before = self.taken.len();
        self.taken.retain(|_, ends| *ends > now);
        let expired = before - self.taken.len();
        self.put_back(i64::try_from(expired).unwrap_or(i64::MAX))
    }

    /// Adds to the number, if there is one: what was taken from a lost one is lost.
    fn put_back(&mut self, permits: i64) -> Wake {
        match &mut self.free {
            Some(free) if permits > 0 => {
                *free = free.saturating_add(permits);
                Wake::Listeners
            }
            _ => Wake::Nobody,
        }
    }
}

fn count(things: impl Iterator) -> i64 {
    i64::try_from(things.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
