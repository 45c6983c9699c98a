//! The master dies, and a replica is promoted: what was acknowledged is held there, tokens still rise, and permits whose
//! acquire it forgot do not come back.

use std::time::Instant;

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use super::{Rig, Thing, in_touch, info, ms, replica_by};
use crate::rig::{KindClient, NO_POLL};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    an_acknowledged_hold_is_on_every_replica,
    tokens_rise_over_the_promotion_of_a_replica_that_lags,
    permits_that_a_promotion_forgot_do_not_come_back,
];

/// For everything that has a lease.
pub(crate) const LEASE_CASES: &[Case] = cases![a_renewed_hold_goes_on_after_a_promotion];

/// The rig's server, a replica that is promoted when it dies, and the address at which clients find the one of the two that is
/// the master.
pub(super) struct Site {
    /// Where clients go.
    pub(super) address: FaultProxy,
    /// The way from the master to the replica.
    pub(super) replication: FaultProxy,
    pub(super) heir: RedisServer,
}

impl Site {
    pub(super) async fn start(rig: &Rig) -> Self {
        let address = FaultProxy::start(rig.server().port()).await;
        let replication = FaultProxy::start(rig.server().port()).await;
        let heir = replica_by(rig, replication.port()).await;
        in_touch(rig, 1).await;
        Self { address, replication, heir }
    }

    /// Kills the master, and promotes the replica with what has reached it so far. Clients do not find it yet.
    pub(super) async fn promote(&self, rig: &mut Rig) {
        self.replication.black_hole();
        rig.server_mut().stop().await;
        let outcome = self.heir.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        outcome.expect("promoted");
    }

    /// Moves the address to the replica.
    pub(super) fn move_address(&self) {
        self.address.lead_to(self.heir.port());
        self.address.reset_all();
    }

    /// A client of the replica alone.
    pub(super) async fn client_there(&self, rig: &Rig) -> KindClient {
        rig.client_at(Client::builder().poll(NO_POLL), &self.heir.url()).await
    }
}

async fn a_renewed_hold_goes_on_after_a_promotion(mut rig: Rig) {
    let lease = ms(9_000);
    let site = Site::start(&rig).await;
    // The heir has a replica of its own, which acknowledges when the heir is the master.
    site.heir.ask::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await.expect("set");
    let heir = site.heir.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &heir]).await;
    let is_there = async || info(&site.heir, "replication", "connected_slaves").await == "1";
    eventually("the heir has a replica", ms(20_000), is_there).await;
    let builder = Client::builder().watchdog(lease).response_timeout(ms(2_500)).poll(NO_POLL);
    let client = rig.client_at(builder, &site.address.url()).await;
    let held = Thing::new(&client, "a").await.take(1, ms(20_000)).await.expect("acknowledged").expect("free");
    let first_end = held.valid_until();
    // The way to the heir is long, so that what is not waited for does not get there; there and back it is shorter than a
    // renewal waits for.
    site.replication.delay(ms(600));
    // Until the grant alone is not enough, and a renewal has just counted.
    tokio::time::sleep_until(first_end.into()).await;
    let before = held.valid_until();
    eventually("it is renewed", lease, async || held.valid_until() > before + ms(500)).await;
    site.promote(&mut rig).await;
    let end = held.valid_until();
    let there = site.client_there(&rig).await;
    let rest = Thing::of(&there, "a").rest().await;
    assert!(Instant::now() + rest >= end, "there it ends {:?} too early", end - (Instant::now() + rest));
    site.move_address();
    eventually("the heir renews it", lease, async || held.valid_until() > end + ms(1_000)).await;
    assert!(held.is_valid(), "lost: {:?}", held.lost().now_or_never());
    let rival = there.rival();
    let next = Thing::of(&rival, "a");
    assert!(next.take(0, ms(0)).await.expect("an answer").is_none());
    held.give_back().await;
    let next = within(ms(5_000), "a turn", next.take(0, ms(60_000))).await;
    next.expect("an answer").expect("free").give_back().await;
}

