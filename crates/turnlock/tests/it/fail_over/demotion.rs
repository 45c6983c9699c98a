//! An orderly fail-over behind one address: the master becomes a replica without closing its connections, and new connections
//! lead to the new master.

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Builder, Client, LostReason};
use turnlock_testkit::{FaultProxy, ReplicaSet, ServerProgram, eventually, within};

use crate::CaseFuture;
use crate::fixture::{Kind, KindClient, NO_POLL, PROMPT, ms, until_waiting};
use crate::resource::{Held, Resource};

/// A case for the servers of a program.
type ProgramCase = (&'static str, fn(ServerProgram) -> CaseFuture);

pub(super) const CASES: [ProgramCase; 3] = [
    ("renewals_follow_the_address_to_the_new_master", |program| {
        Box::pin(renewals_follow_the_address_to_the_new_master(program))
    }),
    ("waiters_continue_on_the_new_master", |program| Box::pin(waiters_continue_on_the_new_master(program))),
    ("a_fixed_lease_is_checked_on_the_new_master", |program| {
        Box::pin(a_fixed_lease_is_checked_on_the_new_master(program))
    }),
];

const WATCHDOG: u64 = 3_000;

/// A master with two replicas, behind an address that leads to the current master.
struct Address {
    set: ReplicaSet,
    proxy: FaultProxy,
}

impl Address {
    async fn start(program: ServerProgram) -> Self {
        let set = ReplicaSet::start_of(program, 2).await;
        let proxy = FaultProxy::start(set.master().port()).await;
        Self { set, proxy }
    }

    async fn client(&self, builder: Builder) -> Client {
        builder.poll_interval(NO_POLL).connect(&self.proxy.url()).await.expect("a master")
    }

    /// Promotes one replica, once both have all that was written so far. The other one follows it; the old master follows the
    /// server at the port `old_follows`.
    async fn fail_over(&self, old_follows: u16) {
        let old = self.set.master();
        // WAIT covers the writes of its own connection.
        let mut plain = old.client().await;
        let _: () = plain.set("before the fail-over", 1).await.expect("written");
        let reached: usize =
            redis::cmd("WAIT").arg(2).arg(10_000).query_async(&mut plain).await.expect("a reply");
        assert_eq!(reached, 2, "the replicas have everything");
        self.set.promote(0).await;
        for (server, follows) in [(&self.set.replicas()[1], self.new_master_port()), (old, old_follows)] {
            let command = ["REPLICAOF", "127.0.0.1", &follows.to_string()];
            let _: () = server.query(&command).await.expect("made a replica");
        }
        self.proxy.redirect_to(self.new_master_port());
    }

    fn new_master_port(&self) -> u16 {
        self.set.replicas()[0].port()
    }
}

/// Waits until it is renewed past three leases from now.
async fn outlasts_three_leases(name: &str, held: &Held) {
    let end = std::time::Instant::now() + ms(3 * WATCHDOG);
    let renewed = eventually("it is renewed", ms(6 * WATCHDOG), async || held.valid_until() > end);
    tokio::select! {
        () = renewed => {}
        reason = held.lost() => panic!("{name} was lost: {reason}"),
    }
}

/// Each kind has a client of its own, so that none profits from the connection of another.
async fn renewals_follow_the_address_to_the_new_master(program: ServerProgram) {
    use Kind::{Fair, Fenced, Lock, Permits, Plain, Read, Spin, Write};
    let address = Address::start(program).await;
    let mut held = Vec::new();
    let mut clients = Vec::new();
    for (kind, replicas) in [Lock, Plain, Fair, Fenced, Spin, Read, Write, Permits]
        .map(|kind| (kind, 0))
        .into_iter()
        .chain([(Lock, 1)])
    {
        let client = address.client(Client::builder().watchdog_timeout(ms(WATCHDOG))).await;
        let client = KindClient::new(client, kind);
        let name = format!("{}{replicas}", kind.name());
        let resource = Resource::new(&client, &name).await;
        held.push((name, resource.acquire(replicas, PROMPT).await.expect("a reply").expect("free")));
        clients.push(client);
    }
    address.fail_over(address.new_master_port()).await;
    join_all(held.iter().map(|(name, held)| outlasts_three_leases(name, held))).await;
    for ((name, held), client) in held.into_iter().zip(&clients) {
        let other = KindClient::new(address.client(Client::builder()).await, client.kind());
        assert!(!Resource::of(&other, &name).is_free().await, "{name} on the new master");
        held.release().await.expect("held during the fail-over");
    }
}

/// The old master does not receive the messages of the new one.
async fn waiters_continue_on_the_new_master(program: ServerProgram) {
    let address = Address::start(program).await;
    let holder = address.client(Client::builder()).await;
    let renewed = address.client(Client::builder().watchdog_timeout(ms(WATCHDOG))).await;
    let renewed = Held::Guard(renewed.lock("renewed").lock().await.expect("free"));
    let guards = [
        holder.fair_lock("fair").lock().await.expect("free"),
        holder.lock("lock").lock().await.expect("free"),
    ];
    // A waiter for `lock` writes nothing, since its requests are refused. It has a client of its own.
    let (fair, waiter) = (address.client(Client::builder()).await, address.client(Client::builder()).await);
    let acknowledged = address.client(Client::builder()).await;
    let mut tasks = Vec::new();
    for (lock, before) in [
        (fair.fair_lock("fair"), 0),
        (fair.fair_lock("fair"), 1),
        (fair.fair_lock("fair"), 2),
        (waiter.lock("lock"), 0),
        (acknowledged.lock("lock").with_replicas(1), 0),
    ] {
        let waits = lock.clone();
        tasks.push(tokio::spawn(async move { waits.lock().await.expect("a turn").unlock().await }));
        until_waiting(&lock, before + 1).await;
    }
    address.fail_over(1).await;
    // Longer than the heartbeat time-out of a fair waiter.
    outlasts_three_leases("renewed", &renewed).await;
    let other = address.client(Client::builder()).await.fair_lock("fair");
    assert_eq!(other.inspect().await.expect("a reply").queue.len(), 3, "all keep their positions");
    for guard in guards {
        assert!(guard.is_valid(), "{}", guard.name());
        guard.unlock().await.expect("held during the fail-over");
    }
    let turns = join_all(tasks);
    for turn in within(PROMPT, "all are granted the lock", turns).await {
        turn.expect("no panic").expect("held");
    }
}

/// The new master does not have the lock. The old one still reports it as held.
async fn a_fixed_lease_is_checked_on_the_new_master(program: ServerProgram) {
    let address = Address::start(program).await;
    let client = address.client(Client::builder().watchdog_timeout(ms(WATCHDOG))).await;
    let guard = client.lock("fixed").with_lease(ms(600_000)).lock().await.expect("free");
    address.fail_over(1).await;
    let mut plain = address.set.replicas()[0].client().await;
    let removed: u32 = plain.del("fixed").await.expect("a reply");
    assert_eq!(removed, 1);
    let reason = within(ms(3_000 + WATCHDOG) + PROMPT, "its holder is notified", guard.lost()).await;
    assert_eq!(reason, LostReason::GoneAfterReconnect);
}
