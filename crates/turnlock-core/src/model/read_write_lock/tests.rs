use super::*;
use crate::LockName;

const READ: Kind = Kind::Read;
const WRITE: Kind = Kind::Write;

/// A lock with short names for its steps. Owners are texts, times and leases are milliseconds.
#[derive(Default)]
struct Fixture {
    lock: ReadWriteLockState,
    now: u64,
}

impl Fixture {
    fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    fn now(&self) -> Now {
        Now { moment: Moment::from_micros(0) + ms(self.now), wall: 0 }
    }

    fn apply(&mut self, step: &Step) -> (Reply, Notification) {
        self.lock.apply(self.now(), step).expect("a step of read-write locks")
    }

    fn force_unlock(&mut self, side: Kind) -> (Reply, Notification) {
        self.apply(&Step::ForceUnlock(name(side)))
    }

    fn acquire(&mut self, side: Kind, owner: &str, target: u32, lease: u64) -> Acquired {
        self.acquire_under(side, owner, None, target, lease)
    }

    fn acquire_under(
        &mut self,
        side: Kind,
        owner: &str,
        under: Option<&str>,
        target: u32,
        lease: u64,
    ) -> Acquired {
        let (name, owner, under) = (name(side), OwnerId::from_wire(owner), under.map(OwnerId::from_wire));
        let claim = Claim { under: under.map(Box::new), ..Claim::new(&name, &owner, target) };
        let options =
            AcquireOptions { lease: Lease::new(ms(lease)).expect("valid"), waits: true, highest_token: 0 };
        match self.apply(&Step::Acquire(claim, options)) {
            (Reply::Acquired(reply), Notification::None) => reply,
            other => panic!("the reply to an acquire, and not {other:?}"),
        }
    }

    fn release(&mut self, side: Kind, owner: &str, target: u32) -> (Released, Notification) {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        match self.apply(&Step::Release(Claim::new(&name, &owner, target))) {
            (Reply::Released(reply), notification) => (reply, notification),
            other => panic!("the reply to a release, and not {other:?}"),
        }
    }

    fn renew(&mut self, side: Kind, owner: &str, lease: u64) -> Renewed {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        let lease = (lease > 0).then(|| Lease::new(ms(lease)).expect("valid"));
        match self.apply(&Step::Renew(Claim::new(&name, &owner, 1), lease)) {
            (Reply::Renewed(reply), Notification::None) => reply,
            other => panic!("the reply to a renewal, and not {other:?}"),
        }
    }

    fn unlock_after(&mut self, side: Kind, owner: &str, lease: u64) -> (Renewed, Notification) {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        let (claim, lease) = (Claim::new(&name, &owner, 1), Lease::new(ms(lease)).expect("valid"));
        match self.apply(&Step::SetLease { claim, lease, outlasts_client: true }) {
            (Reply::Renewed(reply), notification) => (reply, notification),
            other => panic!("the reply to a step that sets the lease, and not {other:?}"),
        }
    }

    /// The holders as one text, and the rest of the lease of the whole.
    fn summary(&mut self) -> (String, Option<Duration>) {
        let snapshot = self.lock.snapshot(self.now());
        let holder = |holder: &HolderSnapshot| match holder.ttl {
            Some(ttl) => format!("{} reads {} for {}", holder.owner, holder.count, ttl.as_millis()),
            None => format!("{} writes {}", holder.owner, holder.count),
        };
        (snapshot.holders.iter().map(holder).collect::<Vec<_>>().join(", "), snapshot.ttl)
    }
}

