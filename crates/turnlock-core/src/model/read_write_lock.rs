use std::time::Duration;

use super::{Acquired, Claim, HolderPicture, Now, Parties, Released, Renewed, Role, Snapshot, Wake, Wish};
use crate::{Kind, Lease, Moment, OwnerId};

#[cfg(test)]
mod tests;

/// The state of one read-write lock: many readers, or one writer and those who read under it.
///
/// Each reader has a lease of its own. One whose lease is over counts as absent, but stays written down, as it does on
/// Redis, until somebody tidies up. Beside that the lock as a whole has an expiry, which is never earlier than that of
/// any hold. Targets are absolute, as with the reentrant lock.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadWriteLockState {
    readers: Vec<Reader>,
    writer: Option<Writer>,
    /// When everything ends. Of no meaning, and the clock's start, while nobody is written down.
    expires: Moment,
    waiting: Option<Waiting>,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reader {
    owner: OwnerId,
    count: u32,
    /// The end of the longest of its holds. Shorter ones among them make no difference: one is enough to stand, and the
    /// longest is never given up before the last.
    expires: Moment,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    owner: OwnerId,
    count: u32,
}

/// The word of a writer that readers are in its way.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    owner: OwnerId,
    until: Moment,
}

impl ReadWriteLockState {
    /// How long new readers stay behind a writer that was refused because of readers, unless it asks again.
    pub const WORD: Duration = Duration::from_secs(3);

    /// Takes one side of the lock, or raises the count of a hold that the owner has there. Leases are never shortened.
    pub fn acquire(&mut self, now: Now, claim: &Claim<'_>, wish: &Wish) -> (Acquired, Wake) {
        let now = now.moment;
        self.expire_by(now);
        let answer = match claim.name.kind() {
            Kind::Read => self.acquire_read(now, claim, wish.lease),
            _ => self.acquire_write(now, claim, wish),
        };
        (answer, Wake::Nobody)
    }

    fn acquire_read(&mut self, now: Moment, claim: &Claim<'_>, lease: Lease) -> Acquired {
        let Claim { owner, target, under, .. } = *claim;
        let until = now + lease.as_duration();
        if let Some(reader) = self.standing(now, owner) {
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
            (None, Some(waiting)) if under.is_none() => {
                return Acquired::Busy { ttl: Some(waiting.until.since(now)) };
            }
            _ => {}
        }
        self.readers.retain(|reader| reader.owner != *owner);
        self.readers.push(Reader { owner: owner.clone(), count: 1, expires: until });
        self.expires = self.expires.max(until);
        Acquired::Granted
    }

    fn acquire_write(&mut self, now: Moment, claim: &Claim<'_>, wish: &Wish) -> Acquired {
        let Claim { owner, target, .. } = *claim;
        let until = now + wish.lease.as_duration();
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
        if self.readers.iter().any(|reader| reader.stands(now)) {
            if wish.waits && self.waiting.as_ref().is_none_or(|waiting| waiting.owner == *owner) {
                self.waiting = Some(Waiting { owner: owner.clone(), until: now + Self::WORD });
            }
            return busy;
        }
        self.readers.clear();
        self.writer = Some(Writer { owner: owner.clone(), count: 1 });
        self.expires = until;
        self.take_back_word(owner);
        Acquired::Granted
    }

    /// Lowers the count of a hold to the target; zero ends it. Never creates one.
    pub fn release(&mut self, now: Now, claim: &Claim<'_>) -> (Released, Wake) {
        let now = now.moment;
        self.expire_by(now);
        match claim.name.kind() {
            Kind::Read => self.release_read(now, claim.owner, claim.target),
            _ => self.release_write(now, claim.owner, claim.target),
        }
    }

