use std::collections::VecDeque;
use std::time::Duration;

use super::{Acquired, Claim, LockState, Now, Parties, Place, Released, Renewed, Snapshot, Wake, Wish};
use crate::{Lease, Moment, OwnerId};

/// The state of one fair lock: a reentrant lock, and those who wait for it in the order in which they came.
///
/// Only the first in the queue may take the lock, and it leaves the queue with that. One who waits says now and then that
/// it lives ([`attend`](Self::attend)); once it is first and has been silent for too long, it is removed by the next step
/// of anybody, so that the dead stop the queue for a moment and no longer.
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
    believed_until: Moment,
}

impl Waiter {
    fn is_dead(&self, now: Now) -> bool {
        self.believed_until < now.moment
    }
}

impl FairLockState {
    /// How long after its last sign of life a waiter is taken for alive.
    pub const DEAD_AFTER: Duration = Duration::from_secs(4);

    /// Takes the lock if it is the owner's turn, or raises the count of a hold that it has.
    ///
    /// Who is refused and waits gets a place at the end of the queue, or keeps the one that it has. Only the first in the
    /// queue is told how long the holder may stay: the others have nothing to do then.
    pub fn acquire(&mut self, now: Now, claim: &Claim<'_>, wish: &Wish) -> (Acquired, Wake) {
        self.purge(now, Some(claim.owner));
        let Claim { owner, target, .. } = *claim;
        let is_next = self.queue.front().is_none_or(|first| first.owner == *owner);
        if self.is_held_by(now, owner) || (is_next && self.lock.is_free(now.moment)) {
            let answer = self.lock.acquire(now.moment, owner, target, wish.lease);
            if answer == Acquired::Granted {
                self.leave(owner);
            }
            return (answer, Wake::Nobody);
        }
        if target > 1 {
            return (Acquired::Gone, Wake::Nobody);
        }
        if wish.waits && !self.show_life(now, owner) {
            self.queue.push_back(Waiter { owner: owner.clone(), believed_until: believed_until(now) });
        }
        let is_next = self.queue.front().is_none_or(|first| first.owner == *owner);
        let ttl = if is_next { self.lock.snapshot(now.moment).ttl } else { None };
        (Acquired::Busy { ttl }, Wake::Nobody)
    }

    /// Lowers the count of `owner` to the target; zero ends the hold, and takes the owner from the queue as well.
    pub fn release(&mut self, now: Now, claim: &Claim<'_>) -> (Released, Wake) {
        let purged = self.purge(now, None);
        let Claim { owner, target, .. } = *claim;
        let left = target == 0 && self.leave(owner);
        let answer = self.lock.release(now.moment, owner, target);
        let wake = match answer {
            Released::Freed => self.wake_first(),
            // Whoever went may have been the one who was told that the lock is free.
            Released::NotHeld if target == 0 && (left || purged) && self.lock.is_free(now.moment) => {
                self.wake_first()
            }
            Released::NotHeld | Released::Lowered => Wake::Nobody,
        };
        (answer, wake)
    }

    /// Extends the lease of `owner`, or only looks whether it holds (`lease` of `None`). Never shortens.
    pub fn renew(&mut self, now: Now, owner: &OwnerId, lease: Option<Lease>) -> Renewed {
        self.lock.renew(now.moment, owner, lease)
    }

    /// Sets the lease of `owner` to just this, which may be less than is left: then the first in the queue is told, who
    /// counts on more.
    pub fn keep(&mut self, now: Now, owner: &OwnerId, lease: Lease) -> (Renewed, Wake) {
        let (answer, wake) = self.lock.keep(now.moment, owner, lease);
        if wake == Wake::Nobody {
            return (answer, wake);
        }
        self.purge(now, None);
        (answer, self.wake_first())
    }

    /// Frees the lock, whoever holds it. The queue stays.
    pub fn force_unlock(&mut self, now: Now) -> (bool, Wake) {
        self.purge(now, None);
        let was_held = self.lock.force_unlock(now.moment);
        (was_held, if was_held { self.wake_first() } else { Wake::Nobody })
    }

    /// Says that a waiter lives, and where it stands. Gives nobody a place.
    pub fn attend(&mut self, now: Now, waiter: &OwnerId) -> (Place, Wake) {
        self.purge(now, Some(waiter));
        if !self.show_life(now, waiter) {
            return (Place::Nowhere, Wake::Nobody);
        }
        if !self.lock.is_free(now.moment) {
            return (Place::InQueue, Wake::Nobody);
        }
        if self.queue.front().is_some_and(|first| first.owner == *waiter) {
            return (Place::ItsTurn, Wake::Nobody);
        }
        // Whoever is first should have come by now: it may have missed the message.
        (Place::InQueue, self.wake_first())
    }

