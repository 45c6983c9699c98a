use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use turnlock_core::Moment;

use super::engine::Engine;
use super::grant::Grant;
use super::request::{AcquireRequest, WaitLimit};
use super::state::AcquireSpan;
use crate::clock;
use crate::error::Error;
use crate::metrics::{AcquireMetrics, AcquireOutcome, HoldMetrics};

pin_project! {
    /// An acquire that is counted with its outcome. One that is dropped before its end counts as cancelled.
    pub(crate) struct Observed<'a, F> {
        observation: Observation<'a>,
        #[pin]
        acquire: F,
    }
}

impl<'a, F> Observed<'a, F> {
    pub(crate) fn new(observation: Observation<'a>, acquire: F) -> Self {
        Self { observation, acquire }
    }
}

impl<F: Future<Output = Result<Option<Grant>, Error>>> Future for Observed<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.acquire.poll(context));
        this.observation.end(&outcome);
        Poll::Ready(outcome)
    }
}

/// What observers are told about an acquire.
pub(crate) struct Observation<'a> {
    began: Moment,
    waits: bool,
    metrics: AcquireMetrics<'a>,
    span: AcquireSpan,
}

impl<'a> Observation<'a> {
    /// Observes an acquire from `began` on.
    pub(crate) fn begin(engine: &'a Engine, request: &AcquireRequest, began: Moment) -> Self {
        Self {
            began,
            waits: request.wait_limit != WaitLimit::None,
            metrics: engine.metrics.begin_acquire(&request.name),
            span: AcquireSpan::begin(&request.name),
        }
    }

    fn end(&mut self, outcome: &Result<Option<Grant>, Error>) {
        let without_hold = match outcome {
            Ok(Some(Grant { hold, token, .. })) => {
                let is_new = !hold.was_handed_over;
                let outcome = if is_new { AcquireOutcome::Granted } else { AcquireOutcome::HandedOver };
                let since = hold.held_since();
                // A reentry ends later than its hold begins.
                let waited = if since < self.began { clock::now() } else { since }.since(self.began);
                self.metrics.end(outcome, waited, &hold.metrics);
                return self.span.end_granted(outcome.label(), waited, &hold.owner, *token);
            }
            Ok(None) if self.waits => AcquireOutcome::TimedOut,
            Ok(None) => AcquireOutcome::Busy,
            Err(_) => AcquireOutcome::Failed,
        };
        let waited = clock::now().since(self.began);
        self.metrics.end(without_hold, waited, &HoldMetrics::default());
        self.span.end(without_hold.label(), waited);
    }
}

/// An acquire that has not ended was cancelled.
impl Drop for Observation<'_> {
    fn drop(&mut self) {
        if self.metrics.is_open() || self.span.is_open() {
            let waited = clock::now().since(self.began);
            self.metrics.end(AcquireOutcome::Cancelled, waited, &HoldMetrics::default());
            self.span.end(AcquireOutcome::Cancelled.label(), waited);
        }
    }
}
