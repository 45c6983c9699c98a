//! The states of the models survive serialization, and owners can be removed from each of them.

use std::time::Duration;

use proptest::prelude::*;
use turnlock_core::model::{
    self, AcquireOptions, Acquired, Claim, CounterOp, Item, Notification, Now, Released, Reply,
};
use turnlock_core::{Kind, Lease, LockName, Moment, OwnerId};

#[derive(Clone, Debug)]
enum Step {
    Acquire { owner: usize, target: u32, permits: u32, waits: bool },
    Release { owner: usize, target: u32, permits: u32, unsure: bool },
    Renew { owner: usize },
    Heartbeat { owner: usize },
    Perform { op: CounterOp, request: usize },
    RemoveOwner { owner: usize },
}

fn steps(at_most: usize) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let owner = 0..4_usize;
    let op = prop_oneof![
        prop_oneof![4 => 0..5_u64, 1 => Just(u64::MAX)].prop_map(CounterOp::SetOnce),
        prop_oneof![4 => -3..3_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)].prop_map(CounterOp::Add),
        prop_oneof![4 => 0..5_u64, 1 => Just(u64::MAX)].prop_map(CounterOp::SetTotal),
        Just(CounterOp::CountDown),
        Just(CounterOp::Drain),
    ];
    let step = prop_oneof![
        4 => (owner.clone(), 1..3_u32, 1..3_u32, any::<bool>())
            .prop_map(|(owner, target, permits, waits)| Step::Acquire { owner, target, permits, waits }),
        3 => (owner.clone(), 0..2_u32, 1..3_u32, any::<bool>())
            .prop_map(|(owner, target, permits, unsure)| Step::Release { owner, target, permits, unsure }),
        1 => owner.clone().prop_map(|owner| Step::Renew { owner }),
        1 => owner.clone().prop_map(|owner| Step::Heartbeat { owner }),
        2 => (op, 0..6_usize).prop_map(|(op, request)| Step::Perform { op, request }),
        1 => owner.prop_map(|owner| Step::RemoveOwner { owner }),
    ];
    prop::collection::vec((0..3_000_u64, step), 1..=at_most)
}

fn owner(number: usize) -> OwnerId {
    OwnerId::from_wire(&format!("{number:032x}"))
}

fn apply(item: &mut Item, kind: Kind, now: Now, step: &Step) {
    let name = name(kind);
    let options = |waits| AcquireOptions {
        lease: Lease::new(Duration::from_secs(5)).expect("a lease"),
        waits,
        highest_token: 7,
    };
    let step = match *step {
        Step::Acquire { owner: number, target, permits, waits } => {
            let claim = Claim { permits, ..Claim::new(&name, &owner(number), target) };
            model::Step::Acquire(claim, options(waits))
        }
        Step::Release { owner: number, target, permits, unsure } => {
            model::Step::Release(Claim { permits, unsure, ..Claim::new(&name, &owner(number), target) })
        }
        Step::Renew { owner: number } => {
            model::Step::Renew(Claim::new(&name, &owner(number), 1), Some(Lease::WATCHDOG))
        }
        Step::Heartbeat { owner: number } => model::Step::Heartbeat(name, owner(number)),
        Step::Perform { op, request } => model::Step::Perform(name, op, owner(100 + request)),
        Step::RemoveOwner { owner: number } => {
            let gone = owner(number);
            item.remove_owners(now, |owner| *owner == gone);
            assert!(!mentions(item, &gone));
            return;
        }
    };
    // A kind without such a step returns an error, and does nothing.
    let mut before = item.clone();
    if item.apply(now, &step).is_err() {
        assert_eq!(item.snapshot(now), before.snapshot(now));
        assert_eq!(item.is_free(now), before.is_free(now));
    }
}

fn mentions(item: &mut Item, owner: &OwnerId) -> bool {
    let owners = item.owners();
    owners.holders.iter().chain(&owners.waiters).any(|found| found == owner)
}

