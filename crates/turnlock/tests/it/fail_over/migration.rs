//! A slot moves from one master to another, key by key, while its locks are in use.

use turnlock::{Client, Lock};
use turnlock_testkit::{ClusterSet, eventually, within};

use super::{ROUNDS, Teams};
use crate::rig::{NO_POLL, PROMPT, ms, until_waiting};

type Waiting = tokio::task::JoinHandle<turnlock::Guard>;

async fn wait_for(lock: &Lock) -> Waiting {
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.lock().await.expect("a turn") });
    until_waiting(lock, 1).await;
    waiting
}

pub(super) async fn turns_go_on_while_a_slot_moves() {
    let set = ClusterSet::start().await;
    let (safe, quick, name) = ("{turns}:safe", "{turns}:quick", "{turns}:watched");
    let teams = Teams::start(&set.url(), 1, safe, quick).await;
    let slot = set.slot_of(name).await;
    let client = async || Client::builder().poll(NO_POLL).connect(&set.url()).await.expect("a cluster");
    let (one, other) = (client().await.lock(name), client().await.lock(name));
    let channel = format!("redisson_lock__channel:{name}");
    let (from, to) = (set.owner_of(slot).await, (set.owner_of(slot).await + 1) % 3);
    for round in 0..ROUNDS {
        let target = if round % 2 == 0 { to } else { from };
        let mut held = one.lock().await.expect("free");
        let waiting = wait_for(&other).await;
        let mut migration = set.begin_migration(slot, target).await;
        migration.move_keys().await;
        teams.take_turns_within(ms(10_000)).await;
        // The key is at the new master, and who waits listens at the old one.
        held.unlock().await.expect("held");
        held = within(PROMPT, "told while the slot moves", waiting).await.expect("no panic");
        let waiting = wait_for(&one).await;
        migration.move_keys().await;
        migration.finish().await;
        let plain = set.nodes()[target].client().await;
        let is_heard = async || {
            let mut cmd = redis::cmd("PUBSUB");
            cmd.arg("SHARDNUMSUB").arg(&channel);
            let (_, count): (String, usize) = cmd.query_async(&mut plain.clone()).await.expect("an answer");
            count > 0
        };
        eventually("they listen at the new master", ms(5_000), is_heard).await;
        held.unlock().await.expect("held");
        let held = within(PROMPT, "told at the new master", waiting).await.expect("no panic");
        held.unlock().await.expect("held");
        teams.take_turns_within(ms(10_000)).await;
    }
    teams.check(safe, quick).await;
}

pub(super) async fn a_half_moved_lock_is_left_alone() {
    let set = ClusterSet::start().await;
    let client = Client::builder().retry_for(ms(300)).connect(&set.url()).await.expect("a cluster");
    let name = "{half}:way";
    let both = client.read_write_lock(name);
    let (first, second) = (both.read().lock().await.expect("free"), both.read().lock().await.expect("free"));
    let slot = set.slot_of(name).await;
    let old = set.owner_of(slot).await;
    let mut migration = set.begin_migration(slot, (old + 1) % 3).await;
    // Only the hash goes; the keys of the read holds stay behind.
    let mut plain = set.nodes()[old].client().await;
    let mut cmd = redis::cmd("MIGRATE");
    cmd.arg("127.0.0.1").arg(set.nodes()[(old + 1) % 3].port()).arg(name).arg(0).arg(1_000);
    let _: () = cmd.query_async(&mut plain).await.expect("moved");
    let error = both.write().try_lock().await.expect_err("half a lock is no free lock");
    assert!(error.to_string().contains("TRYAGAIN"), "{error}");
    // By the old master or by the new one, as their version has it.
    let refusals = async || {
        let mut refusals = 0;
        for node in set.nodes() {
            let errors: String = node.ask(&["INFO", "errorstats"]).await.expect("counts");
            let count = errors.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
            refusals += count.map_or(0, |count| count.parse::<u64>().expect("a number"));
        }
        refusals
    };
    let before = refusals().await;
    drop(first);
    eventually("the release was tried", ms(5_000), async || refusals().await > before).await;
    let mut count = redis::cmd("CLUSTER");
    count.arg("COUNTKEYSINSLOT").arg(slot);
    let keys: usize = count.query_async(&mut plain).await.expect("a number");
    assert_eq!(keys, 2, "the release took away what it could see");
    migration.move_keys().await;
    migration.finish().await;
    eventually("the release goes through", ms(10_000), async || {
        both.read().inspect().await.is_ok_and(|seen| seen.holders.len() == 1)
    })
    .await;
    assert!(second.is_valid());
    second.unlock().await.expect("held");
}
