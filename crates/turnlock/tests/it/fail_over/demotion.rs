//! An orderly fail-over behind one address: the master becomes a replica and keeps its connections open, and new connections
//! lead to the new master.

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Builder, Client, Guard, Permits};
use turnlock_testkit::{FaultProxy, ReplicaSet, eventually, within};

use crate::rig::{NO_POLL, ms, until_waiting};

const WATCHDOG: u64 = 3_000;

/// A master with a replica, and the address of whichever is the master.
struct Address {
    set: ReplicaSet,
    proxy: FaultProxy,
}

impl Address {
    async fn start() -> Self {
        let set = ReplicaSet::start(1).await;
        let proxy = FaultProxy::start(set.master().port()).await;
        Self { set, proxy }
    }

    async fn client(&self, builder: Builder) -> Client {
        builder.poll(NO_POLL).connect(&self.proxy.url()).await.expect("a master")
    }

    /// Makes the replica the master, once it has all that was written so far; the old master is a replica at that port.
    async fn fail_over(&self, old_follows: u16) {
        let old = self.set.master();
        // A write of this very connection, which WAIT speaks of.
        let mut plain = old.client().await;
        let _: () = plain.set("before the fail-over", 1).await.expect("written");
        let reached: usize =
            redis::cmd("WAIT").arg(1).arg(10_000).query_async(&mut plain).await.expect("an answer");
        assert_eq!(reached, 1, "the replica has everything");
        self.set.promote(0).await;
        let _: () =
            old.ask(&["REPLICAOF", "127.0.0.1", &old_follows.to_string()]).await.expect("made a replica");
        self.proxy.lead_to(self.new_master_port());
    }

    fn new_master_port(&self) -> u16 {
        self.set.replicas()[0].port()
    }
}

enum Held {
    Guard(Guard),
    Permits(Permits),
}

impl Held {
    fn name(&self) -> &str {
        match self {
            Self::Guard(guard) => guard.name(),
            Self::Permits(permits) => permits.name(),
        }
    }

    /// Waits until it has been renewed for longer than three leases from now on.
    async fn outlasts_three_leases(&self) {
        let end = std::time::Instant::now() + ms(3 * WATCHDOG);
        let outlasts = async || match self {
            Self::Guard(guard) => guard.valid_until() > end,
            Self::Permits(permits) => permits.valid_until() > end,
        };
        let renewed = eventually("it is renewed", ms(6 * WATCHDOG), outlasts);
        tokio::select! {
            () = renewed => {}
            reason = self.lost() => panic!("{} was lost: {reason}", self.name()),
        }
    }

    async fn lost(&self) -> turnlock::LostReason {
        match self {
            Self::Guard(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
        }
    }
}

/// Each kind has a client of its own, so that none is helped by another one's connection.
pub(super) async fn who_only_renews_follows_the_address() {
    let address = Address::start().await;
    let mut held = Vec::new();
    let mut clients = Vec::new();
    for kind in ["lock", "plain", "fair", "fenced", "spin", "read", "write", "permits", "acknowledged"] {
        let client = address.client(Client::builder().watchdog(ms(WATCHDOG))).await;
        let lock = match kind {
            "permits" => {
                let semaphore = client.permit_semaphore(kind);
                assert!(semaphore.try_set_permits(3).await.expect("an answer"));
                held.push(Held::Permits(semaphore.acquire(2).await.expect("free")));
                clients.push(client);
                continue;
            }
            "plain" => client.plain_lock(kind),
            "fair" => client.fair_lock(kind),
            "fenced" => client.fenced_lock(kind),
            "spin" => client.spin_lock(kind),
            "read" => client.read_write_lock(kind).read(),
            "write" => client.read_write_lock(kind).write(),
            "acknowledged" => client.lock(kind).acknowledged_by(1),
            _ => client.lock(kind),
        };
        held.push(Held::Guard(lock.lock().await.expect("free")));
        clients.push(client);
    }
    address.fail_over(address.new_master_port()).await;
    join_all(held.iter().map(Held::outlasts_three_leases)).await;
    let other = address.client(Client::builder()).await;
    let mut plain = address.set.replicas()[0].client().await;
    for held in held {
        let name = held.name().to_owned();
        match held {
            Held::Guard(guard) => {
                let is_there: bool = plain.exists(&name).await.expect("an answer");
                assert!(is_there, "{name} on the new master");
                guard.unlock().await.expect("held over the fail-over");
            }
            Held::Permits(permits) => {
                assert_eq!(other.permit_semaphore(&name).available().await.expect("an answer"), 1);
                permits.release().await.expect("held over the fail-over");
            }
        }
    }
}

/// The old master does not even hear of messages of the new one.
pub(super) async fn waiters_go_on_with_the_new_master() {
    let address = Address::start().await;
    let holder = address.client(Client::builder()).await;
    let pulse = address.client(Client::builder().watchdog(ms(WATCHDOG))).await;
    let waiter = address.client(Client::builder()).await;
    let pulse = Held::Guard(pulse.lock("pulse").lock().await.expect("free"));
    let guards = [
        holder.fair_lock("fair").lock().await.expect("free"),
        holder.lock("lock").lock().await.expect("free"),
    ];
    let mut tasks = Vec::new();
    for (lock, before) in [
        (waiter.fair_lock("fair"), 0),
        (waiter.fair_lock("fair"), 1),
        (waiter.fair_lock("fair"), 2),
        (waiter.lock("lock"), 0),
    ] {
        let waits = lock.clone();
        tasks.push(tokio::spawn(async move { waits.lock().await.expect("a turn").unlock().await }));
        until_waiting(&lock, before + 1).await;
    }
    address.fail_over(1).await;
    // For longer than a waiter of a fair lock may be silent.
    pulse.outlasts_three_leases().await;
    let other = address.client(Client::builder()).await.fair_lock("fair");
    assert_eq!(other.inspect().await.expect("an answer").queue.len(), 3, "all have their places");
    for guard in guards {
        assert!(guard.is_valid(), "{}", guard.name());
        guard.unlock().await.expect("held over the fail-over");
    }
    let turns = join_all(tasks);
    for turn in within(ms(2_000), "all have their turns", turns).await {
        turn.expect("no panic").expect("held");
    }
}
