//! The states of the models survive being written down and read again; and the dead can be taken out of every one of them.

use std::time::Duration;

use proptest::prelude::*;
use turnlock_core::model::{Acquired, Claim, Deed, Item, Now, Released, Wake, Wish};
use turnlock_core::{Kind, Lease, LockName, Moment, OwnerId};

#[derive(Clone, Debug)]
enum Step {
    Acquire { owner: usize, target: u32, permits: u32, waits: bool },
    Release { owner: usize, target: u32, permits: u32, unsure: bool },
    Renew { owner: usize },
    Attend { owner: usize },
    Perform { deed: Deed, request: usize },
    Void { owner: usize },
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let owner = 0..4_usize;
    let deed = prop_oneof![
        (0..5_u64).prop_map(Deed::SetOnce),
        (-3..3_i64).prop_map(Deed::Add),
        (0..5_u64).prop_map(Deed::SetTotal),
        Just(Deed::CountDown),
        Just(Deed::Drain),
    ];
    let step = prop_oneof![
        4 => (owner.clone(), 1..3_u32, 1..3_u32, any::<bool>())
            .prop_map(|(owner, target, permits, waits)| Step::Acquire { owner, target, permits, waits }),
        3 => (owner.clone(), 0..2_u32, 1..3_u32, any::<bool>())
            .prop_map(|(owner, target, permits, unsure)| Step::Release { owner, target, permits, unsure }),
        1 => owner.clone().prop_map(|owner| Step::Renew { owner }),
        1 => owner.clone().prop_map(|owner| Step::Attend { owner }),
        2 => (deed, 0..6_usize).prop_map(|(deed, request)| Step::Perform { deed, request }),
        1 => owner.prop_map(|owner| Step::Void { owner }),
    ];
    prop::collection::vec((0..3_000_u64, step), 1..40)
}

fn owner(number: usize) -> OwnerId {
    OwnerId::from_wire(&format!("{number:032x}"))
}

fn apply(item: &mut Item, kind: Kind, now: Now, step: &Step) {
    let name = LockName::of(kind, "", "n").expect("a good name");
    let wish =
        |waits| Wish { lease: Lease::new(Duration::from_secs(5)).expect("a lease"), waits, highest_token: 7 };
    // Some kinds have no such step: then nothing is done, and nothing is to be seen.
    let _ = match *step {
        Step::Acquire { owner: number, target, permits, waits } => {
            let owner = owner(number);
            let claim = Claim { permits, ..Claim::new(&name, &owner, target) };
            item.acquire(now, &claim, &wish(waits)).map(drop)
        }
        Step::Release { owner: number, target, permits, unsure } => {
            let owner = owner(number);
            item.release(now, &Claim { permits, unsure, ..Claim::new(&name, &owner, target) }).map(drop)
        }
        Step::Renew { owner: number } => {
            let owner = owner(number);
            item.renew(now, &Claim::new(&name, &owner, 1), Some(Lease::WATCHDOG)).map(drop)
        }
        Step::Attend { owner: number } => item.attend(now, &owner(number)).map(drop),
        Step::Perform { deed, request } => item.perform(now, kind, deed, &owner(100 + request)).map(drop),
        Step::Void { owner: number } => {
            let gone = owner(number);
            item.void(now, |owner| *owner == gone);
            assert!(!has(item, &gone));
            Ok(())
        }
    };
}

fn has(item: &Item, owner: &OwnerId) -> bool {
    let parties = item.parties();
    parties.holding.iter().chain(&parties.waiting).any(|party| party == owner)
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(steps in steps()) {
        for kind in Kind::ALL {
            let mut item = Item::new(kind);
            let mut micros = 0;
            for (pause, step) in &steps {
                micros += pause * 1_000;
                let now = Now { moment: Moment::from_micros(micros), wall: micros };
                apply(&mut item, kind, now, step);
                let text = serde_json::to_string(&item).expect("it can be written");
                let read: Item = serde_json::from_str(&text).expect("it can be read");
                prop_assert_eq!(&read, &item, "{}", text);
                // What is seen has somebody whom it belongs to, so that it can be taken out.
                let picture = item.snapshot(now, kind).expect("its own kind");
                for holder in picture.holders {
                    prop_assert!(has(&item, &holder.owner));
                }
            }
        }
    }
}

