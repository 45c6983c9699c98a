//! The master is killed, and another takes its place: Java and we meet again there.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::Client;
use turnlock_testkit::{Redisson, eventually};

use super::both_ways::{java_lets_us_in, wait_at, we_let_java_in};
use super::gate::Gate;
use super::java_gate::{JavaGate, promptly};
use super::site::{Shape, Site};
use super::{Java, LONG};
use crate::rig::{Kind, NO_POLL};

/// Until when Java has found the new master.
const FOUND: Duration = Duration::from_secs(30);

pub(super) const NAME: &str = "a_killed_master_is_followed_by_both";

pub(super) async fn a_killed_master_is_followed_by_both(version: &'static str, shape: Shape) {
    let mut site = Site::to_be_killed(shape).await;
    let redisson = Redisson::start(version, &site.url()).await;
    let client = Client::builder().poll(NO_POLL).connect(&site.url()).await.expect("servers that are there");
    let thread = |name: &str| Java::new(redisson.thread(name), Kind::Lock.name());
    // All of one slot, and so of one master.
    let [ours_held, javas_held] = ["ours:{job}", "javas:{job}"];

    // Held by one and waited for by the other, on the first master.
    let ours = client.lock(ours_held).lease(LONG).lock().await.expect("free");
    let java_waits = JavaGate::new(&thread("waiter"), Kind::Lock, ours_held);
    let mut theirs = java_waits.begins_to_enter();
    let java_holds = JavaGate::new(&thread("holder"), Kind::Lock, javas_held);
    let held = java_holds.enters().await;
    let mut waiting = wait_at(&Gate::new(&client, Kind::Lock, javas_held));
    for name in [ours_held, javas_held] {
        site.until_listening(name, 1).await;
    }
    site.until_replicated("job").await;

    let [before, now] = site.fail_over("job").await;
    assert_ne!(before, now);
    // Both listen there, and nobody got in meanwhile.
    for name in [ours_held, javas_held] {
        site.until_listening(name, 1).await;
    }
    assert!((&mut theirs).now_or_never().is_none() && (&mut waiting).now_or_never().is_none(), "they wait");
    let other = JavaGate::new(&thread("other"), Kind::Lock, ours_held);
    eventually("Java asks the new master", FOUND, async || other.gets_in().await == Ok(false)).await;
    ours.unlock().await.expect("still held");
    let got = JavaGate::promptly(theirs).await;
    java_waits.leaves(&got).await;
    java_holds.leaves(&held).await;
    promptly("we are told", waiting).await.expect("no panic").leave().await;

    // Two names, since ours listens on to the first for a moment.
    for (is_java_first, name) in [(true, "after:{job}"), (false, "later:{job}")] {
        let gate = Gate::new(&client, Kind::Lock, name);
        let java = JavaGate::new(&thread("other"), Kind::Lock, name);
        if is_java_first {
            java_lets_us_in(&site, &java, &gate, name).await;
        } else {
            we_let_java_in(&site, &gate, &java, name).await;
        }
    }
}