    /// What the lock looks like, with those in the queue who will not come.
    pub fn snapshot(&mut self, now: Now) -> Snapshot {
        let queue = self.queue.iter().map(|waiter| waiter.owner.clone()).collect();
        Snapshot { queue, ..self.lock.snapshot(now.moment) }
    }

    /// Who has something of it.
    pub fn parties(&self) -> Parties {
        Parties {
            holding: self.lock.owner().into_iter().cloned().collect(),
            waiting: self.queue.iter().map(|waiter| waiter.owner.clone()).collect(),
        }
    }

    /// Ends what those have who are gone: the hold, and places in the queue.
    pub fn void(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Wake {
        let before = self.queue.len();
        self.queue.retain(|waiter| !is_gone(&waiter.owner));
        let changed = self.lock.void(&is_gone) || self.queue.len() < before;
        if changed && self.lock.is_free(now.moment) { self.wake_first() } else { Wake::Nobody }
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Now) -> bool {
        self.lock.is_free(now.moment) && self.queue.iter().all(|waiter| waiter.is_dead(now))
    }

    /// Ends the hold as its expiry would: nobody is told.
    pub fn expire(&mut self) {
        self.lock.expire();
    }

    /// Makes the last sign of life of a waiter old, as time would.
    pub fn fall_silent(&mut self, waiter: &OwnerId) {
        for waiter in self.queue.iter_mut().filter(|other| other.owner == *waiter) {
            waiter.believed_until = Moment::default();
        }
    }

    /// Removes the dead from the front of the queue. Whether there were any. The caller is not dead, however late it comes.
    fn purge(&mut self, now: Now, caller: Option<&OwnerId>) -> bool {
        let is_dead = |waiter: &&Waiter| waiter.is_dead(now) && Some(&waiter.owner) != caller;
        let dead = self.queue.iter().take_while(is_dead).count();
        self.queue.drain(..dead);
        dead > 0
    }

    /// Whether `owner` stands in the queue: then its life is noted.
    fn show_life(&mut self, now: Now, owner: &OwnerId) -> bool {
        let waiter = self.queue.iter_mut().find(|waiter| waiter.owner == *owner);
        waiter.map(|waiter| waiter.believed_until = believed_until(now)).is_some()
    }

    /// Whether `owner` stood in the queue.
    fn leave(&mut self, owner: &OwnerId) -> bool {
        let place = self.queue.iter().position(|waiter| waiter.owner == *owner);
        place.and_then(|place| self.queue.remove(place)).is_some()
    }

    fn is_held_by(&mut self, now: Now, owner: &OwnerId) -> bool {
        self.lock.renew(now.moment, owner, None) == Renewed::Renewed
    }

    fn wake_first(&self) -> Wake {
        self.queue.front().map_or(Wake::Nobody, |first| Wake::Waiter(first.owner.clone()))
    }
}

fn believed_until(now: Now) -> Moment {
    now.moment + FairLockState::DEAD_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, LockName};

    /// A fair lock and a clock that its tests turn.
    struct Scene {
        state: FairLockState,
        name: LockName,
        millis: u64,
    }

    impl Scene {
        /// The lock is held by `a` for 30 s, and the others wait.
        fn held_by_a(waiters: &[&str]) -> Self {
            let name = LockName::of(Kind::Fair, "", "n").expect("a good name");
            let mut scene = Self { state: FairLockState::default(), name, millis: 0 };
            assert_eq!(scene.ask("a"), Acquired::Granted);
            for waiter in waiters {
                assert!(matches!(scene.ask(waiter), Acquired::Busy { .. }));
            }
            scene
        }

        fn now(&self) -> Now {
            Now { moment: Moment::from_micros(self.millis * 1000), wall: 0 }
        }

        fn acquire(&mut self, owner: &str, target: u32, waits: bool) -> Acquired {
            let owner = OwnerId::from_wire(owner);
            let wish = Wish { lease: Lease::WATCHDOG, waits, highest_token: 0 };
            let claim = Claim::new(&self.name, &owner, target);
            let (answer, wake) = self.state.acquire(self.now(), &claim, &wish);
            assert_eq!(wake, Wake::Nobody);
            answer
        }

        fn ask(&mut self, owner: &str) -> Acquired {
            self.acquire(owner, 1, true)
        }

        fn release(&mut self, owner: &str, target: u32) -> (Released, Wake) {
            let owner = OwnerId::from_wire(owner);
            let now = self.now();
            self.state.release(now, &Claim::new(&self.name, &owner, target))
        }

        fn attend(&mut self, owner: &str) -> (Place, Wake) {
            let now = self.now();
            self.state.attend(now, &OwnerId::from_wire(owner))
        }

        fn queue(&mut self) -> Vec<String> {
            let now = self.now();
            self.state.snapshot(now).queue.iter().map(ToString::to_string).collect()
        }
    }

