//! Mutual exclusion and wake-ups, for every kind of lock.

use super::JavaCase;
use super::fixture::{
    RedissonFixture, assert_java_is_prompt, assert_run_is_prompt, java_acquires, time_to_acquire,
};
use crate::cases;

pub(super) const CASES: &[JavaCase] = cases![
    a_lock_held_by_java_excludes_a_run,
    a_release_by_java_starts_a_waiting_run,
    a_lock_held_by_a_run_excludes_java,
    the_end_of_the_command_wakes_java,
];

async fn a_lock_held_by_java_excludes_a_run(fixture: RedissonFixture) {
    let (java, flags) = (fixture.java("one"), fixture.pair.flags);
    java.run("lock").await;
    let rejected = fixture.base.run(&[&["-n"], flags].concat(), &["echo", "mine"]).output().await;
    assert_eq!((rejected.status.code(), rejected.stdout.as_slice()), (Some(1), &b""[..]));
    java.expect("isHeldByMe", "true").await;
    java.run("unlock").await;
    assert_eq!(fixture.code_of(flags).await, 0);
}

async fn a_release_by_java_starts_a_waiting_run(fixture: RedissonFixture) {
    let (java, flags) = (fixture.java("one"), fixture.pair.flags);
    assert_run_is_prompt(async || {
        java.run("lock").await;
        let mut waiter = fixture.waiting_run(flags).await;
        let took = time_to_acquire(&mut waiter, java.start("unlock")).await;
        java.expect("tryLock", "false").await;
        assert_eq!(waiter.code().await, 0);
        took
    })
    .await;
}

async fn a_lock_held_by_a_run_excludes_java(fixture: RedissonFixture) {
    let (java, flags) = (fixture.java("one"), fixture.pair.flags);
    let holder = fixture.base.hold(flags).await;
    java.expect("tryLock", "false").await;
    assert_eq!(holder.code().await, 0);
    java.expect("tryLock", "true").await;
    java.run("unlock").await;
}

async fn the_end_of_the_command_wakes_java(fixture: RedissonFixture) {
    let (java, flags) = (fixture.java("one"), fixture.pair.flags);
    assert_java_is_prompt(async || {
        let holder = fixture.base.hold(flags).await;
        let call = java.start("lock");
        fixture.until_subscribed().await;
        let (took, _) = java_acquires(holder, call).await;
        assert_eq!(fixture.code_of(flags).await, 1);
        java.run("unlock").await;
        took
    })
    .await;
}
