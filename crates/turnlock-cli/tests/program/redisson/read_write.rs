//! Readers of both sides share a read-write lock.

use super::JavaCase;
use super::fixture::RedissonFixture;
use crate::cases;

pub(super) const CASES: &[JavaCase] =
    cases![a_run_reads_while_java_reads, java_reads_while_a_run_reads, a_writer_waits_for_the_last_reader];

async fn a_run_reads_while_java_reads(fixture: RedissonFixture) {
    let java = fixture.java_at("read", "one");
    java.run("lock").await;
    let reader = fixture.base.hold(&["-s", "-n"]).await;
    assert_eq!(fixture.code_of(&["-x"]).await, 1);
    java.run("unlock").await;
    // Now the run excludes writers.
    assert_eq!(fixture.code_of(&["-x"]).await, 1);
    fixture.java_at("write", "two").expect("tryLock", "false").await;
    assert_eq!(reader.code().await, 0);
    assert_eq!(fixture.code_of(&["-x"]).await, 0);
}

async fn java_reads_while_a_run_reads(fixture: RedissonFixture) {
    let (java, writer) = (fixture.java_at("read", "one"), fixture.java_at("write", "two"));
    let reader = fixture.base.hold(&["-s"]).await;
    java.expect("tryLock", "true").await;
    writer.expect("tryLock", "false").await;
    assert_eq!(reader.code().await, 0);
    writer.expect("tryLock", "false").await;
    assert_eq!(fixture.code_of(&["-s"]).await, 0);
    assert_eq!(fixture.code_of(&["-x"]).await, 1);
    java.run("unlock").await;
    writer.expect("tryLock", "true").await;
    writer.run("unlock").await;
}

async fn a_writer_waits_for_the_last_reader(fixture: RedissonFixture) {
    let java = fixture.java_at("read", "one");
    let reader = fixture.base.hold(&["-s"]).await;
    java.run("lock").await;
    let mut writer = fixture.waiting_run(&["-x"]).await;
    assert_eq!(reader.code().await, 0);
    // The writer does not hold the lock yet: a reader is still admitted.
    let second = fixture.java_at("read", "two");
    second.expect("tryLock", "true").await;
    java.run("unlock").await;
    second.run("unlock").await;
    writer.expect("mine").await;
    assert_eq!(writer.code().await, 0);
}
