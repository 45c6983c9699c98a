//! Many waiters of one client: what a turn costs does not grow with their number.

use std::time::Instant;

use futures_util::FutureExt;
use turnlock::Client;
use turnlock_testkit::{Calls, eventually, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::{Case, cases};

pub(super) const READ_WRITE_CASES: &[Case] =
    cases![a_turn_of_a_writer_costs_the_same_for_any_number, a_reader_costs_the_same_for_any_number];

pub(super) const SEMAPHORE_CASES: &[Case] = cases![
    a_permit_costs_the_same_for_any_number_of_waiters,
    a_client_does_not_acquire_a_permit_again_before_others_can,
];

pub(super) const PERMIT_CASES: &[Case] = cases![
    a_leased_permit_costs_the_same_for_any_number_of_waiters,
    a_client_does_not_acquire_a_leased_permit_again_before_others_can,
];

pub(super) const LATCH_CASES: &[Case] = cases![
    waiters_for_a_latch_share_their_requests,
    a_waiter_for_a_latch_that_is_not_polled_does_not_delay_the_others,
];

/// The requests and commands for `turns` turns since `before`, as numbers per turn.
pub(super) async fn cost_per_turn(fixture: &Fixture, before: &Calls, turns: usize) -> (f64, f64) {
    let calls = fixture.server().calls().await.since(before);
    let sent = ["evalsha", "eval", "subscribe", "unsubscribe"].map(|command| calls.of(command));
    let per_turn =
        |count: u64| f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(turns).unwrap());
    let cost = (per_turn(sent.iter().sum()), per_turn(calls.total()));
    println!("{turns} turns: {:.2} requests and {:.2} commands per turn", cost.0, cost.1);
    cost
}

/// What the waiters of a herd wait for.
#[derive(Clone, Copy)]
enum Herd {
    Writers,
    Readers,
    Semaphore,
    Permits,
}

impl Herd {
    /// Sets the number of permits, if there is one.
    async fn prepare(self, client: &Client) {
        let is_set = match self {
            Self::Writers | Self::Readers => true,
            Self::Semaphore => client.semaphore("herd").try_set_permits(1).await.expect("a reply"),
            Self::Permits => client.permit_semaphore("herd").try_set_permits(1).await.expect("a reply"),
        };
        assert!(is_set);
    }

    /// Waits for a turn, and ends it once `until` is ready.
    async fn take_turn(self, client: &Client, until: impl Future<Output = ()>) {
        match self {
            Self::Writers => {
                let guard = client.read_write_lock("herd").write().await.expect("a turn");
                until.await;
                guard.unlock().await.expect("held");
            }
            Self::Readers => {
                let guard = client.read_write_lock("herd").read().await.expect("a turn");
                until.await;
                guard.unlock().await.expect("held");
            }
            Self::Semaphore => {
                let permit = client.semaphore("herd").acquire(1).await.expect("a turn");
                until.await;
                permit.release().await.expect("held");
            }
            Self::Permits => {
                let permit = client.permit_semaphore("herd").acquire(1).await.expect("a turn");
                until.await;
                permit.release().await.expect("held");
            }
        }
    }

    async fn waiting_here(self, client: &Client) -> usize {
        let seen = match self {
            Self::Writers | Self::Readers => client.read_write_lock("herd").inspect().await,
            Self::Semaphore => client.semaphore("herd").inspect().await,
            Self::Permits => client.permit_semaphore("herd").inspect().await,
        };
        seen.expect("a reply").waiting_here
    }

    /// Fails if the commands per turn grow with the number of waiters.
    async fn assert_flat(self, fixture: Fixture) {
        let client = fixture.client_with(silent()).await;
        self.prepare(&client).await;
        let mut costs = Vec::new();
        for waiters in [20, 300] {
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let holder = client.clone();
            // The holder of a read-write lock is a writer: it blocks readers, too.
            let first = if matches!(self, Self::Readers) { Self::Writers } else { self };
            let holder = tokio::spawn(async move {
                first.take_turn(&holder, ended.map(drop)).await;
            });
            let inspect = async || self.is_taken(&client).await;
            eventually("it is held", PROMPT, inspect).await;
            let mut turns = Vec::new();
            for _ in 0..waiters {
                let client = client.clone();
                turns.push(tokio::spawn(async move { self.take_turn(&client, async {}).await }));
            }
            eventually("all wait", ms(20_000), async || self.waiting_here(&client).await == waiters).await;
            let before = fixture.server().calls().await;
            end.send(()).expect("the holder waits for it");
            within(PROMPT, "it is released", holder).await.expect("no panic");
            for turn in turns {
                within(ms(60_000), "it takes its turn", turn).await.expect("no panic");
            }
            costs.push(cost_per_turn(&fixture, &before, waiters).await.1);
        }
        // A waiter may be woken twice, by its client and by the message.
        assert!(costs[1] <= 1.5 * costs[0], "{costs:?}");
    }

