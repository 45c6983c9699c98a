//! Leases that both sides renew, beside each other.

use redis::AsyncCommands;
use tokio::time::Instant;
use turnlock::{Client, Guard, Lock};
use turnlock_testkit::{Redisson, eventually};

use super::house::HASTY;
use super::java::soon;
use super::{EXCLUSIVE, JavaCase, LIMIT, LONG, Visit};
use crate::cases;
use crate::rig::{Kind, ms};

pub(crate) const CASES: &[JavaCase] = cases![
    locks_of_every_kind_outlive_several_leases,
    readers_of_both_are_renewed_together,
    javas_renewal_does_not_end_our_longer_lease,
    our_second_read_hold_is_kept_beside_javas_reader,
];

/// Looks again and again, over several leases: what is not to happen cannot be awaited.
struct SeveralLeases(Instant);

impl SeveralLeases {
    fn begin() -> Self {
        Self(Instant::now() + 3 * HASTY)
    }

    /// Waits until the next look; false when there is none.
    async fn go_on(&self) -> bool {
        tokio::time::sleep(HASTY / 5).await;
        Instant::now() < self.0
    }
}

async fn locks_of_every_kind_outlive_several_leases(visit: Visit) {
    let hasty = visit.hasty_redisson().await;
    let (java, rival) = (visit.java_in(hasty, "one"), visit.java_in(hasty, "two"));
    let client = visit.hasty_client().await;
    let other = visit.client().await;
    let mut held: Vec<(Kind, String, Guard)> = Vec::new();
    for kind in EXCLUSIVE {
        let (javas, ours) = (visit.name(), visit.name());
        java.at(kind.name()).does(&javas, "lock").await;
        held.push((kind, javas, of(&client, kind, &ours).lock().await.expect("free")));
    }
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        for (kind, javas, guard) in &held {
            let kind_name = kind.name();
            assert!(of(&other, *kind, javas).try_lock().await.expect("an answer").is_none(), "{kind_name}");
            rival.at(kind_name).says(guard.name(), "tryLock", "false").await;
            assert!(guard.is_valid(), "{kind_name}");
        }
    }
    for (kind, javas, guard) in held {
        java.at(kind.name()).does(&javas, "unlock").await;
        assert!(!of(&other, kind, &javas).is_locked().await.expect("an answer"));
        guard.unlock().await.expect("held");
    }
}

fn of(client: &Client, kind: Kind, name: &str) -> Lock {
    crate::rig::KindClient::new(client.clone(), kind).lock(name)
}

async fn readers_of_both_are_renewed_together(visit: Visit) {
    let hasty = visit.hasty_redisson().await;
    let (reader, writer) = (visit.java_in(hasty, "one").at("read"), visit.java("two").at("write"));
    let (client, name) = (visit.hasty_client().await, visit.name());
    let other = visit.client().await.read_write_lock(&name).write();
    let lock = client.read_write_lock(&name);
    reader.does(&name, "lock").await;
    let guard = lock.read().lock().await.expect("readers go together");
    let second = lock.read().lock().await.expect("readers go together");
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(other.try_lock().await.expect("an answer").is_none());
        assert!(guard.is_valid() && second.is_valid());
    }
    // One of ours goes, then Java's: the last one is renewed alone.
    second.unlock().await.expect("held");
    reader.says(&name, "isHeldByMe", "true").await;
    reader.does(&name, "unlock").await;
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(other.try_lock().await.expect("an answer").is_none());
        assert!(guard.is_valid());
    }
    guard.unlock().await.expect("held");
    // Java's is renewed alone.
    reader.does(&name, "lock").await;
    let short = lock.read().lock().await.expect("readers go together");
    short.unlock().await.expect("held");
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
    }
    reader.does(&name, "unlock").await;
    writer.says(&name, "tryLock", "true").await;
    writer.does(&name, "unlock").await;
}

async fn javas_renewal_does_not_end_our_longer_lease(visit: Visit) {
    // Of its own, since it will die.
    let mut hasty = Redisson::start_with(visit.version(), &visit.url(), HASTY, 0).await;
    let (reader, writer) = (visit.java_in(&hasty, "one").at("read"), visit.java("two").at("write"));
    let (client, name, plain) = (visit.hasty_client().await, visit.name(), visit.plain().await);
    // Longer than all that follows takes.
    let guard = client.read_write_lock(&name).read().lease(2 * LONG).lock().await.expect("free");
    reader.does(&name, "lock").await;
    // Java gives the lock what is left of its own lease, and 3.50.0 our hold, too. Each time, we say ours again.
    let is_shortened = async || ms(plain.clone().pttl(&name).await.expect("an answer")) <= HASTY;
    for _ in 0..3 {
        eventually("Java shortens it", LIMIT, is_shortened).await;
        eventually("we do not leave it at that", LIMIT, async || !is_shortened().await).await;
        writer.says(&name, "tryLock", "false").await;
    }
    eventually("Java shortens it", LIMIT, is_shortened).await;
    reader.does(&name, "unlock").await;
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(guard.is_valid());
    }
    assert!(!is_shortened().await);
    // One that shortens it and dies takes nothing with it.
    reader.does(&name, "lock").await;
    eventually("Java shortens it", LIMIT, is_shortened).await;
    hasty.kill().await;
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(guard.is_valid());
    }
    let turn = writer.begins(&name, "lock 60000");
    visit.until_listening(&name, 1).await;
    guard.unlock().await.expect("held");
    soon(turn).await;
    writer.does(&name, "unlock").await;
}

async fn our_second_read_hold_is_kept_beside_javas_reader(visit: Visit) {
    // Of its own: that of 3.50.0 does not recover from an owner with two holds, of whatever client.
    let hasty = Redisson::start_with(visit.version(), &visit.url(), HASTY, 0).await;
    let (reader, writer) = (visit.java_in(&hasty, "one").at("read"), visit.java("two").at("write"));
    let (client, name) = (visit.hasty_client().await, visit.name());
    let outer = client.read_write_lock(&name).read().lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    reader.does(&name, "lock").await;
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(outer.is_valid() && inner.is_valid());
    }
    let left = reader.call(&name, "unlock").await;
    assert!(left.is_ok() || visit.version() == "3.50.0", "{left:?}");
    outer.unlock().await.expect("held");
    let leases = SeveralLeases::begin();
    while leases.go_on().await {
        writer.says(&name, "tryLock", "false").await;
        assert!(inner.is_valid());
    }
    inner.unlock().await.expect("held");
    writer.says(&name, "tryLock", "true").await;
    writer.does(&name, "unlock").await;
}
