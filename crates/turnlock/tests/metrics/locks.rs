use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use turnlock::{Client, Lock, MemoryStore};
use turnlock_testkit::eventually;

use crate::recorder::{look_ups, value};
use crate::{LIMIT, alone, in_group};

/// Returns a client that hands locks over, also on a busy machine.
fn client(group: &'static str) -> Client {
    let builder = in_group(group).watchdog_timeout(Duration::from_secs(600));
    builder.hand_over_window(Duration::from_secs(60)).memory(&MemoryStore::new()).expect("a memory store")
}

fn acquisitions(group: &str, outcome: &str) -> f64 {
    value("turnlock_acquisitions_total", &[("group", group), ("outcome", outcome), ("store", "memory")])
}

/// Waits until the gauges show these numbers of waiters and holds. They are published once a second.
async fn gauges_show(group: &str, waiters_and_holds: (f64, f64), when: &str) {
    let gauge = |name| value(name, &[("group", group)]);
    let shown = async || (gauge("turnlock_waiters"), gauge("turnlock_holds")) == waiters_and_holds;
    eventually(&format!("{waiters_and_holds:?} {when}"), LIMIT, shown).await;
}

/// Waits until the counter shows this number of hand-overs. They are published once a second.
async fn hand_overs_are(group: &str, count: f64) {
    let shown = async || acquisitions(group, "handed_over") >= count;
    eventually(&format!("{count} hand-overs"), LIMIT, shown).await;
    assert_eq!(acquisitions(group, "handed_over"), count);
}

async fn pair(lock: &Lock) {
    lock.lock().await.expect("free").unlock().await.expect("held");
}

pub(crate) async fn acquisitions_are_counted_by_outcome() {
    let group = "outcomes";
    let lock = client(group).lock("a");
    let guard = lock.lock().await.expect("free");
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!(lock.try_lock_for(Duration::from_millis(20)).await.expect("a reply").is_busy());
    assert!(lock.lock().now_or_never().is_none());
    lock.with_replicas(1).try_lock().await.expect_err("a memory store has no replicas");
    let mut next = Box::pin(lock.lock());
    assert!((&mut next).now_or_never().is_none());
    guard.unlock().await.expect("held");
    next.await.expect("handed over").unlock().await.expect("held");
    let outcomes = ["granted", "busy", "timed_out", "cancelled", "failed"];
    assert_eq!(outcomes.map(|outcome| acquisitions(group, outcome)), [1.0; 5]);
    hand_overs_are(group, 1.0).await;
    assert_eq!(value("turnlock_acquisitions_total", &[("group", group), ("kind", "lock")]), 6.0);
}

pub(crate) async fn waits_and_holds_are_timed() {
    let group = "times";
    let lock = client(group).fair_lock("a");
    let guard = lock.lock().await.expect("free");
    let mut next = Box::pin(lock.lock());
    assert!((&mut next).now_or_never().is_none());
    gauges_show(group, (1.0, 1.0), "with a holder and a waiter").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(guard);
    next.await.expect("free").unlock().await.expect("held");
    let times = |name: &str| {
        let labels = [("group", group), ("kind", "fair")];
        (value(&format!("{name}_count"), &labels), value(&format!("{name}_sum"), &labels))
    };
    for name in ["turnlock_wait_seconds", "turnlock_hold_seconds"] {
        let (count, sum) = times(name);
        assert!(count == 2.0 && sum >= 0.1, "{name}: {count} in {sum} s");
    }
    let up_to = |le: &str| value("turnlock_wait_seconds_bucket", &[("group", group), ("le", le)]);
    assert!(up_to("0.05") <= 1.0, "one of them waited for 100 ms");
    assert_eq!(up_to("600"), 2.0);
}