    /// Fails if a client that releases by dropping the guard, and acquires at once, does not yield to others.
    async fn assert_yields(self, fixture: Fixture) {
        const TURNS: u32 = 50;
        let client = fixture.client().await;
        self.prepare(&client).await;
        let server = redis::Client::open(fixture.server().url()).expect("an address");
        let mut others = Vec::new();
        for _ in 0..3 {
            let mut other = server.get_async_pubsub().await.expect("a connection");
            other.subscribe("redisson_sc:{herd}").await.expect("subscribed");
            others.push(other);
        }
        let start = Instant::now();
        for _ in 0..TURNS {
            match self {
                Self::Semaphore => drop(client.semaphore("herd").acquire(1).await.expect("a turn")),
                _ => drop(client.permit_semaphore("herd").acquire(1).await.expect("a turn")),
            }
        }
        // Each of the others has two milliseconds. A busy machine may complete some releases before the next request.
        assert!(start.elapsed() >= ms(6) * (TURNS / 2), "{TURNS} turns in {:?}", start.elapsed());
    }

    async fn is_taken(self, client: &Client) -> bool {
        match self {
            Self::Writers | Self::Readers => {
                client.read_write_lock("herd").inspect().await.expect("a reply").is_locked()
            }
            Self::Semaphore => client.semaphore("herd").available().await.expect("a reply") == 0,
            Self::Permits => client.permit_semaphore("herd").available().await.expect("a reply") == 0,
        }
    }
}

async fn a_turn_of_a_writer_costs_the_same_for_any_number(fixture: Fixture) {
    Herd::Writers.assert_flat(fixture).await;
}

async fn a_reader_costs_the_same_for_any_number(fixture: Fixture) {
    Herd::Readers.assert_flat(fixture).await;
}

async fn a_permit_costs_the_same_for_any_number_of_waiters(fixture: Fixture) {
    Herd::Semaphore.assert_flat(fixture).await;
}

async fn a_leased_permit_costs_the_same_for_any_number_of_waiters(fixture: Fixture) {
    Herd::Permits.assert_flat(fixture).await;
}

async fn a_client_does_not_acquire_a_permit_again_before_others_can(fixture: Fixture) {
    Herd::Semaphore.assert_yields(fixture).await;
}

async fn a_client_does_not_acquire_a_leased_permit_again_before_others_can(fixture: Fixture) {
    Herd::Permits.assert_yields(fixture).await;
}

/// Settings of a client that announces no waits, which are other requests.
fn silent() -> turnlock::Builder {
    Client::builder().poll_interval(NO_POLL).announce_waits(false)
}

async fn waiters_for_a_latch_share_their_requests(fixture: Fixture) {
    const WAITERS: usize = 300;
    let latch = fixture.client_with(silent()).await.latch("shared");
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let before = fixture.server().calls().await;
    let mut tasks = Vec::new();
    for _ in 0..WAITERS {
        let latch = latch.clone();
        tasks.push(tokio::spawn(async move { latch.wait().await.expect("it opens") }));
    }
    let mut inspections = 0;
    while latch.inspect().await.expect("a reply").waiting_here < WAITERS {
        // One request for the latch, and one for announced waits.
        inspections += 2;
        tokio::time::sleep(ms(5)).await;
    }
    latch.count_down().await.expect("a reply");
    for task in tasks {
        within(PROMPT, "it opens", task).await.expect("no panic");
    }
    let calls = fixture.server().calls().await.since(&before);
    let sent = calls.of("evalsha") + calls.of("subscribe") - inspections;
    // Before and after the subscription, after the message; the count-down itself, its request id, and the last inspection.
    assert!(sent <= 12, "{sent} requests: {calls:?}");
}

async fn a_waiter_for_a_latch_that_is_not_polled_does_not_delay_the_others(fixture: Fixture) {
    let latch = fixture.client_with(Client::builder().poll_interval(NO_POLL)).await.latch("stuck");
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let mut stuck = Box::pin(latch.wait());
    // It asks, subscribes and asks again, and is not polled any more.
    assert!(tokio::time::timeout(ms(500), &mut stuck).await.is_err(), "it is closed");
    let waiting = latch.clone();
    let other = tokio::spawn(async move { waiting.wait().await.expect("it opens") });
    eventually("both wait", PROMPT, async || latch.inspect().await.expect("a reply").waiting_here == 2).await;
    latch.count_down().await.expect("a reply");
    within(PROMPT, "the other one is told", other).await.expect("no panic");
    within(PROMPT, "so is the first, once it is polled", stuck).await.expect("it opens");
}
