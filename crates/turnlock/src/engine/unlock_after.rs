use std::sync::Arc;
use std::time::Duration;

use turnlock_core::hold_state::{Action, Event};
use turnlock_core::model::Renewed;
use turnlock_core::planted::Bug;
use turnlock_core::{Backoff, Lease, Moment};

use super::engine::Engine;
use super::request::describe;
use super::retry::pause_until;
use super::run_to_completion::RunToCompletion;
use super::state::{Hold, HoldEnd, LeaseMode, RenewalUnderWay, StepTurn};
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

impl DelayedUnlock {
    /// Returns `false` if an older request of the hold may still arrive and change the lease.
    ///
    /// A hold that has ended is settled: its requests in doubt are undone elsewhere.
    fn is_settled(&self) -> bool {
        self.hold.inner().state.doubt.is_none()
    }
}

impl Engine {
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
        let now = clock::now();
        if hold.end_guard(lease_mode, Event::UnlockDelayed, now) == Action::Refuse {
            let (what, guards) = (describe(&hold.name), hold.guards());
            let reason =
                format!("delayed unlock of {what}: it has {guards} guards; release the others first");
            return Err(Error::Unsupported(reason));
        }
        hold.note_end(HoldEnd::LeftToStore, now);
        self.watchdog.unwatch(hold);
        Ok(DelayedUnlock { hold: Arc::clone(hold), until: now + lease.as_duration() })
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
        let engine = Arc::clone(self);
        let work = async move {
            RenewalUnderWay::wait_for_none(&delayed.hold).await;
            let record = engine.client_record.announce_kept(&delayed.hold, delayed.until);
            let (outcome, ()) = tokio::join!(engine.send_with_retry(&delayed), record);
            engine.wait_queues.remove_hold(&delayed.hold);
            outcome
        };
        RunToCompletion::boxed(&self.background, work).await
    }

    async fn send_with_retry(self: &Arc<Self>, delayed: &DelayedUnlock) -> Result<(), Error> {
        let hold = &delayed.hold;
        let deadline = (clock::now() + self.settings.retry_for).min(delayed.until);
        let mut backoff = Backoff::default();
        loop {
            let failure = match self.send_once(delayed).await {
                Ok(outcome) => {
                    if !delayed.is_settled() {
                        self.send_in_background(delayed.clone(), true);
                    }
                    return outcome;
                }
                Err(failure) => failure,
            };
            if !self.outage_log.note_failure("delayed unlock", &failure, clock::now()) {
                tracing::warn!(name = %hold.name, %failure, "delayed unlock failed");
            }
            if !failure.is_retryable() {
                self.release_refused(hold);
                let what = || format!("the delayed unlock of lock {:?}", hold.name.as_str());
                return Err(failure.into_error(what));
            }
            if !pause_until(deadline, &failure, &mut backoff).await {
                self.send_in_background(delayed.clone(), false);
                return Err(Error::InDoubt { name: hold.name.to_string(), source: failure.into_cause() });
            }
        }
    }

    /// Sends the request in the background until it is settled or its time has passed.
    ///
    /// The caller has its result already. Once the store has set the end of the hold (`is_set`), the hold lasts until then: a
    /// refused repeat does not release it. Permissions may be revoked for a moment.
    fn send_in_background(self: &Arc<Self>, delayed: DelayedUnlock, mut is_set: bool) {
        let engine = Arc::clone(self);
        is_set &= !Bug::RefusedRepeatReleases.is_planted();
        self.background.spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                match engine.send_once(&delayed).await {
                    Ok(_) if delayed.is_settled() => return,
                    Err(failure) if !is_set && !failure.is_retryable() => {
                        return engine.release_refused(&delayed.hold);
                    }
                    Ok(_) => is_set = !Bug::RefusedRepeatReleases.is_planted(),
                    Err(_) => {}
                }
            }
        });
    }

    /// Releases in the background a hold whose delayed unlock the store refused.
    fn release_refused(self: &Arc<Self>, hold: &Arc<Hold>) {
        hold.apply(Event::DelayedUnlockRefused, clock::now());
        self.send_releases_in_background(hold);
    }

    /// Sends the request once, unless there is nothing to be sent.
    async fn send_once(
        self: &Arc<Self>,
        DelayedUnlock { hold, until }: &DelayedUnlock,
    ) -> Result<Result<(), Error>, Failure> {
        // Waits for a reentry that is under way.
        let _step = StepTurn::of(hold).await;
        let action = hold.apply(Event::DelayedUnlockDue { until: *until }, clock::now());
        let Action::Send { target } = action else { return Ok(self.finish(hold, action, None)) };
        let time_left = until.since(clock::now()).max(Lease::MIN);
        let time_left = Lease::new(time_left).unwrap_or(Lease::LONGEST);
        let step_options =
            StepOptions::of_engine(self.release_limit(hold, clock::now()), hold.replicas_wanted());
        let outcome = self.store.unlock_after(hold.claim(target), time_left, step_options).await;
        if outcome.as_ref().is_err_and(|failure| failure.in_doubt.is_some()) {
            hold.extend_may_last(time_left);
        }
        let StepReply { value, sent, .. } = outcome?;
        self.outage_log.note_reply();
        if value == Renewed::NotHeld {
            if hold.lost().is_none() {
                tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at the delayed unlock");
                hold.metrics.count_loss(self.loss_reason(hold));
            }
            return Ok(self.finish(hold, hold.apply(Event::DelayedUnlockNotHeld, clock::now()), None));
        }
        tracing::debug!(name = %hold.name, owner = %hold.owner, ?time_left, "delayed unlock set");
        hold.extend_may_last(time_left);
        let mut inner = hold.inner();
        inner.state.doubt = sent.unsettled(inner.state.doubt);
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;
    use turnlock_core::model::{Reply, Step};
    use turnlock_core::{ClientId, LockName};
    use turnlock_store::{Directory, FailureKind, Memory, MemoryStore, ReplyFuture, Sent, Signals, Store};

    use super::*;
    use crate::client::Client;
    use crate::config::Settings;
    use crate::engine::Engine;

    /// A memory store that fails some steps, and never replies about client records.
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

        fn directory(&self) -> &dyn Directory {
            self
        }
    }

    impl Directory for Faulty {
        fn write_client_record(&self, _: ClientId, _: String, _: Duration, _: Duration) -> ReplyFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    fn client(fault: fn(&Step) -> Option<Failure>) -> (Client, Arc<Engine>, Arc<Faulty>) {
        let id = ClientId::from_random([7; 16]);
        let memory = Memory::new(MemoryStore::new(), id);
        let store = Arc::new(Faulty { memory, fault: Mutex::new(fault) });
        let settings = Settings::default().check("a test", false).expect("good settings");
        let engine = Engine::start(Arc::clone(&store) as _, id, settings);
        (Client::new(Arc::clone(&engine)), engine, store)
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_release_of_an_inner_guard_does_not_end_a_delayed_unlock() {
        let (client, engine, store) = client(|step| {
            let in_doubt = Some(Sent { connection: 1, at: clock::now() });
            let failure = Failure { in_doubt, ..Failure::unavailable("no reply") };
            matches!(step, Step::Release(_)).then_some(failure)
        });
        let lock = client.lock("left");
        let guard = lock.lock().await.expect("free");
        drop(guard.reenter().await.expect("held"));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(engine.background.pending(), 1, "the release of the inner guard is repeated");
        guard.unlock_after(Duration::from_secs(600)).await.expect("held");
        *store.fault.lock().expect("no panic") = |_| None;
        engine.background.drained().await;
        assert!(lock.is_locked().await.expect("a reply"), "released before its time");
    }

    #[tokio::test(start_paused = true)]
    async fn replays_of_releases_do_not_pile_up_while_a_server_changes_often() {
        let (client, engine, store) = client(|_| None);
        for number in 0..5 {
            client
                .lock(&format!("released-{number}"))
                .lock()
                .await
                .expect("free")
                .unlock()
                .await
                .expect("held");
        }
        *store.fault.lock().expect("no panic") = |_| Some(Failure::unavailable("the server restarts"));
        for _ in 0..100 {
            engine.server_changed();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(engine.background.pending(), 1);
        *store.fault.lock().expect("no panic") = |_| None;
        engine.background.drained().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_repeat_does_not_end_a_delayed_unlock() {
        let (client, engine, store) = client(|step| {
            // Of a connection that has broken: the store has another one.
            let in_doubt = Some(Sent { connection: 2, at: clock::now() });
            let failure = Failure { in_doubt, ..Failure::unavailable("no reply") };
            matches!(step, Step::Acquire(..)).then_some(failure)
        });
        let lock = client.lock("left");
        let set_fault = |fault| *store.fault.lock().expect("no panic") = fault;
        let acquire_after_doubt = async {
            let (guard, ()) = tokio::join!(lock.lock(), async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                set_fault(|_| None);
            });
            guard.expect("free")
        };
        acquire_after_doubt.await.unlock_after(Duration::from_secs(30)).await.expect("held");
        assert_eq!(
            engine.background.pending(),
            1,
            "it is repeated, since a late acquire may change the lease"
        );
        set_fault(|step| {
            let refused = FailureKind::Unsupported("refused".to_owned());
            matches!(step, Step::SetLease { .. }).then(|| Failure::refused(refused))
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(lock.is_locked().await.expect("a reply"), "released before its time");
        assert_eq!(engine.background.pending(), 1, "it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_unlock_does_not_wait_long_for_its_record() {
        let (client, _engine, _store) = client(|_| None);
        let lock = client.lock("left");
        let guard = lock.lock().await.expect("free");
        let begun = tokio::time::Instant::now();
        guard.unlock_after(Duration::from_secs(600)).await.expect("held");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(lock.is_locked().await.expect("a reply"));
    }

    #[tokio::test]
    async fn a_refused_delayed_unlock_releases_the_lock() {
        let (client, engine, _store) = client(|step| {
            let refused = FailureKind::Unsupported("refused".to_owned());
            matches!(step, Step::SetLease { .. }).then(|| Failure::refused(refused))
        });
        let lock = client.lock("left");
        let guard = lock.lock().await.expect("free");
        guard.unlock_after(Duration::from_secs(600)).await.expect_err("refused");
        engine.background.drained().await;
        assert!(!lock.is_locked().await.expect("a reply"), "it has no guard, and no end was set");
    }
}
