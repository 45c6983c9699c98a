//! What is granted when all is well, and what is refused when nothing can be acknowledged.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::{Client, Error, blocking};
use turnlock_testkit::{FaultProxy, in_time, within};

use super::{Rig, hasty, ms, replicas, shortfall};
use crate::rig::{NO_POLL, PROMPT, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    what_was_reached_is_told,
    a_client_says_it_for_all_its_handles,
    the_blocking_twins_ask_for_the_same,
    forgotten_scripts_are_sent_again_and_acknowledged,
    a_lost_answer_to_an_acknowledged_acquire_counts_once,
    who_may_not_wait_is_told_and_has_no_lock,
    who_is_handed_a_lock_has_it_as_it_asked_for_it,
];

pub(crate) const MEMORY_CASES: &[Case] = cases![memory_has_no_replicas];

async fn what_was_reached_is_told(rig: Rig) {
    let _replicas = replicas(&rig, 2).await;
    let client = rig.client().await;
    let lock = client.lock("a");
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.replicas(), 0, "none was asked for");
    guard.unlock().await.expect("held");
    let guard = lock.acknowledged_by(2).lock().await.expect("two are there");
    assert_eq!(guard.replicas(), 2);
    let inner = guard.reenter().await.expect("two are there");
    assert_eq!((inner.replicas(), inner.hold_count()), (2, 2));
    inner.unlock().await.expect("held");
    guard.unlock().await.expect("held");
    let guard = lock.acknowledged_by(1).lock().await.expect("two are there");
    assert!(guard.replicas() >= 1);
    guard.unlock().await.expect("held");

    let both = client.read_write_lock("b").acknowledged_by(2);
    let writer = both.write().lock().await.expect("free");
    assert_eq!(writer.replicas(), 2);
    let reader = writer.downgrade().await.expect("held");
    assert_eq!(reader.replicas(), 2, "as the writer was");
    assert!(both.read().lock().await.expect("readers go together").replicas() == 2);
}

async fn who_is_handed_a_lock_has_it_as_it_asked_for_it(rig: Rig) {
    let _replicas = replicas(&rig, 2).await;
    let client = rig.client_with(Client::builder().poll(NO_POLL).hand_over_window(ms(3_000))).await;
    let [none, one, two] = [0, 1, 2].map(|replicas| client.lock("handed").acknowledged_by(replicas));
    // Who asked for fewer does not depend on the others from then on, and cannot hand on what it did not ask for.
    for (from, to, is_acknowledged, passes) in
        [(&two, &one, true, true), (&one, &none, false, true), (&none, &one, true, false)]
    {
        let guard = from.lock().await.expect("they are there");
        let owner = guard.owner_id().clone();
        let waiting = to.clone();
        let next = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(to, 1).await;
        guard.unlock().await.expect("held");
        let guard = within(PROMPT, "the next", next).await.expect("no panic");
        assert_eq!(*guard.owner_id() == owner, passes);
        assert_eq!(guard.replicas() > 0, is_acknowledged);
        guard.unlock().await.expect("held");
    }
}

async fn a_client_says_it_for_all_its_handles(rig: Rig) {
    let _replica = replicas(&rig, 1).await;
    let client = rig.client_with(hasty().acknowledged_by(1)).await;
    assert_eq!(client.lock("a").lock().await.expect("free").replicas(), 1);
    assert_eq!(shortfall(client.lock("b").acknowledged_by(2).try_lock().await), (2, 1));
    assert_eq!(client.lock("c").acknowledged_by(0).lock().await.expect("free").replicas(), 0);
    let me = client.owner();
    let outer = client.lock("d").acknowledged_by(0).owned_by(&me).lock().await.expect("free");
    assert_eq!(outer.replicas(), 0);
    let inner = client.lock("d").owned_by(&me).lock().await.expect("the same owner");
    assert_eq!(inner.replicas(), 1, "what was asked for at the reentry");
}

