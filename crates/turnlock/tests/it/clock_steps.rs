//! The wall clock of a server is set while locks are held.
//!
//! Set ahead, leases end early and holders are notified. Set back, no hold is lost, and holds of dead clients
//! expire later.

use std::time::Instant;

use futures_util::future::join_all;
use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, ms, until_waiting};
use crate::resource::{Held, Resource};
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![
    a_clock_set_ahead_ends_leases_and_holders_are_notified,
    a_clock_set_back_loses_no_hold,
    a_clock_set_back_delays_the_expiry_of_dead_holders,
    a_fair_queue_continues_when_the_clock_is_set,
    permits_are_counted_once_when_the_clock_is_set,
];

/// The kinds that have a lease.
const KINDS: [Kind; 8] =
    [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Spin, Kind::Plain, Kind::Write, Kind::Read, Kind::Permits];

const HOUR: i64 = 3_600;

async fn connect(url: &str) -> Client {
    Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL).connect(url).await.expect("a server")
}

/// Returns one client, for each kind.
async fn clients_of_all_kinds(url: &str) -> Vec<KindClient> {
    let client = connect(url).await;
    KINDS.iter().map(|kind| KindClient::new(client.clone(), *kind)).collect()
}

/// Acquires one resource of each kind.
async fn acquire_all(clients: &[KindClient]) -> Vec<Held> {
    let mut all = Vec::new();
    for client in clients {
        let resource = Resource::new(client, client.kind().name()).await;
        all.push(resource.acquire(0, ms(0)).await.expect("a reply").expect("free"));
    }
    all
}

/// Returns the resource of this kind, to be acquired by a rival.
fn contended(rival: &KindClient, kind: Kind) -> Resource<'_> {
    Resource::of(rival, kind.name())
}

async fn a_clock_set_ahead_ends_leases_and_holders_are_notified(_: Fixture) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let clients = clients_of_all_kinds(&server.url()).await;
    let rivals: Vec<_> = clients_of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = acquire_all(&clients).await;
    let fixed = clients[0].lock("fixed").with_lease(ms(600_000)).lock().await.expect("free");
    server.set_clock_ahead(HOUR);
    let after_fixed = rivals[0].lock("fixed").lock().await.expect("its lease has ended");
    let mut next = Vec::new();
    for (kind, rival) in KINDS.into_iter().zip(&rivals) {
        let turn = within(ms(5_000), kind.name(), contended(rival, kind).acquire(0, ms(60_000))).await;
        next.push(turn.expect("a reply").expect("the lease has ended"));
    }
    for ((kind, held), next) in KINDS.into_iter().zip(held).zip(&next) {
        // By the next renewal, which comes before the local end.
        let reason = within(ms(5_000), kind.name(), held.lost()).await;
        assert_eq!(reason, LostReason::Taken, "{}", kind.name());
        assert!(next.token() >= held.token(), "tokens rise");
        let outcome = held.release().await;
        assert!(matches!(outcome, Err(Error::Lost { .. })), "{}: {outcome:?}", kind.name());
    }
    let outcome = fixed.unlock().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    after_fixed.unlock().await.expect("held");
    // The first holders have not affected the next holds, and the clock continues from there.
    for ((kind, next), rival) in KINDS.into_iter().zip(next).zip(&rivals) {
        assert!(next.is_valid(), "{}", kind.name());
        let token = next.token();
        next.release().await.expect("held");
        assert!(contended(rival, kind).is_free().await, "{}", kind.name());
        if kind == Kind::Fenced {
            server.set_clock_ahead(0);
            let again = contended(rival, kind).acquire(0, ms(0)).await.expect("a reply").expect("free");
            assert!(again.token() > token, "tokens rise although the clock was set back");
            again.release().await.expect("held");
            server.set_clock_ahead(HOUR);
        }
    }
}

async fn a_clock_set_back_loses_no_hold(_: Fixture) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let clients = clients_of_all_kinds(&server.url()).await;
    let rivals: Vec<_> = clients_of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = acquire_all(&clients).await;
    server.set_clock_ahead(-HOUR);
    let ends: Vec<_> = held.iter().map(Held::valid_until).collect();
    let is_renewed = async || held.iter().zip(&ends).all(|(held, end)| held.valid_until() > *end + ms(500));
    eventually("all are renewed", ms(6_000), is_renewed).await;
    for ((kind, held), rival) in KINDS.into_iter().zip(held).zip(&rivals) {
        assert!(held.is_valid(), "{}", kind.name());
        let next = contended(rival, kind);
        assert!(next.acquire(0, ms(0)).await.expect("a reply").is_none(), "{}", kind.name());
        held.release().await.expect("held");
        let turn = next.acquire(0, ms(0)).await.expect("a reply");
        turn.unwrap_or_else(|| panic!("{} is free", kind.name())).release().await.expect("held");
    }
}

