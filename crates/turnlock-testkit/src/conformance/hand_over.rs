//! Local hand-over: for a short window, a lock passes between waiters of one client without a request to the store, and without
//! weaker guarantees.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::conformance::{Case, Fixture, KindClient, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, within};
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, OwnerId};

pub const CASES: &[Case] = cases![
    a_lock_is_handed_over_within_the_window_and_released_after_it,
    a_window_of_zero_turns_hand_over_off,
    fixed_leases_and_named_owners_are_not_handed_over,
    the_last_guard_of_a_hold_hands_it_over,
    a_handed_over_lock_is_renewed_and_counted_once,
    a_cancelled_recipient_hands_the_lock_over_again,
    a_waiter_that_is_not_polled_blocks_no_other,
    other_clients_get_their_turn,
    clients_share_grants_evenly,
    a_forced_unlock_takes_effect_when_the_window_closes,
    a_forced_unlock_by_the_same_client_is_reported_at_once,
    a_forced_unlock_by_the_same_client_reaches_the_next_holder,
    the_first_waiter_requests_when_the_window_closes,
    lost_data_is_reported_when_the_window_closes needs DataLoss,
    a_shut_down_client_releases_its_holds,
    a_long_window_does_not_delay_a_shutdown,
];

/// The longest window that can be set. Longer than any case needs.
pub const LONG_WINDOW: Duration = Duration::from_secs(3);

/// A step that ends within this did not wait for a window of [`LONG_WINDOW`].
const BEFORE_THE_WINDOW_ENDS: Duration = Duration::from_millis(2_500);

/// A client whose requests can be counted: it announces no waits.
pub async fn client_with(fixture: &Fixture, window: Duration) -> KindClient {
    let builder = Client::builder().poll_interval(NO_POLL).announce_waits(false);
    fixture.client_with(builder.hand_over_window(window)).await
}

/// Spawns a task that waits for `lock`, and returns once it waits.
pub async fn spawn_waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, before + 1).await;
    task
}

pub async fn granted(task: JoinHandle<Guard>) -> Guard {
    within(PROMPT, "it is granted the lock", task).await.expect("no panic")
}

/// Returns `true` if a guard of `holder` is handed over to a waiter of `next`.
async fn is_handed_over(holder: &Lock, next: &Lock) -> bool {
    let guard = holder.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = spawn_waiter(next, 0).await;
    guard.unlock().await.expect("held");
    let guard = granted(task).await;
    let is_handed_over = *guard.owner_id() == owner;
    guard.unlock().await.expect("held");
    is_handed_over
}

pub async fn holders(lock: &Lock) -> Vec<(OwnerId, u64)> {
    let seen = lock.inspect().await.expect("a reply");
    seen.holders.into_iter().map(|holder| (holder.owner, holder.count)).collect()
}

async fn a_lock_is_handed_over_within_the_window_and_released_after_it(fixture: Fixture) {
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    assert!(is_handed_over(&lock, &lock).await);
    let lock = client_with(&fixture, ms(50)).await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = spawn_waiter(&lock, 0).await;
    tokio::time::sleep(ms(60)).await;
    guard.unlock().await.expect("held");
    assert_ne!(*granted(task).await.owner_id(), owner, "it was not released");
}

async fn a_window_of_zero_turns_hand_over_off(fixture: Fixture) {
    let lock = client_with(&fixture, Duration::ZERO).await.lock(&fixture.name());
    assert!(!is_handed_over(&lock, &lock).await);
}

async fn fixed_leases_and_named_owners_are_not_handed_over(fixture: Fixture) {
    let client = client_with(&fixture, LONG_WINDOW).await;
    let lock = client.lock(&fixture.name());
    let fixed = lock.with_lease(ms(20_000));
    let (one, two) = (client.owner(), client.owner());
    let (of_one, of_two) = (lock.with_owner(&one), lock.with_owner(&two));
    for (holder, next) in
        [(&fixed, &lock), (&lock, &fixed), (&of_one, &lock), (&lock, &of_one), (&of_one, &of_two)]
    {
        assert!(!is_handed_over(holder, next).await);
    }
    assert!(is_handed_over(&lock, &lock).await);
}

