//! What holds for every kind of lock.

use super::JavaCase;
use super::scene::{Scene, java_is_prompt, run_is_prompt, start_of, turn_of_java};
use crate::cases;

pub(super) const CASES: &[JavaCase] = cases![
    java_holds_and_run_does_not,
    javas_release_starts_a_waiting_run,
    run_holds_and_java_does_not,
    the_end_of_the_command_wakes_java,
];

async fn java_holds_and_run_does_not(scene: Scene) {
    let (java, flags) = (scene.java("one"), scene.rivals.flags);
    java.does("lock").await;
    let refused = scene.rig.run(&[&["-n"], flags].concat(), &["echo", "mine"]).output().await;
    assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(1), &b""[..]));
    java.says("isHeldByMe", "true").await;
    java.does("unlock").await;
    assert_eq!(scene.code_of(flags).await, 0);
}

async fn javas_release_starts_a_waiting_run(scene: Scene) {
    let (java, flags) = (scene.java("one"), scene.rivals.flags);
    run_is_prompt(async || {
        java.does("lock").await;
        let mut waiter = scene.waiting_run(flags).await;
        let took = start_of(&mut waiter, java.begins("unlock")).await;
        java.says("tryLock", "false").await;
        assert_eq!(waiter.code().await, 0);
        took
    })
    .await;
}

async fn run_holds_and_java_does_not(scene: Scene) {
    let (java, flags) = (scene.java("one"), scene.rivals.flags);
    let holder = scene.rig.hold(flags).await;
    java.says("tryLock", "false").await;
    assert_eq!(holder.code().await, 0);
    java.says("tryLock", "true").await;
    java.does("unlock").await;
}

async fn the_end_of_the_command_wakes_java(scene: Scene) {
    let (java, flags) = (scene.java("one"), scene.rivals.flags);
    java_is_prompt(async || {
        let holder = scene.rig.hold(flags).await;
        let turn = java.begins("lock");
        scene.until_listening().await;
        let (took, _) = turn_of_java(holder, turn).await;
        assert_eq!(scene.code_of(flags).await, 1);
        java.does("unlock").await;
        took
    })
    .await;
}
