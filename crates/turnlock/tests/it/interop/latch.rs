//! A latch that Java and turnlock count down.

use futures_util::FutureExt;
use turnlock_testkit::within;

use super::java::woken;
use super::{Context, JavaCase, SETUP_LIMIT, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::ms;

pub(crate) const CASES: &[JavaCase] =
    cases![counted_down_by_both_and_awaited_by_both, counts_agree, a_deleted_latch_is_open];

async fn counted_down_by_both_and_awaited_by_both(context: Context) {
    let (java, waiter) = (context.java("one").at("latch"), context.java("two").at("latch"));
    for (round, name) in context.names().into_iter().enumerate() {
        let latch = context.client().await.latch(&name);
        assert!(latch.try_set_count(4).await.expect("a reply"));
        let mut theirs = waiter.start(&name, "await");
        let waiting = latch.clone();
        let mut ours = tokio::spawn(async move { waiting.wait().await });
        context.until_subscribed(&name, 2).await;
        java.run(&name, "countDown").await;
        assert_eq!(latch.count_down().await.expect("a reply"), 2);
        java.expect(&name, "getCount", "2").await;
        // The last count-down is Java's in even rounds, and ours in odd ones.
        if round % 2 == 0 {
            assert_eq!(latch.count_down().await.expect("a reply"), 1);
        } else {
            java.run(&name, "countDown").await;
        }
        assert_eq!(latch.count().await.expect("a reply"), 1);
        assert!((&mut theirs).now_or_never().is_none() && (&mut ours).now_or_never().is_none(), "they wait");
        if round % 2 == 0 {
            java.run(&name, "countDown").await;
        } else {
            assert_eq!(latch.count_down().await.expect("a reply"), 0);
        }
        within(WAKE_UP_LIMIT, "our waiter is notified", ours).await.expect("no panic").expect("a reply");
        woken(theirs).await;
        assert!(latch.wait_for(ms(10)).await.expect("a reply"), "it remains open");
        java.expect(&name, "await 10", "true").await;
    }
}

async fn counts_agree(context: Context) {
    let (java, name) = (context.java("one").at("latch"), context.name());
    let latch = context.client().await.latch(&name);
    java.expect(&name, "trySetCount 2", "true").await;
    assert!(!latch.try_set_count(3).await.expect("a reply"));
    assert_eq!(latch.inspect().await.expect("a reply").available, Some(2));
    assert!(!latch.wait_for(ms(30)).await.expect("a reply"));
    java.expect(&name, "await 30", "false").await;
    latch.count_down().await.expect("a reply");
    java.run(&name, "countDown").await;
    // Count-downs below zero have no effect.
    java.run(&name, "countDown").await;
    latch.count_down().await.expect("a reply");
    java.expect(&name, "getCount", "0").await;
    assert_eq!(latch.inspect().await.expect("a reply").available, None);
    // The other side can set it again.
    assert!(latch.try_set_count(1).await.expect("a reply"));
    java.expect(&name, "trySetCount 1", "false").await;
    java.expect(&name, "await 30", "false").await;
    java.run(&name, "countDown").await;
    latch.wait().await.expect("open");
}

async fn a_deleted_latch_is_open(context: Context) {
    let (java, name) = (context.java("one").at("latch"), context.name());
    let latch = context.client().await.latch(&name);
    latch.try_set_count(1).await.expect("a reply");
    let waiting = latch.clone();
    let ours = tokio::spawn(async move { waiting.wait().await });
    context.until_subscribed(&name, 1).await;
    java.expect(&name, "delete", "true").await;
    within(WAKE_UP_LIMIT, "Java's delete wakes us", ours).await.expect("no panic").expect("open");
    // Redisson's own waiters are not notified of a deletion: they see it when their wait ends.
    let name = context.name();
    let latch = context.client().await.latch(&name);
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let theirs = java.start(&name, "await 5000");
    context.until_subscribed(&name, 1).await;
    assert!(latch.delete().await.expect("a reply"));
    assert_eq!(within(SETUP_LIMIT, "its wait ends", theirs).await.as_deref(), Ok("true"));
}
