//! Local hand-over: a lock passes from waiter to waiter of one client without a word to the store, for a short time, and
//! weakens nothing by that.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, OwnerId};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::rig::{KindClient, NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

/// On every store.
pub(crate) const CASES: &[Case] = cases![
    a_lock_passes_on_within_the_window_and_goes_by_the_store_after_it,
    it_is_off_when_the_window_is_zero,
    fixed_leases_and_named_owners_go_by_the_store,
    the_last_guard_of_a_hold_passes_it_on,
    a_handed_lock_is_renewed_and_counted_once,
    a_handed_waiter_that_goes_away_hands_on,
    who_does_not_run_keeps_it_from_nobody,
    other_clients_get_their_turn,
    clients_take_turns_of_the_store_evenly,
    a_forced_unlock_ends_it_with_the_window,
    a_forced_unlock_of_the_own_client_is_told_at_once,
    a_forced_unlock_of_the_own_client_is_told_to_the_next,
    who_comes_to_the_front_is_told_when_the_window_ends,
    lost_data_is_told_when_the_window_ends,
    a_client_that_is_shut_down_gives_back,
    a_long_window_does_not_hold_up_the_end,
];

/// On a server of its own, whose calls can be counted.
pub(crate) const REDIS_CASES: &[Case] = cases![
    a_window_of_turns_costs_two_calls,
    a_herd_costs_a_call_for_many_turns,
    a_reentry_that_is_under_way_is_not_handed_over,
    a_slow_line_does_not_eat_the_window_up,
    a_free_lock_is_asked_for_before_a_wait_ends,
];

/// Longer than any of the cases takes, and the longest that there is.
const LONG: Duration = Duration::from_secs(3);

/// What ends in this time did not wait for a window of [`LONG`].
const BEFORE_THE_WINDOW_ENDS: Duration = Duration::from_millis(2_500);

async fn client_with(rig: &Rig, window: Duration) -> KindClient {
    rig.client_with(Client::builder().poll(NO_POLL).hand_over_window(window)).await
}

/// A task that waits for `lock`, once it is known to wait.
async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, before + 1).await;
    task
}

async fn turn_of(task: JoinHandle<Guard>) -> Guard {
    within(PROMPT, "it gets its turn", task).await.expect("no panic")
}

/// Whether a guard of `holder` passes on to a waiter of `next`.
async fn passes(holder: &Lock, next: &Lock) -> bool {
    let guard = holder.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = waiter(next, 0).await;
    guard.unlock().await.expect("held");
    let guard = turn_of(task).await;
    let passed = *guard.owner_id() == owner;
    guard.unlock().await.expect("held");
    passed
}

async fn holders(lock: &Lock) -> Vec<(OwnerId, u64)> {
    let seen = lock.inspect().await.expect("an answer");
    seen.holders.into_iter().map(|holder| (holder.owner, holder.count)).collect()
}

async fn a_lock_passes_on_within_the_window_and_goes_by_the_store_after_it(rig: Rig) {
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    assert!(passes(&lock, &lock).await);
    let lock = client_with(&rig, ms(50)).await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = waiter(&lock, 0).await;
    tokio::time::sleep(ms(60)).await;
    guard.unlock().await.expect("held");
    assert_ne!(*turn_of(task).await.owner_id(), owner, "it was not given back");
}

async fn it_is_off_when_the_window_is_zero(rig: Rig) {
    let lock = client_with(&rig, Duration::ZERO).await.lock(&rig.name());
    assert!(!passes(&lock, &lock).await);
}

async fn fixed_leases_and_named_owners_go_by_the_store(rig: Rig) {
    let client = client_with(&rig, LONG).await;
    let lock = client.lock(&rig.name());
    let fixed = lock.lease(ms(20_000));
    let (one, two) = (client.owner(), client.owner());
    let (of_one, of_two) = (lock.owned_by(&one), lock.owned_by(&two));
    for (holder, next) in
        [(&fixed, &lock), (&lock, &fixed), (&of_one, &lock), (&lock, &of_one), (&of_one, &of_two)]
    {
        assert!(!passes(holder, next).await);
    }
    assert!(passes(&lock, &lock).await);
}

