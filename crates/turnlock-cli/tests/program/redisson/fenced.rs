//! Tokens that Java and runs get in turn.

use super::JavaCase;
use super::scene::{Scene, turn_of_java};
use crate::cases;
use crate::program::Program;

pub(super) const CASES: &[JavaCase] = cases![tokens_rise_over_runs_and_java];

const TELL: &str = "echo $TURNLOCK_TOKEN; exec cat";

async fn token_of(run: &mut Program) -> u64 {
    run.line().await.parse().expect("a token")
}

async fn tokens_rise_over_runs_and_java(scene: Scene) {
    let java = scene.java_at("fenced", "one");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        tokens.push(java.number("lockAndGetToken").await);
        java.does("unlock").await;
        let mut holder = scene.rig.script(&["--fenced"], TELL);
        tokens.push(token_of(&mut holder).await);
        assert_eq!(java.number("getToken").await, tokens[tokens.len() - 1], "Java sees the same");
        // Those that were waited for, too.
        let turn = java.begins("lockAndGetToken");
        scene.until_listening().await;
        tokens.push(turn_of_java(holder, turn).await.1.parse().expect("a token"));
        let mut waiter = scene.rig.script(&["--fenced", "--json"], TELL);
        waiter.event_named("waiting").await;
        java.does("unlock").await;
        tokens.push(token_of(&mut waiter).await);
        assert_eq!(waiter.code().await, 0);
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}
