//! Taking away what one owner holds, and nothing else.

use turnlock::{Client, Error, Guard, Kind, Lock, LostReason, OwnerId};
use turnlock_testkit::within;

use super::Held;
use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    only_the_owner_that_is_named_loses_it,
    an_end_by_force_wakes_those_who_wait,
    waiters_that_hand_over_are_one_owner_until_the_window_ends,
    a_fair_waiter_keeps_its_place,
    one_reader_is_thrown_out,
    one_permit_is_taken_away,
    what_has_no_owners_is_refused_with_advice,
];

fn nobody() -> OwnerId {
    OwnerId::from_wire("07070707-0707-4707-8707-070707070707:1")
}

async fn only_the_owner_that_is_named_loses_it(rig: Rig) {
    let (holder, other) = (rig.client().await, rig.client().await);
    for (name, (kind, guard)) in Held::new(&rig, &holder).await.locks {
        assert!(!other.force_unlock(kind, &name, Some(&nobody())).await.expect("an answer"), "{kind:?}");
        assert!(guard.is_valid() && other.look_up(&name).await.expect("an answer").is_some());
        assert!(
            other.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("an answer"),
            "{kind:?}"
        );
        let seen = other.look_up(&name).await.expect("an answer");
        assert!(seen.is_none_or(|seen| !seen.is_locked()), "{kind:?}");
        assert!(!other.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("an answer"));
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })), "{kind:?}");
    }
    let name = rig.name();
    let guard = holder.lock(&name).lock().await.expect("free");
    let inner = guard.reenter().await.expect("held");
    assert!(holder.force_unlock(Kind::Lock, &name, Some(guard.owner_id())).await.expect("an answer"));
    within(PROMPT, "a holder of this client hears of it", inner.lost()).await;
    assert!(!other.force_unlock(Kind::Lock, &name, None).await.expect("an answer"), "both counts are gone");
}

async fn an_end_by_force_wakes_those_who_wait(rig: Rig) {
    let (holder, other) = (rig.client().await, rig.client().await);
    for kind in [Kind::Lock, Kind::Fair] {
        let name = rig.name();
        let of = |client: &crate::rig::KindClient| match kind {
            Kind::Fair => client.fair_lock(&name),
            _ => client.reentrant(&name),
        };
        let guard = of(&holder).lock().await.expect("free");
        let lock = of(&other);
        let waiting = lock.clone();
        let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&lock, 1).await;
        tokio::time::sleep(ms(100)).await;
        assert!(holder.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("an answer"));
        within(PROMPT, "it is told", task).await.expect("no panic").unlock().await.expect("held");
    }
}

/// Gives a lock back to one who waits for it in the same client.
async fn pass_on(lock: &Lock, guard: Guard) -> Guard {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, 1).await;
    guard.unlock().await.expect("held");
    task.await.expect("no panic")
}

async fn waiters_that_hand_over_are_one_owner_until_the_window_ends(rig: Rig) {
    let other = rig.client().await;
    let window = ms(3_000);
    let holder = rig.client_with(Client::builder().hand_over_window(window).poll(NO_POLL)).await;
    let lock = holder.lock(&rig.name());
    let force = async |owner: &OwnerId| {
        let lock = other.lock(lock.name());
        let seen = lock.inspect().await.expect("an answer").holders;
        (lock.force_unlock_of(owner).await.expect("an answer"), seen[0].owner.clone())
    };
    let first = lock.lock().await.expect("free");
    let seen = first.owner_id().clone();
    let second = pass_on(&lock, first).await;
    assert_eq!(*second.owner_id(), seen);
    assert_eq!(force(&seen).await, (true, seen.clone()), "whichever of them holds it");
    assert!(matches!(second.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
    // When the window has ended, the owner is one holder.
    let first = lock.lock().await.expect("free");
    let seen = first.owner_id().clone();
    tokio::time::sleep(window + ms(100)).await;
    let second = pass_on(&lock, first).await;
    assert_ne!(*second.owner_id(), seen);
    assert_eq!(force(&seen).await, (false, second.owner_id().clone()), "the next holder is not hit");
    second.unlock().await.expect("held");
}

async fn a_fair_waiter_keeps_its_place(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let lock = client.fair_lock(&name);
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&lock, 1).await;
    let queue = lock.inspect().await.expect("an answer").queue;
    assert!(!client.force_unlock(Kind::Fair, &name, Some(&queue[0])).await.expect("an answer"));
    assert_eq!(lock.inspect().await.expect("an answer").queue, queue, "it stands where it stood");
    guard.unlock().await.expect("held");
    task.await.expect("no panic").unlock().await.expect("held");
}

async fn one_reader_is_thrown_out(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let read = client.read_write_lock(&name).read();
    let (one, two) = (read.lock().await.expect("free"), read.lock().await.expect("readers go together"));
    assert!(!client.force_unlock(Kind::Write, &name, Some(one.owner_id())).await.expect("an answer"));
    assert!(client.force_unlock(Kind::Read, &name, Some(one.owner_id())).await.expect("an answer"));
    let left = read.inspect().await.expect("an answer").holders;
    assert_eq!(left.iter().map(|holder| &holder.owner).collect::<Vec<_>>(), [two.owner_id()]);
    within(PROMPT, "the one who is out hears of it", one.lost()).await;
    two.unlock().await.expect("still held");
}

async fn one_permit_is_taken_away(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let semaphore = client.permit_semaphore(&name);
    semaphore.set_permits(3).await.expect("set");
    let (one, two) = (semaphore.acquire(1).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    let id = OwnerId::from_wire(&one.ids()[0]);
    assert!(!client.force_unlock(Kind::Permits, &name, Some(&nobody())).await.expect("an answer"));
    assert!(client.force_unlock(Kind::Permits, &name, Some(&id)).await.expect("an answer"));
    assert_eq!(semaphore.available().await.expect("an answer"), 2);
    within(PROMPT, "the one who lost it hears of it", one.lost()).await;
    two.release().await.expect("still held");
}

async fn what_has_no_owners_is_refused_with_advice(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    for (kind, owner) in [
        (Kind::Permits, None),
        (Kind::Semaphore, None),
        (Kind::Semaphore, Some(nobody())),
        (Kind::Latch, None),
        (Kind::Latch, Some(nobody())),
    ] {
        let refused = client.force_unlock(kind, &name, owner.as_ref()).await;
        let Err(Error::Unsupported(text)) = refused else { panic!("{kind:?}: {refused:?}") };
        assert!(text.contains(&name) && text.contains(kind.noun()), "{text}");
    }
}