fn name(side: Kind) -> LockName {
    LockName::of(side, "", "n").expect("a valid name")
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn busy(millis: u64) -> Acquired {
    Acquired::Busy { ttl: Some(ms(millis)) }
}

const GRANTED: Acquired = Acquired::Granted;
const FREED: (Released, Notification) = (Released::Freed, Notification::Subscribers);
const FREED_ONE: (Released, Notification) = (Released::Freed, Notification::None);
const STILL_HELD: (Released, Notification) = (Released::StillHeld, Notification::None);
const NOT_HELD: (Released, Notification) = (Released::NotHeld, Notification::None);

#[test]
fn readers_share_and_a_writer_excludes_all() {
    let mut fixture = Fixture::default();
    assert_eq!(fixture.acquire(READ, "a", 1, 100), GRANTED);
    assert_eq!(fixture.acquire(READ, "b", 1, 50), GRANTED);
    assert_eq!(fixture.acquire(WRITE, "w", 1, 100), busy(100));
    assert_eq!(fixture.release(READ, "a", 0), FREED_ONE);
    // The lock lasts as long as the longest remaining lease.
    assert_eq!(fixture.summary(), ("b reads 1 for 50".to_owned(), Some(ms(50))));
    assert_eq!(fixture.release(READ, "b", 0), FREED);
    assert_eq!(fixture.acquire(WRITE, "w", 1, 100), GRANTED);
    assert_eq!(
        (fixture.acquire(READ, "c", 1, 100), fixture.acquire(WRITE, "v", 1, 100)),
        (busy(100), busy(100))
    );
    assert_eq!(fixture.release(WRITE, "w", 0), FREED);
    assert!(fixture.lock.is_free(fixture.now()));
}

#[test]
fn a_repeated_step_counts_once_and_never_shortens_a_lease() {
    let mut fixture = Fixture::default();
    for side in [READ, WRITE] {
        for (target, lease) in [(1, 100), (1, 100), (2, 50), (2, 50), (1, 20)] {
            assert_eq!(fixture.acquire(side, "a", target, lease), GRANTED);
        }
        assert_eq!(fixture.renew(side, "a", 30), Renewed::Longer);
        assert_eq!(fixture.summary().1, Some(ms(100)));
        assert_eq!(fixture.renew(side, "a", 100), Renewed::Renewed);
        assert_eq!((fixture.release(side, "a", 1), fixture.release(side, "a", 1)), (STILL_HELD, STILL_HELD));
        assert_eq!((fixture.release(side, "a", 0), fixture.release(side, "a", 0)), (FREED, NOT_HELD));
        assert_eq!(fixture.acquire(side, "a", 2, 100), Acquired::Gone);
    }
}

#[test]
fn a_waiting_writer_blocks_new_readers() {
    let mut fixture = Fixture::default();
    fixture.acquire(READ, "a", 1, 10_000);
    fixture.acquire(WRITE, "w", 1, 100);
    assert_eq!(fixture.at(1_000).acquire(READ, "b", 1, 100), busy(2_000));
    assert_eq!(fixture.acquire(READ, "a", 2, 100), GRANTED);
    // The intent stays that of the first writer.
    fixture.acquire(WRITE, "v", 1, 100);
    assert_eq!(fixture.release(WRITE, "v", 0), NOT_HELD);
    assert_eq!(fixture.release(WRITE, "w", 0), (Released::NotHeld, Notification::Subscribers));
    assert_eq!(fixture.acquire(READ, "b", 1, 100), GRANTED);
    fixture.acquire(WRITE, "w", 1, 100);
    assert_eq!(fixture.at(4_000).acquire(READ, "c", 1, 100), GRANTED);
}

#[test]
fn a_writer_may_read_and_keep_its_read_holds() {
    let mut fixture = Fixture::default();
    fixture.acquire(WRITE, "w", 1, 1_000);
    assert_eq!(fixture.acquire(READ, "r", 1, 100), busy(1_000));
    assert_eq!(fixture.acquire_under(READ, "r", Some("w"), 1, 100), GRANTED);
    assert_eq!(fixture.acquire_under(READ, "s", Some("w"), 1, 200), GRANTED);
    // As in Java: the same owner on both sides.
    assert_eq!(fixture.acquire(READ, "w", 1, 50), GRANTED);
    assert_eq!(fixture.release(READ, "w", 0), FREED_ONE);
    assert_eq!(fixture.summary().1, Some(ms(1_000)));
    assert_eq!(fixture.release(WRITE, "w", 0), FREED);
    assert_eq!(fixture.summary(), ("r reads 1 for 100, s reads 1 for 200".to_owned(), Some(ms(200))));
    assert_eq!(fixture.acquire(READ, "other", 1, 100), GRANTED);
}

#[test]
fn an_expired_reader_blocks_no_owner() {
    let mut fixture = Fixture::default();
    fixture.acquire(READ, "dead", 1, 50);
    fixture.acquire(READ, "alive", 1, 100);
    assert_eq!(fixture.at(60).renew(READ, "dead", 100), Renewed::NotHeld);
    assert_eq!(fixture.renew(READ, "alive", 0), Renewed::Renewed);
    assert_eq!(fixture.summary(), ("alive reads 1 for 40".to_owned(), Some(ms(40))));
    assert_eq!(fixture.acquire(READ, "dead", 2, 100), Acquired::Gone);
    assert_eq!(fixture.release(READ, "alive", 0), FREED);

    fixture.acquire(READ, "dead", 1, 50);
    fixture.acquire(READ, "gone", 1, 100);
    fixture.lock.expire_reader(&OwnerId::from_wire("gone"));
    assert_eq!(fixture.at(111).acquire(WRITE, "w", 1, 20), GRANTED);
    assert_eq!(fixture.summary(), ("w writes 1".to_owned(), Some(ms(20))));
    fixture.at(131);
    assert!(fixture.lock.is_free(fixture.now()));
}

#[test]
fn a_forced_unlock_ends_only_the_side_that_is_held() {
    let mut fixture = Fixture::default();
    for (held, other) in [(READ, WRITE), (WRITE, READ)] {
        fixture.acquire(held, "a", 1, 100);
        let not_held = (Reply::ForceUnlocked(false), Notification::None);
        assert_eq!(fixture.force_unlock(other), not_held);
        assert_eq!(fixture.force_unlock(held), (Reply::ForceUnlocked(true), Notification::Subscribers));
        assert_eq!(fixture.force_unlock(held), not_held);
        assert_eq!(fixture.summary(), (String::new(), None));
    }
}

#[test]
fn unlock_after_sets_the_end_of_a_hold() {
    let mut fixture = Fixture::default();
    fixture.acquire(READ, "a", 1, 300);
    fixture.acquire(READ, "b", 1, 100);
    assert_eq!(fixture.unlock_after(READ, "c", 50), (Renewed::NotHeld, Notification::None));
    assert_eq!(
        fixture.unlock_after(WRITE, "a", 50),
        (Renewed::NotHeld, Notification::None),
        "it holds the read side"
    );
    assert_eq!(fixture.unlock_after(READ, "a", 50), (Renewed::Renewed, Notification::Subscribers));
    assert_eq!(fixture.summary(), ("a reads 1 for 50, b reads 1 for 100".to_owned(), Some(ms(100))));
    assert_eq!(
        fixture.unlock_after(READ, "a", 70),
        (Renewed::Renewed, Notification::None),
        "another reader lasts longer"
    );
    assert_eq!(fixture.unlock_after(READ, "a", 200), (Renewed::Renewed, Notification::None));
    assert_eq!(fixture.summary(), ("a reads 1 for 200, b reads 1 for 100".to_owned(), Some(ms(200))));
    assert_eq!(
        fixture.at(200).unlock_after(READ, "a", 50),
        (Renewed::NotHeld, Notification::None),
        "revives no hold"
    );

    fixture.acquire(WRITE, "w", 1, 300);
    fixture.acquire_under(READ, "r", Some("w"), 1, 100);
    assert_eq!(
        fixture.unlock_after(READ, "r", 50),
        (Renewed::Renewed, Notification::None),
        "the lease of the writer stays"
    );
    assert_eq!(fixture.summary(), ("r reads 1 for 50, w writes 1".to_owned(), Some(ms(300))));
    assert_eq!(fixture.unlock_after(WRITE, "w", 20), (Renewed::Renewed, Notification::Subscribers));
    assert_eq!(fixture.summary().1, Some(ms(50)), "not before its read holds");
    assert_eq!(fixture.unlock_after(WRITE, "w", 400), (Renewed::Renewed, Notification::None));
    assert_eq!(fixture.summary().1, Some(ms(400)));
}

#[test]
fn a_renewal_reports_a_lease_that_is_longer_than_requested() {
    let mut fixture = Fixture::default();
    fixture.acquire(WRITE, "w", 1, 1_000);
    fixture.acquire_under(READ, "r", Some("w"), 1, 5_000);
    // The read hold is the reason.
    assert_eq!(fixture.renew(WRITE, "w", 1_000), Renewed::Renewed);
    assert_eq!(fixture.renew(READ, "r", 1_000), Renewed::Longer);
    fixture.acquire(WRITE, "w", 2, 9_000);
    assert_eq!(fixture.renew(WRITE, "w", 1_000), Renewed::Longer);
    assert_eq!(fixture.renew(READ, "r", 5_000), Renewed::Renewed, "the end of the writer does not matter");
}
