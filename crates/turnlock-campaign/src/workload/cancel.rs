use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cancel {
    After(Duration),
    AfterPolls(usize),
}

impl Cancel {
    /// Cancels some: after some time, at most so many milliseconds, or after some polls.
    pub(super) fn draw(longest_ms: u64, rng: &mut Rng) -> Option<Self> {
        match rng.u8(..8) {
            0 => Some(Self::After(Duration::from_millis(rng.u64(..longest_ms)))),
            1 => Some(Self::AfterPolls(rng.usize(1..8))),
            _ => None,
        }
    }
}

/// Awaits a future. `None` if it is cancelled before.
pub(super) async fn unless_cancelled<T>(future: BoxFuture<'_, T>, cancel: Option<Cancel>) -> Option<T> {
    match cancel {
        None => Some(future.await),
        Some(Cancel::After(time)) => timeout(time, future).await.ok(),
        Some(Cancel::AfterPolls(polls)) => drop_after(future, polls).await,
    }
}

/// Polls a future so often, and drops it if it is not ready then.
async fn drop_after<T>(mut future: BoxFuture<'_, T>, mut polls: usize) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}