async fn tokens_rise_over_the_promotion_of_a_replica_that_lags(mut rig: Rig) {
    let site = Site::start(&rig).await;
    let client = rig.client_at(Client::builder().poll(NO_POLL), &site.address.url()).await;
    let take = async |client: &KindClient| {
        let guard = within(ms(10_000), "a turn", client.fenced_lock("ledger").lock()).await.expect("a turn");
        let token = guard.token().expect("a token");
        guard.unlock().await.expect("held");
        token
    };
    let early = take(&client).await;
    in_touch(&rig, 1).await;
    site.replication.black_hole();
    let mut highest = early;
    for _ in 0..20 {
        let token = take(&client).await;
        assert!(token > highest, "{token} does not rise above {highest}");
        highest = token;
    }
    site.promote(&mut rig).await;
    site.move_address();
    let there: u64 = site.heir.client().await.get("redisson_lock_token:{ledger}").await.expect("a token");
    assert_eq!(there, early, "the heir lags: else this proves nothing");
    // One who saw none of the tokens, and the one who saw them all.
    for client in [&site.client_there(&rig).await, &client] {
        let token = take(client).await;
        assert!(token > highest, "{token} does not rise above {highest}");
        highest = token;
    }
}

async fn an_acknowledged_hold_is_on_every_replica(mut rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let replicas = [replica_by(&rig, proxy.port()).await, replica_by(&rig, proxy.port()).await];
    in_touch(&rig, 2).await;
    let client = rig.client_with(Client::builder()).await;
    let mut guards = vec![client.lock("before").acknowledged_by(2).lock().await.expect("free")];
    // The way to the replicas is long, so that what is not waited for does not get there.
    proxy.delay(ms(150));
    let began = Instant::now();
    guards.push(client.lock("a").acknowledged_by(2).lock().await.expect("free"));
    assert!(began.elapsed() >= ms(150), "it was waited for: {:?}", began.elapsed());
    let inner = guards[0].reenter().await.expect("held");
    let hasty = client.lock("hasty").lock().await.expect("free");
    // What is on its way is not delivered any more.
    proxy.black_hole();
    rig.server_mut().stop().await;
    for replica in &replicas {
        replica.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await.expect("promoted");
        let mut plain = replica.client().await;
        for (guard, expected) in guards.iter().zip([2_u32, 1]) {
            let count: u32 = plain.hget(guard.name(), guard.owner_id().as_str()).await.expect("there");
            assert_eq!(count, expected, "{}", guard.name());
            let ttl: i64 = plain.pttl(guard.name()).await.expect("an answer");
            assert!((25_000..=30_000).contains(&ttl), "{ttl}");
        }
        let there: bool = plain.exists(hasty.name()).await.expect("an answer");
        assert!(!there, "what nobody waited for is lost: else this proves nothing");
    }
    drop((inner, hasty));
}

async fn permits_that_a_promotion_forgot_do_not_come_back(mut rig: Rig) {
    let site = Site::start(&rig).await;
    let client = rig.client_at(Client::builder(), &site.address.url()).await;
    let semaphore = client.semaphore("permits");
    assert!(semaphore.try_set_permits(5).await.expect("an answer"));
    let known = semaphore.acknowledged_by(1).acquire(1).await.expect("free");
    // From here on the replica hears nothing.
    site.replication.black_hole();
    let released = semaphore.acquire(1).await.expect("free");
    let dropped = semaphore.acquire(2).await.expect("free");
    site.promote(&mut rig).await;
    site.move_address();
    let free = async || site.heir.client().await.get::<_, Option<i64>>("permits").await.expect("a number");
    assert_eq!(free().await, Some(4), "it has heard of one acquire: else this proves nothing");
    let lost = released.release().await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    drop(dropped);
    known.release().await.expect("the promoted replica has it");
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(free().await, Some(5), "as many as were set");
}