async fn the_blocking_twins_ask_for_the_same(rig: Rig) {
    let _replica = replicas(&rig, 1).await;
    let url = rig.server().url();
    let work = move || {
        let client = blocking::Client::builder(hasty()).connect(&url).expect("a server");
        let lock = client.lock("a");
        assert_eq!(lock.acknowledged_by(1).lock().expect("free").replicas(), 1);
        assert_eq!(shortfall(lock.acknowledged_by(2).try_lock()), (2, 1));
        let both = client.read_write_lock("b").acknowledged_by(1);
        assert_eq!(both.read().lock().expect("free").replicas(), 1);
        client.semaphore("c").try_set_permits(1).expect("set");
        assert_eq!(client.semaphore("c").acknowledged_by(1).acquire(1).expect("free").replicas(), 1);
        let permits = client.permit_semaphore("d");
        permits.try_set_permits(1).expect("set");
        assert_eq!(permits.acknowledged_by(1).acquire(1).expect("free").replicas(), 1);
    };
    tokio::task::spawn_blocking(work).await.expect("no panic");
}

async fn forgotten_scripts_are_sent_again_and_acknowledged(rig: Rig) {
    let _replica = replicas(&rig, 1).await;
    let client = rig.client_with(Client::builder().watchdog(ms(1_200))).await;
    let lock = client.lock("a").acknowledged_by(1);
    // The connection of these requests is there from now on.
    lock.lock().await.expect("free").unlock().await.expect("held");
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut rig.plain().await).await.unwrap();
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.replicas(), 1);
    let count: u32 = rig.plain().await.hget("a", guard.owner_id().as_str()).await.expect("there");
    assert_eq!(count, 1);
}

async fn a_lost_answer_to_an_acknowledged_acquire_counts_once(rig: Rig) {
    let replica = replicas(&rig, 1).await;
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(Client::builder(), &proxy.url()).await;
    let lock = client.lock("a").acknowledged_by(1);
    lock.lock().await.expect("free").unlock().await.expect("held");
    proxy.swallow_replies_to(b"WAIT");
    let guard = within(ms(20_000), "it is asked again", lock.lock()).await.expect("free");
    proxy.fired().await;
    assert_eq!(guard.replicas(), 1);
    for server in [rig.server(), &replica[0]] {
        let count: u32 = server.client().await.hget("a", guard.owner_id().as_str()).await.expect("there");
        assert_eq!(count, 1);
    }
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn who_may_not_wait_is_told_and_has_no_lock(rig: Rig) {
    let _replica = replicas(&rig, 1).await;
    let mut cmd = redis::cmd("ACL");
    cmd.arg(&["SETUSER", "hasty", "on", ">pass", "~*", "&*", "+@all", "-wait"]);
    let _: () = cmd.query_async(&mut rig.plain().await).await.expect("a user");
    let url = format!("redis://hasty:pass@127.0.0.1:{}", rig.server().port());
    let client = rig.client_at(hasty(), &url).await;
    let refused = client.lock("a").acknowledged_by(1).lock().await.expect_err("WAIT is denied");
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    assert!(!client.lock("a").is_locked().await.expect("an answer"), "it was given back");
}

async fn memory_has_no_replicas(rig: Rig) {
    let client = rig.client().await;
    let began = Instant::now();
    let lock = client.lock("a").acknowledged_by(1);
    assert_eq!(shortfall(lock.lock().await), (1, 0));
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert_eq!(shortfall(lock.try_lock_for(ms(60_000)).await), (1, 0));
    let semaphore = client.semaphore("b");
    semaphore.try_set_permits(1).await.expect("set");
    assert_eq!(shortfall(semaphore.acknowledged_by(3).acquire(1).await), (3, 0));
    in_time("refused at once", began, PROMPT);
    assert!(!client.lock("a").is_locked().await.expect("an answer"));
    assert_eq!(semaphore.available().await.expect("an answer"), 1);
}
