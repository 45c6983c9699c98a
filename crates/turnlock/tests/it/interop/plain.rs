//! The plain lock beside redis-py's and node-redlock's.

use redis::AsyncCommands;
use turnlock::{Client, LostReason};
use turnlock_testkit::{NodeRedlock, PeerThread, PyLock, within};

use super::{LONG, SOON};
use crate::rig::{NO_POLL, Rig, ms};
use crate::{Case, cases};

pub(crate) const PYTHON: &[Case] = cases![redis_py_and_we_share_a_lock];
pub(crate) const NODE: &[Case] = cases![node_redlock_and_we_share_a_lock];

async fn redis_py_and_we_share_a_lock(rig: Rig) {
    let py = PyLock::start(&rig.server().url()).await;
    let peer = Peer {
        thread: py.thread("one"),
        wait: "acquire 60000 -1",
        refusal: |said| said.as_deref() == Ok("false"),
    };
    take_turns(&rig, &peer).await;
    respect_extensions(&rig, &peer).await;
    // Neither can take what is the other's.
    let guard = rig.client().await.lock("ours").lock().await.expect("free");
    assert!(peer.call("ours", "release").await.is_err());
    assert!(peer.call("ours", "extend 100").await.is_err());
    assert_eq!(peer.call("ours", "locked").await.as_deref(), Ok("true"));
    assert_eq!(peer.call("ours", "owned").await.as_deref(), Ok("false"));
    guard.unlock().await.expect("held");
}

async fn node_redlock_and_we_share_a_lock(rig: Rig) {
    let node = NodeRedlock::start(&rig.server().url()).await;
    let peer = Peer { thread: node.thread("one"), wait: "acquire 60000", refusal: |said| said.is_err() };
    take_turns(&rig, &peer).await;
    respect_extensions(&rig, &peer).await;
}

struct Peer {
    thread: PeerThread,
    /// The call that takes the lock for a minute, however long that takes.
    wait: &'static str,
    /// Whether what it said is that the lock is held.
    refusal: fn(&Result<String, String>) -> bool,
}

impl Peer {
    async fn call(&self, name: &str, call: &str) -> Result<String, String> {
        self.thread.call(&format!("lock {name} {call}")).await.map_err(|error| error.to_string())
    }

    async fn does(&self, name: &str, call: &str) {
        self.call(name, call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    }

    async fn is_refused(&self, name: &str) {
        let said = self.call(name, "acquire 60000 50").await;
        assert!((self.refusal)(&said), "{said:?}");
    }
}

async fn take_turns(rig: &Rig, peer: &Peer) {
    let lock = rig.client().await.lock("turns");
    // The other one's, then ours.
    peer.does("turns", "acquire 60000").await;
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert!(lock.try_lock_for(ms(50)).await.expect("an answer").is_none());
    let seen = lock.inspect().await.expect("an answer");
    let value: String = rig.plain().await.get("turns").await.expect("a value");
    assert_eq!((seen.holders[0].owner.as_str(), seen.holders[0].is_mine), (value.as_str(), false));
    let waiting = lock.clone();
    let turn = tokio::spawn(async move { waiting.lease(LONG).lock().await.expect("a turn") });
    crate::rig::until_waiting(&lock, 1).await;
    peer.does("turns", "release").await;
    let guard = within(SOON, "it sees that it is free", turn).await.expect("no panic");
    peer.is_refused("turns").await;
    let turn = peer.thread.begin(&format!("lock turns {}", peer.wait));
    guard.unlock().await.expect("held");
    within(SOON, "it sees that it is free", turn).await.expect("a turn");
    // By force: the other one's release then finds nothing of its own.
    assert!(lock.force_unlock().await.expect("an answer"));
    let guard = lock.lock().await.expect("free");
    assert!(peer.call("turns", "release").await.is_err());
    assert!(guard.is_valid());
    assert!(lock.is_locked().await.expect("an answer"), "it took nothing that is ours");
    guard.unlock().await.expect("held");
}

async fn respect_extensions(rig: &Rig, peer: &Peer) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let lock = client.lock("extended");
    // Extended before its end.
    peer.does("extended", "acquire 5000").await;
    peer.does("extended", "extend 60000").await;
    let over = lock.try_lock_for(ms(6_000)).await.expect("an answer");
    assert!(over.is_none(), "it was extended");
    let ttl: u64 = rig.plain().await.pttl("extended").await.expect("an answer");
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    peer.does("extended", "release").await;
    // Ours is renewed over several leases.
    let guard = lock.lock().await.expect("free");
    let said = peer.call("extended", "acquire 60000 7000").await;
    assert!((peer.refusal)(&said), "{said:?}");
    assert!(guard.is_valid());
    // What ends without being extended is free for the other, and told to its holder.
    guard.unlock().await.expect("held");
    let short = ms(3_000);
    peer.does("extended", "acquire 3000").await;
    let guard = within(short + SOON, "its lease ends", lock.lease(short).lock()).await.expect("a turn");
    assert!(peer.call("extended", "extend 60000").await.is_err());
    let turn = peer.thread.begin(&format!("lock extended {}", peer.wait));
    assert_eq!(within(short + SOON, "ours ends", guard.lost()).await, LostReason::Expired);
    within(SOON, "the other one has it", turn).await.expect("a turn");
    peer.does("extended", "release").await;
}
