//! `run`: a future that runs while the lock is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms};
use crate::{eventually, within};
use turnlock::{Client, Error, Exit, LostReason};

pub(super) const CASES: &[Case] = cases![
    a_body_runs_under_the_lock_and_returns_its_result,
    a_body_is_cancelled_when_the_lock_is_lost needs DataLoss,
    hooks_are_called_however_the_body_ends,
    a_body_does_not_run_when_the_lock_is_not_free_in_time,
    a_cancelled_run_drops_the_body_and_releases_the_lock,
];

async fn a_body_runs_under_the_lock_and_returns_its_result(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let same = lock.clone();
    let seen = lock
        .run(|held| async move {
            let holders = same.inspect().await.expect("a reply").holders;
            (held.is_valid(), holders[0].owner == *held.owner_id())
        })
        .await
        .expect("acquired");
    assert_eq!(seen, (true, true));
    assert!(!lock.is_locked().await.expect("a reply"));
}

/// Sets its flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn a_body_is_cancelled_when_the_lock_is_lost(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let lock = client.lock(&fixture.name());
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&cancelled));
    let exits = Arc::new(Mutex::new(Vec::new()));
    let exits_of_hook = Arc::clone(&exits);
    let cancelled_at_exit = Arc::clone(&cancelled);
    let runner = lock.runner().on_exit(move |exit| {
        exits_of_hook.lock().unwrap().push((exit, cancelled_at_exit.load(Ordering::SeqCst)));
    });
    let running = tokio::spawn(async move {
        runner
            .run(|_| async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            })
            .await
    });
    eventually("the body runs", PROMPT, async || matches!(lock.is_locked().await, Ok(true))).await;
    fixture.lose_data().await;
    let outcome = within(ms(3_000), "the run ends", running).await.expect("no panic");
    assert!(matches!(outcome, Err(Error::Lost { reason: LostReason::Taken, .. })));
    assert!(cancelled.load(Ordering::SeqCst));
    assert_eq!(
        *exits.lock().unwrap(),
        [(Exit::Lost(LostReason::Taken), true)],
        "the body ended before the hook ran"
    );
}

async fn hooks_are_called_however_the_body_ends(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (acquired, exited) = (Arc::clone(&calls), Arc::clone(&calls));
    let runner = lock
        .runner()
        .on_acquire(move |held| {
            acquired.lock().unwrap().push(format!("acquired, valid: {}", held.is_valid()));
        })
        .on_exit(move |exit| exited.lock().unwrap().push(format!("{exit:?}")));
    runner.run(|_| async { 1 }).await.expect("acquired");
    let panicking = runner.clone();
    let task = tokio::spawn(async move {
        panicking.run(|_| async { std::panic::resume_unwind(Box::new("on purpose")) }).await.map(|(): ()| ())
    });
    assert!(task.await.expect_err("it panicked").is_panic());
    let expected = ["acquired, valid: true", "Finished", "acquired, valid: true", "Aborted"];
    assert_eq!(*calls.lock().unwrap(), expected);
    eventually("the lock is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}

async fn a_body_does_not_run_when_the_lock_is_not_free_in_time(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let outcome = lock.try_run_for(ms(30), |_| async { panic!("the body ran") }).await;
    assert!(matches!(outcome, Ok(None::<()>)));
    guard.unlock().await.expect("held");
    assert_eq!(lock.try_run_for(PROMPT, |_| async { 7 }).await.expect("a reply"), Some(7));
}

async fn a_cancelled_run_drops_the_body_and_releases_the_lock(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&cancelled));
    let running = lock.clone();
    let task = tokio::spawn(async move {
        running
            .run(|_| async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            })
            .await
    });
    eventually("the body runs", PROMPT, async || matches!(lock.is_locked().await, Ok(true))).await;
    task.abort();
    eventually("the lock is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    assert!(cancelled.load(Ordering::SeqCst));
}
