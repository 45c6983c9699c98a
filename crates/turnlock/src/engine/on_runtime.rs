use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future whose timers live on a given runtime.
///
/// Who awaits a lock may do so on another runtime, or on none. Without this, its timers would be that runtime's, and a
/// request handed over to the engine could lose its clock with the caller.
pub(crate) struct OnRuntime<F> {
    runtime: Handle,
    future: Pin<Box<F>>,
}

impl<F> OnRuntime<F> {
    pub(super) fn new(runtime: Handle, future: F) -> Self {
        Self { runtime, future: Box::pin(future) }
    }
}

impl<F: Future> Future for OnRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _inside = this.runtime.enter();
        this.future.as_mut().poll(context)
    }
}
