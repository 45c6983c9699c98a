use super::*;
use crate::LockName;

const READ: Kind = Kind::Read;
const WRITE: Kind = Kind::Write;

/// A lock with short words for its steps; owners are texts, times and leases milliseconds.
#[derive(Default)]
struct Scene {
    lock: ReadWriteLockState,
    now: u64,
}

impl Scene {
    fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    fn now(&self) -> Now {
        Now { moment: Moment::from_micros(0) + ms(self.now), wall: 0 }
    }

    fn take(&mut self, side: Kind, owner: &str, target: u32, lease: u64) -> Acquired {
        self.take_under(side, owner, None, target, lease)
    }

    fn take_under(
        &mut self,
        side: Kind,
        owner: &str,
        under: Option<&str>,
        target: u32,
        lease: u64,
    ) -> Acquired {
        let (name, owner, under) = (name(side), OwnerId::from_wire(owner), under.map(OwnerId::from_wire));
        let claim = Claim { under: under.as_ref(), ..Claim::new(&name, &owner, target) };
        let wish = Wish { lease: Lease::new(ms(lease)).expect("valid"), waits: true, highest_token: 0 };
        self.lock.acquire(self.now(), &claim, &wish).0
    }

    fn leave(&mut self, side: Kind, owner: &str, target: u32) -> (Released, Wake) {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        self.lock.release(self.now(), &Claim::new(&name, &owner, target))
    }

    fn renew(&mut self, side: Kind, owner: &str, lease: u64) -> Renewed {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        let lease = (lease > 0).then(|| Lease::new(ms(lease)).expect("valid"));
        self.lock.renew(self.now(), &Claim::new(&name, &owner, 1), lease)
    }

    fn keep(&mut self, side: Kind, owner: &str, lease: u64) -> (Renewed, Wake) {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        self.lock.keep(self.now(), &Claim::new(&name, &owner, 1), Lease::new(ms(lease)).expect("valid"))
    }

    /// The holders as one text, and how long the whole lasts.
    fn picture(&mut self) -> (String, Option<Duration>) {
        let snapshot = self.lock.snapshot(self.now());
        let holder = |holder: &HolderPicture| match holder.ttl {
            Some(ttl) => format!("{} reads {} for {}", holder.owner, holder.count, ttl.as_millis()),
            None => format!("{} writes {}", holder.owner, holder.count),
        };
        (snapshot.holders.iter().map(holder).collect::<Vec<_>>().join(", "), snapshot.ttl)
    }
}

