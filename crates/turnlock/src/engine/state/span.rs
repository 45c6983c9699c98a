use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Span;
use tracing::field::{Empty, display};

use turnlock_core::{LockName, Moment, OwnerId};

use crate::metrics::kind_label;

/// Makes a span at the target of all spans, with `DEBUG`. Without an observer, that costs a load, and nothing is allocated.
///
/// Its parent is the span in which the caller is polled. It is never entered: a caller may be polled on several threads.
macro_rules! span {
    ($name:literal, $lock:expr, $($fields:tt)*) => {{
        let span = tracing::debug_span!(
            target: "turnlock::spans",
            $name,
            name = %$lock.as_str(),
            kind = kind_label($lock.kind()),
            $($fields)*
        );
        if span.is_disabled() { None } else { Some(Box::new(span)) }
    }};
}

/// The span of an acquire, from its call to its end.
#[derive(Debug)]
pub(crate) struct AcquireSpan(Option<Box<Span>>);

impl AcquireSpan {
    pub(crate) fn begin(name: &LockName) -> Self {
        let span =
            span!("turnlock.acquire", name, owner = Empty, waited_ms = Empty, outcome = Empty, token = Empty);
        Self(span)
    }

    /// Ends the span. Later calls have no effect.
    pub(crate) fn end(&mut self, outcome: &'static str, waited: Duration) {
        if let Some(span) = self.0.take() {
            span.record("outcome", outcome);
            span.record("waited_ms", millis(waited));
        }
    }

    /// Ends the span of an acquire that was granted.
    pub(crate) fn end_granted(
        &mut self,
        outcome: &'static str,
        waited: Duration,
        owner: &OwnerId,
        token: Option<u64>,
    ) {
        if let Some(span) = &self.0 {
            span.record("owner", display(owner));
            span.record("token", integer(token));
        }
        self.end(outcome, waited);
    }

    /// Returns `true` until the span ends, if there is one.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// How a hold ended for its holder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HoldEnd {
    Released,
    HandedOver,
    /// The store keeps it for a while: a delayed unlock, or a guard that was detached.
    LeftToStore,
    Lost,
}

impl HoldEnd {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOver => "handed_over",
            Self::LeftToStore => "left_to_store",
            Self::Lost => "lost",
        }
    }
}

/// The span of a hold, from its grant to its end. The default has none.
#[derive(Default)]
pub(crate) struct HoldSpan(Option<Box<Mutex<Option<Span>>>>);

impl HoldSpan {
    pub(crate) fn begin(name: &LockName, owner: &OwnerId, token: Option<u64>) -> Self {
        let span = span!("turnlock.hold", name, owner = %owner, token = integer(token), held_ms = Empty, outcome = Empty);
        Self(span.map(|span| Box::new(Mutex::new(Some(*span)))))
    }

    /// Ends the span. Later calls have no effect.
    pub(crate) fn end(&self, how: HoldEnd, began: Moment, now: Moment) {
        if let Some(span) = self.0.as_ref().and_then(|span| span.lock().take()) {
            span.record("outcome", how.label());
            span.record("held_ms", millis(now.since(began)));
        }
    }
}

impl fmt::Debug for HoldSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldSpan").finish_non_exhaustive()
    }
}

/// The span of a release, from the end of the guard to the reply of the store. The default has none.
#[derive(Debug, Default)]
pub(crate) struct ReleaseSpan(Option<Box<Span>>);

impl ReleaseSpan {
    pub(crate) fn begin(name: &LockName, owner: &OwnerId) -> Self {
        Self(span!("turnlock.release", name, owner = %owner, outcome = Empty))
    }

    pub(crate) fn end(&mut self, outcome: &'static str) {
        if let Some(span) = self.0.take() {
            span.record("outcome", outcome);
        }
    }
}

/// OpenTelemetry has no unsigned numbers: they would become texts.
fn integer(token: Option<u64>) -> Option<i64> {
    token.and_then(|token| token.try_into().ok())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
