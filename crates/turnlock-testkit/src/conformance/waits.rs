//! Announcements: who waits for whom.

use std::time::{Duration, SystemTime};

use crate::conformance::{Case, Fixture, KindClient, NO_POLL, cases, ms};
use crate::{eventually, eventually_some};
use turnlock::{Client, Deadlock, Error, Guard, Inspection, Kind, Lock, Waiter};

pub const CASES: &[Case] = cases![
    a_wait_of_a_second_is_announced,
    no_wait_is_announced_before_a_second,
    waiters_of_all_kinds_are_announced needs Kind(Permits),
    a_hold_of_a_second_is_announced,
    call_sites_are_announced_only_if_set,
    nothing_is_announced_if_turned_off,
    a_waiter_has_what_its_task_holds,
    a_wait_of_many_callers_is_bounded,
    the_blocking_interface_has_them_too,
];

/// How long an announcement may take: a second, and the period of checks, on a busy machine.
pub(super) const SOON: Duration = ms(20_000);

pub(super) fn options(label: &str) -> turnlock::Builder {
    Client::builder().poll_interval(NO_POLL).label(label)
}

pub(super) async fn client(fixture: &Fixture, label: &str) -> KindClient {
    fixture.client_with(options(label)).await
}

/// The announced waiters for one name, once there are `number`.
pub(super) async fn waiters(reader: &Client, name: &str, number: usize) -> Vec<Waiter> {
    eventually_some("the waits are announced", SOON, async || {
        let mut all = reader.waits().await.expect("a reply").waiters;
        all.retain(|waiter| waiter.name == name);
        (all.len() == number).then_some(all)
    })
    .await
}

/// What an inspection shows once that is wanted. It has nothing that is announced if the store does not reply in time.
async fn inspected(reader: &Client, name: &str, is_wanted: impl Fn(&Inspection) -> bool) -> Inspection {
    eventually_some("it is shown", SOON, async || {
        let shown = reader.inspect(name).await.expect("a reply").expect("held");
        is_wanted(&shown).then_some(shown)
    })
    .await
}

fn wait_for(lock: &Lock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// Locks one name, and after `meeting` another, in a task of its own.
pub(super) fn hold_and_wait(
    first: Lock,
    second: Lock,
    meeting: &std::sync::Arc<tokio::sync::Barrier>,
) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    let meeting = std::sync::Arc::clone(meeting);
    tokio::spawn(async move {
        let _held = first.lock().await?;
        meeting.wait().await;
        second.lock().await
    })
}

pub(super) fn abort<T>(tasks: impl IntoIterator<Item = tokio::task::JoinHandle<T>>) {
    for task in tasks {
        task.abort();
    }
}

pub(super) fn barrier(number: usize) -> std::sync::Arc<tokio::sync::Barrier> {
    std::sync::Arc::new(tokio::sync::Barrier::new(number))
}

/// The deadlocks with a waiter for `name`.
pub(super) async fn deadlocks(reader: &Client, name: &str) -> Vec<Deadlock> {
    let mut all = reader.deadlocks().await.expect("a reply");
    all.retain(|deadlock| deadlock.waiters.iter().any(|waiter| waiter.name == name));
    all
}

/// Returns `true` if an announced wait or hold that begins after `began` can be since then: it has lasted a second.
fn is_since(since: SystemTime, began: SystemTime) -> bool {
    since + ms(500) >= began && since + ms(900) <= SystemTime::now()
}

async fn a_wait_of_a_second_is_announced(fixture: Fixture) {
    let (holder, waiter, name) = (fixture.client().await, client(&fixture, "waits").await, fixture.name());
    let guard = holder.lock(&name).lock().await.expect("free");
    let before = SystemTime::now();
    let task = wait_for(&waiter.lock(&name));
    let found = waiters(&holder, &name, 1).await.remove(0);
    let after = SystemTime::now().duration_since(before).expect("later");
    assert!(after >= ms(1_000), "announced after {after:?}");
    assert_eq!((found.kind, &*found.label, found.pid), (Kind::Lock, "waits", std::process::id()));
    assert_eq!((found.client, found.owner.client()), (waiter.id(), Some(waiter.id())));
    assert!(is_since(found.since, before), "{before:?} {found:?}");
    assert!(found.task.is_some_and(|task| task.starts_with("task ")) && !found.host.is_empty());
    assert_eq!((found.time_left, found.holds.len(), found.is_mine), (None, 0, false));
    let is_shown = async || {
        let seen = holder.lock(&name).inspect().await.expect("a reply").waiters;
        seen.iter().map(|waiter| &*waiter.label).eq(["waits"])
    };
    eventually("the lock has the waiter", SOON, is_shown).await;
    inspected(&holder, &name, |shown| shown.waiters.len() == 1).await;
    guard.unlock().await.expect("held");
    let next = task.await.expect("no panic").expect("a turn");
    assert_eq!(found.owner, *next.owner_id());
    next.unlock().await.expect("held");
    let is_removed = async || holder.lock(&name).inspect().await.expect("a reply").waiters.is_empty();
    eventually("it is removed before it expires", ms(5_000), is_removed).await;
}