async fn the_last_guard_of_a_hold_hands_it_over(fixture: Fixture) {
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    let outer = lock.lock().await.expect("free");
    let owner = outer.owner_id().clone();
    let inner = outer.reenter().await.expect("held");
    let task = spawn_waiter(&lock, 0).await;
    outer.unlock().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner.clone(), 1)]);
    assert!(!task.is_finished());
    inner.unlock().await.expect("held");
    let guard = granted(task).await;
    assert_eq!(*guard.owner_id(), owner);
    // A handed-over hold can be reentered, and its count is right.
    let inner = guard.reenter().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner.clone(), 2)]);
    inner.unlock().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner, 1)]);
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn a_handed_over_lock_is_renewed_and_counted_once(fixture: Fixture) {
    let builder =
        Client::builder().poll_interval(NO_POLL).watchdog_timeout(ms(2_000)).hand_over_window(ms(200));
    let lock = fixture.client_with(builder).await.lock(&fixture.name());
    // The window is short: repeat until a hand-over succeeds.
    let guard = loop {
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let task = spawn_waiter(&lock, 0).await;
        guard.unlock().await.expect("held");
        let guard = granted(task).await;
        if *guard.owner_id() == owner {
            break guard;
        }
    };
    let first_end = guard.valid_until();
    for _ in 0..6 {
        tokio::time::sleep(ms(600)).await;
        assert_eq!(holders(&lock).await, [(guard.owner_id().clone(), 1)]);
        assert!(guard.is_valid());
    }
    assert!(guard.valid_until() > first_end + ms(1_500));
    guard.unlock().await.expect("held");
    assert_eq!(holders(&lock).await, []);
}

/// Polls a future once. It is in the queue then, and does not take what it is handed from now on.
pub async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) {
    assert!(poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await);
}

async fn a_cancelled_recipient_hands_the_lock_over_again(fixture: Fixture) {
    let client = client_with(&fixture, LONG_WINDOW).await;
    let lock = client.lock(&fixture.name());
    for waiters in 1..4 {
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let mut gone: Vec<_> = (0..waiters).map(|_| Box::pin(lock.lock())).collect();
        for waiter in &mut gone {
            poll_once(waiter).await;
        }
        let last = spawn_waiter(&lock, waiters).await;
        guard.unlock().await.expect("held");
        drop(gone);
        let guard = granted(last).await;
        assert_eq!(*guard.owner_id(), owner, "it is handed over to the next waiter");
        // Without another waiter, it is released.
        let mut waiter = Box::pin(lock.lock());
        poll_once(&mut waiter).await;
        drop(guard);
        drop(waiter);
        eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    }
}

async fn a_waiter_that_is_not_polled_blocks_no_other(fixture: Fixture) {
    let lock = client_with(&fixture, ms(50)).await.lock(&fixture.name());
    let other = fixture.client().await.lock(lock.name());
    let guard = lock.lock().await.expect("free");
    let mut stalled = Box::pin(lock.lock());
    poll_once(&mut stalled).await;
    let task = spawn_waiter(&other, 0).await;
    guard.unlock().await.expect("held");
    let guard = granted(task).await;
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "it is granted the lock later", stalled).await.expect("a turn");
    guard.unlock().await.expect("held");
}

/// Tasks of one client that lock and unlock without a pause, until they are stopped.
struct BusyClient {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    /// Grants of the store, counted as holds with a new owner.
    grants: Arc<AtomicU64>,
}

