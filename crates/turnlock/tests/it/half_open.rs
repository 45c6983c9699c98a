//! A holder that is cut off hears of its end before the server can hand the lock on.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Client, Guard, LostReason};
use turnlock_testkit::{Pauses, void, within};

use crate::network_faults::proxied;
use crate::rig::{NO_POLL, PROMPT, Rig, ms};

pub(crate) async fn a_half_open_connection_is_told_before_the_server_lets_go(rig: Rig) {
    const ROUNDS: usize = 3;
    join_all((0..ROUNDS).map(|round| hears_first(&rig, round))).await;
}

/// A round in which holders are cut off, and hear of their end before the server can hand the lock on. It is repeated if it
/// shows nothing, a few times.
async fn hears_first(rig: &Rig, round: usize) {
    const MOST_VOID: usize = 5;
    for attempt in 0..=MOST_VOID {
        match cut_off(rig, &format!("half-open-{round}-{attempt}")).await {
            Heard::InTime => return,
            Heard::MachineStoodStill => void(format!("half-open {} round {round}", rig.kind.name())),
        }
    }
    panic!("round {round} shows nothing: the machine stood still each time");
}

enum Heard {
    InTime,
    /// Too late, by no more than the machine stood still.
    MachineStoodStill,
}

async fn cut_off(rig: &Rig, name: &str) -> Heard {
    const RENEWED: Duration = Duration::from_secs(9);
    const FIXED: Duration = Duration::from_secs(6);
    let (proxy, client) = proxied(rig, Client::builder().watchdog(RENEWED).poll(NO_POLL)).await;
    let (renewed, fixed) = (format!("{name}-renewed"), format!("{name}-fixed"));
    let renewed = client.lock(&renewed).lock().await.expect("free");
    let fixed = client.lock(&fixed).lease(FIXED).lock().await.expect("free");
    proxy.black_hole();
    let heard = tokio::join!(hears(rig, &renewed, RENEWED), hears(rig, &fixed, FIXED));
    let (Heard::InTime, Heard::InTime) = heard else { return Heard::MachineStoodStill };
    // The server hands the locks on, and nobody is surprised.
    let other = rig.client().await;
    for guard in [&fixed, &renewed] {
        let next = within(PROMPT, "the lease ends", other.lock(guard.name()).lock()).await;
        assert!(!guard.is_valid());
        next.expect("a turn").unlock().await.expect("held");
    }
    Heard::InTime
}

/// Waits until the holder is told, and compares that with the moment at which the server lets go.
async fn hears(rig: &Rig, guard: &Guard, lease: Duration) -> Heard {
    let end = guard.valid_until();
    let pauses = Pauses::watch();
    let told = async {
        let reason = within(lease + PROMPT, "the holder is told", guard.lost()).await;
        (reason, Instant::now())
    };
    let ((reason, told), kept) = tokio::join!(told, kept_until(rig, guard.name(), end));
    let is_cause_told = match reason {
        LostReason::Expired => guard.name().ends_with("-fixed"),
        // Since before the last renewal that the store confirmed, or the grant: that long a lease lasts here.
        LostReason::NotRenewed { unconfirmed_for } => {
            guard.name().ends_with("-renewed") && unconfirmed_for >= lease * 49 / 50
        }
        _ => false,
    };
    assert!(is_cause_told, "{}: {reason}", guard.name());
    assert!(!guard.is_valid());
    assert!(told >= end, "told {:?} before its end", end - told);
    // The server counts in milliseconds, and so does the answer to how many are left.
    let margin = lease / 100 + ms(2);
    assert!(
        kept + ms(3) >= end + margin,
        "the margin of {margin:?} is {:?}",
        kept.saturating_duration_since(end)
    );
    if told < kept {
        return Heard::InTime;
    }
    let stood_still = pauses.between(end, told).await;
    assert!(
        told < kept + stood_still,
        "the server let go of {} at the latest {:?} before its holder was told; the machine stood still for {stood_still:?}",
        guard.name(),
        told - kept
    );
    Heard::MachineStoodStill
}

/// Until when the server keeps a key, at the least: the most that any answer before `end` says. An answer that comes late says
/// less, never more.
async fn kept_until(rig: &Rig, key: &str, end: Instant) -> Instant {
    let mut plain = rig.plain().await;
    let mut kept = Instant::now();
    while Instant::now() < end {
        let asked = Instant::now();
        let left: i64 = plain.pttl(key).await.expect("an answer");
        // Below zero if it was asked in time, and answered when the key was gone.
        kept = kept.max(asked + ms(u64::try_from(left - 1).unwrap_or_default()));
        tokio::time::sleep(ms(20)).await;
    }
    kept
}