/// One change of a stored text.
#[derive(Clone, Debug)]
enum Damage {
    FlipBit(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    /// Replaces a number of the text.
    SetNumber(prop::sample::Index, &'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    const NUMBERS: &[&str] = &[
        "0",
        "-1",
        "4294967295",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "99999999999999999999",
        "1e999",
        "0.5",
    ];
    prop_oneof![
        2 => (any::<prop::sample::Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::FlipBit(at, bit)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        6 => (any::<prop::sample::Index>(), prop::sample::select(NUMBERS))
            .prop_map(|(at, number)| Damage::SetNumber(at, number)),
    ]
}

/// Returns where the numbers of a text are.
fn numbers(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut numbers: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()) {
        match numbers.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => numbers.push(at..at + 1),
        }
    }
    // Not those in the id of an owner.
    numbers.retain(|range| range.start == 0 || !b"\"abcdef".contains(&text[range.start - 1]));
    numbers
}

fn damaged(mut text: Vec<u8>, damage: &[Damage]) -> Vec<u8> {
    for damage in damage {
        let numbers = numbers(&text);
        match damage {
            Damage::FlipBit(at, bit) if !text.is_empty() => {
                let at = at.index(text.len());
                text[at] ^= 1 << bit;
            }
            Damage::Cut(at) if !text.is_empty() => text.truncate(at.index(text.len())),
            Damage::SetNumber(at, number) if !numbers.is_empty() => {
                text.splice(at.get(&numbers).clone(), number.bytes());
            }
            _ => {}
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_state_is_an_error_or_a_state_on_which_all_steps_run(
        kind in prop::sample::select(&Kind::ALL[..]),
        before in steps(8),
        damage in prop::collection::vec(damage(), 1..4),
        after in steps(6),
        micros in prop_oneof![0..100_000_000_u64, Just(u64::MAX)],
    ) {
        let now = |micros| Now { moment: Moment::from_micros(micros), wall: micros };
        let mut item = Item::new(kind);
        for (pause, step) in &before {
            apply(&mut item, kind, now(pause * 1_000), step);
        }
        let text = damaged(serde_json::to_vec(&item).expect("serializable"), &damage);
        let Ok(mut item) = serde_json::from_slice::<Item>(&text) else { return Ok(()) };
        for (_, step) in &after {
            apply(&mut item, kind, now(micros), step);
        }
        item.reset_after_reboot(now(micros));
        prop_assert!(item.owners().holders.is_empty());
        let text = serde_json::to_string(&item).expect("serializable");
        prop_assert_eq!(serde_json::from_str::<Item>(&text).expect("deserializable"), item);
    }
}

proptest! {
    #[test]
    fn a_stored_state_is_read_back_unchanged(steps in steps(39)) {
        for kind in Kind::ALL {
            let mut item = Item::new(kind);
            let mut micros = 0;
            for (pause, step) in &steps {
                micros += pause * 1_000;
                let now = Now { moment: Moment::from_micros(micros), wall: micros };
                apply(&mut item, kind, now, step);
                let text = serde_json::to_string(&item).expect("serializable");
                let read: Item = serde_json::from_str(&text).expect("deserializable");
                prop_assert_eq!(&read, &item, "{}", text);
                // Every visible holder has an owner, so that it can be removed.
                let snapshot = item.snapshot(now);
                for holder in snapshot.holders {
                    prop_assert!(mentions(&mut item, &holder.owner));
                }
            }
        }
    }
}

const NOW: Now = Now { moment: Moment::from_micros(0), wall: 5 };
const OPTIONS: AcquireOptions = AcquireOptions { lease: Lease::WATCHDOG, waits: true, highest_token: 0 };

fn acquire(item: &mut Item, kind: Kind, number: usize) -> Acquired {
    let claim = Claim::new(&name(kind), &owner(number), 1);
    match item.apply(NOW, &model::Step::Acquire(claim, OPTIONS)) {
        Ok((Reply::Acquired(reply), _)) => reply,
        other => panic!("the reply to an acquire, and not {other:?}"),
    }
}

fn name(kind: Kind) -> LockName {
    LockName::of(kind, "", "n").expect("a valid name")
}

fn set_once(kind: Kind, permits: u64) -> model::Step {
    model::Step::Perform(name(kind), CounterOp::SetOnce(permits), owner(9))
}

#[test]
fn removing_a_holder_notifies_the_next_waiter() {
    for kind in
        [Kind::Lock, Kind::Fenced, Kind::Fair, Kind::Write, Kind::Read, Kind::Semaphore, Kind::Permits]
    {
        let mut item = Item::new(kind);
        let _ = item.apply(NOW, &set_once(kind, 1));
        assert!(
            matches!(acquire(&mut item, kind, 1), Acquired::Granted | Acquired::GrantedWith { .. }),
            "{kind:?}"
        );
        let refused = if kind == Kind::Read { Kind::Write } else { kind };
        assert!(matches!(acquire(&mut item, refused, 2), Acquired::Busy { .. }), "{kind:?}");
        let expected =
            if kind == Kind::Fair { Notification::Waiter(owner(2)) } else { Notification::Subscribers };
        assert_eq!(item.remove_owners(NOW, |gone| *gone == owner(3)), Notification::None, "{kind:?}");
        assert_eq!(item.remove_owners(NOW, |gone| *gone == owner(1)), expected, "{kind:?}");
        assert!(
            matches!(acquire(&mut item, refused, 2), Acquired::Granted | Acquired::GrantedWith { .. }),
            "{kind:?}"
        );
    }
}

#[test]
fn a_removed_waiter_blocks_no_owner() {
    let mut fair = Item::new(Kind::Fair);
    for number in 1..=3 {
        acquire(&mut fair, Kind::Fair, number);
    }
    assert_eq!(fair.remove_owners(NOW, |gone| *gone == owner(2)), Notification::None, "the lock is held");
    let release = model::Step::Release(Claim::new(&name(Kind::Fair), &owner(1), 0));
    let released = (Reply::Released(Released::Freed), Notification::Waiter(owner(3)));
    assert_eq!(fair.apply(NOW, &release), Ok(released));
    let mut both = Item::new(Kind::Read);
    acquire(&mut both, Kind::Read, 1);
    acquire(&mut both, Kind::Write, 2);
    assert!(matches!(acquire(&mut both, Kind::Read, 3), Acquired::Busy { .. }), "a writer waits");
    assert_eq!(both.remove_owners(NOW, |gone| *gone == owner(2)), Notification::Subscribers);
    assert_eq!(acquire(&mut both, Kind::Read, 3), Acquired::Granted);
}

#[test]
fn tokens_and_permits_survive_a_reboot() {
    let mut fenced = Item::new(Kind::Fenced);
    assert_eq!(acquire(&mut fenced, Kind::Fenced, 1), Acquired::GrantedWith { token: 5 });
    fenced.reset_after_reboot(NOW);
    assert_eq!(acquire(&mut fenced, Kind::Fenced, 2), Acquired::GrantedWith { token: 6 });
    for kind in [Kind::Semaphore, Kind::Permits] {
        let mut item = Item::new(kind);
        item.apply(NOW, &set_once(kind, 1)).expect("its own kind");
        acquire(&mut item, kind, 1);
        item.reset_after_reboot(NOW);
        assert_eq!(item.snapshot(NOW).number, Some(1), "{kind:?}");
        assert_eq!(
            acquire(&mut item, kind, 1),
            Acquired::Granted,
            "requests before the reboot are forgotten"
        );
    }
}

#[test]
fn the_stored_names_are_those_of_the_file_format() {
    let stored = |item: &Item| serde_json::to_string(item).expect("serializable");
    let mut fair = Item::new(Kind::Fair);
    for number in 1..=2 {
        acquire(&mut fair, Kind::Fair, number);
    }
    assert!(stored(&fair).contains("\"believed_until\""), "{}", stored(&fair));
    let mut semaphore = Item::new(Kind::Semaphore);
    semaphore.apply(NOW, &set_once(Kind::Semaphore, 2)).expect("its own kind");
    for number in 1..=2 {
        acquire(&mut semaphore, Kind::Semaphore, number);
    }
    let release = model::Step::Release(Claim::new(&name(Kind::Semaphore), &owner(1), 0));
    semaphore.apply(NOW, &release).expect("its own kind");
    semaphore.remove_owners(NOW, |gone| *gone == owner(2));
    let text = stored(&semaphore);
    assert!(text.contains("\"GivenBack\"") && text.contains("\"Void\""), "{text}");
}
