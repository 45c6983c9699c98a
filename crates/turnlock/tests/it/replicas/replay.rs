//! The last 1,024 releases of a client are replayed after a promotion, since the replica may have missed them.

use futures_util::future::join_all;
use turnlock::Client;
use turnlock_testkit::eventually;

use super::promotion::ReplicatedPair;
use super::{Fixture, Resource, ms, until_replicated};
use crate::fixture::{NO_POLL, lock_keys};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![the_last_1024_releases_are_replayed_after_a_promotion];

/// For all kinds with a lease.
pub(crate) const LEASE_CASES: &[Case] = cases![a_replayed_release_spares_newer_holds];

async fn the_last_1024_releases_are_replayed_after_a_promotion(mut fixture: Fixture) {
    let pair = ReplicatedPair::start(&fixture).await;
    let client = fixture.client_at(Client::builder().poll_interval(NO_POLL), &pair.address.url()).await;
    let older: Vec<_> = (0..5).map(|number| format!("older-{number}")).collect();
    let last: Vec<_> = (0..1_024).map(|number| format!("last-{number}")).collect();
    let mut guards = join_all(older.iter().chain(&last).map(|name| {
        let lock = client.lock(name);
        async move { lock.lock().await.expect("free") }
    }))
    .await;
    until_replicated(&fixture, 1).await;
    // From here on the replica receives nothing.
    pair.replication.black_hole();
    let last = guards.split_off(older.len());
    for guard in guards {
        guard.unlock().await.expect("held");
    }
    for outcome in join_all(last.into_iter().map(turnlock::Guard::unlock)).await {
        outcome.expect("held");
    }
    pair.promote(&mut fixture).await;
    let plain = pair.replica.client().await;
    let left = async || {
        let mut keys = lock_keys(&mut plain.clone()).await;
        keys.retain(|key| key.starts_with("older-") || key.starts_with("last-"));
        keys.sort();
        keys
    };
    assert_eq!(left().await.len(), 5 + 1_024, "the replica has all holds: else this proves nothing");
    pair.move_address();
    eventually("the last releases are replayed", ms(15_000), async || left().await.len() <= older.len())
        .await;
    let report = client.shutdown(ms(10_000)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(left().await, older, "no more than 1,024 are remembered");
    // The default lease.
    eventually("the others expire", ms(31_000), async || left().await.is_empty()).await;
}

async fn a_replayed_release_spares_newer_holds(mut fixture: Fixture) {
    let pair = ReplicatedPair::start(&fixture).await;
    let client = fixture.client_at(Client::builder().poll_interval(NO_POLL), &pair.address.url()).await;
    let other = fixture.client_at(Client::builder().poll_interval(NO_POLL), &pair.address.url()).await;
    let [reacquired, moved, missed] = [
        Resource::new(&client, "reacquired").await,
        Resource::new(&client, "moved").await,
        Resource::new(&client, "missed").await,
    ];
    let moved_to_other = Resource::of(&other, "moved");
    let take =
        async |resource: &Resource<'_>| resource.acquire(0, ms(0)).await.expect("a reply").expect("free");
    for resource in [&reacquired, &moved] {
        take(resource).await.expect_release().await;
    }
    let newer = [take(&reacquired).await, take(&moved_to_other).await];
    let held = take(&missed).await;
    until_replicated(&fixture, 1).await;
    pair.replication.black_hole();
    held.expect_release().await;
    pair.promote(&mut fixture).await;
    let on_replica = pair.replica_client(&fixture).await;
    let is_held = async |name: &str| !Resource::of(&on_replica, name).is_free().await;
    assert!(is_held("missed").await, "the replica has missed the release: else this proves nothing");
    pair.move_address();
    // The latest release, which is replayed after the others.
    eventually("its release is replayed", ms(15_000), async || !is_held("missed").await).await;
    for (held, name) in newer.into_iter().zip(["reacquired", "moved"]) {
        assert!(held.is_valid() && is_held(name).await, "{name}");
        held.expect_release().await;
    }
}
