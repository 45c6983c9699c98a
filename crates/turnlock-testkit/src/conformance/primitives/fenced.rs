//! Fenced locks: each grant has a token higher than all before it.

use crate::conformance::{Case, Fixture, PROMPT, cases, ms, until_waiting};
use crate::within;
use turnlock::{Error, Lock};

pub(super) const CASES: &[Case] = cases![
    tokens_rise_across_clients_reentries_expiry_and_forced_unlocks,
    tokens_rise_after_data_loss needs DataLoss,
    a_reentrant_lock_of_the_same_name_excludes_and_has_no_token,
    the_body_of_a_run_can_read_its_token,
    inspect_shows_the_last_token,
];

/// Asserts that tokens rise.
#[derive(Debug, Default)]
pub struct Highest(pub u64);

impl Highest {
    /// Acquires the lock, checks its token, and releases it.
    pub async fn lock_once(&mut self, lock: &Lock) {
        let guard = within(ms(5_000), "acquired", lock.lock()).await.expect("acquired");
        self.check(guard.token());
        guard.unlock().await.expect("held");
    }

    #[track_caller]
    pub fn check(&mut self, token: Option<u64>) {
        let token = token.expect("a token");
        assert!(token > self.0, "{token} does not rise above {}", self.0);
        self.0 = token;
    }
}

async fn tokens_rise_across_clients_reentries_expiry_and_forced_unlocks(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let mut highest = Highest::default();
    for lock in [&one, &two, &two, &one] {
        highest.lock_once(lock).await;
        let outer = lock.lock().await.expect("free");
        highest.check(outer.token());
        let inner = outer.reenter().await.expect("held");
        highest.check(inner.token());
        assert!(outer.token() < inner.token(), "each guard has the token of its own grant");
        inner.unlock().await.expect("held");
        outer.unlock().await.expect("held");
        let short = lock.with_lease(ms(60)).lock().await.expect("free");
        highest.check(short.token());
        highest.lock_once(&two).await;
        assert!(!short.is_valid());
        let forced = lock.lock().await.expect("free");
        highest.check(forced.token());
        assert!(one.force_unlock().await.expect("a reply"));
        highest.lock_once(&one).await;
        let tried = two.try_lock().await.expect("a reply").acquired().expect("free");
        highest.check(tried.token());
        assert!(one.try_lock().await.expect("a reply").is_busy());
        tried.unlock().await.expect("held");
    }
    let client = fixture.client().await;
    let owned = client.lock(&name).with_owner(&client.owner());
    let guards = [owned.lock().await.expect("free"), owned.lock().await.expect("the same owner")];
    for guard in &guards {
        highest.check(guard.token());
    }
}

async fn tokens_rise_after_data_loss(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let mut highest = Highest::default();
    for _ in 0..5 {
        highest.lock_once(&one).await;
        let held = one.lock().await.expect("free");
        highest.check(held.token());
        fixture.lose_data().await;
        highest.lock_once(&two).await;
        assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
        highest.lock_once(&fixture.client().await.lock(&name)).await;
    }
}

async fn a_reentrant_lock_of_the_same_name_excludes_and_has_no_token(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let (fenced, reentrant) = (client.fenced_lock(&name), client.reentrant(&name));
    let mut highest = Highest::default();
    highest.lock_once(&fenced).await;
    let guard = reentrant.lock().await.expect("free");
    assert_eq!(guard.token(), None);
    assert!(fenced.try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    let guard = fenced.lock().await.expect("free");
    highest.check(guard.token());
    assert!(reentrant.try_lock().await.expect("a reply").is_busy());
    let waiting = reentrant.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(&reentrant, 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the release of one wakes the waiter of the other", task)
        .await
        .expect("no panic")
        .unlock()
        .await
        .expect("held");
    highest.lock_once(&fenced).await;
}

async fn the_body_of_a_run_can_read_its_token(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let mut highest = Highest::default();
    highest.lock_once(&lock).await;
    highest.check(lock.run(|held| async move { held.token() }).await.expect("acquired"));
    let outcome = lock.try_run_for(ms(500), |held| async move { held.token() }).await.expect("a reply");
    highest.check(outcome.expect("free"));
    highest.lock_once(&lock).await;
}

async fn inspect_shows_the_last_token(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    assert_eq!(lock.inspect().await.expect("a reply").token, None);
    let guard = lock.lock().await.expect("free");
    assert_eq!(lock.inspect().await.expect("a reply").token, guard.token());
    let last = guard.token();
    guard.unlock().await.expect("held");
    assert_eq!(lock.inspect().await.expect("a reply").token, last, "it outlives the hold");
}
