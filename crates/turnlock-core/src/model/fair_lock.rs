use std::collections::VecDeque;
use std::time::Duration;

use super::{
    AcquireOptions, Acquired, Claim, LockState, Model, Notification, Now, Owners, QueuePosition, Released,
    Renewed, Reply, Snapshot, Step,
};
use crate::planted::Bug;
use crate::{Lease, Moment, OwnerId};

/// The state of a fair lock: a reentrant lock and its waiters in the order of arrival.
///
/// Only the first waiter may acquire the lock; it leaves the queue with that. Waiters send heartbeats
/// ([`heartbeat`](Self::heartbeat)). A waiter at the head of the queue whose last heartbeat is too old is
/// removed by the next step of any client, so a dead waiter delays the queue only briefly.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairLockState {
    lock: LockState,
    queue: VecDeque<Waiter>,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiter {
    owner: OwnerId,
    #[cfg_attr(feature = "serde", serde(rename = "believed_until"))]
    alive_until: Moment,
}

impl Waiter {
    fn is_dead(&self, now: Now) -> bool {
        self.alive_until < now.moment
    }
}

impl FairLockState {
    /// The time after its last heartbeat at which a waiter is considered dead.
    pub const DEAD_AFTER: Duration = Duration::from_secs(4);

    /// Acquires the lock if it is the owner's turn, or raises its hold count.
    ///
    /// A refused owner that waits is added at the end of the queue, or keeps its position. Only the first
    /// waiter gets the rest of the holder's lease: the others have nothing to do when it ends.
    pub fn acquire(&mut self, now: Now, claim: &Claim, options: &AcquireOptions) -> (Acquired, Notification) {
        let (owner, target) = (&claim.owner, claim.target);
        let is_free = target == 1 && self.lock.is_free(now);
        if is_free {
            self.purge(now, Some(owner));
        }
        if self.is_held_by(now, owner) || (is_free && self.is_next(owner)) {
            let reply = self.lock.acquire(now.moment, owner, target, options.lease);
            if reply == Acquired::Granted {
                self.leave_queue(owner);
            }
            return (reply, Notification::None);
        }
        if target > 1 {
            return (Acquired::Gone, Notification::None);
        }
        if options.waits && !self.refresh(now, owner) {
            self.queue.push_back(Waiter { owner: owner.clone(), alive_until: alive_until(now) });
        }
        let reply = match self.is_next(owner) {
            true => Acquired::Busy { ttl: self.lock.snapshot(now).ttl },
            false if options.waits => Acquired::Queued,
            false => Acquired::Busy { ttl: None },
        };
        (reply, Notification::None)
    }

    /// Lowers the count of `owner` to the target. Zero ends the hold, and removes the owner from the queue as
    /// well.
    ///
    /// If that ends the hold, and the first waiter is the [next](Claim::next) one of the claim, grants it the
    /// lock.
    pub fn release(&mut self, now: Now, claim: &Claim) -> (Released, Notification) {
        let next = claim.next.as_ref();
        let purged = self.purge(now, next.map(|(owner, _)| owner));
        let (owner, target) = (&claim.owner, claim.target);
        let was_first = self.queue.front().is_some_and(|first| first.owner == *owner);
        let left = target == 0 && self.leave_queue(owner);
        let reply = self.lock.release(now.moment, owner, target);
        if reply == Released::Freed && next.is_some_and(|(next, _)| next == owner) {
            self.queue.push_front(Waiter { owner: owner.clone(), alive_until: alive_until(now) });
            return (reply, Notification::None);
        }
        if let (Released::Freed, Some((next, lease))) = (reply, next)
            && self.queue.front().is_some_and(|first| first.owner == *next)
        {
            self.lock.acquire(now.moment, next, 1, *lease);
            self.queue.pop_front();
            return (Released::PassedOn, Notification::None);
        }
        let notification = match reply {
            Released::Freed => self.notify_first(),
            // The waiter that left may be the one that was notified when the lock became free.
            Released::NotHeld
                if target == 0 && ((left || purged) && self.lock.is_free(now) || left && was_first) =>
            {
                self.notify_first()
            }
            _ => Notification::None,
        };
        (reply, notification)
    }

    /// Sets the lease of `owner` to exactly `lease`.
    ///
    /// If that shortens the lease, the first waiter is notified, since it sleeps until the old end.
    pub fn unlock_after(&mut self, now: Now, owner: &OwnerId, lease: Lease) -> (Renewed, Notification) {
        let (reply, notification) = self.lock.unlock_after(now.moment, owner, lease);
        if notification == Notification::None {
            return (reply, notification);
        }
        self.purge(now, None);
        (reply, self.notify_first())
    }

