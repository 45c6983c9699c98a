//! Fencing tokens of Java and of runs.

use super::JavaCase;
use super::fixture::{RedissonFixture, java_acquires};
use crate::cases;
use crate::program::Program;

pub(super) const CASES: &[JavaCase] = cases![tokens_increase_across_runs_and_java];

const PRINT_TOKEN: &str = "echo $TURNLOCK_TOKEN; exec cat";

async fn token_of(run: &mut Program) -> u64 {
    run.line().await.parse().expect("a token")
}

async fn tokens_increase_across_runs_and_java(fixture: RedissonFixture) {
    let java = fixture.java_at("fenced", "one");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        tokens.push(java.number("lockAndGetToken").await);
        java.run("unlock").await;
        let mut holder = fixture.base.script(&["--fenced"], PRINT_TOKEN);
        tokens.push(token_of(&mut holder).await);
        assert_eq!(java.number("getToken").await, tokens[tokens.len() - 1], "Java has the same token");
        // Tokens of grants after a wait.
        let call = java.start("lockAndGetToken");
        fixture.until_subscribed().await;
        tokens.push(java_acquires(holder, call).await.1.parse().expect("a token"));
        let mut waiter = fixture.base.script(&["--fenced", "--json"], PRINT_TOKEN);
        waiter.event_named("waiting").await;
        java.run("unlock").await;
        tokens.push(token_of(&mut waiter).await);
        assert_eq!(waiter.code().await, 0);
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}
