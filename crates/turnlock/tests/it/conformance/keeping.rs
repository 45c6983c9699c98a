//! Locks that stay held for a time when their guard is gone.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, LostReason};
use turnlock_testkit::{eventually, within};

use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_kept_lock_ends_when_its_time_is_over_and_not_before,
    a_lock_is_kept_beyond_its_lease_and_is_not_renewed,
    a_kept_lock_is_anothers_to_its_own_client,
    no_renewal_comes_after_the_end_is_set,
    a_lost_lock_cannot_be_kept,
    one_of_several_guards_cannot_be_kept,
    a_time_that_is_no_lease_gives_the_lock_back,
    a_keeping_that_is_cancelled_goes_on,
];

/// The same lock, of a kind that a lock of the rig's kind keeps out.
fn rival(client: &KindClient, name: &str) -> Lock {
    match client.kind() {
        Kind::Read => client.read_write_lock(name).write(),
        _ => client.lock(name),
    }
}

/// What a waiter takes to go to sleep: who begins to listen looks once more, which nobody sees, and would learn then of an
/// end that nobody told.
pub(crate) const ASLEEP: Duration = Duration::from_millis(250);

/// A task that waits for the lock, once it is known to wait. It says when it got it.
async fn waiter(lock: Lock) -> JoinHandle<(Guard, Instant)> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { (waiting.lock().await.expect("a turn"), Instant::now()) });
    until_waiting(&lock, 1).await;
    tokio::time::sleep(ASLEEP).await;
    task
}

/// Waits for the waiter's turn, which comes `time` after `begun` and not before.
async fn comes_after(task: JoinHandle<(Guard, Instant)>, begun: Instant, time: Duration) {
    let (guard, came) = within(time + PROMPT, "its turn", task).await.expect("no panic");
    let after = came - begun;
    assert!(after >= time, "it came after {after:?}, and it was kept for {time:?}");
    guard.unlock().await.expect("held");
}

async fn a_kept_lock_ends_when_its_time_is_over_and_not_before(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    // Held for half a minute, as far as the one who waits was told.
    let guard = one.lock(&name).lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let waiting = waiter(rival(&two, &name)).await;
    let begun = Instant::now();
    guard.keep_for(ms(2_000)).await.expect("held");
    let seen = two.lock(&name).inspect().await.expect("an answer");
    assert_eq!(seen.holders.iter().map(|holder| &holder.owner).collect::<Vec<_>>(), [&owner]);
    assert_eq!(seen.holders[0].count, 1);
    assert!(seen.ttl <= Some(ms(2_000)), "{:?}", seen.ttl);
    let left = one.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(!waiting.is_finished(), "its client need not stay");
    comes_after(waiting, begun, ms(2_000)).await;
}

async fn a_lock_is_kept_beyond_its_lease_and_is_not_renewed(rig: Rig) {
    let one = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let two = rig.client().await;
    let kept = async |fixed| {
        let name = rig.name();
        let lock = if fixed { one.lock(&name).lease(ms(3_500)) } else { one.lock(&name) };
        let guard = lock.lock().await.expect("free");
        let waiting = waiter(rival(&two, &name)).await;
        let begun = Instant::now();
        guard.keep_for(ms(4_000)).await.expect("held");
        comes_after(waiting, begun, ms(4_000)).await;
    };
    tokio::join!(kept(false), kept(true));
}

async fn a_kept_lock_is_anothers_to_its_own_client(rig: Rig) {
    let name = rig.name();
    let client = rig.client().await;
    let me = client.owner();
    let guard = client.lock(&name).owned_by(&me).lock().await.expect("free");
    let waiting = waiter(rival(&client, &name)).await;
    let begun = Instant::now();
    guard.keep_for(ms(2_000)).await.expect("held");
    assert!(!client.lock(&name).is_held_by(&me).await.expect("an answer"), "nobody has a guard");
    let again = rival(&client, &name).owned_by(&me).try_lock().await.expect("an answer");
    assert!(again.is_none(), "nor is it the owner's to take again");
    comes_after(waiting, begun, ms(2_000)).await;

    let guard = client.lock(&name).lock().await.expect("free");
    guard.keep_for(ms(60_000)).await.expect("held");
    assert!(client.lock(&name).force_unlock().await.expect("an answer"), "there is a way to end it");
    let guard = within(PROMPT, "it is free", rival(&client, &name).lock()).await.expect("a turn");
    guard.unlock().await.expect("held");
}