    fn busy(millis: Option<u64>) -> Acquired {
        Acquired::Busy { ttl: millis.map(Duration::from_millis) }
    }

    fn wake(owner: &str) -> Wake {
        Wake::Waiter(OwnerId::from_wire(owner))
    }

    #[test]
    fn turns_go_in_the_order_of_arrival() {
        let mut scene = Scene::held_by_a(&["b", "c"]);
        assert_eq!(scene.ask("b"), busy(Some(30_000)), "a second copy keeps its place");
        assert_eq!(scene.ask("c"), busy(None), "only the first follows the lease");
        assert_eq!(scene.acquire("d", 1, false), busy(None));
        assert_eq!(scene.queue(), ["b", "c"], "who does not wait leaves no trace");
        assert_eq!(scene.release("a", 0), (Released::Freed, wake("b")));
        assert_eq!(scene.ask("c"), busy(None), "nobody overtakes the first");
        assert_eq!(scene.attend("c"), (Place::InQueue, wake("b")), "it may have missed the message");
        assert_eq!(scene.attend("b"), (Place::ItsTurn, Wake::Nobody));
        assert_eq!(scene.ask("b"), Acquired::Granted);
        assert_eq!(scene.acquire("b", 2, true), Acquired::Granted);
        assert_eq!(scene.release("b", 1), (Released::Lowered, Wake::Nobody));
        assert_eq!(scene.queue(), ["c"]);
    }

    #[test]
    fn who_gives_up_passes_on_what_it_was_told() {
        let mut scene = Scene::held_by_a(&["b", "c", "d"]);
        assert_eq!(scene.release("c", 0), (Released::NotHeld, Wake::Nobody), "the lock is held");
        assert_eq!(scene.release("a", 0), (Released::Freed, wake("b")));
        assert_eq!(scene.release("b", 0), (Released::NotHeld, wake("d")));
        assert_eq!(scene.release("b", 0), (Released::NotHeld, Wake::Nobody), "a second copy finds nothing");
        assert_eq!(scene.queue(), ["d"]);
    }

    #[test]
    fn the_dead_stop_the_queue_for_a_moment_only() {
        let mut scene = Scene::held_by_a(&["b", "c", "d"]);
        scene.millis = 4_000;
        assert_eq!(scene.attend("c"), (Place::InQueue, Wake::Nobody));
        assert_eq!(scene.queue(), ["b", "c", "d"], "b is believed until the very end");
        scene.millis = 4_001;
        assert_eq!(scene.release("a", 0), (Released::Freed, wake("c")));
        assert_eq!(scene.attend("b"), (Place::Nowhere, Wake::Nobody));
        assert_eq!(scene.queue(), ["c", "d"], "d is dead, but stands in nobody's way");
        assert_eq!(scene.ask("c"), Acquired::Granted);
        assert_eq!(scene.release("x", 0), (Released::NotHeld, Wake::Nobody));
        assert!(scene.queue().is_empty());
    }

    #[test]
    fn a_reentry_never_begins_a_hold_nor_a_wait() {
        let mut scene = Scene::held_by_a(&["b"]);
        assert_eq!(scene.acquire("b", 2, true), Acquired::Gone);
        assert_eq!(scene.acquire("c", 2, true), Acquired::Gone);
        scene.state.expire();
        assert_eq!(scene.acquire("b", 2, true), Acquired::Gone);
        assert_eq!(scene.queue(), ["b"]);
    }

    #[test]
    fn the_first_who_lives_is_told_of_a_shorter_lease() {
        let mut scene = Scene::held_by_a(&["b", "c"]);
        scene.state.fall_silent(&OwnerId::from_wire("b"));
        scene.millis = 1;
        let (now, a) = (scene.now(), OwnerId::from_wire("a"));
        let lease = |seconds| Lease::new(Duration::from_secs(seconds)).expect("valid");
        assert_eq!(scene.state.keep(now, &a, lease(60)), (Renewed::Renewed, Wake::Nobody));
        assert_eq!(scene.queue(), ["b", "c"]);
        assert_eq!(scene.state.keep(now, &a, lease(5)), (Renewed::Renewed, wake("c")));
        assert_eq!(scene.ask("c"), busy(Some(5_000)));
    }

    #[test]
    fn a_forced_unlock_keeps_the_queue() {
        let mut scene = Scene::held_by_a(&["b"]);
        let now = scene.now();
        assert_eq!(scene.state.force_unlock(now), (true, wake("b")));
        assert_eq!(scene.state.force_unlock(now), (false, Wake::Nobody));
        assert!(!scene.state.is_free(now));
        scene.state.fall_silent(&OwnerId::from_wire("b"));
        scene.millis = 1;
        let now = scene.now();
        assert!(scene.state.is_free(now), "the dead need not be remembered");
    }
}
