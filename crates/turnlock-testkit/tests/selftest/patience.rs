//! What is said when waiting was in vain.

use std::time::{Duration, Instant};

use turnlock_testkit::{TooSlow, eventually, in_time, within};

const SHORT: Duration = Duration::from_millis(20);

/// What the panic says that ends a wait.
async fn failure_of(wait: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(wait).await.expect_err("a panic").into_panic();
    panic.downcast::<TooSlow>().expect("too slow").to_string()
}

#[tokio::test]
async fn waiting_in_vain_names_what_was_awaited() {
    let failure = failure_of(eventually("a miracle", SHORT, async || false)).await;
    assert!(failure.starts_with("a miracle: not so within 20ms (asked at"), "{failure}");
}

#[tokio::test]
async fn a_future_that_takes_too_long_is_named() {
    let failure = failure_of(within(SHORT, "an answer", std::future::pending())).await;
    assert!(failure.starts_with("an answer: not done within 20ms (asked at"), "{failure}");
}

#[tokio::test]
async fn what_took_too_long_is_named() {
    let began = Instant::now();
    tokio::time::sleep(2 * SHORT).await;
    let failure = failure_of(async move { in_time("an answer", began, SHORT) }).await;
    assert!(
        failure.starts_with("an answer: after ") && failure.contains("not within 20ms (asked at"),
        "{failure}"
    );
}