async fn no_wait_is_announced_before_a_second(fixture: Fixture) {
    let (holder, waiter, name) = (fixture.client().await, client(&fixture, "waits").await, fixture.name());
    let _held = holder.lock(&name).lock().await.expect("free");
    let mut tasks = Vec::new();
    // They begin at different times between two checks of the client, which are a second apart.
    for _ in 0..4 {
        tasks.push(wait_for(&waiter.lock(&name)));
        tokio::time::sleep(ms(250)).await;
    }
    let all_are_announced = async || {
        let mut found = holder.waits().await.expect("a reply").waiters;
        found.retain(|waiter| waiter.name == name);
        let is_old = |waiter: &Waiter| waiter.since + ms(900) <= SystemTime::now();
        assert!(found.iter().all(is_old), "{found:?}");
        found.len() == tasks.len()
    };
    eventually("the waits are announced", SOON, all_are_announced).await;
    abort(tasks);
}

async fn waiters_of_all_kinds_are_announced(fixture: Fixture) {
    let (holder, waiter) = (fixture.client().await, client(&fixture, "waits").await);
    let names: Vec<_> = (0..10).map(|_| fixture.name()).collect();
    let mut held = vec![
        holder.lock(&names[0]).lock().await.expect("free"),
        holder.fair_lock(&names[1]).lock().await.expect("free"),
        holder.plain_lock(&names[2]).lock().await.expect("free"),
        holder.fenced_lock(&names[3]).lock().await.expect("free"),
        holder.read_write_lock(&names[4]).reader().lock().await.expect("free"),
        holder.spin_lock(&names[8]).lock().await.expect("free"),
    ];
    held.push(holder.read_write_lock(&names[5]).writer().lock().await.expect("free"));
    let semaphore = holder.permit_semaphore(&names[6]);
    semaphore.set_permits(1).await.expect("set");
    let permit = semaphore.acquire(1).await.expect("free");
    let latch = holder.latch(&names[7]);
    latch.try_set_count(1).await.expect("set");
    let unleased = holder.semaphore(&names[9]);
    assert!(unleased.try_set_permits(1).await.expect("a reply"));
    let unleased = unleased.acquire(1).await.expect("free");
    let locks = [
        waiter.lock(&names[0]),
        waiter.fair_lock(&names[1]),
        waiter.plain_lock(&names[2]),
        waiter.fenced_lock(&names[3]),
        waiter.read_write_lock(&names[4]).writer(),
        waiter.read_write_lock(&names[5]).reader(),
        waiter.spin_lock(&names[8]),
    ];
    let mut tasks: Vec<_> = locks.iter().map(|lock| tokio::spawn(lock.clone().into_future_unit())).collect();
    let (other, opening) = (waiter.permit_semaphore(&names[6]), waiter.latch(&names[7]));
    tasks.push(tokio::spawn(async move { other.acquire(1).await.map(drop) }));
    tasks.push(tokio::spawn(async move { opening.wait().await }));
    let other = waiter.semaphore(&names[9]);
    tasks.push(tokio::spawn(async move { other.acquire(1).await.map(drop) }));
    let kinds = [
        Kind::Lock,
        Kind::Fair,
        Kind::Plain,
        Kind::Fenced,
        Kind::Write,
        Kind::Read,
        Kind::Permits,
        Kind::Latch,
        Kind::Spin,
        Kind::Semaphore,
    ];
    for (name, kind) in names.iter().zip(kinds) {
        assert_eq!(waiters(&holder, name, 1).await[0].kind, kind, "{kind:?}");
    }
    drop((held, permit, unleased));
    latch.count_down().await.expect("counted");
    for task in tasks {
        task.await.expect("no panic").expect("a turn");
    }
}

