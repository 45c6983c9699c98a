//! The plain lock with redis-py's and node-redlock's locks.

use redis::AsyncCommands;
use turnlock::{Client, LostReason};
use turnlock_testkit::{NodeRedlock, PeerThread, PyLock, within};

use super::{LONG_LEASE, WAKE_UP_LIMIT};
use crate::fixture::{Fixture, NO_POLL, ms};
use crate::{Case, cases};

pub(crate) const PYTHON: &[Case] = cases![redis_py_and_we_share_a_lock];
pub(crate) const NODE: &[Case] = cases![node_redlock_and_we_share_a_lock];

async fn redis_py_and_we_share_a_lock(fixture: Fixture) {
    let py = PyLock::start(&fixture.server().url()).await;
    let peer = Peer {
        thread: py.thread("one"),
        wait: "acquire 60000 -1",
        is_refusal: |reply| reply.as_deref() == Ok("false"),
    };
    take_turns(&fixture, &peer).await;
    respect_extensions(&fixture, &peer).await;
    // Neither can release or extend the other's hold.
    let guard = fixture.client().await.lock("ours").lock().await.expect("free");
    assert!(peer.call("ours", "release").await.is_err());
    assert!(peer.call("ours", "extend 100").await.is_err());
    assert_eq!(peer.call("ours", "locked").await.as_deref(), Ok("true"));
    assert_eq!(peer.call("ours", "owned").await.as_deref(), Ok("false"));
    guard.unlock().await.expect("held");
}

async fn node_redlock_and_we_share_a_lock(fixture: Fixture) {
    let node = NodeRedlock::start(&fixture.server().url()).await;
    let peer = Peer { thread: node.thread("one"), wait: "acquire 60000", is_refusal: |reply| reply.is_err() };
    take_turns(&fixture, &peer).await;
    respect_extensions(&fixture, &peer).await;
}

struct Peer {
    thread: PeerThread,
    /// The call that waits for the lock without a limit, and holds it for a minute.
    wait: &'static str,
    /// Returns `true` if the reply means that the lock is held.
    is_refusal: fn(&Result<String, String>) -> bool,
}

impl Peer {
    async fn call(&self, name: &str, call: &str) -> Result<String, String> {
        self.thread.call(&format!("lock {name} {call}")).await.map_err(|error| error.to_string())
    }

    async fn run(&self, name: &str, call: &str) {
        self.call(name, call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    }

    async fn expect_refusal(&self, name: &str) {
        let reply = self.call(name, "acquire 60000 50").await;
        assert!((self.is_refusal)(&reply), "{reply:?}");
    }
}

async fn take_turns(fixture: &Fixture, peer: &Peer) {
    let lock = fixture.client().await.lock("turns");
    // The peer holds it first, then we do.
    peer.run("turns", "acquire 60000").await;
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!(lock.try_lock_for(ms(50)).await.expect("a reply").is_busy());
    let seen = lock.inspect().await.expect("a reply");
    let value: String = fixture.raw_connection().await.get("turns").await.expect("a value");
    assert_eq!((seen.holders[0].owner.as_str(), seen.holders[0].is_mine), (value.as_str(), false));
    let waiting = lock.clone();
    let turn = tokio::spawn(async move { waiting.with_lease(LONG_LEASE).lock().await.expect("a turn") });
    crate::fixture::until_waiting(&lock, 1).await;
    peer.run("turns", "release").await;
    let guard = within(WAKE_UP_LIMIT, "it finds it free", turn).await.expect("no panic");
    peer.expect_refusal("turns").await;
    let turn = peer.thread.begin(&format!("lock turns {}", peer.wait));
    guard.unlock().await.expect("held");
    within(WAKE_UP_LIMIT, "it finds it free", turn).await.expect("a turn");
    // After a forced unlock, the peer's release finds no hold of its own.
    assert!(lock.force_unlock().await.expect("a reply"));
    let guard = lock.lock().await.expect("free");
    assert!(peer.call("turns", "release").await.is_err());
    assert!(guard.is_valid());
    assert!(lock.is_locked().await.expect("a reply"), "our hold is not affected");
    guard.unlock().await.expect("held");
}

async fn respect_extensions(fixture: &Fixture, peer: &Peer) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let lock = client.lock("extended");
    // Extended before it expires.
    peer.run("extended", "acquire 5000").await;
    peer.run("extended", "extend 60000").await;
    let over = lock.try_lock_for(ms(6_000)).await.expect("a reply");
    assert!(over.is_busy(), "it was extended");
    let ttl: u64 = fixture.raw_connection().await.pttl("extended").await.expect("a reply");
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    peer.run("extended", "release").await;
    // Our hold is renewed over several leases.
    let guard = lock.lock().await.expect("free");
    let reply = peer.call("extended", "acquire 60000 7000").await;
    assert!((peer.is_refusal)(&reply), "{reply:?}");
    assert!(guard.is_valid());
    // A lease that is not extended expires: the lock is free for the other side, and our holder is notified.
    guard.unlock().await.expect("held");
    let short = ms(3_000);
    peer.run("extended", "acquire 3000").await;
    let guard =
        within(short + WAKE_UP_LIMIT, "its lease ends", lock.with_lease(short).lock()).await.expect("a turn");
    assert!(peer.call("extended", "extend 60000").await.is_err());
    let turn = peer.thread.begin(&format!("lock extended {}", peer.wait));
    assert_eq!(within(short + WAKE_UP_LIMIT, "our lease ends", guard.lost()).await, LostReason::Expired);
    within(WAKE_UP_LIMIT, "the peer is granted it", turn).await.expect("a turn");
    peer.run("extended", "release").await;
}
