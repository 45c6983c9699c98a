//! Fencing tokens from grants of Java and turnlock in turn.

use futures_util::FutureExt;
use turnlock::Client;

use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE};
use crate::cases;

pub(crate) const CASES: &[JavaCase] =
    cases![tokens_rise_over_grants_of_both, a_token_is_read_by_both, locks_of_one_key_exclude_each_other];

async fn tokens_rise_over_grants_of_both(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let lock = client.lock(&name);
    let mut tokens = Vec::new();
    for _ in 0..5 {
        tokens.push(java.number(&name, "lockAndGetToken").await);
        java.run(&name, "unlock").await;
        let guard = lock.with_lease(LONG_LEASE).lock().await.expect("free");
        tokens.push(guard.token().expect("a fenced lock has one"));
        // Also a grant after a wait, and a reentry.
        let mut turn = java.start(&name, "tryLockAndGetToken 30000 60000");
        context.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        guard.unlock().await.expect("held");
        tokens.push(woken(turn).await.parse().expect("a token"));
        tokens.push(java.number(&name, "lockAndGetToken").await);
        java.run(&name, "unlock").await;
        java.run(&name, "unlock").await;
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

async fn a_token_is_read_by_both(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let lock = client.lock(&name);
    for _ in 0..3 {
        let guard = lock.lock().await.expect("free");
        assert_eq!(Some(java.number(&name, "getToken").await), guard.token());
        assert_eq!(lock.inspect().await.expect("a reply").token, guard.token());
        let ours = guard.token().expect("a fenced lock has one");
        guard.unlock().await.expect("held");
        assert_eq!(java.number(&name, "getToken").await, ours, "it outlives its hold");
        let javas = java.number(&name, "lockAndGetToken").await;
        assert_eq!(javas, ours + 1, "Java continues from our token");
        assert_eq!(lock.inspect().await.expect("a reply").token, Some(javas));
        java.run(&name, "unlock").await;
    }
}

async fn locks_of_one_key_exclude_each_other(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let client: &Client = &client;
    let locks = [client.lock(&name), client.fenced_lock(&name), client.spin_lock(&name)];
    for object in ["lock", "fenced", "spin"] {
        let java = java.at(object);
        java.run(&name, "lock 60000").await;
        for lock in &locks {
            assert!(lock.try_lock().await.expect("a reply").is_busy(), "{object}");
        }
        java.run(&name, "unlock").await;
        for lock in &locks {
            let guard = lock.with_lease(LONG_LEASE).lock().await.expect("free");
            java.expect(&name, "tryLock", "false").await;
            guard.unlock().await.expect("held");
        }
    }
}
