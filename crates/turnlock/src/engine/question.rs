use std::io;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::{Deed, Snapshot};
use turnlock_core::request::Repeats;
use turnlock_core::{LockName, OwnerId};

use super::Shared;
use super::acquire::Patience;
use super::errand::Errand;
use super::troubles::Troubles;
use crate::backend::{Answer, Step};
use crate::clock;
use crate::error::Error;

/// Whether a question is asked again when its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Always,
    /// Only if it was certainly not done.
    IfNotDone,
}

impl Shared {
    /// One question to the store that concerns no hold of ours, asked twice if the first finds a dead connection. One that
    /// is not answered in time is not asked again.
    pub(crate) async fn ask<T: Send>(
        &self,
        name: &LockName,
        resend: Resend,
        step: impl Fn(Duration) -> Step<T>,
    ) -> Result<T, Error> {
        let limit = self.settings.usual_patience();
        let end = clock::now() + limit;
        let work = async {
            let answer = match step(limit).await {
                Err(failure)
                    if failure.is_worth_a_retry()
                        && clock::now() < end
                        && (resend == Resend::Always || failure.in_doubt.is_none()) =>
                {
                    step(limit).await
                }
                answer => answer,
            };
            answer.map(|Answer { value, .. }| value)
        };
        self.on_runtime(work).await.map_err(|failure| failure.into_error(|| describe(name)))
    }

    /// What the thing of this name looks like.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.ask(name, Resend::Always, |limit| self.backend.inspect(name, limit)).await
    }

    /// A step on a number without owners. It counts once, however often it has to be sent, and is not sent when the store
    /// may have forgotten the first time; once begun it is finished, also when the caller goes away.
    pub(crate) async fn perform(self: &Arc<Self>, name: &LockName, deed: Deed) -> Result<i64, Error> {
        self.check_open()?;
        let (shared, name, request) = (Arc::clone(self), name.clone(), self.new_owner());
        let work = async move {
            let limit = shared.settings.usual_patience();
            let mut troubles = Troubles::new(shared.settings.retry_for, Patience::Endless, limit);
            let mut repeats = Repeats::default();
            loop {
                let asked = clock::now();
                match shared.backend.perform(&name, deed, &request, limit).await {
                    Ok(Answer { value, .. }) => {
                        if !repeats.are_in_doubt() {
                            shared.forget(&name, &request);
                        }
                        return Ok(value);
                    }
                    Err(failure) => {
                        if let Some(sent) = failure.in_doubt {
                            repeats.are_in_doubt_since(sent.at);
                        }
                        tokio::time::sleep(troubles.after(failure, asked, || describe(&name))?).await;
                        check_age(&name, repeats)?;
                    }
                }
            }
        };
        self.on_runtime(Errand::new(&self.errands, work)).await
    }

    /// Lets the store forget a request on a number without owners, in the background: it was sent once and answered, so
    /// no copy will come. If that fails, the store forgets it in time by itself.
    pub(super) fn forget(&self, name: &LockName, request: &OwnerId) {
        let step = self.backend.forget(name, request, self.settings.usual_patience());
        self.errands.adopt(async move { drop(step.await) });
    }
}

/// Whether a request on a number without owners may still be sent: an error when the store may have forgotten what became
/// of an earlier copy.
pub(super) fn check_age(name: &LockName, repeats: Repeats) -> Result<(), Error> {
    if clock::now() < repeats.end() {
        return Ok(());
    }
    let cause = io::Error::new(
        io::ErrorKind::TimedOut,
        "a request got no answer, so its outcome is unknown, and it is too old to be repeated",
    );
    Err(Error::Unavailable { what: describe(name), source: Arc::new(cause) })
}

/// A thing by its kind and name, for messages.
pub(crate) fn describe(name: &LockName) -> String {
    format!("{} {:?}", name.kind().noun(), name.as_str())
}
