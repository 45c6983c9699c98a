//! The master dies and a replica is promoted: acknowledged holds are there, tokens still rise, and permits whose acquire the
//! replica missed are not added.

use std::time::Instant;

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use super::{Fixture, Resource, info, ms, start_replica, until_replicated};
use crate::fixture::{KindClient, NO_POLL};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    an_acknowledged_hold_is_on_every_replica,
    tokens_rise_over_the_promotion_of_a_lagging_replica,
    permits_unknown_to_the_promoted_replica_are_not_added,
];

/// For all kinds with a lease.
pub(crate) const LEASE_CASES: &[Case] = cases![a_renewed_hold_survives_a_promotion];

/// The fixture's server with a replica that is promoted when it dies, behind an address that leads to the current master.
pub(super) struct ReplicatedPair {
    /// The address for clients.
    pub(super) address: FaultProxy,
    /// The replication connection.
    pub(super) replication: FaultProxy,
    pub(super) replica: RedisServer,
}

impl ReplicatedPair {
    pub(super) async fn start(fixture: &Fixture) -> Self {
        let address = FaultProxy::start(fixture.server().port()).await;
        let replication = FaultProxy::start(fixture.server().port()).await;
        let replica = start_replica(fixture, replication.port()).await;
        until_replicated(fixture, 1).await;
        Self { address, replication, replica }
    }

    /// Kills the master, and promotes the replica with what has reached it so far. The address does not lead to it yet.
    pub(super) async fn promote(&self, fixture: &mut Fixture) {
        self.replication.black_hole();
        fixture.server_mut().stop().await;
        let outcome = self.replica.query::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        outcome.expect("promoted");
    }

    /// Moves the address to the replica.
    pub(super) fn move_address(&self) {
        self.address.redirect_to(self.replica.port());
        self.address.reset_all();
    }

    /// A client that is connected to the replica directly.
    pub(super) async fn replica_client(&self, fixture: &Fixture) -> KindClient {
        fixture.client_at(Client::builder().poll_interval(NO_POLL), &self.replica.url()).await
    }
}

async fn a_renewed_hold_survives_a_promotion(mut fixture: Fixture) {
    let lease = ms(9_000);
    let pair = ReplicatedPair::start(&fixture).await;
    // The replica has a replica of its own, which acknowledges once it is the master.
    pair.replica.query::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await.expect("set");
    let port = pair.replica.port().to_string();
    let _sub_replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let is_connected = async || info(&pair.replica, "replication", "connected_slaves").await == "1";
    eventually("the replica has a replica", ms(20_000), is_connected).await;
    let builder =
        Client::builder().watchdog_timeout(lease).response_timeout(ms(2_500)).poll_interval(NO_POLL);
    let client = fixture.client_at(builder, &pair.address.url()).await;
    let held =
        Resource::new(&client, "a").await.acquire(1, ms(20_000)).await.expect("acknowledged").expect("free");
    let first_end = held.valid_until();
    // Replication is slow, so that writes that are not awaited do not arrive; a round trip is shorter than a renewal waits.
    pair.replication.delay(ms(600));
    // Until the lease of the grant is over, and a renewal was just acknowledged.
    tokio::time::sleep_until(first_end.into()).await;
    let before = held.valid_until();
    eventually("it is renewed", lease, async || held.valid_until() > before + ms(500)).await;
    pair.promote(&mut fixture).await;
    let end = held.valid_until();
    let on_replica = pair.replica_client(&fixture).await;
    let rest = Resource::of(&on_replica, "a").ttl().await;
    assert!(
        Instant::now() + rest >= end,
        "on the replica it ends {:?} too early",
        end - (Instant::now() + rest)
    );
    pair.move_address();
    eventually("it is renewed on the replica", lease, async || held.valid_until() > end + ms(1_000)).await;
    assert!(held.is_valid(), "lost: {:?}", held.lost().now_or_never());
    let rival = on_replica.rival();
    let next = Resource::of(&rival, "a");
    assert!(next.acquire(0, ms(0)).await.expect("a reply").is_none());
    held.expect_release().await;
    let next = within(ms(5_000), "a turn", next.acquire(0, ms(60_000))).await;
    next.expect("a reply").expect("free").expect_release().await;
}

