use std::sync::Arc;
use std::time::Duration;

use turnlock_core::hold_state::{Action, Event};
use turnlock_core::model::Renewed;
use turnlock_core::{Backoff, Lease, Moment};

use super::request::describe;
use super::retry::{self, retry};
use super::run_to_completion::RunToCompletion;
use super::shared::Shared;
use super::state::{Hold, LeaseMode, RenewalUnderWay};
use crate::clock;
use crate::error::{Error, IntoError};
use turnlock_store::{Failure, StepOptions, StepReply};

/// A hold without a guard that remains on the store until `until`.
///
/// Each request carries the time left when it is sent, so a repeated request does not extend the hold, except
/// by the delay of its delivery.
#[derive(Clone, Debug)]
pub(crate) struct DelayedUnlock {
    hold: Arc<Hold>,
    until: Moment,
}

/// The outcome of a request that did not fail.
enum Sent {
    /// Confirmed. Not settled if an older request of the hold may still arrive and change the lease.
    Confirmed { is_settled: bool },
    /// Nothing more is to be sent.
    Ended(Result<(), Error>),
}

impl Shared {
    /// Ends the only guard of a hold locally, and its renewal. On an error, nothing has changed.
    pub(crate) fn begin_unlock_after(
        &self,
        hold: &Arc<Hold>,
        lease_mode: LeaseMode,
        time: Duration,
    ) -> Result<DelayedUnlock, Error> {
        let lease = Lease::new(time)?;
        if !hold.name.kind().is_leased() {
            let reason = format!("delayed unlock of {}: it has no lease; use `unlock`", describe(&hold.name));
            return Err(Error::Unsupported(reason));
        }
        if let Some(reason) = hold.lost() {
            self.mark_lost(hold, reason);
        }
        if hold.end_guard(lease_mode, Event::UnlockDelayed) == Action::Refuse {
            let (what, guards) = (describe(&hold.name), hold.guards());
            let reason =
                format!("delayed unlock of {what}: it has {guards} guards; release the others first");
            return Err(Error::Unsupported(reason));
        }
        self.watchdog.unwatch(hold);
        Ok(DelayedUnlock { hold: Arc::clone(hold), until: clock::now() + lease.as_duration() })
    }

    /// Sets the end of a hold on the store, and waits for the confirmation.
    ///
    /// When failures have lasted for `retry_for`, returns an error, and the engine goes on in the background.
    pub(crate) async fn finish_unlock_after(self: &Arc<Self>, delayed: DelayedUnlock) -> Result<(), Error> {
        if self.background.is_closed() {
            // The runtime of the client is gone, and its connections with it.
            self.wait_queues.remove_hold(&delayed.hold);
            return Err(Error::InDoubt { name: delayed.hold.name.to_string(), source: None });
        }
        let shared = Arc::clone(self);
        let work = async move {
            RenewalUnderWay::wait_for_none(&delayed.hold).await;
            let outcome = shared.send_with_retry(&delayed).await;
            shared.wait_queues.remove_hold(&delayed.hold);
            outcome
        };
        RunToCompletion::new(&self.background, work).await
    }

    async fn send_with_retry(self: &Arc<Self>, delayed: &DelayedUnlock) -> Result<(), Error> {
        let hold = &delayed.hold;
        let deadline = (clock::now() + self.settings.retry_for).min(delayed.until);
        let warn = |failure: &Failure| tracing::warn!(name = %hold.name, %failure, "delayed unlock failed");
        let attempt = |_| async { self.send_once(delayed).await.inspect_err(warn) };
        match retry(attempt, retry::until(|| deadline)).await {
            Ok(Sent::Confirmed { is_settled }) => {
                if !is_settled {
                    self.send_in_background(delayed.clone());
                }
                Ok(())
            }
            Ok(Sent::Ended(outcome)) => outcome,
            Err(failure) if failure.is_retryable() => {
                self.send_in_background(delayed.clone());
                Err(Error::InDoubt { name: hold.name.to_string(), source: failure.into_cause() })
            }
            Err(failure) => {
                self.release_refused(hold);
                Err(failure.into_error(|| format!("the delayed unlock of lock {:?}", hold.name.as_str())))
            }
        }
    }

    /// Sends the request in the background until it is settled or its time has passed.
    ///
    /// The caller has its result already.
    fn send_in_background(self: &Arc<Self>, delayed: DelayedUnlock) {
        let shared = Arc::clone(self);
        self.background.spawn(async move {
            let attempt = |_| async {
                match shared.send_once(&delayed).await {
                    Ok(Sent::Confirmed { is_settled: true } | Sent::Ended(_)) => Ok(()),
                    Err(failure) if !failure.is_retryable() => {
                        shared.release_refused(&delayed.hold);
                        Ok(())
                    }
                    Ok(Sent::Confirmed { .. }) | Err(_) => Err(()),
                }
            };
            let mut backoff = Backoff::default();
            tokio::time::sleep(backoff.pause(fastrand::f64())).await;
            let _ = retry(attempt, retry::without_end(backoff)).await;
        });
    }

