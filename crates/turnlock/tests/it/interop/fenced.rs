//! Fencing tokens that Java and we give out in turn.

use futures_util::FutureExt;
use turnlock::Client;

use super::java::soon;
use super::{JavaCase, LONG, Visit};
use crate::cases;

pub(crate) const CASES: &[JavaCase] =
    cases![tokens_rise_over_grants_of_both, a_token_is_read_by_both, locks_of_one_key_exclude_each_other];

async fn tokens_rise_over_grants_of_both(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let lock = client.lock(&name);
    let mut tokens = Vec::new();
    for _ in 0..5 {
        tokens.push(java.number(&name, "lockAndGetToken").await);
        java.does(&name, "unlock").await;
        let guard = lock.lease(LONG).lock().await.expect("free");
        tokens.push(guard.token().expect("a fenced lock has one"));
        // A grant that was waited for, and a reentry, too.
        let mut turn = java.begins(&name, "tryLockAndGetToken 30000 60000");
        visit.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        guard.unlock().await.expect("held");
        tokens.push(soon(turn).await.parse().expect("a token"));
        tokens.push(java.number(&name, "lockAndGetToken").await);
        java.does(&name, "unlock").await;
        java.does(&name, "unlock").await;
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

async fn a_token_is_read_by_both(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let lock = client.lock(&name);
    for _ in 0..3 {
        let guard = lock.lock().await.expect("free");
        assert_eq!(Some(java.number(&name, "getToken").await), guard.token());
        assert_eq!(lock.inspect().await.expect("an answer").token, guard.token());
        let ours = guard.token().expect("a fenced lock has one");
        guard.unlock().await.expect("held");
        assert_eq!(java.number(&name, "getToken").await, ours, "it outlives its hold");
        let javas = java.number(&name, "lockAndGetToken").await;
        assert_eq!(javas, ours + 1, "Java goes on where we were");
        assert_eq!(lock.inspect().await.expect("an answer").token, Some(javas));
        java.does(&name, "unlock").await;
    }
}

async fn locks_of_one_key_exclude_each_other(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let client: &Client = &client;
    let locks = [client.lock(&name), client.fenced_lock(&name), client.spin_lock(&name)];
    for object in ["lock", "fenced", "spin"] {
        let java = java.at(object);
        java.does(&name, "lock 60000").await;
        for lock in &locks {
            assert!(lock.try_lock().await.expect("an answer").is_none(), "{object}");
        }
        java.does(&name, "unlock").await;
        for lock in &locks {
            let guard = lock.lease(LONG).lock().await.expect("free");
            java.says(&name, "tryLock", "false").await;
            guard.unlock().await.expect("held");
        }
    }
}
