//! The master dies right after a grant. One that all replicas have acknowledged is held, whichever is promoted; one that the
//! promoted replica has not heard of is void, and does not come back to it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use redis::AsyncCommands;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, RedisServer};

use super::{Rig, in_touch, ms, replica_by};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![an_acknowledged_hold_is_on_every_replica, permits_that_a_promotion_forgot_do_not_come_back];

/// An address behind which the server can change. Gives back its port.
async fn address_of(server: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let server = server.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

async fn promote(replica: &RedisServer) {
    replica.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await.expect("promoted");
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
    rig.server_mut().stop().await;
    // What was on its way is not delivered any more.
    proxy.black_hole();
    for replica in &replicas {
        promote(replica).await;
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
    let proxy = FaultProxy::start(rig.server().port()).await;
    let replica = replica_by(&rig, proxy.port()).await;
    in_touch(&rig, 1).await;
    let server = Arc::new(AtomicU16::new(rig.server().port()));
    let url = format!("redis://127.0.0.1:{}", address_of(Arc::clone(&server)).await);
    let client = rig.client_at(Client::builder(), &url).await;
    let semaphore = client.semaphore("permits");
    assert!(semaphore.try_set_permits(5).await.expect("an answer"));
    let known = semaphore.acknowledged_by(1).acquire(1).await.expect("free");
    // From here on the replica hears nothing.
    proxy.black_hole();
    let released = semaphore.acquire(1).await.expect("free");
    let dropped = semaphore.acquire(2).await.expect("free");
    rig.server_mut().stop().await;
    promote(&replica).await;
    server.store(replica.port(), Ordering::SeqCst);
    let free = async || replica.client().await.get::<_, Option<i64>>("permits").await.expect("a number");
    assert_eq!(free().await, Some(4), "it has heard of one acquire: else this proves nothing");
    let lost = released.release().await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    drop(dropped);
    known.release().await.expect("the promoted replica has it");
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "{left:?}");
    assert_eq!(free().await, Some(5), "as many as were set");
}