async fn tokens_rise_over_the_promotion_of_a_lagging_replica(mut fixture: Fixture) {
    let pair = ReplicatedPair::start(&fixture).await;
    let client = fixture.client_at(Client::builder().poll_interval(NO_POLL), &pair.address.url()).await;
    let take = async |client: &KindClient| {
        let guard = within(ms(10_000), "a turn", client.fenced_lock("fenced").lock()).await.expect("a turn");
        let token = guard.token().expect("a token");
        guard.unlock().await.expect("held");
        token
    };
    let early = take(&client).await;
    until_replicated(&fixture, 1).await;
    pair.replication.black_hole();
    let mut highest = early;
    for _ in 0..20 {
        let token = take(&client).await;
        assert!(token > highest, "{token} does not rise above {highest}");
        highest = token;
    }
    pair.promote(&mut fixture).await;
    pair.move_address();
    let token: u64 = pair.replica.client().await.get("redisson_lock_token:{fenced}").await.expect("a token");
    assert_eq!(token, early, "the replica lags: else this proves nothing");
    // A client that saw none of the tokens, and the one that saw them all.
    for client in [&pair.replica_client(&fixture).await, &client] {
        let token = take(client).await;
        assert!(token > highest, "{token} does not rise above {highest}");
        highest = token;
    }
}

async fn an_acknowledged_hold_is_on_every_replica(mut fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let replicas = [start_replica(&fixture, proxy.port()).await, start_replica(&fixture, proxy.port()).await];
    until_replicated(&fixture, 2).await;
    let client = fixture.client_with(Client::builder()).await;
    let mut guards = vec![client.lock("before").with_replicas(2).lock().await.expect("free")];
    // Replication is slow, so that writes that are not awaited do not arrive.
    proxy.delay(ms(150));
    let began = Instant::now();
    guards.push(client.lock("a").with_replicas(2).lock().await.expect("free"));
    assert!(began.elapsed() >= ms(150), "it did not wait: {:?}", began.elapsed());
    let inner = guards[0].reenter().await.expect("held");
    let unacknowledged = client.lock("unacknowledged").lock().await.expect("free");
    // What is in flight is not delivered any more.
    proxy.black_hole();
    fixture.server_mut().stop().await;
    for replica in &replicas {
        replica.query::<()>(&["REPLICAOF", "NO", "ONE"]).await.expect("promoted");
        let mut plain = replica.client().await;
        for (guard, expected) in guards.iter().zip([2_u32, 1]) {
            let count: u32 = plain.hget(guard.name(), guard.owner_id().as_str()).await.expect("there");
            assert_eq!(count, expected, "{}", guard.name());
            let ttl: i64 = plain.pttl(guard.name()).await.expect("a reply");
            assert!((25_000..=30_000).contains(&ttl), "{ttl}");
        }
        let there: bool = plain.exists(unacknowledged.name()).await.expect("a reply");
        assert!(!there, "an unacknowledged hold is lost: else this proves nothing");
    }
    drop((inner, unacknowledged));
}

async fn permits_unknown_to_the_promoted_replica_are_not_added(mut fixture: Fixture) {
    let pair = ReplicatedPair::start(&fixture).await;
    let client = fixture.client_at(Client::builder(), &pair.address.url()).await;
    let semaphore = client.semaphore("permits");
    assert!(semaphore.try_set_permits(5).await.expect("a reply"));
    let known = semaphore.with_replicas(1).acquire(1).await.expect("free");
    // From here on the replica receives nothing.
    pair.replication.black_hole();
    let released = semaphore.acquire(1).await.expect("free");
    let dropped = semaphore.acquire(2).await.expect("free");
    pair.promote(&mut fixture).await;
    pair.move_address();
    let free = async || pair.replica.client().await.get::<_, Option<i64>>("permits").await.expect("a number");
    assert_eq!(free().await, Some(4), "the replica has one acquire: else this proves nothing");
    let lost = released.release().await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    drop(dropped);
    known.release().await.expect("the promoted replica has it");
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(free().await, Some(5), "as many as were set");
}