async fn no_renewal_comes_after_the_end_is_set(rig: Rig) {
    // Renewed every 30 ms or so.
    let client = rig.client_with(Client::builder().watchdog(ms(120)).poll(NO_POLL)).await;
    let all = rig.times(60).await;
    let (mut round, mut checked) = (0, 0);
    // More rounds than that only while none has shown anything.
    while round < all || (checked == 0 && round < 10 * all) {
        round += 1;
        let lock = client.lock(&rig.name());
        let guard = lock.lock().await.expect("free");
        tokio::time::sleep(Duration::from_micros(20_000 + 700 * (round % 60) as u64)).await;
        match guard.keep_for(ms(15)).await {
            Ok(()) => {}
            // A machine that is busy elsewhere.
            Err(Error::Lost { .. } | Error::InDoubt { .. }) => continue,
            Err(error) => panic!("{error}"),
        }
        eventually("it ends", PROMPT, async || {
            let Ok(ttl) = lock.inspect().await.map(|seen| seen.ttl) else { return false };
            assert!(ttl <= Some(ms(15)), "renewed: {ttl:?}");
            ttl.is_none()
        })
        .await;
        checked += 1;
    }
    assert!(checked > 0, "none of {round} rounds has kept its lock in time");
}

async fn a_lost_lock_cannot_be_kept(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    rig.lose_data().await;
    let next = within(PROMPT, "it is free", rival(&two, &name).lock()).await.expect("a turn");
    let error = guard.keep_for(ms(60_000)).await.expect_err("gone");
    assert!(matches!(error, Error::Lost { reason: LostReason::Taken, .. }), "{error}");
    assert!(next.is_valid(), "the next one is not touched");
    next.unlock().await.expect("held");

    let guard = one.lock(&name).lease(ms(60)).lock().await.expect("free");
    within(PROMPT, "the lease ends", guard.lost()).await;
    let error = guard.keep_for(ms(60_000)).await.expect_err("expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error}");
    let guard = within(PROMPT, "it is free", rival(&two, &name).lock()).await.expect("a turn");
    guard.unlock().await.expect("held");
}

async fn one_of_several_guards_cannot_be_kept(rig: Rig) {
    let name = rig.name();
    let client = rig.client().await;
    let outer = client.lock(&name).lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    let error = inner.keep_for(ms(60_000)).await.expect_err("there is another");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    let count = async || client.lock(&name).inspect().await.map(|seen| seen.holders[0].count);
    eventually("it is given back", PROMPT, async || matches!(count().await, Ok(1))).await;
    assert!(outer.is_valid());
    let begun = Instant::now();
    outer.keep_for(ms(2_000)).await.expect("the last one can");
    comes_after(waiter(rival(&client, &name)).await, begun, ms(2_000)).await;
}

async fn a_time_that_is_no_lease_gives_the_lock_back(rig: Rig) {
    let name = rig.name();
    let client = rig.client().await;
    for time in [Duration::ZERO, ms(9), Duration::MAX] {
        let guard = client.lock(&name).lock().await.expect("free");
        let error = guard.keep_for(time).await.expect_err("no lease");
        assert!(matches!(error, Error::BadLease(_)), "{error}");
        let guard = within(PROMPT, "it is free", rival(&client, &name).lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
}

async fn a_keeping_that_is_cancelled_goes_on(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    drop(one.lock(&name).lock().await.expect("free").keep_for(ms(60_000)));
    let guard = within(PROMPT, "what was not begun is a drop", one.lock(&name).lock()).await.expect("free");
    let waiting = waiter(rival(&two, &name)).await;
    let begun = Instant::now();
    // Polled once.
    let _ = tokio::time::timeout(Duration::ZERO, guard.keep_for(ms(500))).await;
    comes_after(waiting, begun, ms(500)).await;
}