    /// Ends the hold of any owner. The queue stays. Returns `true` if the lock was held.
    pub fn force_unlock(&mut self, now: Now) -> (bool, Notification) {
        self.purge(now, None);
        let was_held = self.lock.force_unlock(now.moment);
        (was_held, if was_held { self.notify_first() } else { Notification::None })
    }

    /// Records a heartbeat of a waiter, and returns its position. Adds no waiter to the queue.
    pub fn heartbeat(&mut self, now: Now, waiter: &OwnerId) -> (QueuePosition, Notification) {
        self.purge(now, Some(waiter));
        if !self.refresh(now, waiter) {
            return (QueuePosition::NotInQueue, Notification::None);
        }
        if !self.lock.is_free(now) {
            return (QueuePosition::InQueue, Notification::None);
        }
        if self.queue.front().is_some_and(|first| first.owner == *waiter) {
            return (QueuePosition::ItsTurn, Notification::None);
        }
        // The lock is free and the first waiter has not acquired it: it may have missed the message.
        (QueuePosition::InQueue, self.notify_first())
    }

    /// Ends the hold as its expiry would, without a notification. For tests.
    pub fn expire(&mut self) {
        self.lock.expire();
    }

    /// Makes the last heartbeat of a waiter too old, as time would. For tests.
    pub fn expire_waiter(&mut self, waiter: &OwnerId) {
        for waiter in self.queue.iter_mut().filter(|other| other.owner == *waiter) {
            waiter.alive_until = Moment::default();
        }
    }

    /// Removes dead waiters from the head of the queue, except `caller`. Returns `true` if there were any.
    fn purge(&mut self, now: Now, caller: Option<&OwnerId>) -> bool {
        let is_dead = |waiter: &&Waiter| waiter.is_dead(now) && Some(&waiter.owner) != caller;
        let dead = self.queue.iter().take_while(is_dead).count();
        self.queue.drain(..dead);
        dead > 0
    }

    /// Returns `true` if no other waiter is before `owner`.
    fn is_next(&self, owner: &OwnerId) -> bool {
        self.queue.front().is_none_or(|first| first.owner == *owner)
    }

    /// Records a heartbeat of `owner`. Returns `false` if it is not in the queue.
    fn refresh(&mut self, now: Now, owner: &OwnerId) -> bool {
        let waiter = self.queue.iter_mut().find(|waiter| waiter.owner == *owner);
        waiter.map(|waiter| waiter.alive_until = alive_until(now)).is_some()
    }

    /// Returns `true` if `owner` was in the queue.
    fn leave_queue(&mut self, owner: &OwnerId) -> bool {
        let position = self.queue.iter().position(|waiter| waiter.owner == *owner);
        position.and_then(|position| self.queue.remove(position)).is_some()
    }

    fn is_held_by(&mut self, now: Now, owner: &OwnerId) -> bool {
        self.lock.renew(now.moment, owner, None) == Renewed::Renewed
    }

    fn notify_first(&self) -> Notification {
        self.queue.front().map_or(Notification::None, |first| Notification::Waiter(first.owner.clone()))
    }
}

impl Model for FairLockState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        Some(match step {
            Step::Acquire(claim, options) => Reply::of(Reply::Acquired, self.acquire(now, claim, options)),
            Step::Release(claim) => Reply::of(Reply::Released, self.release(now, claim)),
            Step::SetLease { claim, lease, .. } => {
                Reply::of(Reply::Renewed, self.unlock_after(now, &claim.owner, *lease))
            }
            Step::Heartbeat(_, waiter) => Reply::of(Reply::Position, self.heartbeat(now, waiter)),
            Step::ForceUnlock(_) => Reply::of(Reply::ForceUnlocked, self.force_unlock(now)),
            _ => return self.lock.apply(now, step),
        })
    }

    /// Returns the state as seen from outside. The queue includes dead waiters.
    fn snapshot(&mut self, now: Now) -> Snapshot {
        Snapshot { queue: self.owners().waiters, ..self.lock.snapshot(now) }
    }

    fn owners(&self) -> Owners {
        let waiters = self.queue.iter().map(|waiter| waiter.owner.clone()).collect();
        Owners { waiters, ..self.lock.owners() }
    }

    fn remove_owners(&mut self, now: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        let before = self.queue.len();
        self.queue.retain(|waiter| !is_gone(&waiter.owner));
        let was_held = self.lock.remove_owners(now, is_gone) != Notification::None;
        let changed = was_held || self.queue.len() < before;
        if changed && self.lock.is_free(now) { self.notify_first() } else { Notification::None }
    }

    fn is_free(&mut self, now: Now) -> bool {
        self.lock.is_free(now) && self.queue.iter().all(|waiter| waiter.is_dead(now))
    }
}

