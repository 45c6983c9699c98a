//! `unlock_after`: the release of a hold is delayed.

use std::time::{Duration, Instant};

use crate::conformance::{Case, Fixture, Kind, KindClient, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, within};
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, LostReason};

pub(crate) const CASES: &[Case] = cases![
    unlock_after_releases_at_the_given_time_and_not_before,
    unlock_after_may_exceed_the_lease_and_stops_renewal,
    after_unlock_after_the_owner_no_longer_holds_the_lock,
    no_renewal_follows_an_unlock_after,
    unlock_after_fails_on_a_lost_lock needs DataLoss,
    unlock_after_needs_the_last_guard,
    unlock_after_with_an_invalid_duration_returns_the_guard,
    a_cancelled_unlock_after_is_completed,
];

/// Returns the same lock, of a kind that the client's kind excludes.
fn rival(client: &KindClient, name: &str) -> Lock {
    match client.kind() {
        Kind::Read => client.read_write_lock(name).writer(),
        _ => client.lock(name),
    }
}

/// Time for a waiter to start sleeping.
///
/// After it subscribes, a waiter requests the lock once more. That request cannot be observed, and would see
/// a release without a message.
pub(crate) const ASLEEP: Duration = Duration::from_millis(250);

/// Spawns a task that waits for the lock, and returns once it waits. Its output includes the time of the
/// grant.
async fn waiter(lock: Lock) -> JoinHandle<(Guard, Instant)> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { (waiting.lock().await.expect("acquired"), Instant::now()) });
    until_waiting(&lock, 1).await;
    tokio::time::sleep(ASLEEP).await;
    task
}

/// Asserts that the waiter acquires the lock `time` after `begun` and not before.
async fn acquires_after(task: JoinHandle<(Guard, Instant)>, begun: Instant, time: Duration) {
    let (guard, acquired) = within(time + PROMPT, "the waiter acquires", task).await.expect("no panic");
    let after = acquired - begun;
    assert!(after >= time, "acquired after {after:?}, before the delay of {time:?}");
    guard.unlock().await.expect("held");
}

async fn unlock_after_releases_at_the_given_time_and_not_before(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    // The waiter knows a lease of half a minute.
    let guard = one.lock(&name).lock().await.expect("free");
    let owner_id = guard.owner_id().clone();
    let waiting = waiter(rival(&two, &name)).await;
    let begun = Instant::now();
    guard.unlock_after(ms(2_000)).await.expect("held");
    let seen = two.lock(&name).inspect().await.expect("a reply");
    assert_eq!(seen.holders.iter().map(|holder| &holder.owner).collect::<Vec<_>>(), [&owner_id]);
    assert_eq!(seen.holders[0].count, 1);
    assert!(seen.ttl <= Some(ms(2_000)), "{:?}", seen.ttl);
    let left = one.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(!waiting.is_finished(), "the delay does not depend on the client");
    acquires_after(waiting, begun, ms(2_000)).await;
}

async fn unlock_after_may_exceed_the_lease_and_stops_renewal(fixture: Fixture) {
    let one = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let two = fixture.client().await;
    let case = async |fixed| {
        let name = fixture.name();
        let lock = if fixed { one.lock(&name).with_lease(ms(3_500)) } else { one.lock(&name) };
        let guard = lock.lock().await.expect("free");
        let waiting = waiter(rival(&two, &name)).await;
        let begun = Instant::now();
        guard.unlock_after(ms(4_000)).await.expect("held");
        acquires_after(waiting, begun, ms(4_000)).await;
    };
    tokio::join!(case(false), case(true));
}

async fn after_unlock_after_the_owner_no_longer_holds_the_lock(fixture: Fixture) {
    let name = fixture.name();
    let client = fixture.client().await;
    let owner = client.owner();
    let guard = client.lock(&name).with_owner(&owner).lock().await.expect("free");
    let waiting = waiter(rival(&client, &name)).await;
    let begun = Instant::now();
    guard.unlock_after(ms(2_000)).await.expect("held");
    assert!(!client.lock(&name).is_held_by(&owner).await.expect("a reply"), "no guard is left");
    let again = rival(&client, &name).with_owner(&owner).try_lock().await.expect("a reply");
    assert!(again.is_busy(), "the owner cannot reenter");
    acquires_after(waiting, begun, ms(2_000)).await;

    let guard = client.lock(&name).lock().await.expect("free");
    guard.unlock_after(ms(60_000)).await.expect("held");
    assert!(client.lock(&name).force_unlock().await.expect("a reply"), "a forced unlock ends the delay");
    let guard = within(PROMPT, "it is free", rival(&client, &name).lock()).await.expect("acquired");
    guard.unlock().await.expect("held");
}

