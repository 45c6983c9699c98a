//! `force_unlock` of one owner's hold.

use turnlock::{Client, Error, Guard, Kind, Lock, LostReason, OwnerId};

use super::HeldLocks;
use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::within;

pub(super) const CASES: &[Case] = cases![
    force_unlock_affects_only_the_named_owner needs Kind(Fenced) Kind(Plain) Kind(Read) Kind(Write) Kind(Permits),
    a_forced_unlock_wakes_waiters needs Kind(Fair),
    local_hand_overs_are_one_owner_until_the_window_ends,
    force_unlock_does_not_remove_a_fair_waiter needs Kind(Fair),
    force_unlock_can_end_one_reader needs Kind(Read) Kind(Write),
    force_unlock_can_end_one_permit needs Kind(Permits),
    force_unlock_of_kinds_without_owners_is_refused,
];

/// An owner that holds nothing.
fn unknown_owner() -> OwnerId {
    OwnerId::from_wire("07070707-0707-4707-8707-070707070707:1")
}

async fn force_unlock_affects_only_the_named_owner(fixture: Fixture) {
    let (holder, other) = (fixture.client().await, fixture.client().await);
    for (name, (kind, guard)) in HeldLocks::new(&fixture, &holder).await.locks {
        assert!(!other.force_unlock(kind, &name, Some(&unknown_owner())).await.expect("a reply"), "{kind:?}");
        assert!(guard.is_valid() && other.inspect(&name).await.expect("a reply").is_some());
        assert!(other.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("a reply"), "{kind:?}");
        let seen = other.inspect(&name).await.expect("a reply");
        assert!(seen.is_none_or(|seen| !seen.is_locked()), "{kind:?}");
        assert!(!other.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("a reply"));
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })), "{kind:?}");
    }
    let name = fixture.name();
    let guard = holder.lock(&name).lock().await.expect("free");
    let inner = guard.reenter().await.expect("held");
    assert!(holder.force_unlock(Kind::Lock, &name, Some(guard.owner_id())).await.expect("a reply"));
    within(PROMPT, "a holder of this client is notified", inner.lost()).await;
    assert!(
        !other.force_unlock(Kind::Lock, &name, None).await.expect("a reply"),
        "the reentry is released too"
    );
}

async fn a_forced_unlock_wakes_waiters(fixture: Fixture) {
    let (holder, other) = (fixture.client().await, fixture.client().await);
    for kind in [Kind::Lock, Kind::Fair] {
        let name = fixture.name();
        let lock_of = |client: &crate::conformance::KindClient| match kind {
            Kind::Fair => client.fair_lock(&name),
            _ => client.reentrant(&name),
        };
        let guard = lock_of(&holder).lock().await.expect("free");
        let lock = lock_of(&other);
        let waiting = lock.clone();
        let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
        until_waiting(&lock, 1).await;
        tokio::time::sleep(ms(100)).await;
        assert!(holder.force_unlock(kind, &name, Some(guard.owner_id())).await.expect("a reply"));
        within(PROMPT, "the waiter is woken", task).await.expect("no panic").unlock().await.expect("held");
    }
}

/// Hands a lock over to a waiter of the same client.
async fn hand_over(lock: &Lock, guard: Guard) -> Guard {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(lock, 1).await;
    guard.unlock().await.expect("held");
    task.await.expect("no panic")
}

async fn local_hand_overs_are_one_owner_until_the_window_ends(fixture: Fixture) {
    let other = fixture.client().await;
    let window = ms(3_000);
    let holder = fixture.client_with(Client::builder().hand_over_window(window).poll_interval(NO_POLL)).await;
    let lock = holder.lock(&fixture.name());
    let force = async |owner: &OwnerId| {
        let lock = other.lock(lock.name());
        let seen = lock.inspect().await.expect("a reply").holders;
        (lock.force_unlock_of(owner).await.expect("a reply"), seen[0].owner.clone())
    };
    let first = lock.lock().await.expect("free");
    let seen = first.owner_id().clone();
    let second = hand_over(&lock, first).await;
    assert_eq!(*second.owner_id(), seen);
    assert_eq!(force(&seen).await, (true, seen.clone()), "the owner is the same for both holders");
    assert!(matches!(second.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
    // After the window, each holder has its own owner id.
    let first = lock.lock().await.expect("free");
    let seen = first.owner_id().clone();
    tokio::time::sleep(window + ms(100)).await;
    let second = hand_over(&lock, first).await;
    assert_ne!(*second.owner_id(), seen);
    assert_eq!(force(&seen).await, (false, second.owner_id().clone()), "the next holder is not affected");
    second.unlock().await.expect("held");
}

async fn force_unlock_does_not_remove_a_fair_waiter(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let lock = client.fair_lock(&name);
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(&lock, 1).await;
    let queue = lock.inspect().await.expect("a reply").queue;
    assert!(!client.force_unlock(Kind::Fair, &name, Some(&queue[0])).await.expect("a reply"));
    assert_eq!(lock.inspect().await.expect("a reply").queue, queue, "the queue is unchanged");
    guard.unlock().await.expect("held");
    task.await.expect("no panic").unlock().await.expect("held");
}

async fn force_unlock_can_end_one_reader(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let read = client.read_write_lock(&name).reader();
    let (one, two) = (read.lock().await.expect("free"), read.lock().await.expect("readers share the lock"));
    assert!(!client.force_unlock(Kind::Write, &name, Some(one.owner_id())).await.expect("a reply"));
    assert!(client.force_unlock(Kind::Read, &name, Some(one.owner_id())).await.expect("a reply"));
    let left = read.inspect().await.expect("a reply").holders;
    assert_eq!(left.iter().map(|holder| &holder.owner).collect::<Vec<_>>(), [two.owner_id()]);
    within(PROMPT, "the removed reader is notified", one.lost()).await;
    two.unlock().await.expect("still held");
}

async fn force_unlock_can_end_one_permit(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let semaphore = client.permit_semaphore(&name);
    semaphore.set_permits(3).await.expect("set");
    let (one, two) = (semaphore.acquire(1).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    let id = OwnerId::from_wire(&one.ids()[0]);
    assert!(!client.force_unlock(Kind::Permits, &name, Some(&unknown_owner())).await.expect("a reply"));
    assert!(client.force_unlock(Kind::Permits, &name, Some(&id)).await.expect("a reply"));
    assert_eq!(semaphore.available().await.expect("a reply"), 2);
    within(PROMPT, "the holder of the permit is notified", one.lost()).await;
    two.release().await.expect("still held");
}

async fn force_unlock_of_kinds_without_owners_is_refused(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    for (kind, owner) in [
        (Kind::Permits, None),
        (Kind::Semaphore, None),
        (Kind::Semaphore, Some(unknown_owner())),
        (Kind::Latch, None),
        (Kind::Latch, Some(unknown_owner())),
    ] {
        let refused = client.force_unlock(kind, &name, owner.as_ref()).await;
        let Err(Error::Unsupported(text)) = refused else { panic!("{kind:?}: {refused:?}") };
        assert!(text.contains(&name) && text.contains(&kind.to_string()), "{text}");
    }
}