    fn release_read(&mut self, now: Moment, owner: &OwnerId, target: u32) -> (Released, Wake) {
        if target > 0
            && let Some(reader) = self.standing(now, owner)
        {
            reader.count = reader.count.min(target);
            return (Released::Lowered, Wake::Nobody);
        }
        let Some(at) = self.readers.iter().position(|reader| reader.owner == *owner) else {
            return (Released::NotHeld, Wake::Nobody);
        };
        let stood = self.readers.remove(at).stands(now);
        let answer = if stood { Released::Freed } else { Released::NotHeld };
        // The lease of a writer is not the business of those who read under it.
        if self.writer.is_none() && self.leave_to_readers(now) {
            return (answer, Wake::Listeners);
        }
        self.readers.retain(|reader| reader.stands(now));
        (answer, Wake::Nobody)
    }

    fn release_write(&mut self, now: Moment, owner: &OwnerId, target: u32) -> (Released, Wake) {
        let waited = self.take_back_word(owner);
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.owner == *owner) else {
            // Readers stayed behind a writer that has given up.
            return (Released::NotHeld, if waited { Wake::Listeners } else { Wake::Nobody });
        };
        if target > 0 {
            writer.count = writer.count.min(target);
            return (Released::Lowered, Wake::Nobody);
        }
        self.writer = None;
        self.leave_to_readers(now);
        // Told also when some read on: others may now read with them.
        (Released::Freed, Wake::Listeners)
    }

    /// Extends the lease of a hold, or only looks whether it stands (`lease` of `None`). Never shortens.
    pub fn renew(&mut self, now: Now, claim: &Claim<'_>, lease: Option<Lease>) -> Renewed {
        let now = now.moment;
        self.expire_by(now);
        let until = lease.map_or(now, |lease| now + lease.as_duration());
        let readers = self.readers.iter().map(|reader| reader.expires).max().unwrap_or_default();
        let whole = self.expires;
        // When it ends: a reader's own end; a writer's is that of the whole, if those who read under it are not the reason.
        let end = if claim.name.kind() == Kind::Read {
            self.standing(now, claim.owner).map(|reader| {
                reader.expires = reader.expires.max(until);
                reader.expires
            })
        } else {
            let margin = lease.map_or(Duration::ZERO, Lease::margin);
            let writer = self.writer.as_ref().filter(|writer| writer.owner == *claim.owner);
            writer.map(|_| if whole > readers + margin { whole } else { until })
        };
        let Some(end) = end else { return Renewed::NotHeld };
        self.expires = self.expires.max(until);
        lease.map_or(Renewed::Renewed, |lease| Renewed::until(end, now, lease))
    }

    /// Sets the lease of a hold to just this, which may be less than is left. A reader's lease is its own, and the whole lasts
    /// as long as the longest of them; a writer's is that of the whole, which does not end before those who read under it.
    /// Those who wait are told when the lease is shortened, since the whole may end sooner than they know; not when it is that
    /// of one who reads under a writer.
    pub fn keep(&mut self, now: Now, claim: &Claim<'_>, lease: Lease) -> (Renewed, Wake) {
        let now = now.moment;
        self.expire_by(now);
        let (before, until) = (self.expires, now + lease.as_duration());
        let is_written = self.writer.is_some();
        let held = match claim.name.kind() {
            Kind::Read => self.standing(now, claim.owner).map(|reader| {
                let own = std::mem::replace(&mut reader.expires, until);
                // The lease of a writer is not the business of those who read under it.
                if is_written { (before, false) } else { (until, until < own) }
            }),
            _ => self
                .writer
                .as_ref()
                .filter(|writer| writer.owner == *claim.owner)
                .map(|_| (until, until < before)),
        };
        let Some((at_least, is_shorter)) = held else { return (Renewed::NotHeld, Wake::Nobody) };
        self.expires = self.readers.iter().map(|reader| reader.expires).fold(at_least, Moment::max);
        (Renewed::Renewed, Wake::if_so(is_shorter))
    }

    /// Ends every hold if the lock is on this side. Whether it was.
    pub fn force_unlock(&mut self, now: Now, side: Kind) -> (bool, Wake) {
        self.expire_by(now.moment);
        let was_held = match side {
            Kind::Read => self.writer.is_none() && !self.readers.is_empty(),
            _ => self.writer.is_some(),
        };
        if !was_held {
            return (false, Wake::Nobody);
        }
        self.expire();
        (true, Wake::Listeners)
    }

    /// What the lock looks like. Readers whose lease is over are left out.
    pub fn snapshot(&mut self, now: Now) -> Snapshot {
        let now = now.moment;
        self.expire_by(now);
        let readers = self.readers.iter().filter(|reader| reader.stands(now)).map(|reader| HolderPicture {
            owner: reader.owner.clone(),
            count: u64::from(reader.count),
            role: Role::Reader,
            ttl: Some(reader.expires.since(now)),
            since: None,
        });
        let writer = self.writer.iter().map(|writer| HolderPicture {
            owner: writer.owner.clone(),
            count: u64::from(writer.count),
            role: Role::Writer,
            ttl: None,
            since: None,
        });
        Snapshot {
            holders: readers.chain(writer).collect(),
            ttl: (!self.is_empty()).then(|| self.expires.since(now)),
            ..Snapshot::default()
        }
    }

    /// Whether somebody writes.
    pub fn is_written(&mut self, now: Now) -> bool {
        self.expire_by(now.moment);
        self.writer.is_some()
    }

    /// Who has something of it.
    pub fn parties(&self) -> Parties {
        let readers = self.readers.iter().map(|reader| reader.owner.clone());
        let writer = self.writer.iter().map(|writer| writer.owner.clone());
        Parties {
            holding: readers.chain(writer).collect(),
            waiting: self.waiting.iter().map(|waiting| waiting.owner.clone()).collect(),
        }
    }

    /// Ends what those have who are gone: holds, and the word of a writer.
    pub fn void(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Wake {
        let before = self.readers.len();
        self.readers.retain(|reader| !is_gone(&reader.owner));
        let writer = self.writer.take_if(|writer| is_gone(&writer.owner));
        let word = self.waiting.take_if(|waiting| is_gone(&waiting.owner));
        if self.readers.len() == before && writer.is_none() && word.is_none() {
            return Wake::Nobody;
        }
        if self.writer.is_none() {
            self.leave_to_readers(now.moment);
        }
        Wake::Listeners
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Now) -> bool {
        self.expire_by(now.moment);
        self.is_empty() && self.waiting.is_none()
    }

    /// Ends every hold as the expiry of the whole would: nobody is told. The word of a waiting writer stays.
    pub fn expire(&mut self) {
        self.readers.clear();
        self.writer = None;
        self.expires = Moment::default();
    }

    /// Ends the lease of one reader, as time would.
    pub fn expire_reader(&mut self, owner: &OwnerId) {
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.owner == *owner) {
            reader.expires = Moment::default();
        }
    }

    /// Ends the word of a waiting writer, as time would.
    pub fn expire_word(&mut self) {
        self.waiting = None;
    }

    /// The reader of this owner, if its lease is not over.
    fn standing(&mut self, now: Moment, owner: &OwnerId) -> Option<&mut Reader> {
        self.readers.iter_mut().find(|reader| reader.owner == *owner && reader.stands(now))
    }

    /// Leaves the lock to the readers that stand, for as long as the longest of them. Whether it is free thereby.
    fn leave_to_readers(&mut self, now: Moment) -> bool {
        self.readers.retain(|reader| reader.stands(now));
        self.expires = self.readers.iter().map(|reader| reader.expires).max().unwrap_or_default();
        self.readers.is_empty()
    }

    /// Whether this owner had left word that it waits.
    fn take_back_word(&mut self, owner: &OwnerId) -> bool {
        self.waiting.take_if(|waiting| waiting.owner == *owner).is_some()
    }

    fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writer.is_none()
    }

    fn expire_by(&mut self, now: Moment) {
        if self.expires <= now {
            self.expire();
        }
        self.waiting.take_if(|waiting| waiting.until <= now);
    }
}

impl Reader {
    fn stands(&self, now: Moment) -> bool {
        self.expires > now
    }
}