pub(crate) async fn gauges_return_to_zero() {
    let group = "gauges";
    let client = client(group);
    // A number that fell twice would not rise to one again.
    let one_then_zero = async |when: &str| {
        let guard = client.lock("another").lock().await.expect("free");
        gauges_show(group, (0.0, 1.0), when).await;
        guard.unlock().await.expect("held");
        gauges_show(group, (0.0, 0.0), when).await;
    };
    let lock = client.lock("a");
    let guard = lock.lock().await.expect("free");
    let mut next = Box::pin(lock.lock());
    assert!((&mut next).now_or_never().is_none());
    gauges_show(group, (1.0, 1.0), "with a waiter").await;
    drop(next);
    gauges_show(group, (0.0, 1.0), "after the drop of the waiter").await;
    let inner = guard.reenter().await.expect("held");
    guard.unlock().await.expect("held");
    let other = client.lock("b").lock().await.expect("free");
    gauges_show(group, (0.0, 2.0), "while another guard holds it").await;
    drop((inner, other));
    one_then_zero("after the drop of the last guard").await;
    lock.lock().await.expect("free").unlock_after(Duration::from_millis(100)).await.expect("held");
    one_then_zero("after a delayed unlock").await;
    let lost = client.lock("b").with_lease(Duration::from_millis(50)).lock().await.expect("free");
    lost.lost().await;
    lost.unlock().await.expect_err("lost");
    one_then_zero("after a loss and the unlock of the lost guard").await;
    // Handed over to a waiter that goes away.
    let guard = client.lock("c").lock().await.expect("free");
    let c = client.lock("c");
    let mut next = Box::pin(c.lock());
    assert!((&mut next).now_or_never().is_none());
    guard.unlock().await.expect("held");
    drop(next);
    one_then_zero("after a hand-over to a waiter that is dropped").await;
    let guard = client.lock("a").lock().await.expect("free");
    gauges_show(group, (0.0, 1.0), "before the client ends").await;
    drop((guard, c, lock, client));
    gauges_show(group, (0.0, 0.0), "after the end of the client").await;
}

/// On two threads: a waiter may take a hold over before the holder before it has noted the end.
pub(crate) async fn gauges_return_to_zero_after_contention() {
    const TASKS: u32 = 16;
    const TURNS: u32 = 200;
    let group = "contention";
    let client = client(group);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = client.lock("a");
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.expect("a turn");
                tokio::task::yield_now().await;
                guard.unlock().await.expect("held");
            }
        });
    }
    tasks.join_all().await;
    let granted = acquisitions(group, "granted");
    assert!(granted < f64::from(TURNS), "few turns are handed over: {granted} are not");
    hand_overs_are(group, f64::from(TASKS * TURNS) - granted).await;
    // Zero may also mean that nothing was published yet.
    let guard = client.lock("a").lock().await.expect("free");
    gauges_show(group, (0.0, 1.0), "after the contention").await;
    guard.unlock().await.expect("held");
    gauges_show(group, (0.0, 0.0), "at the end").await;
}

pub(crate) async fn losses_are_counted_by_reason() {
    let group = "losses";
    let client = client(group);
    let lost = |reason: &str| value("turnlock_lost_total", &[("group", group), ("reason", reason)]);
    let guard = client.lock("a").with_lease(Duration::from_millis(50)).lock().await.expect("free");
    guard.lost().await;
    eventually("the end of the lease is counted", LIMIT, async || lost("expired") == 1.0).await;
    guard.unlock().await.expect_err("lost");
    let guard = client.lock("a").lock().await.expect("free");
    assert!(client.lock("a").force_unlock().await.expect("a reply"));
    guard.lost().await;
    eventually("the forced unlock is counted", LIMIT, async || lost("taken") == 1.0).await;
    assert_eq!(value("turnlock_lost_total", &[("group", group)]), 2.0);
}

