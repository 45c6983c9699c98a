use super::*;

/// Acquires the lock, uses it and releases it; or gives up while it waits.
async fn use_lock(fixture: Arc<Fixture>, may_give_up: bool) {
    let acquired = match choose(2) {
        0 if may_give_up => given_up_after(choose(8), fixture.acquire()).await,
        _ => Some(fixture.acquire().await),
    };
    if let Some(grant) = acquired {
        let grant = grant.expect("the client is open");
        fixture.use_alone().await;
        end(grant).await;
    }
}

/// As [`use_lock`], but the lock may be lost, and then another task uses it too.
async fn use_until_lost(fixture: Arc<Fixture>) {
    let acquired = given_up_after(3 + choose(20), fixture.acquire()).await;
    if let Some(grant) = acquired {
        message().await;
        end(grant.expect("the client is open")).await;
    }
}

fn three_users(runtime: &'static Runtime, kind: Kind) {
    let (fixture, tasks) = Fixture::start(runtime, kind);
    let users = (0..3).map(|number| spawn(use_lock(Arc::clone(&fixture), number > 0))).collect();
    fixture.finish(users, tasks);
}

#[test]
fn a_hold_goes_to_one_waiter_or_back_to_the_store_whatever_waiters_do() {
    explore(1_500, |runtime| three_users(runtime, Kind::Lock));
}

#[test]
fn a_fair_lock_is_passed_on_to_one_waiter_or_released() {
    explore(1_000, |runtime| three_users(runtime, Kind::Fair));
}

#[test]
fn a_waiter_that_does_not_run_costs_the_lock_its_window_at_most() {
    explore(400, |runtime| {
        let (fixture, tasks) = Fixture::start(runtime, Kind::Lock);
        let (first, second) = block_on(async {
            let grant = fixture.acquire().await.expect("open");
            let mut second = Box::pin({
                let fixture = Arc::clone(&fixture);
                async move { fixture.acquire().await }
            });
            // It is queued, and is not polled until the third one has used the lock.
            assert!(poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_pending())).await);
            (grant, second)
        });
        let holder = spawn(end(first));
        let third = spawn(use_lock(Arc::clone(&fixture), false));
        let not_polled = spawn({
            let fixture = Arc::clone(&fixture);
            async move {
                // The hold is taken back at the end of the window. Only then it is polled again.
                while clock::now() < fixture.start + Duration::from_millis(60) {
                    yield_now().await;
                }
                drop(second);
            }
        });
        fixture.finish(vec![holder, third, not_polled], tasks);
    });
}

#[test]
fn a_forced_unlock_during_a_hand_over_leaves_nothing() {
    explore(1_000, |runtime| {
        let (fixture, tasks) = Fixture::start(runtime, Kind::Lock);
        let mut users: Vec<_> = (0..3).map(|_| spawn(use_until_lost(Arc::clone(&fixture)))).collect();
        users.push(spawn({
            let fixture = Arc::clone(&fixture);
            async move { fixture.force_unlock().await }
        }));
        fixture.finish(users, tasks);
    });
}