async fn a_clock_set_back_delays_the_expiry_of_dead_holders(_: Fixture) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let proxy = FaultProxy::start(server.port()).await;
    let clients = clients_of_all_kinds(&proxy.url()).await;
    let rivals: Vec<_> = clients_of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = acquire_all(&clients).await;
    // No request of these clients arrives, as if they were dead.
    proxy.black_hole();
    server.set_clock_ahead(-5);
    let begun = Instant::now();
    let losses = join_all(held.iter().map(Held::lost));
    let turns = join_all(KINDS.into_iter().zip(&rivals).map(async |(kind, rival)| {
        // A lease of three seconds, and the five seconds of the clock step.
        let turn = within(ms(10_000), kind.name(), contended(rival, kind).acquire(0, ms(60_000))).await;
        let turn = turn.expect("a reply").expect("free");
        assert!(begun.elapsed() > ms(5_000), "{} after {:?}", kind.name(), begun.elapsed());
        turn.release().await.expect("held");
    }));
    let losses = async {
        let reasons = losses.await;
        let not_renewed = reasons.iter().all(|reason| matches!(reason, LostReason::NotRenewed { .. }));
        assert!(not_renewed, "{reasons:?}");
        assert!(begun.elapsed() < ms(5_000), "by the holder's own clock: {:?}", begun.elapsed());
    };
    tokio::join!(losses, turns);
}

async fn a_fair_queue_continues_when_the_clock_is_set(_: Fixture) {
    for ahead in [HOUR, -HOUR] {
        let mut server = RedisServer::start_with_clock_ahead(0).await;
        let url = server.url();
        let holder = connect(&url).await.fair_lock("f");
        let guard = holder.lock().await.expect("free");
        let queue = async |length| {
            let has_length = async || holder.inspect().await.is_ok_and(|seen| seen.queue.len() == length);
            eventually("the waiters are in the queue", ms(20_000), has_length).await;
        };
        // One waiter that dies, and two that live.
        let mut dead = child::spawn("queue,f", &url);
        queue(1).await;
        let mut waiting = Vec::new();
        for length in [2, 3] {
            let lock = connect(&url).await.fair_lock("f");
            let waiter = lock.clone();
            waiting.push(tokio::spawn(async move { waiter.lock().await.expect("acquired") }));
            until_waiting(&lock, 1).await;
            queue(length).await;
        }
        server.set_clock_ahead(ahead);
        dead.kill().await.expect("killed");
        let (first, rest) = if ahead > 0 {
            // The lease has ended, and the heartbeats of all waiters are too old: they queue again, in any
            // order.
            let reason = within(ms(5_000), "the holder is notified", guard.lost()).await;
            assert_eq!(reason, LostReason::Taken);
            let (first, _, rest) =
                within(ms(10_000), "acquired", futures_util::future::select_all(waiting)).await;
            (first, rest)
        } else {
            guard.unlock().await.expect("held");
            // A waiter without a heartbeat for 4 s is skipped, after at most 6 s.
            let first = waiting.remove(0);
            (within(ms(8_000), "the dead waiter is skipped", first).await, waiting)
        };
        let first = first.expect("no panic");
        assert!(rest.iter().all(|waiter| !waiter.is_finished()), "one at a time");
        first.unlock().await.expect("held");
        for waiter in rest {
            let guard = within(ms(10_000), "the next waiter acquires", waiter).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
    }
}

async fn permits_are_counted_once_when_the_clock_is_set(_: Fixture) {
    // Less than an hour, for which the store keeps a request id.
    for ahead in [HOUR / 2, -HOUR / 2] {
        let mut server = RedisServer::start_with_clock_ahead(0).await;
        let proxy = FaultProxy::start(server.port()).await;
        let client = connect(&proxy.url()).await;
        let semaphore = client.semaphore("permits");
        assert!(semaphore.try_set_permits(5).await.expect("set"));
        // The reply is lost, and the request cannot be resent before the clock is set.
        proxy.refuse(true);
        proxy.swallow_replies_to(b"permits");
        let acquiring = semaphore.clone();
        let acquiring = tokio::spawn(async move { acquiring.acquire(2).await.expect("free") });
        proxy.fired().await;
        server.set_clock_ahead(ahead);
        proxy.refuse(false);
        let permits = within(ms(20_000), "the request is resent", acquiring).await.expect("no panic");
        assert_eq!(semaphore.available().await.expect("a reply"), 3, "{ahead}");
        permits.release().await.expect("held");
        assert_eq!(semaphore.available().await.expect("a reply"), 5, "{ahead}");
    }
}
