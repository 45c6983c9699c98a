//! A disconnected holder learns of the loss before the server can grant the lock to another owner.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Client, Guard, LostReason};
use turnlock_testkit::{StallMonitor, record_repeat, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::network_faults::proxied;

pub(crate) async fn a_half_open_hold_is_lost_before_the_server_expires_it(fixture: Fixture) {
    const ROUNDS: usize = 3;
    join_all((0..ROUNDS).map(|round| is_lost_before_expiry(&fixture, round))).await;
}

/// A round in which holders are disconnected, and learn of the loss before the server can grant the lock to another owner. A void
/// round is repeated, a few times.
async fn is_lost_before_expiry(fixture: &Fixture, round: usize) {
    const MOST_VOID: usize = 5;
    for attempt in 0..=MOST_VOID {
        match disconnect(fixture, &format!("half-open-{round}-{attempt}")).await {
            Reported::InTime => return,
            Reported::MachineStalled => {
                record_repeat(format!("half-open {} round {round}", fixture.kind.name()));
            }
        }
    }
    panic!("round {round} is void: the machine stalled each time");
}

enum Reported {
    InTime,
    /// Late, by no more than the machine stalled.
    MachineStalled,
}

async fn disconnect(fixture: &Fixture, name: &str) -> Reported {
    const RENEWED: Duration = Duration::from_secs(9);
    const FIXED: Duration = Duration::from_secs(6);
    let (proxy, client) =
        proxied(fixture, Client::builder().watchdog_timeout(RENEWED).poll_interval(NO_POLL)).await;
    let (renewed, fixed) = (format!("{name}-renewed"), format!("{name}-fixed"));
    let renewed = client.lock(&renewed).lock().await.expect("free");
    let fixed = client.lock(&fixed).with_lease(FIXED).lock().await.expect("free");
    proxy.black_hole();
    let reported = tokio::join!(until_lost(fixture, &renewed, RENEWED), until_lost(fixture, &fixed, FIXED));
    let (Reported::InTime, Reported::InTime) = reported else { return Reported::MachineStalled };
    // The server grants the locks to another client. The guards are already invalid.
    let other = fixture.client().await;
    for guard in [&fixed, &renewed] {
        let next = within(PROMPT, "the lease ends", other.lock(guard.name()).lock()).await;
        assert!(!guard.is_valid());
        next.expect("a turn").unlock().await.expect("held");
    }
    Reported::InTime
}

/// Waits until the hold is reported lost, and compares that with the expiry on the server.
async fn until_lost(fixture: &Fixture, guard: &Guard, lease: Duration) -> Reported {
    let end = guard.valid_until();
    let pauses = StallMonitor::watch();
    let lost = async {
        let reason = within(lease + PROMPT, "the hold is lost", guard.lost()).await;
        (reason, Instant::now())
    };
    let ((reason, lost), expiry) = tokio::join!(lost, expiry(fixture, guard.name(), end));
    let is_right_reason = match reason {
        LostReason::Expired => guard.name().ends_with("-fixed"),
        // Since before the last confirmed renewal, or the grant: for as long as a lease lasts here.
        LostReason::NotRenewed { unconfirmed_for, .. } => {
            guard.name().ends_with("-renewed") && unconfirmed_for >= lease * 49 / 50
        }
        _ => false,
    };
    assert!(is_right_reason, "{}: {reason}", guard.name());
    assert!(!guard.is_valid());
    assert!(lost >= end, "lost {:?} before its end", end - lost);
    // The server counts in milliseconds, and so does PTTL.
    let margin = lease / 100 + ms(2);
    assert!(
        expiry + ms(3) >= end + margin,
        "the margin of {margin:?} is {:?}",
        expiry.saturating_duration_since(end)
    );
    if lost < expiry {
        return Reported::InTime;
    }
    let stall = pauses.between(end, lost).await;
    assert!(
        lost < expiry + stall,
        "{} may expire {:?} before it is lost locally; the machine stalled for {stall:?}",
        guard.name(),
        lost - expiry
    );
    Reported::MachineStalled
}

/// The earliest possible expiry of a key on the server: the latest that any PTTL before `end` implies. A late reply implies an
/// earlier one, never a later one.
async fn expiry(fixture: &Fixture, key: &str, end: Instant) -> Instant {
    let mut plain = fixture.raw_connection().await;
    let mut expiry = Instant::now();
    while Instant::now() < end {
        let sent = Instant::now();
        let left: i64 = plain.pttl(key).await.expect("a reply");
        // Below zero if the request was sent in time, and executed when the key was gone.
        expiry = expiry.max(sent + ms(u64::try_from(left - 1).unwrap_or_default()));
        tokio::time::sleep(ms(20)).await;
    }
    expiry
}
