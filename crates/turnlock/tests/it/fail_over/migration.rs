//! A slot migrates from one master to another, key by key, while its locks are in use.

use turnlock::{Client, Lock};
use turnlock_testkit::{ClusterSet, eventually, within};

use super::{ROUNDS, Workload};
use crate::fixture::{NO_POLL, PROMPT, ms, until_waiting};

type Waiting = tokio::task::JoinHandle<turnlock::Guard>;

async fn spawn_lock(lock: &Lock) -> Waiting {
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.lock().await.expect("a turn") });
    until_waiting(lock, 1).await;
    waiting
}

pub(super) async fn locks_work_while_a_slot_migrates() {
    let set = ClusterSet::start().await;
    let (acknowledged, unacknowledged, name) =
        ("{turns}:acknowledged", "{turns}:unacknowledged", "{turns}:watched");
    let workload = Workload::start(&set.url(), 1, acknowledged, unacknowledged).await;
    let slot = set.slot_of(name).await;
    let client =
        async || Client::builder().poll_interval(NO_POLL).connect(&set.url()).await.expect("a cluster");
    let (one, other) = (client().await.lock(name), client().await.lock(name));
    let channel = format!("redisson_lock__channel:{name}");
    let (from, to) = (set.owner_of(slot).await, (set.owner_of(slot).await + 1) % 3);
    for round in 0..ROUNDS {
        let target = if round % 2 == 0 { to } else { from };
        let mut held = one.lock().await.expect("free");
        let waiting = spawn_lock(&other).await;
        let mut migration = set.begin_migration(slot, target).await;
        migration.move_keys().await;
        workload.until_both_held(ms(10_000)).await;
        // The key is on the new master, and the waiter is subscribed at the old one.
        held.unlock().await.expect("held");
        held = within(PROMPT, "woken while the slot migrates", waiting).await.expect("no panic");
        let waiting = spawn_lock(&one).await;
        migration.move_keys().await;
        migration.finish().await;
        let plain = set.nodes()[target].client().await;
        let is_subscribed = async || {
            let mut cmd = redis::cmd("PUBSUB");
            cmd.arg("SHARDNUMSUB").arg(&channel);
            let (_, count): (String, usize) = cmd.query_async(&mut plain.clone()).await.expect("a reply");
            count > 0
        };
        eventually("it is subscribed at the new master", ms(5_000), is_subscribed).await;
        held.unlock().await.expect("held");
        let held = within(PROMPT, "woken by the new master", waiting).await.expect("no panic");
        held.unlock().await.expect("held");
        workload.until_both_held(ms(10_000)).await;
    }
    workload.check(acknowledged, unacknowledged).await;
}

pub(super) async fn a_half_migrated_lock_is_not_changed() {
    let set = ClusterSet::start().await;
    let client = Client::builder().retry_for(ms(300)).connect(&set.url()).await.expect("a cluster");
    let name = "{half}:way";
    let both = client.read_write_lock(name);
    let (first, second) =
        (both.reader().lock().await.expect("free"), both.reader().lock().await.expect("free"));
    let slot = set.slot_of(name).await;
    let old = set.owner_of(slot).await;
    let mut migration = set.begin_migration(slot, (old + 1) % 3).await;
    // Only the hash is moved; the keys of the read holds remain on the old master.
    let mut plain = set.nodes()[old].client().await;
    let mut cmd = redis::cmd("MIGRATE");
    cmd.arg("127.0.0.1").arg(set.nodes()[(old + 1) % 3].port()).arg(name).arg(0).arg(1_000);
    let _: () = cmd.query_async(&mut plain).await.expect("moved");
    let error = both.writer().try_lock().await.expect_err("a half-migrated lock is not free");
    assert!(turnlock_testkit::error_chain(&error).contains("TRYAGAIN"), "{error}");
    // Refused by the old master or by the new one, depending on their version.
    let refusals = async || {
        let mut refusals = 0;
        for node in set.nodes() {
            let errors: String = node.query(&["INFO", "errorstats"]).await.expect("counts");
            let count = errors.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
            refusals += count.map_or(0, |count| count.parse::<u64>().expect("a number"));
        }
        refusals
    };
    let before = refusals().await;
    drop(first);
    eventually("the release is tried", ms(5_000), async || refusals().await > before).await;
    let mut count = redis::cmd("CLUSTER");
    count.arg("COUNTKEYSINSLOT").arg(slot);
    let keys: usize = count.query_async(&mut plain).await.expect("a number");
    assert_eq!(keys, 2, "the release deletes nothing");
    migration.move_keys().await;
    migration.finish().await;
    eventually("the release succeeds", ms(10_000), async || {
        both.reader().inspect().await.is_ok_and(|seen| seen.holders.len() == 1)
    })
    .await;
    assert!(second.is_valid());
    second.unlock().await.expect("held");
}