fn name(side: Kind) -> LockName {
    LockName::of(side, "", "n").expect("a good name")
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn busy(millis: u64) -> Acquired {
    Acquired::Busy { ttl: Some(ms(millis)) }
}

const GRANTED: Acquired = Acquired::Granted;
const FREED: (Released, Wake) = (Released::Freed, Wake::Listeners);
const LEFT: (Released, Wake) = (Released::Freed, Wake::Nobody);
const LOWERED: (Released, Wake) = (Released::Lowered, Wake::Nobody);
const NOT_HELD: (Released, Wake) = (Released::NotHeld, Wake::Nobody);

#[test]
fn readers_share_and_a_writer_is_alone() {
    let mut scene = Scene::default();
    assert_eq!(scene.take(READ, "a", 1, 100), GRANTED);
    assert_eq!(scene.take(READ, "b", 1, 50), GRANTED);
    assert_eq!(scene.take(WRITE, "w", 1, 100), busy(100));
    assert_eq!(scene.leave(READ, "a", 0), LEFT);
    // The lock lasts as long as the longest that is left.
    assert_eq!(scene.picture(), ("b reads 1 for 50".to_owned(), Some(ms(50))));
    assert_eq!(scene.leave(READ, "b", 0), FREED);
    assert_eq!(scene.take(WRITE, "w", 1, 100), GRANTED);
    assert_eq!((scene.take(READ, "c", 1, 100), scene.take(WRITE, "v", 1, 100)), (busy(100), busy(100)));
    assert_eq!(scene.leave(WRITE, "w", 0), FREED);
    assert!(scene.lock.is_free(scene.now()));
}

#[test]
fn steps_that_arrive_twice_count_once_and_never_shorten() {
    let mut scene = Scene::default();
    for side in [READ, WRITE] {
        for (target, lease) in [(1, 100), (1, 100), (2, 50), (2, 50), (1, 20)] {
            assert_eq!(scene.take(side, "a", target, lease), GRANTED);
        }
        assert_eq!(scene.renew(side, "a", 30), Renewed::Longer);
        assert_eq!(scene.picture().1, Some(ms(100)));
        assert_eq!(scene.renew(side, "a", 100), Renewed::Renewed);
        assert_eq!((scene.leave(side, "a", 1), scene.leave(side, "a", 1)), (LOWERED, LOWERED));
        assert_eq!((scene.leave(side, "a", 0), scene.leave(side, "a", 0)), (FREED, NOT_HELD));
        assert_eq!(scene.take(side, "a", 2, 100), Acquired::Gone);
    }
}

#[test]
fn new_readers_stay_behind_a_writer_that_waits_for_readers() {
    let mut scene = Scene::default();
    scene.take(READ, "a", 1, 10_000);
    scene.take(WRITE, "w", 1, 100);
    assert_eq!(scene.at(1_000).take(READ, "b", 1, 100), busy(2_000));
    assert_eq!(scene.take(READ, "a", 2, 100), GRANTED);
    // The word stays the first writer's.
    scene.take(WRITE, "v", 1, 100);
    assert_eq!(scene.leave(WRITE, "v", 0), NOT_HELD);
    assert_eq!(scene.leave(WRITE, "w", 0), (Released::NotHeld, Wake::Listeners));
    assert_eq!(scene.take(READ, "b", 1, 100), GRANTED);
    scene.take(WRITE, "w", 1, 100);
    assert_eq!(scene.at(4_000).take(READ, "c", 1, 100), GRANTED);
}

#[test]
fn a_writer_may_read_and_go_on_reading() {
    let mut scene = Scene::default();
    scene.take(WRITE, "w", 1, 1_000);
    assert_eq!(scene.take(READ, "r", 1, 100), busy(1_000));
    assert_eq!(scene.take_under(READ, "r", Some("w"), 1, 100), GRANTED);
    assert_eq!(scene.take_under(READ, "s", Some("w"), 1, 200), GRANTED);
    // Java's way: the same owner on both sides.
    assert_eq!(scene.take(READ, "w", 1, 50), GRANTED);
    assert_eq!(scene.leave(READ, "w", 0), LEFT);
    assert_eq!(scene.picture().1, Some(ms(1_000)));
    assert_eq!(scene.leave(WRITE, "w", 0), FREED);
    assert_eq!(scene.picture(), ("r reads 1 for 100, s reads 1 for 200".to_owned(), Some(ms(200))));
    assert_eq!(scene.take(READ, "other", 1, 100), GRANTED);
}

#[test]
fn a_reader_that_died_stands_in_nobodys_way() {
    let mut scene = Scene::default();
    scene.take(READ, "dead", 1, 50);
    scene.take(READ, "alive", 1, 100);
    assert_eq!(scene.at(60).renew(READ, "dead", 100), Renewed::NotHeld);
    assert_eq!(scene.renew(READ, "alive", 0), Renewed::Renewed);
    assert_eq!(scene.picture(), ("alive reads 1 for 40".to_owned(), Some(ms(40))));
    assert_eq!(scene.take(READ, "dead", 2, 100), Acquired::Gone);
    assert_eq!(scene.leave(READ, "alive", 0), FREED);

    scene.take(READ, "dead", 1, 50);
    scene.take(READ, "gone", 1, 100);
    scene.lock.expire_reader(&OwnerId::from_wire("gone"));
    assert_eq!(scene.at(111).take(WRITE, "w", 1, 20), GRANTED);
    assert_eq!(scene.picture(), ("w writes 1".to_owned(), Some(ms(20))));
    scene.at(131);
    assert!(scene.lock.is_free(scene.now()));
}

#[test]
fn force_frees_only_the_side_that_is_held() {
    let mut scene = Scene::default();
    for (held, other) in [(READ, WRITE), (WRITE, READ)] {
        scene.take(held, "a", 1, 100);
        assert_eq!(scene.lock.force_unlock(scene.now(), other), (false, Wake::Nobody));
        assert_eq!(scene.lock.force_unlock(scene.now(), held), (true, Wake::Listeners));
        assert_eq!(scene.lock.force_unlock(scene.now(), held), (false, Wake::Nobody));
        assert_eq!(scene.picture(), (String::new(), None));
    }
}

#[test]
fn what_is_kept_ends_when_its_owner_said() {
    let mut scene = Scene::default();
    scene.take(READ, "a", 1, 300);
    scene.take(READ, "b", 1, 100);
    assert_eq!(scene.keep(READ, "c", 50), (Renewed::NotHeld, Wake::Nobody));
    assert_eq!(scene.keep(WRITE, "a", 50), (Renewed::NotHeld, Wake::Nobody), "it reads");
    assert_eq!(scene.keep(READ, "a", 50), (Renewed::Renewed, Wake::Listeners));
    assert_eq!(scene.picture(), ("a reads 1 for 50, b reads 1 for 100".to_owned(), Some(ms(100))));
    assert_eq!(scene.keep(READ, "a", 70), (Renewed::Renewed, Wake::Nobody), "another reads longer");
    assert_eq!(scene.keep(READ, "a", 200), (Renewed::Renewed, Wake::Nobody));
    assert_eq!(scene.picture(), ("a reads 1 for 200, b reads 1 for 100".to_owned(), Some(ms(200))));
    assert_eq!(scene.at(200).keep(READ, "a", 50), (Renewed::NotHeld, Wake::Nobody), "revives nothing");

    scene.take(WRITE, "w", 1, 300);
    scene.take_under(READ, "r", Some("w"), 1, 100);
    assert_eq!(scene.keep(READ, "r", 50), (Renewed::Renewed, Wake::Nobody), "the writer's lease stays");
    assert_eq!(scene.picture(), ("r reads 1 for 50, w writes 1".to_owned(), Some(ms(300))));
    assert_eq!(scene.keep(WRITE, "w", 20), (Renewed::Renewed, Wake::Listeners));
    assert_eq!(scene.picture().1, Some(ms(50)), "not before the one who reads under it");
    assert_eq!(scene.keep(WRITE, "w", 400), (Renewed::Renewed, Wake::Nobody));
    assert_eq!(scene.picture().1, Some(ms(400)));
}

#[test]
fn a_lease_that_is_longer_than_a_hold_needs_is_told_to_its_owner() {
    let mut scene = Scene::default();
    scene.take(WRITE, "w", 1, 1_000);
    scene.take_under(READ, "r", Some("w"), 1, 5_000);
    // Those who read under it are the reason.
    assert_eq!(scene.renew(WRITE, "w", 1_000), Renewed::Renewed);
    assert_eq!(scene.renew(READ, "r", 1_000), Renewed::Longer);
    scene.take(WRITE, "w", 2, 9_000);
    assert_eq!(scene.renew(WRITE, "w", 1_000), Renewed::Longer);
    assert_eq!(scene.renew(READ, "r", 5_000), Renewed::Renewed, "the end of the writer is not its business");
}
