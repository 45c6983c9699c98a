use std::time::Duration;

use super::{
    AcquireOptions, Acquired, Claim, HolderSnapshot, Model, Notification, Now, Owners, Released, Renewed,
    Reply, Role, Snapshot, Step,
};
use crate::planted::Bug;
use crate::{Kind, Lease, Moment, OwnerId};

#[cfg(test)]
mod tests;

/// The state of a read-write lock: many readers, or one writer with its own read holds.
///
/// Each reader has its own lease. An expired reader counts as absent, but its entry stays, as on Redis, until
/// a later step removes it. The lock as a whole has an expiry, too, which is never earlier than that of any
/// hold. Targets are absolute, as for the reentrant lock.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadWriteLockState {
    readers: Vec<Reader>,
    writer: Option<Writer>,
    /// The expiry of the whole. Without meaning, and the clock's start, if there are no entries.
    expires: Moment,
    waiting: Option<WriterIntent>,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reader {
    owner: OwnerId,
    count: u32,
    /// The end of the longest of its holds. The others do not matter: one hold is enough, and the longest is
    /// never released before the last.
    expires: Moment,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    owner: OwnerId,
    count: u32,
}

/// The intent of a writer that waits for readers. It blocks new readers until it expires.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WriterIntent {
    owner: OwnerId,
    until: Moment,
}

impl ReadWriteLockState {
    /// How long a refused writer blocks new readers, unless it sends its request again.
    pub const WRITER_INTENT: Duration = Duration::from_secs(3);

    /// Acquires the read side, or raises the count of the owner's hold there. Leases are never shortened.
    fn acquire_read(&mut self, now: Moment, claim: &Claim, lease: Lease) -> Acquired {
        let (owner, target, under) = (&claim.owner, claim.target, claim.under.as_deref());
        let until = now + lease.as_duration();
        if let Some(reader) = self.unexpired_reader(now, owner) {
            reader.count = reader.count.max(target);
            reader.expires = reader.expires.max(until);
            self.expires = self.expires.max(until);
            return Acquired::Granted;
        }
        if target > 1 {
            return Acquired::Gone;
        }
        match (&self.writer, &self.waiting) {
            (Some(writer), _) if writer.owner != *owner && under != Some(&writer.owner) => {
                return Acquired::Busy { ttl: Some(self.expires.since(now)) };
            }
            // A stream of readers must not starve a writer.
            (None, Some(intent)) if under.is_none() => {
                return Acquired::Busy { ttl: Some(intent.until.since(now)) };
            }
            _ => {}
        }
        self.readers.retain(|reader| reader.owner != *owner);
        self.readers.push(Reader { owner: owner.clone(), count: 1, expires: until });
        self.expires = self.expires.max(until);
        Acquired::Granted
    }

    /// Acquires the write side, or raises the count of the owner's hold there. Leases are never shortened.
    fn acquire_write(&mut self, now: Moment, claim: &Claim, options: &AcquireOptions) -> Acquired {
        let (owner, target) = (&claim.owner, claim.target);
        let until = now + options.lease.as_duration();
        let busy = Acquired::Busy { ttl: Some(self.expires.since(now)) };
        match &mut self.writer {
            Some(writer) if writer.owner == *owner => {
                writer.count = writer.count.max(target);
                self.expires = self.expires.max(until);
                return Acquired::Granted;
            }
            _ if target > 1 => return Acquired::Gone,
            Some(_) => return busy,
            None => {}
        }
        let has_readers = self.readers.iter().any(|reader| !reader.is_expired(now));
        if has_readers && !Bug::WriterIgnoresReaders.is_planted() {
            if options.waits && self.waiting.as_ref().is_none_or(|intent| intent.owner == *owner) {
                self.waiting = Some(WriterIntent { owner: owner.clone(), until: now + Self::WRITER_INTENT });
            }
            return busy;
        }
        self.readers.clear();
        self.writer = Some(Writer { owner: owner.clone(), count: 1 });
        self.expires = until;
        self.remove_intent(owner);
        Acquired::Granted
    }

