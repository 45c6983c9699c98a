//! Grants that replicas acknowledge, and refusals where no acknowledgement is possible.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::{Client, Error, blocking};
use turnlock_testkit::{FaultProxy, in_time, within};

use super::{Fixture, ms, short_timeouts, shortfall, start_replicas};
use crate::fixture::{NO_POLL, PROMPT, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    guards_report_the_number_of_replicas_reached,
    the_clients_replica_count_applies_to_all_its_handles,
    the_blocking_interface_requires_replicas_too,
    flushed_scripts_are_sent_again_and_acknowledged,
    a_lost_reply_to_an_acknowledged_acquire_counts_once,
    a_user_without_wait_is_denied_and_holds_nothing,
    a_handed_over_hold_has_the_replicas_it_requires,
];

pub(crate) const MEMORY_CASES: &[Case] = cases![memory_has_no_replicas];

async fn guards_report_the_number_of_replicas_reached(fixture: Fixture) {
    let _replicas = start_replicas(&fixture, 2).await;
    let client = fixture.client().await;
    let lock = client.lock("a");
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.replicas(), 0, "none was required");
    guard.unlock().await.expect("held");
    let guard = lock.with_replicas(2).lock().await.expect("two replicas");
    assert_eq!(guard.replicas(), 2);
    let inner = guard.reenter().await.expect("two replicas");
    assert_eq!((inner.replicas(), inner.hold_count()), (2, 2));
    inner.unlock().await.expect("held");
    guard.unlock().await.expect("held");
    let guard = lock.with_replicas(1).lock().await.expect("two replicas");
    assert!(guard.replicas() >= 1);
    guard.unlock().await.expect("held");

    let both = client.read_write_lock("b").with_replicas(2);
    let writer = both.write().await.expect("free");
    assert_eq!(writer.replicas(), 2);
    let reader = writer.downgrade().await.expect("held");
    assert_eq!(reader.replicas(), 2, "as many as for the writer");
    assert!(both.reader().lock().await.expect("readers share").replicas() == 2);
}

async fn a_handed_over_hold_has_the_replicas_it_requires(fixture: Fixture) {
    let _replicas = start_replicas(&fixture, 2).await;
    let client =
        fixture.client_with(Client::builder().poll_interval(NO_POLL).hand_over_window(ms(3_000))).await;
    let [none, one, two] = [0, 1, 2].map(|replicas| client.lock("handed").with_replicas(replicas));
    // A hold that requires fewer replicas depends on no more from then on, and is not handed over to a waiter that requires more.
    for (from, to, is_acknowledged, is_handed_over) in
        [(&two, &one, true, true), (&one, &none, false, true), (&none, &one, true, false)]
    {
        let guard = from.lock().await.expect("enough replicas");
        let owner = guard.owner_id().clone();
        let waiting = to.clone();
        let next = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(to, 1).await;
        guard.unlock().await.expect("held");
        let guard = within(PROMPT, "the next waiter", next).await.expect("no panic");
        assert_eq!(*guard.owner_id() == owner, is_handed_over);
        assert_eq!(guard.replicas() > 0, is_acknowledged);
        guard.unlock().await.expect("held");
    }
}

async fn the_clients_replica_count_applies_to_all_its_handles(fixture: Fixture) {
    let _replica = start_replicas(&fixture, 1).await;
    let client = fixture.client_with(short_timeouts().replicas(1)).await;
    assert_eq!(client.lock("a").lock().await.expect("free").replicas(), 1);
    assert_eq!(shortfall(client.lock("b").with_replicas(2).try_lock().await), (2, 1));
    assert_eq!(client.lock("c").with_replicas(0).lock().await.expect("free").replicas(), 0);
    let me = client.owner();
    let outer = client.lock("d").with_replicas(0).with_owner(&me).lock().await.expect("free");
    assert_eq!(outer.replicas(), 0);
    let inner = client.lock("d").with_owner(&me).lock().await.expect("the same owner");
    assert_eq!(inner.replicas(), 1, "as many as the reentry requires");
}

