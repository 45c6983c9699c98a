//! Permits with ids and leases.

use std::time::Instant;

use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{eventually, within};

use crate::child::child;
use crate::conformance::keeping::ASLEEP;
use crate::rig::{NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    permits_are_renewed_over_several_leases,
    permits_that_are_not_renewed_come_back,
    permits_are_kept_out_for_a_time,
    lost_permits_are_told,
    a_look_shows_which_permits_are_out,
];

pub(super) const REDIS_CASES: &[Case] = cases![permits_of_a_killed_process_come_back_with_the_lease];

async fn permits_are_renewed_over_several_leases(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(2_000)).poll(NO_POLL)).await;
    let slots = client.permit_semaphore(&rig.name());
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    let (one, two) = (slots.acquire(2).await.expect("free"), slots.acquire(1).await.expect("free"));
    let begun = std::time::Instant::now();
    eventually("three leases later", ms(20_000), async || {
        let given_out = slots.try_acquire(1).await.expect("an answer").is_some();
        let valid = (one.is_valid(), two.is_valid());
        assert!(!given_out && valid == (true, true), "given out: {given_out}, valid: {valid:?}");
        one.valid_until() > begun + ms(6_000) && two.valid_until() > begun + ms(6_000)
    })
    .await;
    one.release().await.expect("held");
    assert_eq!(slots.available().await.unwrap(), 2, "the other's are still out");
    two.release().await.expect("held");
    assert_eq!(slots.available().await.unwrap(), 3);
}

async fn permits_that_are_not_renewed_come_back(rig: Rig) {
    let name = rig.name();
    let slots = rig.client().await.permit_semaphore(&name);
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    let short = slots.lease(ms(1_000)).acquire(1).await.expect("free");
    let long = slots.lease(ms(20_000)).acquire(1).await.expect("free");
    let other = rig.client().await.permit_semaphore(&name);
    let next = within(ms(1_000) + PROMPT, "the short lease ends", other.acquire(1)).await.expect("a turn");
    assert!(!short.is_valid() && long.is_valid(), "more are out than were set");
    assert_eq!(within(PROMPT, "its holder knows", short.lost()).await, LostReason::Expired);
    assert!(matches!(short.release().await, Err(Error::Lost { .. })));
    assert_eq!(slots.available().await.unwrap(), 0, "a late release gives nothing back");
    next.release().await.expect("held");
    long.release().await.expect("held");
    assert_eq!(slots.available().await.unwrap(), 2);
}

async fn permits_are_kept_out_for_a_time(rig: Rig) {
    let name = rig.name();
    let one = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let (slots, other) = (one.permit_semaphore(&name), rig.client().await.permit_semaphore(&name));
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    // Beyond the lease that was renewed, and less than a lease that was not.
    for (lease, time) in [(None, ms(4_000)), (Some(ms(20_000)), ms(2_000))] {
        let permits = lease.map_or(slots.clone(), |lease| slots.lease(lease)).acquire(2).await.expect("free");
        let waiting = tokio::spawn({
            let other = other.clone();
            async move { (other.acquire(2).await.expect("a turn"), Instant::now()) }
        });
        let waits = async || other.inspect().await.is_ok_and(|seen| seen.waiting_here == 1);
        eventually("it waits", ms(20_000), waits).await;
        tokio::time::sleep(ASLEEP).await;
        let (ids, begun) = (permits.ids(), Instant::now());
        permits.keep_for(time).await.expect("held");
        let seen = other.inspect().await.expect("an answer");
        assert!(seen.holders.iter().all(|holder| ids.contains(&holder.owner.to_string())), "{seen:?}");
        assert!(seen.holders.len() == 2 && seen.holders[0].ttl <= Some(time), "{seen:?}");
        let (permits, came) = within(time + PROMPT, "its turn", waiting).await.expect("no panic");
        assert!(came - begun >= time, "after {:?}", came - begun);
        permits.release().await.expect("held");
    }
    let lost = slots.lease(ms(20_000)).acquire(1).await.expect("free");
    assert!(slots.delete().await.expect("an answer"));
    assert!(matches!(lost.keep_for(ms(1_000)).await, Err(Error::Lost { reason: LostReason::Taken, .. })));
}

async fn lost_permits_are_told(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let slots = client.permit_semaphore(&rig.name());
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    let renewed = slots.acquire(2).await.expect("free");
    rig.lose_data().await;
    assert_eq!(within(ms(3_000), "at the next renewal", renewed.lost()).await, LostReason::Taken);
    assert!(!renewed.is_valid());
    assert!(matches!(renewed.release().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
    assert_eq!(slots.inspect().await.expect("an answer").available, None, "a release makes no number");
    // Removed on purpose, and with a fixed lease: known when it is given back.
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    let fixed = slots.lease(ms(20_000)).acquire(1).await.expect("free");
    assert!(slots.delete().await.expect("an answer"));
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    assert!(matches!(fixed.release().await, Err(Error::Lost { .. })));
    assert_eq!(slots.available().await.unwrap(), 2, "nor does it add to a new one");
    // And without that: a fixed lease is looked at, too.
    let fixed = slots.lease(ms(600_000)).acquire(2).await.expect("free");
    rig.lose_data().await;
    assert_eq!(within(ms(5_000), "at the next look", fixed.lost()).await, LostReason::Taken);
}

async fn a_look_shows_which_permits_are_out(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.permit_semaphore(&name), rig.client().await.permit_semaphore(&name));
    assert!(one.try_set_permits(5).await.expect("an answer"));
    let (mine, theirs) =
        (one.acquire(2).await.expect("free"), two.lease(ms(5_000)).acquire(1).await.expect("free"));
    let seen = one.inspect().await.expect("an answer");
    assert_eq!((seen.available, seen.holders.len()), (Some(2), 3));
    let (mut ids, their_ids) = (mine.ids(), theirs.ids());
    assert!(ids.iter().chain(&their_ids).all(|id| id.len() == 32), "{ids:?} {their_ids:?}");
    let mut shown: Vec<_> =
        seen.holders.iter().filter(|holder| holder.is_mine).map(|holder| holder.owner.to_string()).collect();
    shown.sort();
    ids.sort();
    assert_eq!(shown, ids);
    let other = seen.holders.iter().find(|holder| !holder.is_mine).expect("the other's");
    assert_eq!(vec![other.owner.to_string()], their_ids);
    assert!(other.ttl.expect("a lease of its own") <= ms(5_000));
    assert!(seen.holders.iter().filter(|holder| holder.is_mine).all(|holder| holder.ttl > Some(ms(25_000))));
    assert!(one.lease(ms(1_000)).acquire(1).await.expect("free").ids() != mine.ids());
}

async fn permits_of_a_killed_process_come_back_with_the_lease(rig: Rig) {
    let slots = rig.client().await.permit_semaphore("child");
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    let mut child = child(&rig, "permits");
    eventually("it has them", ms(30_000), async || matches!(slots.available().await, Ok(0))).await;
    assert!(slots.try_acquire(1).await.expect("an answer").is_none());
    child.kill().await.expect("killed");
    let permits = within(ms(3_000) + PROMPT, "the lease ends", slots.acquire(2)).await.expect("a turn");
    permits.release().await.expect("held");
}