async fn the_last_guard_of_a_hold_passes_it_on(rig: Rig) {
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    let outer = lock.lock().await.expect("free");
    let owner = outer.owner_id().clone();
    let inner = outer.reenter().await.expect("held");
    let task = waiter(&lock, 0).await;
    outer.unlock().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner.clone(), 1)]);
    assert!(!task.is_finished());
    inner.unlock().await.expect("held");
    let guard = turn_of(task).await;
    assert_eq!(*guard.owner_id(), owner);
    // What was handed over can be deepened, and the count is true.
    let inner = guard.reenter().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner.clone(), 2)]);
    inner.unlock().await.expect("held");
    assert_eq!(holders(&lock).await, [(owner, 1)]);
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn a_handed_lock_is_renewed_and_counted_once(rig: Rig) {
    let builder = Client::builder().poll(NO_POLL).watchdog(ms(2_000)).hand_over_window(ms(200));
    let lock = rig.client_with(builder).await.lock(&rig.name());
    // The window is short: until it was handed over.
    let guard = loop {
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let task = waiter(&lock, 0).await;
        guard.unlock().await.expect("held");
        let guard = turn_of(task).await;
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

/// Polls once. It has its place in the queue then, and what it is handed from now on it does not take.
async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) {
    assert!(poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await);
}

async fn a_handed_waiter_that_goes_away_hands_on(rig: Rig) {
    let client = client_with(&rig, LONG).await;
    let lock = client.lock(&rig.name());
    for waiters in 1..4 {
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let mut gone: Vec<_> = (0..waiters).map(|_| Box::pin(lock.lock())).collect();
        for waiter in &mut gone {
            poll_once(waiter).await;
        }
        let last = waiter(&lock, waiters).await;
        guard.unlock().await.expect("held");
        drop(gone);
        let guard = turn_of(last).await;
        assert_eq!(*guard.owner_id(), owner, "the next one has it");
        // With nobody left, it goes back.
        let mut waiter = Box::pin(lock.lock());
        poll_once(&mut waiter).await;
        drop(guard);
        drop(waiter);
        eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    }
}

async fn who_does_not_run_keeps_it_from_nobody(rig: Rig) {
    let lock = client_with(&rig, ms(50)).await.lock(&rig.name());
    let other = rig.client().await.lock(lock.name());
    let guard = lock.lock().await.expect("free");
    let mut stalled = Box::pin(lock.lock());
    poll_once(&mut stalled).await;
    let task = waiter(&other, 0).await;
    guard.unlock().await.expect("held");
    let guard = turn_of(task).await;
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "it may still have its turn", stalled).await.expect("a turn");
    guard.unlock().await.expect("held");
}

/// Tasks of one client that take turns without a pause, until they are told to stop.
struct Crowd {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    /// How often the store granted, as far as the turns tell: turns whose owner was a new one.
    grants: Arc<AtomicU64>,
}

impl Crowd {
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

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            within(ms(20_000), "it ends", task).await.expect("no panic");
        }
    }
}

async fn other_clients_get_their_turn(rig: Rig) {
    let times = rig.times(30).await;
    let busy = rig.client().await.lock(&rig.name());
    let other = rig.client().await.lock(busy.name());
    let crowd = Crowd::start(&busy, 4);
    eventually("it has begun", ms(20_000), async || crowd.grants() > 0).await;
    let mut longest = Duration::ZERO;
    for _ in 0..times.max(5) {
        let start = Instant::now();
        let guard = within(PROMPT, "it gets its turn", other.lock()).await.expect("a turn");
        longest = longest.max(start.elapsed());
        guard.unlock().await.expect("held");
    }
    println!("waited for a busy client for {longest:?} at the most");
    crowd.end().await;
}

async fn clients_take_turns_of_the_store_evenly(rig: Rig) {
    // So many that a client that stands still for a moment has its share all the same.
    const GRANTS: usize = 400;
    // Its turn among those that keep a processor busy; it takes as many grants on every store.
    let _ = rig.times(GRANTS).await;
    let name = rig.name();
    let mut crowds = Vec::new();
    for _ in 0..3 {
        crowds.push(Crowd::start(&rig.client().await.lock(&name), 4));
    }
    let shares = || crowds.iter().map(Crowd::grants).collect::<Vec<_>>();
    eventually("each has had some", ms(60_000), async || shares().iter().all(|share| *share > 0)).await;
    let before = shares();
    let total = || shares().iter().sum::<u64>() - before.iter().sum::<u64>();
    eventually("they take their turns", ms(60_000), async || total() >= GRANTS as u64).await;
    let shares: Vec<_> = shares().iter().zip(&before).map(|(after, before)| after - before).collect();
    for crowd in crowds {
        crowd.end().await;
    }
    println!("of {} grants: {shares:?}", shares.iter().sum::<u64>());
    // Who had its window holds back until the others had theirs: by a third more or less, for a machine that is busy.
    let total = shares.iter().sum::<u64>();
    assert!(shares.iter().all(|share| (2 * total..=4 * total).contains(&(9 * share))), "{shares:?}");
}

