//! The ACL right to one key is revoked for a client that holds, or waits for, many: only that one is lost.

use std::time::Instant;

use turnlock::{Builder, Client, LostReason};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, in_time, within};

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, PROMPT, ms, until_waiting};
use crate::resource::Resource;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![a_denied_waiter_costs_no_other_its_queue_position];

/// For the kinds with renewal scripts of their own.
pub(crate) const KIND_CASES: &[Case] = cases![a_denied_renewal_loses_no_other_hold];

const WATCHDOG: u64 = 3_000;

/// The number of other holds.
const OTHERS: usize = 49;

/// Creates a user with all rights.
pub(crate) async fn create_user(server: &RedisServer) {
    let command = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"];
    let _: () = server.query(&command).await.expect("created");
}

/// Restricts the user to keys that contain "good", and to client records.
async fn revoke(server: &RedisServer) {
    let command = ["ACL", "SETUSER", "app", "resetkeys", "~*good*", "~turnlock_client:*"];
    let _: () = server.query(&command).await.expect("changed");
}

fn builder() -> Builder {
    Client::builder().watchdog_timeout(ms(WATCHDOG)).poll_interval(NO_POLL)
}

pub(crate) fn url(server: &RedisServer) -> String {
    format!("redis://app:secret@127.0.0.1:{}", server.port())
}

async fn a_denied_renewal_loses_no_other_hold(fixture: Fixture) {
    create_user(fixture.server()).await;
    let client = fixture.client_at(builder(), &url(fixture.server())).await;
    assert_only_one_is_lost(&client, 0, &[fixture.server()]).await;
}

/// The same where replicas must acknowledge renewals.
pub(crate) async fn a_denied_acknowledged_renewal_loses_no_other_hold(fixture: Fixture) {
    let _replicas = crate::replicas::start_replicas(&fixture, 1).await;
    create_user(fixture.server()).await;
    let client = fixture.client_at(builder(), &url(fixture.server())).await;
    assert_only_one_is_lost(&client, 1, &[fixture.server()]).await;
}

/// The same in a cluster, where the renewals of one slot are batched.
pub(crate) async fn a_denied_renewal_in_a_cluster_loses_no_other_hold() {
    let set = ClusterSet::start().await;
    for node in set.nodes() {
        create_user(node).await;
    }
    let url = set.url().replace("redis+cluster://", "redis+cluster://app:secret@");
    let client = KindClient::new(builder().connect(&url).await.expect("a cluster"), Kind::Lock);
    let nodes: Vec<_> = set.nodes().iter().collect();
    assert_only_one_is_lost(&client, 0, &nodes).await;
}

/// Takes many locks of one slot, revokes the right to one of them, and asserts that the others outlast three leases.
async fn assert_only_one_is_lost(client: &KindClient, replicas: u32, servers: &[&RedisServer]) {
    let take = async |name: &str| {
        let resource = Resource::new(client, name).await;
        resource.acquire(replicas, PROMPT).await.expect("a reply").expect("free")
    };
    let bad = take("{slot}bad").await;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(take(&format!("{{slot}}good{number}")).await);
    }
    for server in servers {
        revoke(server).await;
    }
    // The last permitted renewal may have been in flight.
    let end = bad.valid_until().max(Instant::now() + ms(WATCHDOG));
    let reason = within(ms(WATCHDOG) + PROMPT, "the hold is lost", bad.lost()).await;
    assert!(matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
    in_time("by the end of its lease", end, PROMPT);
    let later = Instant::now() + ms(3 * WATCHDOG);
    let renewed = async || others.iter().all(|held| held.valid_until() > later);
    eventually("the others are renewed", ms(6 * WATCHDOG), renewed).await;
    for held in others {
        held.release().await.expect("held throughout");
    }
}

async fn a_denied_waiter_costs_no_other_its_queue_position(fixture: Fixture) {
    create_user(fixture.server()).await;
    // A long lease, so that no waiter polls because of its end: the denied one would get an error then, and leave the queue.
    let holder = fixture.client().await;
    let renewed = fixture.client_with(builder()).await.reentrant("renewed").lock().await.expect("free");
    let waiter = fixture.client_at(builder(), &url(fixture.server())).await;
    let mut tasks = Vec::new();
    let mut guards = Vec::new();
    for name in ["good", "bad"] {
        guards.push(holder.fair_lock(name).lock().await.expect("free"));
        let waits = waiter.fair_lock(name);
        let waiting = waits.clone();
        tasks.push(tokio::spawn(async move { waiting.lock().await?.unlock().await }));
        until_waiting(&waits, 1).await;
    }
    revoke(fixture.server()).await;
    // Longer than the heartbeat time-out of a waiter.
    let later = Instant::now() + ms(3 * WATCHDOG);
    eventually("time passes", ms(6 * WATCHDOG), async || renewed.valid_until() > later).await;
    assert!(!tasks[1].is_finished(), "the heartbeats of both are one batch");
    guards.remove(0).unlock().await.expect("held");
    within(PROMPT, "it is granted the lock", tasks.remove(0)).await.expect("no panic").expect("held");
    tasks.remove(0).abort();
}