impl BusyClient {
    fn start(lock: &Lock, tasks: usize) -> Self {
        let (stop, grants) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let latest = Arc::new(std::sync::Mutex::new(None));
        let task = |_| {
            let (lock, stop, grants) = (lock.clone(), Arc::clone(&stop), Arc::clone(&grants));
            let latest = Arc::clone(&latest);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.expect("a turn");
                    let owner = Some(guard.owner_id().clone());
                    if std::mem::replace(&mut *latest.lock().unwrap(), owner.clone()) != owner {
                        grants.fetch_add(1, Ordering::Relaxed);
                    }
                    guard.unlock().await.expect("held");
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { stop, tasks, grants }
    }

    fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            within(ms(20_000), "it ends", task).await.expect("no panic");
        }
    }
}

async fn other_clients_get_their_turn(fixture: Fixture) {
    let times = fixture.rounds(30).await;
    let busy = fixture.client().await.lock(&fixture.name());
    let other = fixture.client().await.lock(busy.name());
    let busy_client = BusyClient::start(&busy, 4);
    eventually("it has started", ms(20_000), async || busy_client.grants() > 0).await;
    let mut longest = Duration::ZERO;
    for _ in 0..times.max(5) {
        let start = Instant::now();
        let guard = within(PROMPT, "it is granted the lock", other.lock()).await.expect("a turn");
        longest = longest.max(start.elapsed());
        guard.unlock().await.expect("held");
    }
    println!("waited for a busy client for {longest:?} at the most");
    busy_client.stop().await;
}

async fn clients_share_grants_evenly(fixture: Fixture) {
    // So many that a client that stalls for a moment still gets its share.
    const GRANTS: usize = 240;
    // Waits for its turn among the cases that use much processor time; the number of grants is the same on every store.
    let _ = fixture.rounds(GRANTS).await;
    let name = fixture.name();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(BusyClient::start(&fixture.client().await.lock(&name), 4));
    }
    let shares = || clients.iter().map(BusyClient::grants).collect::<Vec<_>>();
    eventually("each has had a grant", ms(60_000), async || shares().iter().all(|share| *share > 0)).await;
    let before = shares();
    let total = || shares().iter().sum::<u64>() - before.iter().sum::<u64>();
    eventually("all grants are made", ms(60_000), async || total() >= GRANTS as u64).await;
    let shares: Vec<_> = shares().iter().zip(&before).map(|(after, before)| after - before).collect();
    for client in clients {
        client.stop().await;
    }
    println!("of {} grants: {shares:?}", shares.iter().sum::<u64>());
    // After its window a client yields until the others had theirs. A third more or less is allowed, for a busy machine.
    let total = shares.iter().sum::<u64>();
    assert!(shares.iter().all(|share| (2 * total..=4 * total).contains(&(9 * share))), "{shares:?}");
}