async fn a_forced_unlock_ends_it_with_the_window(rig: Rig) {
    let (client, other) = (client_with(&rig, ms(200)).await, rig.client().await);
    let (lock, other) = (client.lock(&rig.name()), other.lock(&rig.named("0")));
    assert_eq!(lock.name(), other.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = waiter(&lock, 0).await;
    assert!(other.force_unlock().await.expect("an answer"));
    let theirs = within(PROMPT, "it is free", other.lock()).await.expect("a turn");
    guard.unlock().await.map_or_else(|error| assert!(matches!(error, Error::Lost { .. })), |()| ());
    // Handed over before the window ended, or not: when it has ended, there is one holder.
    let handed = tokio::time::timeout(ms(250), task).await;
    if let Ok(handed) = handed {
        let handed = handed.expect("no panic");
        assert_eq!(*handed.owner_id(), owner, "the store has granted it twice");
        let next = waiter(&lock, 0).await;
        tokio::time::sleep(ms(200)).await;
        assert!(matches!(handed.unlock().await, Err(Error::Lost { .. })));
        assert!(!next.is_finished(), "it passes on no more");
        theirs.unlock().await.expect("held");
        assert_ne!(*turn_of(next).await.owner_id(), owner);
    }
}

async fn a_forced_unlock_of_the_own_client_is_told_at_once(rig: Rig) {
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let task = waiter(&lock, 0).await;
    guard.unlock().await.expect("held");
    let guard = turn_of(task).await;
    assert_eq!(*guard.owner_id(), owner);
    assert!(lock.force_unlock().await.expect("an answer"));
    within(BEFORE_THE_WINDOW_ENDS, "it is told", guard.lost()).await;
}

async fn a_forced_unlock_of_the_own_client_is_told_to_the_next(rig: Rig) {
    let times = rig.times(100).await.max(10);
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    for _ in 0..times {
        let guard = lock.lock().await.expect("free");
        let task = waiter(&lock, 0).await;
        assert!(lock.force_unlock().await.expect("an answer"));
        // It is being looked at, and passes on at the same time.
        drop(guard);
        let guard = turn_of(task).await;
        let is_settled = async || !guard.is_valid() || !holders(&lock).await.is_empty();
        eventually("it is held, or told to be lost", PROMPT, is_settled).await;
        let _ = guard.unlock().await;
    }
}

async fn who_comes_to_the_front_is_told_when_the_window_ends(rig: Rig) {
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    let other = rig.client().await.lock(lock.name());
    let guard = lock.lock().await.expect("free");
    let owner = guard.owner_id().clone();
    let (first, second) = (waiter(&lock, 0).await, waiter(&lock, 1).await);
    guard.unlock().await.expect("held");
    let guard = turn_of(first).await;
    assert_eq!(*guard.owner_id(), owner);
    assert!(other.force_unlock().await.expect("an answer"));
    // The one who has it now does not know, and keeps it: the next one finds out by itself.
    let next = within(LONG + PROMPT, "it asks", second).await.expect("no panic");
    assert_ne!(*next.owner_id(), owner);
    assert!(!guard.is_valid(), "the new grant proves that it is gone");
    next.unlock().await.expect("held");
}

async fn lost_data_is_told_when_the_window_ends(rig: Rig) {
    let lock = client_with(&rig, ms(100)).await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let task = waiter(&lock, 0).await;
    rig.lose_data().await;
    guard.unlock().await.map_or_else(|error| assert!(matches!(error, Error::Lost { .. })), |()| ());
    let guard = turn_of(task).await;
    tokio::time::sleep(ms(110)).await;
    // It was handed over, and then the store says that it is gone; or it was asked for anew.
    let is_held = !holders(&lock).await.is_empty();
    assert_eq!(guard.unlock().await.is_ok(), is_held);
}

async fn a_client_that_is_shut_down_gives_back(rig: Rig) {
    let (client, other) = (client_with(&rig, LONG).await, rig.client().await);
    let lock = client.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let refused = tokio::spawn(async move { waiting.lock().await.map(drop) });
    until_waiting(&lock, 1).await;
    let shutting_down = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(ms(5_000)).await }
    });
    assert!(matches!(
        within(PROMPT, "it is told", refused).await.expect("no panic"),
        Err(Error::ShuttingDown)
    ));
    drop(guard);
    let left = within(BEFORE_THE_WINDOW_ENDS, "all is given back", shutting_down).await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    let guard = other.lock(lock.name()).try_lock().await.expect("an answer").expect("free");
    guard.unlock().await.expect("held");
}

async fn a_long_window_does_not_hold_up_the_end(rig: Rig) {
    let client = client_with(&rig, LONG).await;
    let lock = client.lock(&rig.name());
    assert!(passes(&lock, &lock).await);
    let left = within(BEFORE_THE_WINDOW_ENDS, "it ends before the window", client.shutdown(ms(5_000))).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_reentry_that_is_under_way_is_not_handed_over(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).hand_over_window(LONG);
    let lock = rig.client_at(builder, &proxy.url()).await.lock(&rig.name());
    for _ in 0..10 {
        let guard = lock.lock().await.expect("free");
        let task = waiter(&lock, 0).await;
        proxy.delay(LONG);
        let mut inner = Box::pin(guard.reenter());
        poll_once(&mut inner).await;
        // It was sent, and goes on without its caller.
        drop(inner);
        let mut release = Box::pin(guard.unlock());
        poll_once(&mut release).await;
        proxy.pass();
        release.await.expect("held");
        let guard = turn_of(task).await;
        assert_eq!(holders(&lock).await, [(guard.owner_id().clone(), 1)]);
        guard.unlock().await.expect("held");
    }
}

