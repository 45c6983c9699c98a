//! Leases that Java and turnlock renew at the same time.

use redis::AsyncCommands;
use tokio::time::Instant;
use turnlock::{Client, Guard, Lock};
use turnlock_testkit::{Redisson, eventually};

use super::environment::SHORT_WATCHDOG;
use super::java::woken;
use super::{Context, EXCLUSIVE, JavaCase, LONG_LEASE, SETUP_LIMIT};
use crate::cases;
use crate::fixture::{Kind, ms};

pub(crate) const CASES: &[JavaCase] = cases![
    locks_of_every_kind_outlive_several_leases,
    readers_of_both_are_renewed_together,
    javas_renewal_does_not_end_our_longer_lease,
    our_reentrant_read_hold_survives_beside_javas_reader,
];

/// Repeats a check over several leases: what must not happen cannot be awaited.
struct SeveralLeases(Instant);

impl SeveralLeases {
    fn begin() -> Self {
        Self(Instant::now() + 3 * SHORT_WATCHDOG)
    }

    /// Waits until the next check is due. Returns `false` when the time is over.
    async fn next_check(&self) -> bool {
        tokio::time::sleep(SHORT_WATCHDOG / 5).await;
        Instant::now() < self.0
    }
}

async fn locks_of_every_kind_outlive_several_leases(context: Context) {
    let short_lease = context.short_lease_redisson().await;
    let (java, rival) = (context.java_in(short_lease, "one"), context.java_in(short_lease, "two"));
    let client = context.short_lease_client().await;
    let other = context.client().await;
    let mut held: Vec<(Kind, String, Guard)> = Vec::new();
    for kind in EXCLUSIVE {
        let (javas, ours) = (context.name(), context.name());
        java.at(kind.name()).run(&javas, "lock").await;
        held.push((kind, javas, lock_of(&client, kind, &ours).lock().await.expect("free")));
    }
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        for (kind, javas, guard) in &held {
            let kind_name = kind.name();
            assert!(
                lock_of(&other, *kind, javas).try_lock().await.expect("a reply").is_busy(),
                "{kind_name}"
            );
            rival.at(kind_name).expect(guard.name(), "tryLock", "false").await;
            assert!(guard.is_valid(), "{kind_name}");
        }
    }
    for (kind, javas, guard) in held {
        java.at(kind.name()).run(&javas, "unlock").await;
        assert!(!lock_of(&other, kind, &javas).is_locked().await.expect("a reply"));
        guard.unlock().await.expect("held");
    }
}

fn lock_of(client: &Client, kind: Kind, name: &str) -> Lock {
    crate::fixture::KindClient::new(client.clone(), kind).lock(name)
}

async fn readers_of_both_are_renewed_together(context: Context) {
    let short_lease = context.short_lease_redisson().await;
    let (reader, writer) = (context.java_in(short_lease, "one").at("read"), context.java("two").at("write"));
    let (client, name) = (context.short_lease_client().await, context.name());
    let other = context.client().await.read_write_lock(&name).writer();
    let lock = client.read_write_lock(&name);
    reader.run(&name, "lock").await;
    let guard = lock.reader().lock().await.expect("readers share");
    let second = lock.reader().lock().await.expect("readers share");
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(other.try_lock().await.expect("a reply").is_busy());
        assert!(guard.is_valid() && second.is_valid());
    }
    // One of ours is released, then Java's: the last one is renewed alone.
    second.unlock().await.expect("held");
    reader.expect(&name, "isHeldByMe", "true").await;
    reader.run(&name, "unlock").await;
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(other.try_lock().await.expect("a reply").is_busy());
        assert!(guard.is_valid());
    }
    guard.unlock().await.expect("held");
    // Java's reader is renewed alone.
    reader.run(&name, "lock").await;
    let short = lock.reader().lock().await.expect("readers share");
    short.unlock().await.expect("held");
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
    }
    reader.run(&name, "unlock").await;
    writer.expect(&name, "tryLock", "true").await;
    writer.run(&name, "unlock").await;
}

async fn javas_renewal_does_not_end_our_longer_lease(context: Context) {
    // A process of its own, since it is killed below.
    let mut short_lease = Redisson::start_with(context.version(), &context.url(), SHORT_WATCHDOG, 0).await;
    let (reader, writer) = (context.java_in(&short_lease, "one").at("read"), context.java("two").at("write"));
    let (client, name, plain) = (context.short_lease_client().await, context.name(), context.plain().await);
    // Longer than the rest of the case takes.
    let guard = client.read_write_lock(&name).reader().with_lease(2 * LONG_LEASE).lock().await.expect("free");
    reader.run(&name, "lock").await;
    // Java sets the lock's expiry to its own lease, and 3.50.0 that of our hold too. Each time, our renewal restores ours.
    let is_shortened = async || ms(plain.clone().pttl(&name).await.expect("a reply")) <= SHORT_WATCHDOG;
    for _ in 0..3 {
        eventually("Java shortens it", SETUP_LIMIT, is_shortened).await;
        eventually("we restore it", SETUP_LIMIT, async || !is_shortened().await).await;
        writer.expect(&name, "tryLock", "false").await;
    }
    eventually("Java shortens it", SETUP_LIMIT, is_shortened).await;
    reader.run(&name, "unlock").await;
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(guard.is_valid());
    }
    assert!(!is_shortened().await);
    // A Java process that shortens it and dies does not end our hold.
    reader.run(&name, "lock").await;
    eventually("Java shortens it", SETUP_LIMIT, is_shortened).await;
    short_lease.kill().await;
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(guard.is_valid());
    }
    let turn = writer.start(&name, "lock 60000");
    context.until_subscribed(&name, 1).await;
    guard.unlock().await.expect("held");
    woken(turn).await;
    writer.run(&name, "unlock").await;
}

async fn our_reentrant_read_hold_survives_beside_javas_reader(context: Context) {
    // A process of its own: the watchdog of 3.50.0 does not recover from an owner with two holds, of whatever client.
    let short_lease = Redisson::start_with(context.version(), &context.url(), SHORT_WATCHDOG, 0).await;
    let (reader, writer) = (context.java_in(&short_lease, "one").at("read"), context.java("two").at("write"));
    let (client, name) = (context.short_lease_client().await, context.name());
    let outer = client.read_write_lock(&name).reader().lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    reader.run(&name, "lock").await;
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(outer.is_valid() && inner.is_valid());
    }
    let left = reader.call(&name, "unlock").await;
    assert!(left.is_ok() || context.version() == "3.50.0", "{left:?}");
    outer.unlock().await.expect("held");
    let leases = SeveralLeases::begin();
    while leases.next_check().await {
        writer.expect(&name, "tryLock", "false").await;
        assert!(inner.is_valid());
    }
    inner.unlock().await.expect("held");
    writer.expect(&name, "tryLock", "true").await;
    writer.run(&name, "unlock").await;
}
