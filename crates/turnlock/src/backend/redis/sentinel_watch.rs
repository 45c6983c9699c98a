//! Notices a fail-over: by the word of any sentinel, and by asking all of them now and then.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;
use turnlock_core::Backoff;

use super::address::Address;
use super::common::Common;
use super::inlet::{Inlet, News};
use super::place::Place;
use super::sentinels::Sentinels;

/// How often the sentinels are asked when none has said anything.
const POLL: Duration = Duration::from_secs(2);

/// How long a sentinel may be silent before it is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// On which a sentinel says that a master was replaced.
const SWITCHED: &str = "+switch-master";

/// Watches until the backend is gone. Tells it of every move of the master.
pub(super) async fn run(sentinels: Weak<Sentinels>, backend: Weak<Common>) {
    let Some((mut known, look)) =
        sentinels.upgrade().map(|sentinels| (sentinels.known.subscribe(), Arc::clone(&sentinels.look)))
    else {
        return;
    };
    known.mark_unchanged();
    let mut heard = HashSet::new();
    loop {
        {
            let Some(watched) = sentinels.upgrade() else { return };
            for address in watched.addresses() {
                if heard.insert(address.to_string()) {
                    tokio::spawn(hear(Weak::clone(&sentinels), Arc::clone(&watched.common), address));
                }
            }
        }
        let is_moved = tokio::select! {
            moved = known.changed() => moved.is_ok(),
            () = look.notified() => false,
            () = tokio::time::sleep(POLL) => false,
        };
        let Some(watched) = sentinels.upgrade() else { return };
        if is_moved {
            if let Some(backend) = backend.upgrade() {
                backend.tell(|signals| signals.server_changed());
            }
        } else if let Err(failure) = watched.find().await {
            tracing::debug!(%failure, "the sentinels could not be asked");
        }
    }
}

/// Listens to one sentinel.
async fn hear(sentinels: Weak<Sentinels>, common: Arc<Common>, address: Address) {
    let place = Place::Fixed(address);
    let mut backoff = Backoff::default();
    while sentinels.strong_count() > 0 {
        if let Ok(inlet) = Inlet::open(&common, &place).await {
            backoff = Backoff::default();
            attend(&sentinels, inlet).await;
        }
        tokio::time::sleep(backoff.pause(fastrand::f64())).await;
    }
}

/// Listens on one connection until it breaks, or nobody is interested any more.
async fn attend(sentinels: &Weak<Sentinels>, mut inlet: Inlet) -> Option<()> {
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(SWITCHED);
    inlet.say(&[subscribe]).await.ok()?;
    let mut is_asked = true;
    loop {
        match timeout(HEARTBEAT, inlet.hear()).await {
            // Also when the subscription begins: what was said before went unheard.
            Ok(Some(News::Message(_) | News::Subscribed(_))) => sentinels.upgrade()?.look.notify_one(),
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(_) if is_asked => return None,
            Err(_) => {
                inlet.say(&[redis::cmd("PING")]).await.ok()?;
                is_asked = sentinels.strong_count() > 0;
                if !is_asked {
                    return None;
                }
                continue;
            }
        }
        is_asked = false;
    }
}
