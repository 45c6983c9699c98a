//! What is said when waiting was in vain.

use std::time::Duration;

use turnlock_testkit::{eventually, within};

#[tokio::test]
#[should_panic(expected = "a miracle: not so within 20ms (asked at")]
async fn waiting_in_vain_names_what_was_awaited() {
    eventually("a miracle", Duration::from_millis(20), async || false).await;
}

#[tokio::test]
#[should_panic(expected = "an answer: not done within 20ms (asked at")]
async fn a_future_that_takes_too_long_is_named() {
    within(Duration::from_millis(20), "an answer", std::future::pending::<()>()).await;
}
