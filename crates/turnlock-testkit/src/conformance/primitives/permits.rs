//! Permit semaphores: permits with ids and leases.

use std::time::Instant;

use turnlock::{Client, Error, LostReason};

use crate::conformance::lock::unlock_after::ASLEEP;
use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms};
use crate::{eventually, within};

pub(super) const CASES: &[Case] = cases![
    permits_are_renewed_over_several_leases,
    permits_that_are_not_renewed_expire,
    release_after_returns_permits_at_the_given_time,
    lost_permits_are_reported needs DataLoss,
    inspect_shows_which_permits_are_out,
];

async fn permits_are_renewed_over_several_leases(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(2_000)).poll_interval(NO_POLL)).await;
    let semaphore = client.permit_semaphore(&fixture.name());
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    let (one, two) = (semaphore.acquire(2).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    let begun = std::time::Instant::now();
    eventually("three leases later", ms(20_000), async || {
        let granted = semaphore.try_acquire(1).await.expect("a reply").acquired().is_some();
        let valid = (one.is_valid(), two.is_valid());
        assert!(!granted && valid == (true, true), "granted: {granted}, valid: {valid:?}");
        one.valid_until() > begun + ms(6_000) && two.valid_until() > begun + ms(6_000)
    })
    .await;
    one.release().await.expect("held");
    assert_eq!(semaphore.available().await.unwrap(), 2, "the other permit is still out");
    two.release().await.expect("held");
    assert_eq!(semaphore.available().await.unwrap(), 3);
}

async fn permits_that_are_not_renewed_expire(fixture: Fixture) {
    let name = fixture.name();
    let semaphore = fixture.client().await.permit_semaphore(&name);
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    let short = semaphore.with_lease(ms(1_000)).acquire(1).await.expect("free");
    let long = semaphore.with_lease(ms(20_000)).acquire(1).await.expect("free");
    let other = fixture.client().await.permit_semaphore(&name);
    let next = within(ms(1_000) + PROMPT, "the short lease ends", other.acquire(1)).await.expect("acquired");
    assert!(!short.is_valid() && long.is_valid(), "more are out than were set");
    assert_eq!(within(PROMPT, "its holder is notified", short.lost()).await, LostReason::Expired);
    assert!(matches!(short.release().await, Err(Error::Lost { .. })));
    assert_eq!(semaphore.available().await.unwrap(), 0, "a late release returns no permit");
    next.release().await.expect("held");
    long.release().await.expect("held");
    assert_eq!(semaphore.available().await.unwrap(), 2);
}

async fn release_after_returns_permits_at_the_given_time(fixture: Fixture) {
    let name = fixture.name();
    let one = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let (semaphore, other) = (one.permit_semaphore(&name), fixture.client().await.permit_semaphore(&name));
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    // Longer than a renewed lease, and shorter than a fixed lease.
    for (lease, time) in [(None, ms(4_000)), (Some(ms(20_000)), ms(2_000))] {
        let permits = lease
            .map_or(semaphore.clone(), |lease| semaphore.with_lease(lease))
            .acquire(2)
            .await
            .expect("free");
        let waiting = tokio::spawn({
            let other = other.clone();
            async move { (other.acquire(2).await.expect("acquired"), Instant::now()) }
        });
        let waits = async || other.inspect().await.is_ok_and(|seen| seen.waiting_here == 1);
        eventually("the waiter waits", ms(20_000), waits).await;
        tokio::time::sleep(ASLEEP).await;
        let (ids, begun) = (permits.ids(), Instant::now());
        permits.release_after(time).await.expect("held");
        let seen = other.inspect().await.expect("a reply");
        assert!(seen.holders.iter().all(|holder| ids.contains(&holder.owner.to_string())), "{seen:?}");
        // On Redis, a lease of permits is a number of whole milliseconds, and not shorter than what was set.
        assert!(seen.holders.len() == 2 && seen.holders[0].ttl <= Some(time + ms(1)), "{seen:?}");
        let (permits, acquired) =
            within(time + PROMPT, "the waiter acquires", waiting).await.expect("no panic");
        assert!(acquired - begun >= time, "after {:?}", acquired - begun);
        permits.release().await.expect("held");
    }
    let lost = semaphore.with_lease(ms(20_000)).acquire(1).await.expect("free");
    assert!(semaphore.delete().await.expect("a reply"));
    assert!(matches!(
        lost.release_after(ms(1_000)).await.map_err(Error::from),
        Err(Error::Lost { reason: LostReason::Taken, .. })
    ));
}

async fn lost_permits_are_reported(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let semaphore = client.permit_semaphore(&fixture.name());
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    let renewed = semaphore.acquire(2).await.expect("free");
    fixture.lose_data().await;
    assert_eq!(within(ms(3_000), "at the next renewal", renewed.lost()).await, LostReason::Taken);
    assert!(!renewed.is_valid());
    assert!(matches!(renewed.release().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
    assert_eq!(
        semaphore.inspect().await.expect("a reply").available,
        None,
        "a release does not create the semaphore"
    );
    // Deleted by a client, and with a fixed lease: reported by the release.
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    let fixed = semaphore.with_lease(ms(20_000)).acquire(1).await.expect("free");
    assert!(semaphore.delete().await.expect("a reply"));
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    assert!(matches!(fixed.release().await, Err(Error::Lost { .. })));
    assert_eq!(semaphore.available().await.unwrap(), 2, "it does not add to a new semaphore");
    // A fixed lease is also checked without a release.
    let fixed = semaphore.with_lease(ms(600_000)).acquire(2).await.expect("free");
    fixture.lose_data().await;
    assert_eq!(within(ms(5_000), "at the next check", fixed.lost()).await, LostReason::Taken);
}

async fn inspect_shows_which_permits_are_out(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) =
        (fixture.client().await.permit_semaphore(&name), fixture.client().await.permit_semaphore(&name));
    assert!(one.try_set_permits(5).await.expect("a reply"));
    let (ours, theirs) =
        (one.acquire(2).await.expect("free"), two.with_lease(ms(5_000)).acquire(1).await.expect("free"));
    let seen = one.inspect().await.expect("a reply");
    assert_eq!((seen.available, seen.holders.len()), (Some(2), 3));
    let (mut ids, their_ids) = (ours.ids(), theirs.ids());
    assert!(ids.iter().chain(&their_ids).all(|id| id.len() == 32), "{ids:?} {their_ids:?}");
    let mut shown: Vec<_> =
        seen.holders.iter().filter(|holder| holder.is_mine).map(|holder| holder.owner.to_string()).collect();
    shown.sort();
    ids.sort();
    assert_eq!(shown, ids);
    let other = seen.holders.iter().find(|holder| !holder.is_mine).expect("a permit of the other client");
    assert_eq!(vec![other.owner.to_string()], their_ids);
    assert!(other.ttl.expect("its own lease") <= ms(5_000));
    assert!(seen.holders.iter().filter(|holder| holder.is_mine).all(|holder| holder.ttl > Some(ms(25_000))));
    assert!(one.with_lease(ms(1_000)).acquire(1).await.expect("free").ids() != ours.ids());
}