pub(crate) async fn waits_for_a_latch_are_counted() {
    let group = "latches";
    let latch = client(group).latch("a");
    assert!(latch.try_set_count(1).await.expect("a reply"));
    assert!(!latch.wait_for(Duration::ZERO).await.expect("a reply"));
    assert!(!latch.wait_for(Duration::from_millis(20)).await.expect("a reply"));
    let mut waiting = Box::pin(latch.wait());
    assert!((&mut waiting).now_or_never().is_none());
    gauges_show(group, (1.0, 0.0), "while one waits").await;
    assert!(latch.wait().now_or_never().is_none());
    latch.count_down().await.expect("a reply");
    waiting.await.expect("open");
    gauges_show(group, (0.0, 0.0), "after the wait").await;
    let outcomes = ["granted", "busy", "timed_out", "cancelled", "failed"];
    assert_eq!(outcomes.map(|outcome| acquisitions(group, outcome)), [1.0, 1.0, 1.0, 1.0, 0.0]);
    let labels = [("group", group), ("kind", "latch")];
    assert_eq!(value("turnlock_wait_seconds_count", &labels), 3.0);
}

pub(crate) async fn the_age_of_the_oldest_hold_is_shown() {
    let group = "ages";
    let builder = in_group(group).watchdog_timeout(Duration::from_secs(3));
    let client = builder.memory(&MemoryStore::new()).expect("a memory store");
    let age = || value("turnlock_oldest_hold_seconds", &[("group", group)]);
    let guard = client.lock("a").lock().await.expect("free");
    eventually("the hold is older than a second", LIMIT, async || age() > 1.0).await;
    let before = age();
    eventually("its age rises", LIMIT, async || age() > before).await;
    eventually("it is renewed", LIMIT, async || {
        value("turnlock_renewals_total", &[("group", group), ("outcome", "confirmed")]) >= 2.0
    })
    .await;
    guard.unlock().await.expect("held");
    eventually("there is no hold", LIMIT, async || age() == 0.0).await;
    let guard = client.lock("a").lock().await.expect("free");
    eventually("there is a hold again", LIMIT, async || age() > 0.0).await;
    drop((guard, client));
    eventually("there is no client", LIMIT, async || age() == 0.0).await;
}

pub(crate) async fn acquires_of_an_owner_are_counted_once() {
    let group = "owners";
    let client = client(group);
    let (lock, outcome) = (client.lock("a").with_owner(&client.owner()), |name| acquisitions(group, name));
    let guard = lock.lock().await.expect("free");
    let inner = lock.lock().await.expect("held by the owner");
    assert_eq!(outcome("granted"), 2.0);
    gauges_show(group, (0.0, 1.0), "with one hold of two guards").await;
    let other = client.lock("a").with_owner(&client.owner());
    assert!(other.try_lock().await.expect("a reply").is_busy());
    assert!(other.try_lock_for(Duration::from_millis(20)).await.expect("a reply").is_busy());
    let mut ahead = Box::pin(other.lock());
    assert!((&mut ahead).now_or_never().is_none());
    // Behind another task of its owner.
    let mut behind = Box::pin(other.lock());
    assert!((&mut behind).now_or_never().is_none());
    gauges_show(group, (2.0, 1.0), "with two waiters").await;
    drop((behind, ahead));
    drop((guard, inner));
    let outcomes = ["granted", "busy", "timed_out", "cancelled"];
    assert_eq!(outcomes.map(outcome), [2.0, 1.0, 1.0, 2.0]);
    assert_eq!(value("turnlock_wait_seconds_count", &[("group", group)]), 5.0);
}

