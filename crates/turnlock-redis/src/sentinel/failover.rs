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
use crate::pubsub::{PubSubConnection, Push};

/// How often the sentinels are queried without a message from any.
const POLL_PERIOD: Duration = Duration::from_secs(2);

/// The idle time after which a sentinel is checked with `PING`.
const PING_AFTER: Duration = Duration::from_secs(3);

/// The channel on which a sentinel announces a new master.
const SWITCH_MASTER: &str = "+switch-master";

/// Watches until the store is dropped. Notifies it of every new master.
pub(crate) async fn watch(sentinels: Weak<Sentinels>, common: Weak<Common>) {
    let Some((mut known, recheck)) =
        sentinels.upgrade().map(|sentinels| (sentinels.known.subscribe(), Arc::clone(&sentinels.recheck)))
    else {
        return;
    };
    known.mark_unchanged();
    let mut watching = HashSet::new();
    loop {
        {
            let Some(watched) = sentinels.upgrade() else { return };
            for address in watched.addresses() {
                if watching.insert(address.to_string()) {
                    tokio::spawn(watch_sentinel(
                        Weak::clone(&sentinels),
                        Arc::clone(&watched.common),
                        address,
                    ));
                }
            }
        }
        let has_moved = tokio::select! {
            changed = known.changed() => changed.is_ok(),
            () = recheck.notified() => false,
            () = tokio::time::sleep(POLL_PERIOD) => false,
        };
        let Some(watched) = sentinels.upgrade() else { return };
        if has_moved {
            if let Some(common) = common.upgrade() {
                common.notify(|signals| signals.server_changed());
            }
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
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(SWITCH_MASTER);
    pubsub.send(&[subscribe]).await.ok()?;
    let mut is_awaiting_pong = true;
    loop {
        match timeout(PING_AFTER, pubsub.next_push()).await {
            // Also when the subscription begins: earlier messages were missed.
            Ok(Some(Push::Message(_) | Push::Subscribed(_))) => sentinels.upgrade()?.recheck.notify_one(),
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(_) if is_awaiting_pong => return None,
            Err(_) => {
                pubsub.send(&[redis::cmd("PING")]).await.ok()?;
                is_awaiting_pong = sentinels.strong_count() > 0;
                if !is_awaiting_pong {
                    return None;
                }
                continue;
            }
        }
        is_awaiting_pong = false;
    }
}
