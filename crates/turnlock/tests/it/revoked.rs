//! The right to one key is taken away from a client that holds, or waits for, many: only that one is lost.

use std::time::Instant;

use turnlock::{Builder, Client, LostReason};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, in_time, within};

use crate::held::Thing;
use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![a_waiter_that_is_denied_costs_no_other_its_place];

/// For kinds that are renewed in ways of their own.
pub(crate) const KIND_CASES: &[Case] = cases![a_hold_that_is_denied_costs_no_other];

const WATCHDOG: u64 = 3_000;

/// How many others there are.
const OTHERS: usize = 49;

/// Makes a user who may do everything.
pub(crate) async fn make_user(server: &RedisServer) {
    let words = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"];
    let _: () = server.ask(&words).await.expect("made");
}

/// Leaves the user the keys that have "good" in them, and its own introduction.
async fn revoke(server: &RedisServer) {
    let words = ["ACL", "SETUSER", "app", "resetkeys", "~*good*", "~turnlock_client:*"];
    let _: () = server.ask(&words).await.expect("changed");
}

fn builder() -> Builder {
    Client::builder().watchdog(ms(WATCHDOG)).poll(NO_POLL)
}

pub(crate) fn url(server: &RedisServer) -> String {
    format!("redis://app:secret@127.0.0.1:{}", server.port())
}

async fn a_hold_that_is_denied_costs_no_other(rig: Rig) {
    make_user(rig.server()).await;
    let client = rig.client_at(builder(), &url(rig.server())).await;
    only_one_is_lost(&client, 0, &[rig.server()]).await;
}

/// The same where replicas must acknowledge renewals.
pub(crate) async fn an_acknowledged_hold_that_is_denied_costs_no_other(rig: Rig) {
    let _replicas = crate::replicas::replicas(&rig, 1).await;
    make_user(rig.server()).await;
    let client = rig.client_at(builder(), &url(rig.server())).await;
    only_one_is_lost(&client, 1, &[rig.server()]).await;
}

/// The same in a cluster, where the lines of one slot go together.
pub(crate) async fn a_hold_that_is_denied_in_a_cluster_costs_no_other() {
    let set = ClusterSet::start().await;
    for node in set.nodes() {
        make_user(node).await;
    }
    let url = set.url().replace("redis+cluster://", "redis+cluster://app:secret@");
    let client = KindClient::new(builder().connect(&url).await.expect("a cluster"), Kind::Lock);
    let nodes: Vec<_> = set.nodes().iter().collect();
    only_one_is_lost(&client, 0, &nodes).await;
}

/// Takes many locks of one slot, has the right to one of them taken away, and sees the others through three leases.
async fn only_one_is_lost(client: &KindClient, replicas: u32, servers: &[&RedisServer]) {
    let take = async |name: &str| {
        let thing = Thing::new(client, name).await;
        thing.take(replicas, PROMPT).await.expect("an answer").expect("free")
    };
    let bad = take("{slot}bad").await;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(take(&format!("{{slot}}good{number}")).await);
    }
    for server in servers {
        revoke(server).await;
    }
    // The last renewal that was let through may have been on its way.
    let end = bad.valid_until().max(Instant::now() + ms(WATCHDOG));
    let reason = within(ms(WATCHDOG) + PROMPT, "the holder hears of it", bad.lost()).await;
    assert!(matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
    in_time("by the end of its lease", end, PROMPT);
    let later = Instant::now() + ms(3 * WATCHDOG);
    let renewed = async || others.iter().all(|held| held.valid_until() > later);
    eventually("the others are renewed", ms(6 * WATCHDOG), renewed).await;
    for held in others {
        held.release().await.expect("held all the time");
    }
}

async fn a_waiter_that_is_denied_costs_no_other_its_place(rig: Rig) {
    make_user(rig.server()).await;
    // With a lease so long that nobody asks by itself because of it: then the one that is denied would be told, and leave.
    let holder = rig.client().await;
    let pulse = rig.client_with(builder()).await.reentrant("pulse").lock().await.expect("free");
    let waiter = rig.client_at(builder(), &url(rig.server())).await;
    let mut tasks = Vec::new();
    let mut guards = Vec::new();
    for name in ["good", "bad"] {
        guards.push(holder.fair_lock(name).lock().await.expect("free"));
        let waits = waiter.fair_lock(name);
        let waiting = waits.clone();
        tasks.push(tokio::spawn(async move { waiting.lock().await?.unlock().await }));
        until_waiting(&waits, 1).await;
    }
    revoke(rig.server()).await;
    // For longer than a waiter may be silent.
    let later = Instant::now() + ms(3 * WATCHDOG);
    eventually("time passes", ms(6 * WATCHDOG), async || pulse.valid_until() > later).await;
    assert!(!tasks[1].is_finished(), "both are spoken for together");
    guards.remove(0).unlock().await.expect("held");
    within(PROMPT, "its turn", tasks.remove(0)).await.expect("no panic").expect("held");
    tasks.remove(0).abort();
}
