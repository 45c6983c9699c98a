//! One count that Java and we bring down.

use futures_util::FutureExt;
use turnlock_testkit::within;

use super::java::soon;
use super::{JavaCase, LIMIT, SOON, Visit};
use crate::cases;
use crate::rig::ms;

pub(crate) const CASES: &[JavaCase] =
    cases![counted_down_by_both_and_awaited_by_both, counts_agree, a_deleted_latch_is_open];

async fn counted_down_by_both_and_awaited_by_both(visit: Visit) {
    let (java, waiter) = (visit.java("one").at("latch"), visit.java("two").at("latch"));
    for (round, name) in visit.names().into_iter().enumerate() {
        let latch = visit.client().await.latch(&name);
        assert!(latch.try_set_count(4).await.expect("an answer"));
        let mut theirs = waiter.begins(&name, "await");
        let waiting = latch.clone();
        let mut ours = tokio::spawn(async move { waiting.wait().await });
        visit.until_listening(&name, 2).await;
        java.does(&name, "countDown").await;
        assert_eq!(latch.count_down().await.expect("an answer"), 2);
        java.says(&name, "getCount", "2").await;
        // The last word is Java's, and then ours.
        if round % 2 == 0 {
            assert_eq!(latch.count_down().await.expect("an answer"), 1);
        } else {
            java.does(&name, "countDown").await;
        }
        assert_eq!(latch.count().await.expect("an answer"), 1);
        assert!((&mut theirs).now_or_never().is_none() && (&mut ours).now_or_never().is_none(), "they wait");
        if round % 2 == 0 {
            java.does(&name, "countDown").await;
        } else {
            assert_eq!(latch.count_down().await.expect("an answer"), 0);
        }
        within(SOON, "ours is told", ours).await.expect("no panic").expect("an answer");
        soon(theirs).await;
        assert!(latch.wait_for(ms(10)).await.expect("an answer"), "it stays open");
        java.says(&name, "await 10", "true").await;
    }
}

async fn counts_agree(visit: Visit) {
    let (java, name) = (visit.java("one").at("latch"), visit.name());
    let latch = visit.client().await.latch(&name);
    java.says(&name, "trySetCount 2", "true").await;
    assert!(!latch.try_set_count(3).await.expect("an answer"));
    assert_eq!(latch.inspect().await.expect("an answer").available, Some(2));
    assert!(!latch.wait_for(ms(30)).await.expect("an answer"));
    java.says(&name, "await 30", "false").await;
    latch.count_down().await.expect("an answer");
    java.does(&name, "countDown").await;
    // Below zero, nothing is left to count.
    java.does(&name, "countDown").await;
    latch.count_down().await.expect("an answer");
    java.says(&name, "getCount", "0").await;
    assert_eq!(latch.inspect().await.expect("an answer").available, None);
    // It can be set again, by the other.
    assert!(latch.try_set_count(1).await.expect("an answer"));
    java.says(&name, "trySetCount 1", "false").await;
    java.says(&name, "await 30", "false").await;
    java.does(&name, "countDown").await;
    latch.wait().await.expect("open");
}

async fn a_deleted_latch_is_open(visit: Visit) {
    let (java, name) = (visit.java("one").at("latch"), visit.name());
    let latch = visit.client().await.latch(&name);
    latch.try_set_count(1).await.expect("an answer");
    let waiting = latch.clone();
    let ours = tokio::spawn(async move { waiting.wait().await });
    visit.until_listening(&name, 1).await;
    java.says(&name, "delete", "true").await;
    within(SOON, "Java's delete is told to us", ours).await.expect("no panic").expect("open");
    // Redisson's own waiters do not hear of a deletion: they see it when their wait ends.
    let name = visit.name();
    let latch = visit.client().await.latch(&name);
    assert!(latch.try_set_count(1).await.expect("an answer"));
    let theirs = java.begins(&name, "await 5000");
    visit.until_listening(&name, 1).await;
    assert!(latch.delete().await.expect("an answer"));
    assert_eq!(within(LIMIT, "its wait ends", theirs).await.as_deref(), Ok("true"));
}