fn alive_until(now: Now) -> Moment {
    let is_early = Bug::LivingWaiterPurged.is_planted();
    now.moment + if is_early { FairLockState::DEAD_AFTER / 8 } else { FairLockState::DEAD_AFTER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, LockName};

    /// A fair lock and a clock that the tests set.
    struct Fixture {
        state: FairLockState,
        name: LockName,
        millis: u64,
    }

    impl Fixture {
        /// `a` holds the lock for 30 s, and `waiters` wait.
        fn held_by_a(waiters: &[&str]) -> Self {
            let name = LockName::of(Kind::Fair, "", "n").expect("a valid name");
            let mut fixture = Self { state: FairLockState::default(), name, millis: 0 };
            assert_eq!(fixture.queue_for("a"), Acquired::Granted);
            for waiter in waiters {
                assert!(matches!(fixture.queue_for(waiter), Acquired::Busy { .. } | Acquired::Queued));
            }
            fixture
        }

        fn now(&self) -> Now {
            Now { moment: Moment::from_micros(self.millis * 1000), wall: 0 }
        }

        fn acquire(&mut self, owner: &str, target: u32, waits: bool) -> Acquired {
            let owner = OwnerId::from_wire(owner);
            let options = AcquireOptions { lease: Lease::WATCHDOG, waits, highest_token: 0 };
            let claim = Claim::new(&self.name, &owner, target);
            let (reply, notification) = self.state.acquire(self.now(), &claim, &options);
            assert_eq!(notification, Notification::None);
            reply
        }

        fn queue_for(&mut self, owner: &str) -> Acquired {
            self.acquire(owner, 1, true)
        }

        fn release(&mut self, owner: &str, target: u32) -> (Released, Notification) {
            let owner = OwnerId::from_wire(owner);
            let now = self.now();
            self.state.release(now, &Claim::new(&self.name, &owner, target))
        }

        /// Releases what `owner` holds, and names `next`.
        fn pass_on(&mut self, owner: &str, next: &str) -> (Released, Notification) {
            let next = Some((OwnerId::from_wire(next), Lease::WATCHDOG));
            let claim = Claim::new(&self.name, &OwnerId::from_wire(owner), 0);
            self.state.release(self.now(), &Claim { next, ..claim })
        }

        fn heartbeat(&mut self, owner: &str) -> (QueuePosition, Notification) {
            let now = self.now();
            self.state.heartbeat(now, &OwnerId::from_wire(owner))
        }

        fn queue(&mut self) -> Vec<String> {
            let now = self.now();
            self.state.snapshot(now).queue.iter().map(ToString::to_string).collect()
        }
    }

    fn busy(millis: Option<u64>) -> Acquired {
        Acquired::Busy { ttl: millis.map(Duration::from_millis) }
    }

    fn notify(owner: &str) -> Notification {
        Notification::Waiter(OwnerId::from_wire(owner))
    }

    #[test]
    fn waiters_acquire_in_the_order_of_arrival() {
        let mut fixture = Fixture::held_by_a(&["b", "c"]);
        assert_eq!(fixture.queue_for("b"), busy(Some(30_000)), "a repeated request keeps its position");
        assert_eq!(fixture.queue_for("c"), Acquired::Queued, "only the first waiter gets the lease");
        assert_eq!(fixture.acquire("d", 1, false), busy(None));
        assert_eq!(fixture.queue(), ["b", "c"], "an owner that does not wait is not queued");
        assert_eq!(fixture.release("a", 0), (Released::Freed, notify("b")));
        assert_eq!(fixture.queue_for("c"), Acquired::Queued, "no waiter overtakes the first");
        assert_eq!(
            fixture.heartbeat("c"),
            (QueuePosition::InQueue, notify("b")),
            "the first may have missed the message"
        );
        assert_eq!(fixture.heartbeat("b"), (QueuePosition::ItsTurn, Notification::None));
        assert_eq!(fixture.queue_for("b"), Acquired::Granted);
        assert_eq!(fixture.acquire("b", 2, true), Acquired::Granted);
        assert_eq!(fixture.release("b", 1), (Released::StillHeld, Notification::None));
        assert_eq!(fixture.queue(), ["c"]);
    }

    #[test]
    fn a_notified_waiter_that_leaves_wakes_the_next() {
        let mut fixture = Fixture::held_by_a(&["b", "c", "d"]);
        assert_eq!(fixture.release("c", 0), (Released::NotHeld, Notification::None), "the lock is held");
        assert_eq!(fixture.release("a", 0), (Released::Freed, notify("b")));
        assert_eq!(fixture.release("b", 0), (Released::NotHeld, notify("d")));
        assert_eq!(
            fixture.release("b", 0),
            (Released::NotHeld, Notification::None),
            "a repeated request finds nothing"
        );
        assert_eq!(fixture.queue(), ["d"]);
    }

    #[test]
    fn a_first_waiter_that_leaves_tells_the_next_that_it_is_first() {
        let mut fixture = Fixture::held_by_a(&["b", "c"]);
        assert_eq!(fixture.release("b", 0), (Released::NotHeld, notify("c")));
        assert_eq!(fixture.queue_for("c"), busy(Some(30_000)));
    }

    #[test]
    fn a_release_passes_the_lock_on_to_the_named_waiter_only_if_it_is_first() {
        let mut fixture = Fixture::held_by_a(&["b", "c"]);
        assert_eq!(fixture.pass_on("x", "b"), (Released::NotHeld, Notification::None), "not the holder");
        assert_eq!(fixture.pass_on("a", "b"), (Released::PassedOn, Notification::None));
        assert_eq!(fixture.pass_on("a", "c"), (Released::NotHeld, Notification::None), "a copy does nothing");
        assert_eq!(fixture.pass_on("b", "b"), (Released::Freed, Notification::None), "back to the head");
        assert_eq!(fixture.queue(), ["b", "c"]);
        assert_eq!(fixture.queue_for("b"), Acquired::Granted);
        assert_eq!(fixture.pass_on("b", "d"), (Released::Freed, notify("c")), "another waiter is first");
        assert_eq!(fixture.queue_for("c"), Acquired::Granted);
        assert!(fixture.queue().is_empty());
    }

    #[test]
    fn a_dead_waiter_delays_the_queue_only_briefly() {
        let mut fixture = Fixture::held_by_a(&["b", "c", "d"]);
        fixture.millis = 4_000;
        assert_eq!(fixture.heartbeat("c"), (QueuePosition::InQueue, Notification::None));
        assert_eq!(fixture.queue(), ["b", "c", "d"], "b is alive until the very end");
        fixture.millis = 4_001;
        assert_eq!(fixture.release("a", 0), (Released::Freed, notify("c")));
        assert_eq!(fixture.heartbeat("b"), (QueuePosition::NotInQueue, Notification::None));
        assert_eq!(fixture.queue(), ["c", "d"], "d is dead, but not at the head");
        assert_eq!(fixture.queue_for("c"), Acquired::Granted);
        assert_eq!(fixture.release("x", 0), (Released::NotHeld, Notification::None));
        assert!(fixture.queue().is_empty());
    }

    #[test]
    fn a_reentry_begins_neither_a_hold_nor_a_wait() {
        let mut fixture = Fixture::held_by_a(&["b"]);
        assert_eq!(fixture.acquire("b", 2, true), Acquired::Gone);
        assert_eq!(fixture.acquire("c", 2, true), Acquired::Gone);
        fixture.state.expire();
        assert_eq!(fixture.acquire("b", 2, true), Acquired::Gone);
        assert_eq!(fixture.queue(), ["b"]);
    }

    #[test]
    fn the_first_living_waiter_is_notified_of_a_shorter_lease() {
        let mut fixture = Fixture::held_by_a(&["b", "c"]);
        fixture.state.expire_waiter(&OwnerId::from_wire("b"));
        fixture.millis = 1;
        let (now, a) = (fixture.now(), OwnerId::from_wire("a"));
        let lease = |seconds| Lease::new(Duration::from_secs(seconds)).expect("valid");
        assert_eq!(fixture.state.unlock_after(now, &a, lease(60)), (Renewed::Renewed, Notification::None));
        assert_eq!(fixture.queue(), ["b", "c"]);
        assert_eq!(fixture.state.unlock_after(now, &a, lease(5)), (Renewed::Renewed, notify("c")));
        assert_eq!(fixture.queue_for("c"), busy(Some(5_000)));
    }

    #[test]
    fn a_forced_unlock_keeps_the_queue() {
        let mut fixture = Fixture::held_by_a(&["b"]);
        let now = fixture.now();
        assert_eq!(fixture.state.force_unlock(now), (true, notify("b")));
        assert_eq!(fixture.state.force_unlock(now), (false, Notification::None));
        assert!(!fixture.state.is_free(now));
        fixture.state.expire_waiter(&OwnerId::from_wire("b"));
        fixture.millis = 1;
        let now = fixture.now();
        assert!(fixture.state.is_free(now), "dead waiters need not be remembered");
    }
}
