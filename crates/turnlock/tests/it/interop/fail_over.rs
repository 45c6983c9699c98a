//! The master is killed and another is promoted: Java and turnlock find each other there.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::Client;
use turnlock_testkit::{Redisson, eventually};

use super::any_mutex::AnyMutex;
use super::deployment::{Deployment, Topology};
use super::java_mutex::{JavaMutex, promptly};
use super::multi_server::{java_excludes_and_wakes_us, spawn_any_lock, we_exclude_and_wake_java};
use super::{Java, LONG_LEASE};
use crate::fixture::{Kind, NO_POLL};

/// The limit for Java to find the new master.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(30);

pub(super) const NAME: &str = "both_follow_a_fail_over";

pub(super) async fn both_follow_a_fail_over(version: &'static str, topology: Topology) {
    let mut deployment = Deployment::dedicated(topology).await;
    let redisson = Redisson::start(version, &deployment.url()).await;
    let client =
        Client::builder().poll_interval(NO_POLL).connect(&deployment.url()).await.expect("reachable servers");
    let thread = |name: &str| Java::new(redisson.thread(name), Kind::Lock.name());
    // All in one slot, and so on one master.
    let [ours_held, javas_held] = ["ours:{job}", "javas:{job}"];

    // One side holds and the other waits, on the first master.
    let ours = client.lock(ours_held).with_lease(LONG_LEASE).lock().await.expect("free");
    let java_waiter = JavaMutex::new(&thread("waiter"), Kind::Lock, ours_held);
    let mut java_waiting = java_waiter.start_lock();
    let java_holder = JavaMutex::new(&thread("holder"), Kind::Lock, javas_held);
    let held = java_holder.lock().await;
    let mut waiting = spawn_any_lock(&AnyMutex::new(&client, Kind::Lock, javas_held));
    for name in [ours_held, javas_held] {
        deployment.until_subscribed(name, 1).await;
    }
    deployment.until_replicated("job").await;

    let [before, after] = deployment.fail_over("job").await;
    assert_ne!(before, after);
    // Both are subscribed there, and no lock was granted meanwhile.
    for name in [ours_held, javas_held] {
        deployment.until_subscribed(name, 1).await;
    }
    assert!(
        (&mut java_waiting).now_or_never().is_none() && (&mut waiting).now_or_never().is_none(),
        "they wait"
    );
    let other = JavaMutex::new(&thread("other"), Kind::Lock, ours_held);
    eventually("Java uses the new master", DISCOVERY_LIMIT, async || {
        other.try_lock_and_unlock().await == Ok(false)
    })
    .await;
    ours.unlock().await.expect("still held");
    let got = JavaMutex::promptly(java_waiting).await;
    java_waiter.unlock(&got).await;
    java_holder.unlock(&held).await;
    promptly("we are notified", waiting).await.expect("no panic").unlock().await;

    // Two names, since our subscription to the first outlives its waiter for a moment.
    for (is_java_first, name) in [(true, "after:{job}"), (false, "later:{job}")] {
        let mutex = AnyMutex::new(&client, Kind::Lock, name);
        let java = JavaMutex::new(&thread("other"), Kind::Lock, name);
        if is_java_first {
            java_excludes_and_wakes_us(&deployment, &java, &mutex, name).await;
        } else {
            we_exclude_and_wake_java(&deployment, &mutex, &java, name).await;
        }
    }
}
