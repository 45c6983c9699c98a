//! `--permits` and Java's semaphore of permits with ids, at one name.

use super::JavaCase;
use super::scene::{Scene, java_is_prompt, run_is_prompt, start_of, turn_of_java};
use crate::cases;

pub(super) const CASES: &[JavaCase] = cases![
    together_at_most_so_many,
    javas_permit_starts_a_waiting_run,
    the_end_of_the_command_gives_java_its_permit,
];

const TWO: &[&str] = &["--permits", "2"];
const ONE: &[&str] = &["--permits", "1"];

async fn together_at_most_so_many(scene: Scene) {
    let java = scene.java_at("permits", "one");
    // Made by Java, and found by runs as they want it.
    java.says("trySetPermits 2", "true").await;
    for of_java in 0..=2 {
        let mut ids = Vec::new();
        for _ in 0..of_java {
            ids.push(java.ask("tryAcquire").await);
        }
        let mut runs = Vec::new();
        for _ in of_java..2 {
            runs.push(scene.rig.hold(&[&["-n"], TWO].concat()).await);
        }
        java.says("available", "0").await;
        java.says("tryAcquire", "null").await;
        assert_eq!(scene.code_of(TWO).await, 1, "with {of_java} of Java's");
        for id in ids {
            java.does(&format!("release {id}")).await;
        }
        for run in runs {
            assert_eq!(run.finish().await, (0, String::new()), "with {of_java} of Java's");
        }
        java.says("available", "2").await;
    }
}

async fn javas_permit_starts_a_waiting_run(scene: Scene) {
    let java = scene.java_at("permits", "one");
    java.says("trySetPermits 1", "true").await;
    run_is_prompt(async || {
        let id = java.ask("acquire").await;
        let mut waiter = scene.waiting_run(ONE).await;
        let took = start_of(&mut waiter, java.begins(&format!("release {id}"))).await;
        java.says("tryAcquire", "null").await;
        assert_eq!(waiter.code().await, 0);
        took
    })
    .await;
}

async fn the_end_of_the_command_gives_java_its_permit(scene: Scene) {
    let java = scene.java_at("permits", "one");
    java_is_prompt(async || {
        let holder = scene.rig.hold(ONE).await;
        let turn = java.begins("acquire");
        scene.until_listening().await;
        let (took, id) = turn_of_java(holder, turn).await;
        assert_eq!(scene.code_of(ONE).await, 1);
        java.does(&format!("release {id}")).await;
        took
    })
    .await;
}
