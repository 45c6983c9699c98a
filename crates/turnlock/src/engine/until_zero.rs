use std::io;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::LockName;

use super::Shared;
use super::acquire::{LONGEST_SLEEP, WaitLimit};
use super::query::describe;
use super::retry::RetryState;
use super::wait_queues::Join;
use crate::backend::{Failure, FailureKind, StepReply};
use crate::clock;
use crate::error::Error;

fn no_reply(limit: Duration) -> Failure {
    let cause = io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {limit:?}"));
    Failure::refused(FailureKind::Unavailable(Arc::new(cause)))
}

/// Waits until a latch is open. Returns `false` if the wait limit passes first.
pub(crate) async fn until_zero(
    shared: &Arc<Shared>,
    name: &LockName,
    wait_limit: WaitLimit,
) -> Result<bool, Error> {
    let (waiter, _) = shared.wait_queues.enter(name, Join::AtEnd);
    let mut retry = RetryState::new(shared.settings.retry_for, wait_limit, shared.settings.usual_limit());
    let mut is_subscribed = false;
    let end = wait_limit.end();
    loop {
        shared.check_open()?;
        let sent = clock::now();
        let limit = shared.settings.usual_limit();
        // A request may outlast the caller's deadline by one response time-out.
        let request = tokio::time::timeout(end.since(sent).max(limit), shared.backend.inspect(name, limit));
        let count = match request.await.unwrap_or_else(|_| Err(no_reply(limit))) {
            Ok(StepReply { value, .. }) => value.number.unwrap_or_default(),
            Err(failure) => {
                let pause = retry.pause_after(failure, sent, || describe(name))?;
                tokio::time::sleep(pause.min(end.since(clock::now()))).await;
                continue;
            }
        };
        retry.reset();
        if count <= 0 {
            return Ok(true);
        }
        if clock::now() >= end {
            return Ok(false);
        }
        if !is_subscribed {
            // Messages published before the subscription are missed, so the count is read again at once.
            is_subscribed = true;
            waiter.set_subscribed();
            let _ = tokio::time::timeout(end.since(sent).min(LONGEST_SLEEP), shared.backend.subscribe(name))
                .await;
            continue;
        }
        let poll_at = (sent + shared.settings.poll_interval).min(end);
        while !waiter.wakeup.take_hint() && clock::now() < poll_at {
            let sleep_for = poll_at.since(clock::now()).min(LONGEST_SLEEP);
            let _ = tokio::time::timeout(sleep_for, waiter.wakeup.notified()).await;
        }
    }
}