    /// Lowers the count of a read hold to the target; zero ends it. Never begins a hold.
    fn release_read(&mut self, now: Moment, claim: &Claim) -> (Released, Notification) {
        let (owner, target) = (&claim.owner, claim.target);
        if target > 0
            && let Some(reader) = self.unexpired_reader(now, owner)
        {
            reader.count = reader.count.min(target);
            return (Released::StillHeld, Notification::None);
        }
        let Some(at) = self.readers.iter().position(|reader| reader.owner == *owner) else {
            return (Released::NotHeld, Notification::None);
        };
        let was_expired = self.readers.remove(at).is_expired(now);
        let reply = if was_expired { Released::NotHeld } else { Released::Freed };
        // Under a writer, the end of a read hold leaves the expiry of the whole as it is.
        if self.writer.is_none() && self.keep_unexpired_readers(now) {
            return (reply, Notification::Subscribers);
        }
        self.readers.retain(|reader| !reader.is_expired(now));
        (reply, Notification::None)
    }

    /// Lowers the count of a write hold to the target; zero ends it. Never begins a hold.
    fn release_write(&mut self, now: Moment, claim: &Claim) -> (Released, Notification) {
        let (owner, target) = (&claim.owner, claim.target);
        let had_intent = self.remove_intent(owner);
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.owner == *owner) else {
            // The intent may have blocked readers.
            return (Released::NotHeld, Notification::subscribers_if(had_intent));
        };
        if target > 0 {
            writer.count = writer.count.min(target);
            return (Released::StillHeld, Notification::None);
        }
        self.writer = None;
        self.keep_unexpired_readers(now);
        // Also if read holds remain: others may now read, too.
        (Released::Freed, Notification::Subscribers)
    }

    /// Extends the lease of a hold, never shortens it. With `lease` of `None`, only checks that it is held.
    fn renew(&mut self, now: Moment, claim: &Claim, lease: Option<Lease>) -> Renewed {
        let until = lease.map_or(now, |lease| now + lease.as_duration());
        let readers = self.readers.iter().map(|reader| reader.expires).max().unwrap_or_default();
        let whole = self.expires;
        // A reader has an end of its own. A writer ends with the whole, unless read holds are why that lasts
        // longer.
        let end = if claim.name.kind() == Kind::Read {
            self.unexpired_reader(now, &claim.owner).map(|reader| {
                reader.expires = reader.expires.max(until);
                reader.expires
            })
        } else {
            let margin = lease.map_or(Duration::ZERO, Lease::margin);
            self.is_writer(&claim.owner).then_some(if whole > readers + margin { whole } else { until })
        };
        let Some(end) = end else { return Renewed::NotHeld };
        self.expires = self.expires.max(until);
        lease.map_or(Renewed::Renewed, |lease| Renewed::until(end, now, lease))
    }

    /// Sets the lease of a hold to exactly `lease`.
    ///
    /// A reader has a lease of its own, and the whole lasts as long as the longest of them. The lease of a
    /// writer is that of the whole, which does not end before the writer's read holds.
    ///
    /// If the lease is shortened, the waiters are notified, since the whole may end earlier than they know.
    /// Shortening a read hold under a writer notifies no waiter.
    fn unlock_after(&mut self, now: Moment, claim: &Claim, lease: Lease) -> (Renewed, Notification) {
        let (before, until) = (self.expires, now + lease.as_duration());
        let has_writer = self.writer.is_some();
        let held = match claim.name.kind() {
            Kind::Read => self.unexpired_reader(now, &claim.owner).map(|reader| {
                let own = std::mem::replace(&mut reader.expires, until);
                // A read hold under a writer leaves the expiry of the whole as it is.
                if has_writer { (before, false) } else { (until, until < own) }
            }),
            _ => self.is_writer(&claim.owner).then_some((until, until < before)),
        };
        let Some((at_least, is_shorter)) = held else { return (Renewed::NotHeld, Notification::None) };
        self.expires = self.readers.iter().map(|reader| reader.expires).fold(at_least, Moment::max);
        (Renewed::Renewed, Notification::subscribers_if(is_shorter))
    }

    /// Ends every hold if the lock is held on this side. Returns `true` if it was.
    fn force_unlock(&mut self, side: Kind) -> bool {
        let was_held = match side {
            Kind::Read => self.writer.is_none() && !self.readers.is_empty(),
            _ => self.writer.is_some(),
        };
        if was_held {
            self.expire();
        }
        was_held
    }

    /// Returns `true` if there is a writer.
    pub fn has_writer(&self, now: Now) -> bool {
        self.writer.is_some() && self.expires > now.moment
    }

    /// Ends every hold as the expiry of the whole would, without a notification. A writer's intent stays.
    pub fn expire(&mut self) {
        self.readers.clear();
        self.writer = None;
        self.expires = Moment::default();
    }

    /// Ends the lease of one reader, as time would. For tests.
    pub fn expire_reader(&mut self, owner: &OwnerId) {
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.owner == *owner) {
            reader.expires = Moment::default();
        }
    }

    /// Ends the intent of a waiting writer, as time would. For tests.
    pub fn expire_writer_intent(&mut self) {
        self.waiting = None;
    }

    fn is_writer(&self, owner: &OwnerId) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.owner == *owner)
    }

    fn unexpired_reader(&mut self, now: Moment, owner: &OwnerId) -> Option<&mut Reader> {
        self.readers.iter_mut().find(|reader| reader.owner == *owner && !reader.is_expired(now))
    }

    /// Removes expired readers, and sets the expiry of the whole to the longest lease left.
    ///
    /// Returns `true` if no reader is left.
    fn keep_unexpired_readers(&mut self, now: Moment) -> bool {
        self.readers.retain(|reader| !reader.is_expired(now));
        self.expires = self.readers.iter().map(|reader| reader.expires).max().unwrap_or_default();
        self.readers.is_empty()
    }

    /// Removes the intent of this owner. Returns `true` if there was one.
    fn remove_intent(&mut self, owner: &OwnerId) -> bool {
        self.waiting.take_if(|intent| intent.owner == *owner).is_some()
    }

    fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writer.is_none()
    }

    fn expire_by(&mut self, now: Moment) {
        if self.expires <= now {
            self.expire();
        }
        self.waiting.take_if(|intent| intent.until <= now);
    }
}