/// A future that acquires and releases.
trait IntoFutureUnit {
    fn into_future_unit(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl IntoFutureUnit for Lock {
    async fn into_future_unit(self) -> Result<(), Error> {
        self.lock().await.map(drop)
    }
}

async fn a_hold_of_a_second_is_announced(fixture: Fixture) {
    let (holder, name) = (client(&fixture, "holds").await, fixture.name());
    let before = SystemTime::now();
    let guard = holder.lock(&name).lock().await.expect("free");
    let reader = fixture.client().await;
    let holder = inspected(&reader, &name, |shown| shown.holders[0].task.is_some()).await.holders.remove(0);
    let since = holder.since.expect("announced");
    assert!(is_since(since, before), "{before:?} {since:?}");
    assert_eq!((&holder.owner, holder.call_site, holder.is_stuck), (guard.owner_id(), None, false));
}

async fn call_sites_are_announced_only_if_set(fixture: Fixture) {
    let shows = fixture.client_with(options("shows").announce_call_sites(true)).await;
    let (hides, name) = (client(&fixture, "hides").await, fixture.name());
    let _held = shows.lock(&name).lock().await.expect("free");
    let tasks = [wait_for(&shows.lock(&name)), wait_for(&hides.lock(&name))];
    for waiter in waiters(&hides, &name, 2).await {
        let is_here = waiter.call_site.as_deref().map(|at| at.contains("waits.rs:"));
        assert_eq!(is_here, (waiter.label == "shows").then_some(true), "{waiter:?}");
    }
    let is_here = |at: &String| at.contains("waits.rs:");
    inspected(&hides, &name, |shown| shown.holders[0].call_site.as_ref().is_some_and(is_here)).await;
    abort(tasks);
}

async fn nothing_is_announced_if_turned_off(fixture: Fixture) {
    let silent = fixture.client_with(options("silent").announce_waits(false)).await;
    let (other, name) = (client(&fixture, "other").await, fixture.name());
    let _held = silent.lock(&name).lock().await.expect("free");
    let tasks = [wait_for(&silent.lock(&name)), wait_for(&other.lock(&name))];
    // The other one began later.
    let found = waiters(&silent, &name, 1).await;
    assert_eq!(found[0].label, "other");
    let seen = inspected(&silent, &name, |shown| shown.waiters.len() == 1).await;
    assert_eq!(seen.holders[0].task.as_deref(), None);
    abort(tasks);
}

async fn a_waiter_has_what_its_task_holds(fixture: Fixture) {
    let (holder, waiter) = (fixture.client().await, client(&fixture, "waits").await);
    let (held, wanted, others) = ([fixture.name(), fixture.name()], fixture.name(), fixture.name());
    let _guard = holder.lock(&wanted).lock().await.expect("free");
    // A hold of another task of the same client.
    let _other = waiter.lock(&others).lock().await.expect("free");
    let wait = |held| hold_and_wait(waiter.lock(held), waiter.lock(&wanted), &barrier(1));
    let tasks = [wait(&held[0]), wait(&held[1])];
    let mut found = Vec::new();
    for waiter in waiters(&holder, &wanted, 2).await {
        assert_eq!(waiter.holds.len(), 1, "{waiter:?}");
        found.extend(waiter.holds.into_iter().map(|held| held.name));
    }
    found.sort_unstable_by_key(|name| held.iter().position(|held| held == name));
    assert_eq!(found, held);
    assert_eq!(deadlocks(&holder, &wanted).await, []);
    abort(tasks);
}

async fn a_wait_of_many_callers_is_bounded(fixture: Fixture) {
    let (client, name) = (client(&fixture, "many").await, fixture.name());
    let guard = client.lock(&name).lock().await.expect("free");
    let tasks: Vec<_> = (0..200).map(|_| wait_for(&client.lock(&name))).collect();
    let all = async || {
        let waits = client.waits().await.expect("a reply");
        let mine = waits.waiters.iter().filter(|waiter| waiter.name == name).count();
        (mine > 0 && mine as u64 + waits.unlisted >= 200).then_some(mine)
    };
    assert!(eventually_some("all are announced", SOON, all).await <= 32);
    abort(tasks);
    guard.unlock().await.expect("held");
}

async fn the_blocking_interface_has_them_too(fixture: Fixture) {
    let (client, holder, name) = (fixture.blocking_client(), fixture.client().await, fixture.name());
    let _held = holder.lock(&name).lock().await.expect("free");
    let task = wait_for(&holder.lock(&name));
    waiters(&holder, &name, 1).await;
    let body = move || {
        assert!(client.waits().expect("a reply").waiters.iter().any(|waiter| waiter.name == name));
        let deadlocks = client.deadlocks().expect("a reply");
        assert!(deadlocks.iter().all(|deadlock| deadlock.waiters.iter().all(|waiter| waiter.name != name)));
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
    task.abort();
}