async fn a_slow_line_does_not_eat_the_window_up(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).hand_over_window(ms(2_000)).response_timeout(ms(8_000));
    let lock = rig.client_at(builder, &proxy.url()).await.lock(&rig.name());
    let holder = rig.client().await.lock(lock.name()).lock().await.expect("free");
    let mut turns = Vec::new();
    for before in 0..3 {
        turns.push(waiter(&lock, before).await);
    }
    // There and back it takes longer than the window.
    proxy.delay(ms(1_100));
    holder.unlock().await.expect("held");
    let mut owners = Vec::new();
    for turn in turns {
        let guard = within(ms(5_000) + PROMPT, "it gets its turn", turn).await.expect("no panic");
        owners.push(guard.owner_id().clone());
        drop(guard);
    }
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
}

async fn a_window_of_turns_costs_two_calls(rig: Rig) {
    let lock = client_with(&rig, LONG).await.lock(&rig.name());
    let before = rig.server().calls().await;
    let guard = lock.lock().await.expect("free");
    let mut turns = Vec::new();
    for _ in 0..100 {
        let waiting = lock.clone();
        turns.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("a turn");
            tokio::task::yield_now().await;
            guard.unlock().await.expect("held");
        }));
    }
    until_waiting(&lock, 100).await;
    let looks = rig.server().calls().await.since(&before).of("evalsha") - 1;
    let start = Instant::now();
    guard.unlock().await.expect("held");
    for turn in turns {
        within(ms(20_000), "it gets its turn", turn).await.expect("no panic");
    }
    let calls = rig.server().calls().await.since(&before);
    assert_eq!((calls.of("hset"), calls.of("publish")), (1, 1), "one acquire, one release");
    // One who is not told for a tenth of a second begins to listen, and looks once more.
    let late = u64::try_from(start.elapsed().as_millis()).unwrap() / 100;
    assert!(calls.of("evalsha") - looks <= 2 + 2 * (1 + late), "{calls:?}");
}

async fn a_herd_costs_a_call_for_many_turns(rig: Rig) {
    const WAITERS: usize = 1_000;
    let lock = client_with(&rig, ms(1_000)).await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let mut turns = Vec::new();
    for _ in 0..WAITERS {
        let waiting = lock.clone();
        turns.push(tokio::spawn(async move {
            waiting.lock().await.expect("a turn").unlock().await.expect("held");
        }));
    }
    until_waiting(&lock, WAITERS).await;
    let before = rig.server().calls().await;
    guard.unlock().await.expect("held");
    for turn in turns {
        within(ms(60_000), "it gets its turn", turn).await.expect("no panic");
    }
    let calls = rig.server().calls().await.since(&before);
    let calls = calls.of("evalsha") + calls.of("subscribe");
    println!("{WAITERS} turns for {calls} calls");
    assert!(calls <= 100, "{calls} calls for {WAITERS} turns");
}

/// A waiter yields to others that heard of the release. When its wait ends before they had their turns, it asks once.
async fn a_free_lock_is_asked_for_before_a_wait_ends(rig: Rig) {
    let client = rig.client_with(Client::builder().poll(NO_POLL).hand_over_window(Duration::ZERO)).await;
    let mut listeners = Vec::new();
    for _ in 0..5 {
        let server = redis::Client::open(rig.server().url()).expect("an address");
        let mut listener = server.get_async_pubsub().await.expect("a connection");
        listener.subscribe("redisson_lock__channel:{x}").await.expect("subscribed");
        listeners.push(listener);
    }
    let lock = client.lock("x");
    let mut rounds = 0;
    // On a busy machine the release may come too late to be heard of within the wait: such a round shows nothing.
    for _ in 0..500 {
        let guard = lock.lock().await.expect("free");
        let start = Instant::now();
        let release = async {
            guard.unlock().await.expect("held");
            start.elapsed()
        };
        let (waited, took) = tokio::join!(lock.try_lock_for(ms(8)), release);
        let waited = waited.expect("an answer");
        if took < ms(4) {
            rounds += 1;
            assert!(waited.is_some(), "refused unasked, although it was free after {took:?}");
        }
        if let Some(guard) = waited {
            guard.unlock().await.expect("held");
        }
        if rounds == 20 {
            return;
        }
    }
    panic!("no release took less than 4 ms often enough: {rounds} times");
}