impl Model for ReadWriteLockState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        let (now, side) = (now.moment, step.kind());
        self.expire_by(now);
        Some(match step {
            Step::Acquire(claim, options) if side == Kind::Read => {
                Reply::Acquired(self.acquire_read(now, claim, options.lease)).quiet()
            }
            Step::Acquire(claim, options) => Reply::Acquired(self.acquire_write(now, claim, options)).quiet(),
            Step::Release(claim) if side == Kind::Read => {
                Reply::of(Reply::Released, self.release_read(now, claim))
            }
            Step::Release(claim) => Reply::of(Reply::Released, self.release_write(now, claim)),
            Step::Renew(claim, lease) => Reply::Renewed(self.renew(now, claim, *lease)).quiet(),
            Step::SetLease { claim, lease, .. } => {
                Reply::of(Reply::Renewed, self.unlock_after(now, claim, *lease))
            }
            Step::ForceUnlock(_) => {
                let was_held = self.force_unlock(side);
                (Reply::ForceUnlocked(was_held), Notification::subscribers_if(was_held))
            }
            _ => return None,
        })
    }

    /// Returns the state as seen from outside, without expired readers.
    fn snapshot(&mut self, now: Now) -> Snapshot {
        let now = now.moment;
        self.expire_by(now);
        let unexpired = self.readers.iter().filter(|reader| !reader.is_expired(now));
        let readers = unexpired.map(|Reader { owner, count, expires }| {
            HolderSnapshot::new(owner.clone(), u64::from(*count), Role::Reader, Some(expires.since(now)))
        });
        let writer = self.writer.iter().map(|Writer { owner, count }| {
            HolderSnapshot::new(owner.clone(), u64::from(*count), Role::Writer, None)
        });
        Snapshot {
            holders: readers.chain(writer).collect(),
            ttl: (!self.is_empty()).then(|| self.expires.since(now)),
            ..Snapshot::default()
        }
    }

    fn owners(&self) -> Owners {
        let readers = self.readers.iter().map(|reader| reader.owner.clone());
        let writer = self.writer.iter().map(|writer| writer.owner.clone());
        Owners {
            holders: readers.chain(writer).collect(),
            waiters: self.waiting.iter().map(|intent| intent.owner.clone()).collect(),
        }
    }

    fn remove_owners(&mut self, now: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        let before = self.readers.len();
        self.readers.retain(|reader| !is_gone(&reader.owner));
        let writer = self.writer.take_if(|writer| is_gone(&writer.owner));
        let intent = self.waiting.take_if(|intent| is_gone(&intent.owner));
        if self.readers.len() == before && writer.is_none() && intent.is_none() {
            return Notification::None;
        }
        if self.writer.is_none() {
            self.keep_unexpired_readers(now.moment);
        }
        Notification::Subscribers
    }

    fn is_free(&mut self, now: Now) -> bool {
        self.expire_by(now.moment);
        self.is_empty() && self.waiting.is_none()
    }
}

impl Reader {
    fn is_expired(&self, now: Moment) -> bool {
        self.expires <= now
    }
}
