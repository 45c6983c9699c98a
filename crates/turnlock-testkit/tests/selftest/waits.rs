//! The messages of waits that exceed their limits.

use std::time::{Duration, Instant};

use turnlock_testkit::{TimedOut, eventually, in_time, within};

const SHORT: Duration = Duration::from_millis(20);

/// Returns the message of the panic that ends a wait.
async fn panic_message(wait: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(wait).await.expect_err("a panic").into_panic();
    panic.downcast::<TimedOut>().expect("a time-out").to_string()
}

#[tokio::test]
async fn a_probe_that_never_succeeds_is_named() {
    let message = panic_message(eventually("a condition", SHORT, async || false)).await;
    assert!(message.starts_with("a condition: not true within 20ms (called at"), "{message}");
}

#[tokio::test]
async fn a_future_that_exceeds_its_limit_is_named() {
    let message = panic_message(within(SHORT, "a reply", std::future::pending())).await;
    assert!(message.starts_with("a reply: not complete within 20ms (called at"), "{message}");
}

#[tokio::test]
async fn an_operation_that_took_too_long_is_named() {
    let began = Instant::now();
    tokio::time::sleep(2 * SHORT).await;
    let message = panic_message(async move { in_time("a reply", began, SHORT) }).await;
    assert!(
        message.starts_with("a reply: took ") && message.contains("not within 20ms (called at"),
        "{message}"
    );
}