async fn a_forced_unlock_takes_effect_when_the_window_closes(fixture: Fixture) {
    let (client, other) = (client_with(&fixture, ms(200)).await, fixture.client().await);
    let (lock, other) = (client.lock(&fixture.name()), other.lock(&fixture.named("0")));
    assert_eq!(lock.name(), other.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = spawn_waiter(&lock, 0).await;
    assert!(other.force_unlock().await.expect("a reply"));
    let other_guard = within(PROMPT, "it is free", other.lock()).await.expect("a turn");
    guard.unlock().await.map_or_else(|error| assert!(matches!(error, Error::Lost { .. })), |()| ());
    // Handed over before the window closed, or not: after that, there is one holder.
    let handed = tokio::time::timeout(ms(250), task).await;
    if let Ok(handed) = handed {
        let handed = handed.expect("no panic");
        assert_eq!(*handed.owner_id(), owner, "the store has granted it twice");
        let next = spawn_waiter(&lock, 0).await;
        tokio::time::sleep(ms(200)).await;
        assert!(matches!(handed.unlock().await, Err(Error::Lost { .. })));
        assert!(!next.is_finished(), "it is not handed over again");
        other_guard.unlock().await.expect("held");
        assert_ne!(*granted(next).await.owner_id(), owner);
    }
}

async fn a_forced_unlock_by_the_same_client_is_reported_at_once(fixture: Fixture) {
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = spawn_waiter(&lock, 0).await;
    guard.unlock().await.expect("held");
    let guard = granted(task).await;
    assert_eq!(*guard.owner_id(), owner);
    assert!(lock.force_unlock().await.expect("a reply"));
    within(BEFORE_THE_WINDOW_ENDS, "it is lost", guard.lost()).await;
}

async fn a_forced_unlock_by_the_same_client_reaches_the_next_holder(fixture: Fixture) {
    let times = fixture.rounds(100).await.max(10);
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    for _ in 0..times {
        let guard = lock.lock().await.expect("free");
        let task = spawn_waiter(&lock, 0).await;
        assert!(lock.force_unlock().await.expect("a reply"));
        // It is checked and handed over at the same time.
        drop(guard);
        let guard = granted(task).await;
        let is_settled = async || !guard.is_valid() || !holders(&lock).await.is_empty();
        eventually("it is held, or reported lost", PROMPT, is_settled).await;
        let _ = guard.unlock().await;
    }
}

async fn the_first_waiter_requests_when_the_window_closes(fixture: Fixture) {
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    let other = fixture.client().await.lock(lock.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let (first, second) = (spawn_waiter(&lock, 0).await, spawn_waiter(&lock, 1).await);
    guard.unlock().await.expect("held");
    let guard = granted(first).await;
    assert_eq!(*guard.owner_id(), owner);
    assert!(other.force_unlock().await.expect("a reply"));
    // The holder does not know, and does not release: the next waiter requests the lock by itself.
    let next = within(LONG_WINDOW + PROMPT, "it is granted the lock", second).await.expect("no panic");
    assert_ne!(*next.owner_id(), owner);
    assert!(!guard.is_valid(), "the new grant proves that it is lost");
    next.unlock().await.expect("held");
}

async fn lost_data_is_reported_when_the_window_closes(fixture: Fixture) {
    let lock = client_with(&fixture, ms(100)).await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let task = spawn_waiter(&lock, 0).await;
    fixture.lose_data().await;
    guard.unlock().await.map_or_else(|error| assert!(matches!(error, Error::Lost { .. })), |()| ());
    let guard = granted(task).await;
    tokio::time::sleep(ms(110)).await;
    // It was handed over, and the store reports it lost; or it was requested again.
    let is_held = !holders(&lock).await.is_empty();
    assert_eq!(guard.unlock().await.is_ok(), is_held);
}

async fn a_shut_down_client_releases_its_holds(fixture: Fixture) {
    let (client, other) = (client_with(&fixture, LONG_WINDOW).await, fixture.client().await);
    let lock = client.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let refused = tokio::spawn(async move { waiting.lock().await.map(drop) });
    until_waiting(&lock, 1).await;
    let shutting_down = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(ms(5_000)).await }
    });
    assert!(matches!(
        within(PROMPT, "the waiter fails", refused).await.expect("no panic"),
        Err(Error::ShuttingDown)
    ));
    drop(guard);
    let left = within(BEFORE_THE_WINDOW_ENDS, "all is released", shutting_down).await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    let guard = other.lock(lock.name()).try_lock().await.expect("a reply").acquired().expect("free");
    guard.unlock().await.expect("held");
}

async fn a_long_window_does_not_delay_a_shutdown(fixture: Fixture) {
    let client = client_with(&fixture, LONG_WINDOW).await;
    let lock = client.lock(&fixture.name());
    assert!(is_handed_over(&lock, &lock).await);
    let left = within(BEFORE_THE_WINDOW_ENDS, "it ends before the window", client.shutdown(ms(5_000))).await;
    assert!(left.is_clean(), "{left:?}");
}
