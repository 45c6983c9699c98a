use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

/// A future that must run to completion.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs futures that have no caller: requests whose caller was dropped, and releases of dropped guards.
///
/// `spawn` does not block, needs no runtime and does not fail, so a destructor can call it. When the engine's
/// runtime is gone, the future is dropped, and what it would have released ends with its lease.
#[derive(Clone, Debug)]
pub(crate) struct BackgroundTasks {
    sender: mpsc::UnboundedSender<Work>,
    counter: Arc<Counter>,
}

/// Counts the tasks that have not finished.
#[derive(Debug, Default)]
struct Counter {
    pending: AtomicUsize,
    finished: Notify,
}

impl BackgroundTasks {
    /// Returns the handle, and the runner to be spawned on the engine's runtime.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        // Until all handles are dropped and all tasks have finished.
        let works = stream::poll_fn(move |context| receiver.poll_recv(context));
        let runner = works.for_each_concurrent(None, |work: Work| work);
        (Self { sender, counter: Arc::default() }, runner)
    }

    /// Runs `work` in the background.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.counter.pending.fetch_add(1, Ordering::AcqRel);
        let task = PendingTask(Arc::clone(&self.counter));
        // Fails only if the runner is gone; then the work is dropped.
        let _ = self.sender.send(Box::pin(async move {
            // A panic must not stop the other tasks.
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("background task panicked, what it was to release ends with its lease");
            }
            drop(task);
        }));
    }

    /// Returns `true` if the engine's runtime is gone, so that no task runs.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The number of tasks that have not finished.
    pub(crate) fn pending(&self) -> usize {
        self.counter.pending.load(Ordering::Acquire)
    }

    /// Waits until a task finishes.
    pub(crate) async fn progress(&self) {
        self.counter.finished.notified().await;
    }

    /// Waits until all tasks have finished.
    pub(crate) async fn drained(&self) {
        while self.pending() > 0 {
            // Checked periodically: one notification wakes one of several waiting callers.
            let _ = tokio::time::timeout(Duration::from_millis(20), self.progress()).await;
        }
    }
}

/// Counts as one pending task until it is dropped.
struct PendingTask(Arc<Counter>);

impl Drop for PendingTask {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::AcqRel);
        self.0.finished.notify_one();
    }
}

/// A future that is always completed: by its caller or, if the caller drops it, by [`BackgroundTasks`].
///
/// In the background its result is dropped, so a result that must be undone undoes itself on drop. A future
/// that was never polled has done nothing, and is only dropped.
pub(crate) struct RunToCompletion<'a, W: Completable> {
    /// Not boxed here: a future that is boxed already, or needs no pinning, is moved to the background as it is.
    work: Option<W>,
    is_under_way: bool,
    background: &'a BackgroundTasks,
}

/// A future that can be moved while it is under way.
pub(crate) trait Completable: Future + Unpin + Send + 'static {}

impl<W: Future + Unpin + Send + 'static> Completable for W {}

impl<'a, W: Completable> RunToCompletion<'a, W> {
    pub(crate) fn new(background: &'a BackgroundTasks, work: W) -> Self {
        Self { work: Some(work), is_under_way: false, background }
    }
}

impl<'a, T: Send + 'static> RunToCompletion<'a, Pin<Box<dyn Future<Output = T> + Send>>> {
    pub(crate) fn boxed(
        background: &'a BackgroundTasks,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self::new(background, Box::pin(work))
    }
}

impl<W: Completable> Future for RunToCompletion<'_, W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        // Not under way during the poll, so that a future that panicked is not polled again in the background.
        self.is_under_way = false;
        let Some(work) = &mut self.work else { return Poll::Pending };
        let poll = Pin::new(work).poll(context);
        self.is_under_way = poll.is_pending();
        poll
    }
}

impl<W: Completable> Drop for RunToCompletion<'_, W> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take_if(|_| self.is_under_way) {
            self.background.spawn(async move { drop(work.await) });
        }
    }
}

pin_project! {
    /// A future that uses the timers of a given runtime.
    ///
    /// A lock may be awaited on another runtime, or on none. Without this, the timers would belong to that
    /// runtime, and a request that the engine completes could lose its timer with the caller.
    pub(crate) struct OnRuntime<'a, F> {
        pub(super) runtime: &'a Handle,
        #[pin]
        pub(super) future: F,
    }
}

impl<F: Future> Future for OnRuntime<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _inside = this.runtime.enter();
        this.future.poll(context)
    }
}