async fn the_blocking_interface_requires_replicas_too(fixture: Fixture) {
    let _replica = start_replicas(&fixture, 1).await;
    let url = fixture.server().url();
    let body = move || {
        let client = blocking::Builder::from(short_timeouts()).connect(&url).expect("a server");
        let lock = client.lock("a");
        assert_eq!(lock.with_replicas(1).lock().expect("free").replicas(), 1);
        assert_eq!(shortfall(lock.with_replicas(2).try_lock()), (2, 1));
        let both = client.read_write_lock("b").with_replicas(1);
        assert_eq!(both.reader().lock().expect("free").replicas(), 1);
        client.semaphore("c").try_set_permits(1).expect("set");
        assert_eq!(client.semaphore("c").with_replicas(1).acquire(1).expect("free").replicas(), 1);
        let permits = client.permit_semaphore("d");
        permits.try_set_permits(1).expect("set");
        assert_eq!(permits.with_replicas(1).acquire(1).expect("free").replicas(), 1);
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

async fn flushed_scripts_are_sent_again_and_acknowledged(fixture: Fixture) {
    let _replica = start_replicas(&fixture, 1).await;
    let client = fixture.client_with(Client::builder().watchdog_timeout(ms(1_200))).await;
    let lock = client.lock("a").with_replicas(1);
    // Opens the connection for these requests.
    lock.lock().await.expect("free").unlock().await.expect("held");
    let _: () =
        redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut fixture.raw_connection().await).await.unwrap();
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.replicas(), 1);
    let count: u32 =
        fixture.raw_connection().await.hget("a", guard.owner_id().as_str()).await.expect("there");
    assert_eq!(count, 1);
}

async fn a_lost_reply_to_an_acknowledged_acquire_counts_once(fixture: Fixture) {
    let replica = start_replicas(&fixture, 1).await;
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(Client::builder(), &proxy.url()).await;
    let lock = client.lock("a").with_replicas(1);
    lock.lock().await.expect("free").unlock().await.expect("held");
    proxy.swallow_replies_to(b"WAIT");
    let guard = within(ms(20_000), "it is sent again", lock.lock()).await.expect("free");
    proxy.fired().await;
    assert_eq!(guard.replicas(), 1);
    for server in [fixture.server(), &replica[0]] {
        let count: u32 = server.client().await.hget("a", guard.owner_id().as_str()).await.expect("there");
        assert_eq!(count, 1);
    }
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn a_user_without_wait_is_denied_and_holds_nothing(fixture: Fixture) {
    let _replica = start_replicas(&fixture, 1).await;
    let mut cmd = redis::cmd("ACL");
    cmd.arg(&["SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all", "-wait"]);
    let _: () = cmd.query_async(&mut fixture.raw_connection().await).await.expect("a user");
    let url = format!("redis://limited:pass@127.0.0.1:{}", fixture.server().port());
    let client = fixture.client_at(short_timeouts(), &url).await;
    let refused = client.lock("a").with_replicas(1).lock().await.expect_err("WAIT is denied");
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    assert!(!client.lock("a").is_locked().await.expect("a reply"), "it was released");
}

async fn memory_has_no_replicas(fixture: Fixture) {
    let client = fixture.client().await;
    let began = Instant::now();
    let lock = client.lock("a").with_replicas(1);
    assert_eq!(shortfall(lock.lock().await), (1, 0));
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert_eq!(shortfall(lock.try_lock_for(ms(60_000)).await), (1, 0));
    let semaphore = client.semaphore("b");
    semaphore.try_set_permits(1).await.expect("set");
    assert_eq!(shortfall(semaphore.with_replicas(3).acquire(1).await), (3, 0));
    in_time("refused at once", began, PROMPT);
    assert!(!client.lock("a").is_locked().await.expect("a reply"));
    assert_eq!(semaphore.available().await.expect("a reply"), 1);
}
