use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;

pin_project! {
    /// A future that uses the timers of a given runtime.
    ///
    /// A lock may be awaited on another runtime, or on none. Without this, the timers would belong to that
    /// runtime, and a request that the engine completes could lose its timer with the caller.
    pub(crate) struct OnRuntime<'a, F> {
        runtime: &'a Handle,
        #[pin]
        future: F,
    }
}

impl<'a, F> OnRuntime<'a, F> {
    pub(super) fn new(runtime: &'a Handle, future: F) -> Self {
        Self { runtime, future }
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
