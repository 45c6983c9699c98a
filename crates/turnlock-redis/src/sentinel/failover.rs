//! Detects fail-overs: by messages of any sentinel, and by polling all of them.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;
use turnlock_core::Backoff;

use super::Sentinels;
use crate::access::Address;
use crate::common::Common;
use crate::endpoint::{Endpoint, MasterFinder};
use crate::pubsub::{Command, PubSubConnection, Push};

/// How often the sentinels are queried without a message from any.
const POLL_PERIOD: Duration = Duration::from_secs(2);

/// The idle time after which a sentinel is checked with `PING`.
const PING_AFTER: Duration = Duration::from_secs(3);

/// The channel on which a sentinel announces a new master.
const SWITCH_MASTER: &str = "+switch-master";

/// Watches until the store is dropped. Notifies it of every new master.
pub(crate) async fn watch(sentinels: Weak<Sentinels>, common: Weak<Common>) -> Option<()> {
    let subscribe =
        |sentinels: Arc<Sentinels>| (sentinels.epoch().subscribe(), Arc::clone(&sentinels.recheck));
    let (mut epoch, recheck) = sentinels.upgrade().map(subscribe)?;
    let mut watching = HashSet::new();
    loop {
        let (addresses, common_of_sentinels) =
            sentinels.upgrade().map(|watched| (watched.addresses(), Arc::clone(&watched.common)))?;
        for address in addresses {
            if watching.insert(address.clone()) {
                let common = Arc::clone(&common_of_sentinels);
                tokio::spawn(watch_sentinel(Weak::clone(&sentinels), common, address));
            }
        }
        let has_moved = tokio::select! {
            changed = epoch.changed() => changed.is_ok(),
            () = recheck.notified() => false,
            () = tokio::time::sleep(POLL_PERIOD) => false,
        };
        let watched = sentinels.upgrade()?;
        if has_moved {
            common.upgrade()?.notify(|signals| signals.server_changed());
        } else if let Err(failure) = watched.resolve().await {
            tracing::debug!(%failure, "sentinel query failed, will retry");
        }
    }
}

/// Subscribes to one sentinel. Reconnects until the sentinels are dropped.
async fn watch_sentinel(sentinels: Weak<Sentinels>, common: Arc<Common>, address: Address) {
    let endpoint = Endpoint::Fixed(address);
    let mut backoff = Backoff::default();
    while sentinels.strong_count() > 0 {
        if let Ok(pubsub) = PubSubConnection::open(&common, &endpoint).await {
            backoff = Backoff::default();
            watch_connection(&sentinels, pubsub).await;
        }
        tokio::time::sleep(backoff.pause(fastrand::f64())).await;
    }
}

/// Watches one connection until it breaks, or the sentinels are dropped.
async fn watch_connection(sentinels: &Weak<Sentinels>, mut pubsub: PubSubConnection) -> Option<()> {
    pubsub.send(&[Command::Subscribe(SWITCH_MASTER.to_owned())]).await.ok()?;
    let mut is_awaiting_reply = true;
    loop {
        match timeout(PING_AFTER, pubsub.next_push()).await {
            Err(_) if is_awaiting_reply || sentinels.strong_count() == 0 => return None,
            Err(_) => {
                pubsub.send(&[Command::Ping]).await.ok()?;
                is_awaiting_reply = true;
            }
            Ok(push) => {
                is_awaiting_reply = false;
                // Also when the subscription begins: earlier messages were missed.
                if matches!(push.ok()?, Push::Message(..) | Push::Done(Command::Subscribe(_))) {
                    sentinels.upgrade()?.recheck.notify_one();
                }
            }
        }
    }
}
