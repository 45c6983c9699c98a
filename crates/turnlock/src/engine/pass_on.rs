//! Passes a fair lock on: the store ends one hold and begins that of the next local waiter in one step.
//!
//! The store does so only if that waiter is the head of its queue, so the order of arrival over all clients is kept.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use turnlock_core::model::{Claim, Released};
use turnlock_core::{Doubt, Lease, LockName};

use super::engine::Engine;
use super::state::{FairWaiter, IgnoredOutcome, PassedOn};
use crate::clock;
use turnlock_store::{Failure, Sent, StepReply};

impl Engine {
    /// Sends a release that names `next`, a local waiter with its lease. Returns the reply.
    ///
    /// The request runs in the background, because the waiter depends on its outcome, whether the caller is polled
    /// or not. A request in doubt is in doubt for both of them.
    pub(super) fn pass_on(
        &self,
        claim: Claim,
        (next, lease): (Arc<FairWaiter>, Lease),
        limit: Duration,
    ) -> BoxFuture<'static, Result<StepReply<Released>, Failure>> {
        let sent = Sent::never();
        let (reply_sender, reply) = oneshot::channel();
        let grant = Claim::new(&claim.name, &next.owner, 0);
        let release = self.store.release(Claim { next: Some((next.owner.clone(), lease)), ..claim }, limit);
        let weak_self = self.weak_self.clone();
        self.background.spawn(async move {
            let outcome = release.await;
            let passed_on = match &outcome {
                Ok(reply) if reply.value == Released::PassedOn => Some(Ok(reply.sent)),
                Err(failure) if failure.in_doubt.is_some() => Some(Err(failure.clone())),
                _ => None,
            };
            let _ = reply_sender.send(outcome);
            if let (Some(unseen), Some(engine)) = (next.end_release(passed_on), weak_self.upgrade()) {
                engine.undo_unseen(grant, lease, limit, unseen);
            }
        });
        let runtime_gone = move || Failure {
            in_doubt: Some(sent),
            ..Failure::unavailable("the runtime of the client is gone")
        };
        Box::pin(async move { reply.await.unwrap_or_else(|_| Err(runtime_gone())) })
    }

    /// Releases what a waiter was granted, or may have been, that is gone or does not run.
    pub(super) fn undo_unseen(
        self: &Arc<Self>,
        grant: Claim,
        lease: Lease,
        limit: Duration,
        unseen: PassedOn,
    ) {
        let lasts = lease.as_duration();
        let doubt = match unseen {
            Ok(_) => Some(Doubt::of_existing_hold(clock::now() + lasts)),
            Err(failure) => failure.merge_doubt(None, lasts),
        };
        if let Some(doubt) = doubt {
            drop(self.undo(grant, limit, doubt));
        }
    }

    /// Takes a grant back from a waiter that does not run, or undoes what it may have been granted.
    ///
    /// The waiter returns to the head of the queue, and is skipped there if it still does not run.
    pub(super) fn take_back(
        self: &Arc<Self>,
        name: &LockName,
        waiter: Arc<FairWaiter>,
        ignored: IgnoredOutcome,
        lease: Lease,
    ) {
        let (limit, claim) = (self.settings.usual_limit(), Claim::new(name, &waiter.owner, 0));
        if let IgnoredOutcome::Undo(failure) = ignored {
            return self.undo_unseen(claim, lease, limit, Err(failure));
        }
        let next = Some((waiter.owner.clone(), Lease::WATCHDOG));
        let release = self.store.release(Claim { next, ..claim.clone() }, limit);
        let engine = Arc::clone(self);
        self.background.spawn(async move {
            let outcome = release.await;
            waiter.end_taking_back(outcome.is_ok());
            if let Err(failure) = outcome {
                if !engine.outage_log.note_failure("release", &failure, clock::now()) {
                    tracing::warn!(name = %claim.name, %failure, "taking the lock back failed, undoing the grant");
                }
                let doubt = Doubt::of_existing_hold(clock::now() + lease.as_duration());
                drop(engine.undo(claim, limit, doubt));
            }
        });
    }
}