    /// Releases in the background a hold whose delayed unlock the store refused.
    fn release_refused(self: &Arc<Self>, hold: &Arc<Hold>) {
        hold.apply(Event::DelayedUnlockRefused);
        self.send_releases_in_background(hold);
    }

    /// Sends the request once.
    async fn send_once(
        self: &Arc<Self>,
        DelayedUnlock { hold, until }: &DelayedUnlock,
    ) -> Result<Sent, Failure> {
        // Waits for a reentry that is under way.
        let _step = hold.step_lock.lock().await;
        let ended = |action| Sent::Ended(self.finish(hold, action, None));
        let action = hold.apply(Event::DelayedUnlockDue { until: *until });
        let Action::Send { target } = action else { return Ok(ended(action)) };
        let time_left = until.since(clock::now()).max(Lease::MIN);
        let time_left = Lease::new(time_left).unwrap_or(Lease::LONGEST);
        let step_options = StepOptions::of_engine(self.release_limit(hold), hold.replicas_wanted());
        let outcome = self.store.unlock_after(hold.claim(target), time_left, step_options).await;
        if outcome.as_ref().is_err_and(|failure| failure.in_doubt.is_some()) {
            hold.extend_may_last(time_left);
        }
        let StepReply { value, sent, .. } = outcome?;
        if value == Renewed::NotHeld {
            tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at the delayed unlock");
            return Ok(ended(hold.apply(Event::DelayedUnlockNotHeld)));
        }
        tracing::debug!(name = %hold.name, owner = %hold.owner, ?time_left, "delayed unlock set");
        hold.extend_may_last(time_left);
        let mut inner = hold.inner();
        inner.state.doubt = sent.unsettled(inner.state.doubt);
        Ok(Sent::Confirmed { is_settled: inner.state.doubt.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;
    use turnlock_core::model::{Reply, Step};
    use turnlock_core::{ClientId, LockName};
    use turnlock_store::{FailureKind, Memory, MemoryStore, ReplyFuture, Sent as SentAt, Signals, Store};

    use super::*;
    use crate::client::Client;
    use crate::engine::{CheckedSettings, Engine};

    /// A memory store that fails some steps.
    #[derive(Debug)]
    struct Faulty {
        memory: Memory,
        fault: Mutex<fn(&Step) -> Option<Failure>>,
    }

    impl Store for Faulty {
        fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
            let fault = *self.fault.lock().expect("no panic");
            match fault(&step) {
                Some(failure) => Box::pin(std::future::ready(Err(failure))),
                None => self.memory.call(step, options),
            }
        }

        fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
            self.memory.subscribe(name)
        }

        fn unsubscribe(&self, name: &LockName) {
            self.memory.unsubscribe(name);
        }

        fn attach(&self, signals: std::sync::Weak<dyn Signals>) {
            self.memory.attach(signals);
        }
    }

    fn client(fault: fn(&Step) -> Option<Failure>) -> (Client, Arc<Shared>, Arc<Faulty>) {
        let id = ClientId::from_random([7; 16]);
        let memory = Memory::new(MemoryStore::new(), id);
        let store = Arc::new(Faulty { memory, fault: Mutex::new(fault) });
        let engine = Engine::start(Arc::clone(&store) as _, id, CheckedSettings::default());
        let shared = Arc::clone(&engine.shared);
        (Client::new(engine), shared, store)
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_release_of_an_inner_guard_does_not_end_a_delayed_unlock() {
        let (client, shared, store) = client(|step| {
            let in_doubt = Some(SentAt { connection: 1, at: clock::now() });
            let failure = Failure { in_doubt, ..Failure::unavailable("no reply") };
            matches!(step, Step::Release(_)).then_some(failure)
        });
        let lock = client.lock("left");
        let guard = lock.lock().await.expect("free");
        drop(guard.reenter().await.expect("held"));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(shared.background.pending(), 1, "the release of the inner guard is repeated");
        guard.unlock_after(Duration::from_secs(600)).await.expect("held");
        *store.fault.lock().expect("no panic") = |_| None;
        shared.background.drained().await;
        assert!(lock.is_locked().await.expect("a reply"), "released before its time");
    }

    #[tokio::test]
    async fn a_refused_delayed_unlock_releases_the_lock() {
        let (client, shared, _store) = client(|step| {
            let refused = FailureKind::Unsupported("refused".to_owned());
            matches!(step, Step::SetLease { .. }).then(|| Failure::refused(refused))
        });
        let lock = client.lock("left");
        let guard = lock.lock().await.expect("free");
        guard.unlock_after(Duration::from_secs(600)).await.expect_err("refused");
        shared.background.drained().await;
        assert!(!lock.is_locked().await.expect("a reply"), "it has no guard, and no end was set");
    }
}