async fn no_renewal_follows_an_unlock_after(fixture: Fixture) {
    // Renewed every 30 ms or so.
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(120)).poll_interval(NO_POLL)).await;
    let all = fixture.rounds(60).await;
    let (mut round, mut checked) = (0, 0);
    // More rounds only while none was in time.
    while round < all || (checked == 0 && round < 10 * all) {
        round += 1;
        let lock = client.lock(&fixture.name());
        let guard = lock.lock().await.expect("free");
        tokio::time::sleep(Duration::from_micros(20_000 + 700 * (round % 60) as u64)).await;
        match guard.unlock_after(ms(15)).await.map_err(Error::from) {
            Ok(()) => {}
            // The machine is too busy.
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
    assert!(checked > 0, "none of {round} rounds called unlock_after in time");
}

async fn unlock_after_fails_on_a_lost_lock(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    fixture.lose_data().await;
    let next = within(PROMPT, "it is free", rival(&two, &name).lock()).await.expect("acquired");
    let error = Error::from(guard.unlock_after(ms(60_000)).await.expect_err("gone"));
    assert!(matches!(error, Error::Lost { reason: LostReason::Taken, .. }), "{error}");
    assert!(next.is_valid(), "the next hold is not affected");
    next.unlock().await.expect("held");

    let guard = one.lock(&name).with_lease(ms(60)).lock().await.expect("free");
    within(PROMPT, "the lease ends", guard.lost()).await;
    let error = Error::from(guard.unlock_after(ms(60_000)).await.expect_err("expired"));
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error}");
    let guard = within(PROMPT, "it is free", rival(&two, &name).lock()).await.expect("acquired");
    guard.unlock().await.expect("held");
}

async fn unlock_after_needs_the_last_guard(fixture: Fixture) {
    let name = fixture.name();
    let client = fixture.client().await;
    let outer = client.lock(&name).lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    let refused = inner.unlock_after(ms(60_000)).await.expect_err("there is another guard");
    assert!(matches!(refused.error(), Error::Unsupported(_)), "{refused}");
    let count = async || client.lock(&name).inspect().await.map(|seen| seen.holders[0].count);
    assert!(matches!(count().await, Ok(2)), "a refused call releases nothing");
    refused.into_guard().expect("the guard is returned").unlock().await.expect("held");
    assert!(matches!(count().await, Ok(1)));
    assert!(outer.is_valid());
    let begun = Instant::now();
    outer.unlock_after(ms(2_000)).await.expect("the last guard can");
    acquires_after(waiter(rival(&client, &name)).await, begun, ms(2_000)).await;
}

async fn unlock_after_with_an_invalid_duration_returns_the_guard(fixture: Fixture) {
    let name = fixture.name();
    let client = fixture.client().await;
    for time in [Duration::ZERO, ms(9), Duration::MAX] {
        let guard = client.lock(&name).lock().await.expect("free");
        let refused = guard.unlock_after(time).await.expect_err("a bad duration");
        assert!(matches!(refused.error(), Error::BadLease(_)), "{refused}");
        let guard = refused.into_guard().expect("the guard is returned");
        assert!(guard.is_valid() && rival(&client, &name).try_lock().await.expect("a reply").is_busy());
        guard.unlock().await.expect("held");
    }
}

async fn a_cancelled_unlock_after_is_completed(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    drop(one.lock(&name).lock().await.expect("free").unlock_after(ms(60_000)));
    let guard =
        within(PROMPT, "an unpolled unlock_after is a drop", one.lock(&name).lock()).await.expect("free");
    let waiting = waiter(rival(&two, &name)).await;
    let begun = Instant::now();
    // Polled once.
    let _ = tokio::time::timeout(Duration::ZERO, guard.unlock_after(ms(500))).await;
    acquires_after(waiting, begun, ms(500)).await;
}
