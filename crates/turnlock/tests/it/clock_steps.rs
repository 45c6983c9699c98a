//! A server whose wall clock is set while locks are held: ahead, leases end early and holders are told; back, nothing that is
//! held is lost, and what a dead holder had is free later.

use std::time::Instant;

use futures_util::future::join_all;
use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use crate::held::{Held, Thing};
use crate::rig::{Kind, KindClient, NO_POLL, Rig, ms, until_waiting};
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![
    a_clock_that_is_set_ahead_ends_leases_and_holders_are_told,
    a_clock_that_is_set_back_costs_no_hold,
    a_clock_that_is_set_back_frees_the_locks_of_the_dead_later,
    a_fair_queue_goes_on_when_the_clock_is_set,
    permits_are_counted_once_when_the_clock_is_set,
];

/// Everything that has a lease.
const KINDS: [Kind; 8] =
    [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Spin, Kind::Plain, Kind::Write, Kind::Read, Kind::Permits];

const HOUR: i64 = 3_600;

async fn connect(url: &str) -> Client {
    Client::builder().watchdog(ms(3_000)).poll(NO_POLL).connect(url).await.expect("a server")
}

/// The client for each kind.
async fn of_all_kinds(url: &str) -> Vec<KindClient> {
    let client = connect(url).await;
    KINDS.iter().map(|kind| KindClient::new(client.clone(), *kind)).collect()
}

/// Takes one of each kind.
async fn take_all(clients: &[KindClient]) -> Vec<Held> {
    let mut all = Vec::new();
    for client in clients {
        let thing = Thing::new(client, client.kind().name()).await;
        all.push(thing.take(0, ms(0)).await.expect("an answer").expect("free"));
    }
    all
}

/// The same thing for one who wants it alone.
fn wanted(rival: &KindClient, kind: Kind) -> Thing<'_> {
    Thing::of(rival, kind.name())
}

async fn a_clock_that_is_set_ahead_ends_leases_and_holders_are_told(_: Rig) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let clients = of_all_kinds(&server.url()).await;
    let rivals: Vec<_> = of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = take_all(&clients).await;
    let fixed = clients[0].lock("fixed").lease(ms(600_000)).lock().await.expect("free");
    server.set_clock_ahead(HOUR);
    let after_fixed = rivals[0].lock("fixed").lock().await.expect("its lease has ended");
    let mut next = Vec::new();
    for (kind, rival) in KINDS.into_iter().zip(&rivals) {
        let turn = within(ms(5_000), kind.name(), wanted(rival, kind).take(0, ms(60_000))).await;
        next.push(turn.expect("an answer").expect("the lease has ended"));
    }
    for ((kind, held), next) in KINDS.into_iter().zip(held).zip(&next) {
        // By the next renewal, so before the end that it knows of.
        let reason = within(ms(5_000), kind.name(), held.lost()).await;
        assert_eq!(reason, LostReason::Taken, "{}", kind.name());
        assert!(next.token() >= held.token(), "tokens rise");
        let outcome = held.release().await;
        assert!(matches!(outcome, Err(Error::Lost { .. })), "{}: {outcome:?}", kind.name());
    }
    let outcome = fixed.unlock().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    after_fixed.unlock().await.expect("held");
    // Nothing that the first ones did has touched the holds of the next ones, and the clock goes on from there.
    for ((kind, next), rival) in KINDS.into_iter().zip(next).zip(&rivals) {
        assert!(next.is_valid(), "{}", kind.name());
        let token = next.token();
        next.release().await.expect("held");
        assert!(wanted(rival, kind).is_free().await, "{}", kind.name());
        if kind == Kind::Fenced {
            server.set_clock_ahead(0);
            let again = wanted(rival, kind).take(0, ms(0)).await.expect("an answer").expect("free");
            assert!(again.token() > token, "tokens rise although the clock was set back");
            again.release().await.expect("held");
            server.set_clock_ahead(HOUR);
        }
    }
}

async fn a_clock_that_is_set_back_costs_no_hold(_: Rig) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let clients = of_all_kinds(&server.url()).await;
    let rivals: Vec<_> = of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = take_all(&clients).await;
    server.set_clock_ahead(-HOUR);
    let ends: Vec<_> = held.iter().map(Held::valid_until).collect();
    let is_renewed = async || held.iter().zip(&ends).all(|(held, end)| held.valid_until() > *end + ms(500));
    eventually("all are renewed", ms(6_000), is_renewed).await;
    for ((kind, held), rival) in KINDS.into_iter().zip(held).zip(&rivals) {
        assert!(held.is_valid(), "{}", kind.name());
        let next = wanted(rival, kind);
        assert!(next.take(0, ms(0)).await.expect("an answer").is_none(), "{}", kind.name());
        held.release().await.expect("held");
        let turn = next.take(0, ms(0)).await.expect("an answer");
        turn.unwrap_or_else(|| panic!("{} is free", kind.name())).release().await.expect("held");
    }
}

