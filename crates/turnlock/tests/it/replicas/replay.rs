//! Releases that the promoted replica has not heard of are sent again: the last 1,024 of a client.

use futures_util::future::join_all;
use turnlock::Client;
use turnlock_testkit::eventually;

use super::promotion::Site;
use super::{Rig, Thing, in_touch, ms};
use crate::rig::{NO_POLL, keys_of_locks};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![the_last_1024_releases_are_sent_again_after_a_promotion];

/// For everything that has a lease.
pub(crate) const LEASE_CASES: &[Case] = cases![a_release_that_is_sent_again_spares_newer_holds];

async fn the_last_1024_releases_are_sent_again_after_a_promotion(mut rig: Rig) {
    let site = Site::start(&rig).await;
    let client = rig.client_at(Client::builder().poll(NO_POLL), &site.address.url()).await;
    let older: Vec<_> = (0..5).map(|number| format!("older-{number}")).collect();
    let last: Vec<_> = (0..1_024).map(|number| format!("last-{number}")).collect();
    let mut guards = join_all(older.iter().chain(&last).map(|name| {
        let lock = client.lock(name);
        async move { lock.lock().await.expect("free") }
    }))
    .await;
    in_touch(&rig, 1).await;
    // From here on the heir hears nothing.
    site.replication.black_hole();
    let last = guards.split_off(older.len());
    for guard in guards {
        guard.unlock().await.expect("held");
    }
    for outcome in join_all(last.into_iter().map(turnlock::Guard::unlock)).await {
        outcome.expect("held");
    }
    site.promote(&mut rig).await;
    let plain = site.heir.client().await;
    let left = async || {
        let mut keys = keys_of_locks(&mut plain.clone()).await;
        keys.retain(|key| key.starts_with("older-") || key.starts_with("last-"));
        keys.sort();
        keys
    };
    assert_eq!(left().await.len(), 5 + 1_024, "the heir has all of them: else this proves nothing");
    site.move_address();
    eventually("the last ones are free", ms(15_000), async || left().await.len() <= older.len()).await;
    let work = client.shutdown(ms(10_000)).await;
    assert!(work.is_clean(), "{work:?}");
    assert_eq!(left().await, older, "no more than 1,024 are remembered");
    // A usual lease.
    eventually("the others end with their lease", ms(31_000), async || left().await.is_empty()).await;
}

async fn a_release_that_is_sent_again_spares_newer_holds(mut rig: Rig) {
    let site = Site::start(&rig).await;
    let client = rig.client_at(Client::builder().poll(NO_POLL), &site.address.url()).await;
    let other = rig.client_at(Client::builder().poll(NO_POLL), &site.address.url()).await;
    let [again, passed_on, forgotten] = [
        Thing::new(&client, "again").await,
        Thing::new(&client, "passed on").await,
        Thing::new(&client, "forgotten").await,
    ];
    let passed_on_to = Thing::of(&other, "passed on");
    let take = async |thing: &Thing<'_>| thing.take(0, ms(0)).await.expect("an answer").expect("free");
    for thing in [&again, &passed_on] {
        take(thing).await.give_back().await;
    }
    let newer = [take(&again).await, take(&passed_on_to).await];
    let given_back = take(&forgotten).await;
    in_touch(&rig, 1).await;
    site.replication.black_hole();
    given_back.give_back().await;
    site.promote(&mut rig).await;
    let there = site.client_there(&rig).await;
    let is_held = async |name: &str| !Thing::of(&there, name).is_free().await;
    assert!(is_held("forgotten").await, "the heir has not heard of the release: else this proves nothing");
    site.move_address();
    // The latest release, which is sent after the others.
    eventually("it is given back again", ms(15_000), async || !is_held("forgotten").await).await;
    for (held, name) in newer.into_iter().zip(["again", "passed on"]) {
        assert!(held.is_valid() && is_held(name).await, "{name}");
        held.give_back().await;
    }
}
