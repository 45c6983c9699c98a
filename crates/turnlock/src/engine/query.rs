use std::io;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::{CounterOp, Snapshot};
use turnlock_core::request::RetryWindow;
use turnlock_core::{LockName, OwnerId};

use super::Shared;
use super::acquire::WaitLimit;
use super::retry::RetryState;
use super::run_to_completion::RunToCompletion;
use crate::backend::{Step, StepReply};
use crate::clock;
use crate::error::Error;

/// When a query is sent again after a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Always,
    /// Only if the first request was certainly not executed.
    IfNotExecuted,
}

impl Shared {
    /// Sends a request that concerns no local hold, and retries once after a broken connection.
    ///
    /// A request that times out is not sent again.
    pub(crate) async fn query<T: Send>(
        &self,
        name: &LockName,
        resend: Resend,
        step: impl Fn(Duration) -> Step<T>,
    ) -> Result<T, Error> {
        let limit = self.settings.usual_limit();
        let end = clock::now() + limit;
        let work = async {
            let reply = match step(limit).await {
                Err(failure)
                    if failure.is_retryable()
                        && clock::now() < end
                        && (resend == Resend::Always || failure.in_doubt.is_none()) =>
                {
                    step(limit).await
                }
                reply => reply,
            };
            reply.map(|StepReply { value, .. }| value)
        };
        self.on_runtime(work).await.map_err(|failure| failure.into_error(|| describe(name)))
    }

    /// Reads the state of `name`.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.query(name, Resend::Always, |limit| self.backend.inspect(name, limit)).await
    }

    /// Executes one operation on a counter without owners.
    ///
    /// The operation takes effect once, however often it is sent. It is not resent when the store may have
    /// forgotten the request id. Once started, it is completed even if the caller is dropped.
    pub(crate) async fn perform(self: &Arc<Self>, name: &LockName, op: CounterOp) -> Result<i64, Error> {
        self.check_open()?;
        let (shared, name, request) = (Arc::clone(self), name.clone(), self.new_owner());
        let work = async move {
            let limit = shared.settings.usual_limit();
            let mut retry = RetryState::new(shared.settings.retry_for, WaitLimit::Endless, limit);
            let mut repeats = RetryWindow::default();
            loop {
                let sent = clock::now();
                match shared.backend.perform(&name, op, &request, limit).await {
                    Ok(StepReply { value, .. }) => {
                        if !repeats.is_in_doubt() {
                            shared.forget_request(&name, &request);
                        }
                        return Ok(value);
                    }
                    Err(failure) => {
                        if let Some(unanswered) = failure.in_doubt {
                            repeats.mark_in_doubt(unanswered.at);
                        }
                        tokio::time::sleep(retry.pause_after(failure, sent, || describe(&name))?).await;
                        check_resendable(&name, repeats)?;
                    }
                }
            }
        };
        self.on_runtime(RunToCompletion::new(&self.background, work)).await
    }

    /// Removes a request id of a counter from the store, in the background.
    ///
    /// Called for a request that was sent once and got its reply, so that no copy can arrive. If the removal
    /// fails, the id expires.
    pub(super) fn forget_request(&self, name: &LockName, request: &OwnerId) {
        let step = self.backend.forget(name, request, self.settings.usual_limit());
        self.background.spawn(async move { drop(step.await) });
    }
}

/// Fails if the store may have forgotten the outcome of an earlier copy of a counter request.
pub(super) fn check_resendable(name: &LockName, repeats: RetryWindow) -> Result<(), Error> {
    if clock::now() < repeats.end() {
        return Ok(());
    }
    let cause = io::Error::new(
        io::ErrorKind::TimedOut,
        "a request got no reply, so its outcome is unknown, and it is too old to be sent again",
    );
    Err(Error::Unavailable { what: describe(name), source: Arc::new(cause) })
}

/// The kind and name of a lock, for messages.
pub(crate) fn describe(name: &LockName) -> String {
    format!("{} {:?}", name.kind().label(), name.as_str())
}
