//! `--permits` and Java's `RPermitExpirableSemaphore` under one name.

use super::JavaCase;
use super::fixture::{
    RedissonFixture, assert_java_is_prompt, assert_run_is_prompt, java_acquires, time_to_acquire,
};
use crate::cases;

pub(super) const CASES: &[JavaCase] = cases![
    runs_and_java_share_the_permits,
    a_release_by_java_starts_a_waiting_run,
    the_end_of_the_command_wakes_java,
];

const TWO: &[&str] = &["--permits", "2"];
const ONE: &[&str] = &["--permits", "1"];

async fn runs_and_java_share_the_permits(fixture: RedissonFixture) {
    let java = fixture.java_at("permits", "one");
    // Java sets the same number of permits that the runs expect.
    java.expect("trySetPermits 2", "true").await;
    for java_permits in 0..=2 {
        let mut ids = Vec::new();
        for _ in 0..java_permits {
            ids.push(java.call("tryAcquire").await);
        }
        let mut runs = Vec::new();
        for _ in java_permits..2 {
            runs.push(fixture.base.hold(&[&["-n"], TWO].concat()).await);
        }
        java.expect("available", "0").await;
        java.expect("tryAcquire", "null").await;
        assert_eq!(fixture.code_of(TWO).await, 1, "with {java_permits} permits of Java");
        for id in ids {
            java.run(&format!("release {id}")).await;
        }
        for run in runs {
            assert_eq!(run.finish().await, (0, String::new()), "with {java_permits} permits of Java");
        }
        java.expect("available", "2").await;
    }
}

async fn a_release_by_java_starts_a_waiting_run(fixture: RedissonFixture) {
    let java = fixture.java_at("permits", "one");
    java.expect("trySetPermits 1", "true").await;
    assert_run_is_prompt(async || {
        let id = java.call("acquire").await;
        let mut waiter = fixture.waiting_run(ONE).await;
        let took = time_to_acquire(&mut waiter, java.start(&format!("release {id}"))).await;
        java.expect("tryAcquire", "null").await;
        assert_eq!(waiter.code().await, 0);
        took
    })
    .await;
}

async fn the_end_of_the_command_wakes_java(fixture: RedissonFixture) {
    let java = fixture.java_at("permits", "one");
    assert_java_is_prompt(async || {
        let holder = fixture.base.hold(ONE).await;
        let call = java.start("acquire");
        fixture.until_subscribed().await;
        let (took, id) = java_acquires(holder, call).await;
        assert_eq!(fixture.code_of(ONE).await, 1);
        java.run(&format!("release {id}")).await;
        took
    })
    .await;
}