async fn a_clock_that_is_set_back_frees_the_locks_of_the_dead_later(_: Rig) {
    let mut server = RedisServer::start_with_clock_ahead(0).await;
    let proxy = FaultProxy::start(server.port()).await;
    let clients = of_all_kinds(&proxy.url()).await;
    let rivals: Vec<_> = of_all_kinds(&server.url()).await.iter().map(KindClient::rival).collect();
    let held = take_all(&clients).await;
    // As good as dead: nobody hears of them.
    proxy.black_hole();
    server.set_clock_ahead(-5);
    let begun = Instant::now();
    let told = join_all(held.iter().map(Held::lost));
    let turns = join_all(KINDS.into_iter().zip(&rivals).map(async |(kind, rival)| {
        // A lease of three seconds, and the step.
        let turn = within(ms(10_000), kind.name(), wanted(rival, kind).take(0, ms(60_000))).await;
        let turn = turn.expect("an answer").expect("free");
        assert!(begun.elapsed() > ms(5_000), "{} after {:?}", kind.name(), begun.elapsed());
        turn.release().await.expect("held");
    }));
    let told = async {
        let reasons = told.await;
        let is_so = reasons.iter().all(|reason| matches!(reason, LostReason::NotRenewed { .. }));
        assert!(is_so, "{reasons:?}");
        assert!(begun.elapsed() < ms(5_000), "by the holder's own clock: {:?}", begun.elapsed());
    };
    tokio::join!(told, turns);
}

async fn a_fair_queue_goes_on_when_the_clock_is_set(_: Rig) {
    for ahead in [HOUR, -HOUR] {
        let mut server = RedisServer::start_with_clock_ahead(0).await;
        let url = server.url();
        let holder = connect(&url).await.fair_lock("f");
        let guard = holder.lock().await.expect("free");
        let queue = async |length| {
            let is_so = async || holder.inspect().await.is_ok_and(|seen| seen.queue.len() == length);
            eventually("they stand in the queue", ms(20_000), is_so).await;
        };
        // One that dies, and two that wait.
        let mut dead = child::spawn("queue,f", &url);
        queue(1).await;
        let mut waiting = Vec::new();
        for length in [2, 3] {
            let lock = connect(&url).await.fair_lock("f");
            let waits = lock.clone();
            waiting.push(tokio::spawn(async move { waits.lock().await.expect("a turn") }));
            until_waiting(&lock, 1).await;
            queue(length).await;
        }
        server.set_clock_ahead(ahead);
        dead.kill().await.expect("killed");
        let (first, rest) = if ahead > 0 {
            // The lease has ended, and all waiters count as silent: they queue again, in any order.
            let reason = within(ms(5_000), "the holder is told", guard.lost()).await;
            assert_eq!(reason, LostReason::Taken);
            let (first, _, rest) =
                within(ms(10_000), "a turn", futures_util::future::select_all(waiting)).await;
            (first, rest)
        } else {
            guard.unlock().await.expect("held");
            // Who is silent for 4 s is passed: at most 6 s.
            let first = waiting.remove(0);
            (within(ms(8_000), "the dead one is passed", first).await, waiting)
        };
        let first = first.expect("no panic");
        assert!(rest.iter().all(|waiter| !waiter.is_finished()), "one at a time");
        first.unlock().await.expect("held");
        for waiter in rest {
            let guard = within(ms(10_000), "the next one's turn", waiter).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
    }
}

async fn permits_are_counted_once_when_the_clock_is_set(_: Rig) {
    // Less than an hour, for which the store remembers a request.
    for ahead in [HOUR / 2, -HOUR / 2] {
        let mut server = RedisServer::start_with_clock_ahead(0).await;
        let proxy = FaultProxy::start(server.port()).await;
        let client = connect(&proxy.url()).await;
        let semaphore = client.semaphore("permits");
        assert!(semaphore.try_set_permits(5).await.expect("set"));
        // The answer is lost, and the request cannot be sent again before the clock is set.
        proxy.refuse(true);
        proxy.swallow_replies_to(b"permits");
        let asking = semaphore.clone();
        let asking = tokio::spawn(async move { asking.acquire(2).await.expect("free") });
        proxy.fired().await;
        server.set_clock_ahead(ahead);
        proxy.refuse(false);
        let permits = within(ms(20_000), "asked again", asking).await.expect("no panic");
        assert_eq!(semaphore.available().await.expect("an answer"), 3, "{ahead}");
        permits.release().await.expect("held");
        assert_eq!(semaphore.available().await.expect("an answer"), 5, "{ahead}");
    }
}