const NOW: Now = Now { moment: Moment::from_micros(0), wall: 5 };
const WISH: Wish = Wish { lease: Lease::WATCHDOG, waits: true, highest_token: 0 };

fn acquire(item: &mut Item, kind: Kind, number: usize) -> Acquired {
    let (name, owner) = (LockName::of(kind, "", "n").expect("a good name"), owner(number));
    item.acquire(NOW, &Claim::new(&name, &owner, 1), &WISH).expect("its own kind").0
}

#[test]
fn the_next_one_is_told_when_a_holder_was_taken_out() {
    for kind in
        [Kind::Lock, Kind::Fenced, Kind::Fair, Kind::Write, Kind::Read, Kind::Semaphore, Kind::Permits]
    {
        let mut item = Item::new(kind);
        let _ = item.perform(NOW, kind, Deed::SetOnce(1), &owner(9));
        assert!(
            matches!(acquire(&mut item, kind, 1), Acquired::Granted | Acquired::GrantedWith { .. }),
            "{kind:?}"
        );
        let refused = if kind == Kind::Read { Kind::Write } else { kind };
        assert!(matches!(acquire(&mut item, refused, 2), Acquired::Busy { .. }), "{kind:?}");
        let expected = if kind == Kind::Fair { Wake::Waiter(owner(2)) } else { Wake::Listeners };
        assert_eq!(item.void(NOW, |gone| *gone == owner(3)), Wake::Nobody, "{kind:?}");
        assert_eq!(item.void(NOW, |gone| *gone == owner(1)), expected, "{kind:?}");
        assert!(
            matches!(acquire(&mut item, refused, 2), Acquired::Granted | Acquired::GrantedWith { .. }),
            "{kind:?}"
        );
    }
}

#[test]
fn a_dead_waiter_stands_in_nobodys_way() {
    let mut fair = Item::new(Kind::Fair);
    for number in 1..=3 {
        acquire(&mut fair, Kind::Fair, number);
    }
    assert_eq!(fair.void(NOW, |gone| *gone == owner(2)), Wake::Nobody, "the lock is held");
    let name = LockName::of(Kind::Fair, "", "n").expect("a good name");
    let released = fair.release(NOW, &Claim::new(&name, &owner(1), 0)).expect("its own kind");
    assert_eq!(released, (Released::Freed, Wake::Waiter(owner(3))));
    let mut both = Item::new(Kind::Read);
    acquire(&mut both, Kind::Read, 1);
    acquire(&mut both, Kind::Write, 2);
    assert!(matches!(acquire(&mut both, Kind::Read, 3), Acquired::Busy { .. }), "a writer waits");
    assert_eq!(both.void(NOW, |gone| *gone == owner(2)), Wake::Listeners);
    assert_eq!(acquire(&mut both, Kind::Read, 3), Acquired::Granted);
}

#[test]
fn what_was_numbered_and_counted_outlasts_a_start_of_the_machine() {
    let mut fenced = Item::new(Kind::Fenced);
    assert_eq!(acquire(&mut fenced, Kind::Fenced, 1), Acquired::GrantedWith { token: 5 });
    fenced.begin_anew(NOW);
    assert_eq!(acquire(&mut fenced, Kind::Fenced, 2), Acquired::GrantedWith { token: 6 });
    for kind in [Kind::Semaphore, Kind::Permits] {
        let mut item = Item::new(kind);
        item.perform(NOW, kind, Deed::SetOnce(1), &owner(9)).expect("its own kind");
        acquire(&mut item, kind, 1);
        item.begin_anew(NOW);
        assert_eq!(item.snapshot(NOW, kind).expect("its own kind").number, Some(1), "{kind:?}");
        assert_eq!(acquire(&mut item, kind, 1), Acquired::Granted, "what was asked before is forgotten");
    }
}