pub(crate) async fn acquires_of_a_thread_are_counted() {
    let group = "threads";
    let body = move || {
        let builder = turnlock::blocking::Builder::from(in_group(group));
        let client = builder.memory(&MemoryStore::new()).expect("a memory store");
        let lock = client.lock("a");
        let outer = lock.lock().expect("free");
        let inner = lock.lock().expect("held by the thread");
        drop((inner, outer));
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
    assert_eq!(acquisitions(group, "granted"), 2.0);
}

/// The groups are those of the whole process, so the case runs in one of its own.
pub(crate) async fn the_number_of_groups_is_bounded() {
    alone("the_number_of_groups_is_bounded", many_groups_are_bounded).await;
}

async fn many_groups_are_bounded() {
    let store = MemoryStore::new();
    let builder = || Client::builder().metrics_group(|name| name.split_once(':').map(|(group, _)| group));
    let client = builder().memory(&store).expect("a memory store");
    for number in 0..100 {
        pair(&client.spin_lock(&format!("many-{number}:{number}"))).await;
    }
    let count = |group: &str| value("turnlock_acquisitions_total", &[("group", group), ("kind", "spin")]);
    assert_eq!((count("many-63"), count("many-64"), count("other")), (1.0, 0.0, 36.0));
    pair(&client.spin_lock(&format!("{}:1", "x".repeat(129)))).await;
    assert_eq!(count("other"), 37.0);
    // Another client of the process has the same groups, and no further ones.
    let other = builder().memory(&store).expect("a memory store");
    pair(&other.spin_lock("many-63:1")).await;
    pair(&other.spin_lock("of-another-client:1")).await;
    assert_eq!((count("many-63"), count("of-another-client"), count("other")), (2.0, 0.0, 38.0));
    // Without a group, the label is absent.
    pair(&client.spin_lock("no group")).await;
    pair(&client.spin_lock(":empty")).await;
    let text = crate::recorder::install().render();
    let ungrouped = r#"turnlock_acquisitions_total{kind="spin",store="memory",outcome="granted"} 2"#;
    assert!(text.lines().any(|line| line == ungrouped), "{text}");
}

pub(crate) async fn a_held_lock_is_used_without_a_look_up() {
    let body = async || {
        let client = client("look-ups");
        let lock = Arc::new(client.lock("a"));
        let turns = async || {
            let mut tasks = JoinSet::new();
            for _ in 0..16 {
                let lock = Arc::clone(&lock);
                tasks.spawn_local(async move {
                    for _ in 0..50 {
                        let guard = lock.lock().await.expect("a turn");
                        tokio::task::yield_now().await;
                        guard.unlock().await.expect("held");
                    }
                });
            }
            tasks.join_all().await;
        };
        turns().await;
        let before = look_ups();
        assert!(before > 0, "the recorder is not used");
        turns().await;
        assert_eq!(look_ups() - before, 0, "look-ups of a lock that was used before");
        pair(&client.lock("another of the group")).await;
        assert_eq!(look_ups() - before, 0, "look-ups of another lock of the group");
        // The counter shows them when the client ends, if it was not published before.
        drop((lock, client));
        eventually("most turns are handed over", LIMIT, async || {
            acquisitions("look-ups", "handed_over") > 500.0
        })
        .await;
    };
    // On one thread, on which look-ups are counted.
    let on_one_thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, body());
    };
    tokio::task::spawn_blocking(on_one_thread).await.expect("no panic");
}

pub(crate) async fn every_hand_over_is_counted_and_some_are_timed() {
    const TURNS: usize = 100;
    let group = "hand-overs";
    let lock = client(group).lock("a");
    let guard = lock.lock().await.expect("free");
    let mut waiters: Vec<_> = (0..TURNS).map(|_| Box::pin(lock.lock())).collect();
    for waiter in &mut waiters {
        assert!(waiter.now_or_never().is_none());
    }
    guard.unlock().await.expect("held");
    for waiter in waiters {
        waiter.await.expect("a turn").unlock().await.expect("held");
    }
    hand_overs_are(group, 100.0).await;
    assert_eq!(acquisitions(group, "granted"), 1.0);
    // The grant, 16 turns, and each sixteenth of the others.
    for name in ["turnlock_wait_seconds_count", "turnlock_hold_seconds_count"] {
        assert_eq!(value(name, &[("group", group)]), 1.0 + 16.0 + 5.0, "{name}");
    }
}
