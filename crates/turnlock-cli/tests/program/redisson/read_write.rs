//! Readers, of which there may be many.

use super::JavaCase;
use super::scene::Scene;
use crate::cases;

pub(super) const CASES: &[JavaCase] =
    cases![run_reads_beside_a_reader_in_java, java_reads_beside_a_run, the_last_reader_lets_a_writer_in];

async fn run_reads_beside_a_reader_in_java(scene: Scene) {
    let java = scene.java_at("read", "one");
    java.does("lock").await;
    let reader = scene.rig.hold(&["-s", "-n"]).await;
    assert_eq!(scene.code_of(&["-x"]).await, 1);
    java.does("unlock").await;
    // Now it is the run that keeps writers out.
    assert_eq!(scene.code_of(&["-x"]).await, 1);
    scene.java_at("write", "two").says("tryLock", "false").await;
    assert_eq!(reader.code().await, 0);
    assert_eq!(scene.code_of(&["-x"]).await, 0);
}

async fn java_reads_beside_a_run(scene: Scene) {
    let (java, writer) = (scene.java_at("read", "one"), scene.java_at("write", "two"));
    let reader = scene.rig.hold(&["-s"]).await;
    java.says("tryLock", "true").await;
    writer.says("tryLock", "false").await;
    assert_eq!(reader.code().await, 0);
    writer.says("tryLock", "false").await;
    assert_eq!(scene.code_of(&["-s"]).await, 0);
    assert_eq!(scene.code_of(&["-x"]).await, 1);
    java.does("unlock").await;
    writer.says("tryLock", "true").await;
    writer.does("unlock").await;
}

async fn the_last_reader_lets_a_writer_in(scene: Scene) {
    let java = scene.java_at("read", "one");
    let reader = scene.rig.hold(&["-s"]).await;
    java.does("lock").await;
    let mut writer = scene.waiting_run(&["-x"]).await;
    assert_eq!(reader.code().await, 0);
    // No writer is in yet: it would keep this one out.
    let second = scene.java_at("read", "two");
    second.says("tryLock", "true").await;
    java.does("unlock").await;
    second.does("unlock").await;
    writer.expect("mine").await;
    assert_eq!(writer.code().await, 0);
}
