//! Local hand-over: a lock passes between waiters of this client without a round trip.
//!
//! The store has one hold of one owner from the grant to the release. The hold is handed over only within the
//! hand-over window, a short time after the grant; then it is released on the store, so that other processes
//! get their turn. A waiter checks what it was handed when it runs, not when it is woken. A waiter that is
//! dropped hands the lock over to the next waiter. If a waiter does not run, the lock is taken back when the
//! window ends.

use std::sync::Arc;
use std::time::Duration;

use turnlock_core::Moment;
use turnlock_core::planted::Bug;

use super::engine::Engine;
use super::release::Release;
use super::state::{Hold, HoldEnd, LeaseMode};
use crate::clock;

/// The longest time for which the end of a window delays a shutdown.
const SHUTDOWN_CHECK_PERIOD: Duration = Duration::from_millis(20);

impl Engine {
    /// Hands the hold of a guard over to the first local waiter. Returns `false` if that is not possible.
    pub(super) fn hand_over(self: &Arc<Self>, hold: &Arc<Hold>, lease_mode: LeaseMode, now: Moment) -> bool {
        let offer = |now| self.may_hand_over(hold, now) && hold.offer(lease_mode, now);
        let allows_hand_over = matches!(lease_mode, LeaseMode::Renewed(_))
            && self.may_hand_over(hold, now)
            // Checked again under the lock of the wait queues: after the end of the window, no task would
            // take the hold back.
            && self.wait_queues.hand_over(hold, || offer(clock::now()));
        if allows_hand_over {
            // The metrics end when the waiter accepts it.
            hold.span.end(HoldEnd::HandedOver, hold.held_since(), now);
        }
        if allows_hand_over && !hold.was_handed_over {
            self.schedule_window_end(hold);
        }
        allows_hand_over
    }

    /// Starts the task that ends the window of a grant. One task serves all hand-overs of the grant.
    fn schedule_window_end(self: &Arc<Self>, hold: &Hold) {
        let (engine, name, owner) = (Arc::clone(self), hold.name.clone(), hold.owner.clone());
        let end = self.window_end(hold);
        self.background.spawn(async move {
            // In short sleeps, so that a shutdown does not wait for the whole window.
            while clock::now() < end && engine.check_open().is_ok() {
                tokio::time::sleep(end.since(clock::now()).min(SHUTDOWN_CHECK_PERIOD)).await;
            }
            if let Some(handed) = engine.wait_queues.end_window(&name, &owner) {
                tracing::debug!(%name, "lock taken back from a waiter that did not run in time");
                engine.release_handed_over(handed);
            }
        });
    }

    /// Returns `true` if the hold is valid, the window is open and the client is not shutting down.
    pub(super) fn may_hand_over(&self, hold: &Hold, now: Moment) -> bool {
        hold.name.kind().allows_hand_over()
            && (now < self.window_end(hold) || Bug::HandOverAfterWindow.is_planted())
            && now < hold.valid_until()
            && self.check_open().is_ok()
    }

    /// When the hand-over window of a grant ends.
    pub(super) fn window_end(&self, hold: &Hold) -> Moment {
        hold.granted + self.settings.hand_over_window
    }

    /// Handles a hold that was handed to a dropped waiter: hands it to the next waiter, or releases it.
    pub(super) fn hand_over_or_release(self: &Arc<Self>, hold: Arc<Hold>) {
        if !self.wait_queues.hand_over(&hold, || self.may_hand_over(&hold, clock::now())) {
            self.release_handed_over(hold);
        }
    }

    /// Releases on the store a hold that was handed over and cannot be used.
    pub(super) fn release_handed_over(self: &Arc<Self>, hold: Arc<Hold>) {
        self.watchdog.unwatch(&hold);
        hold.note_end(HoldEnd::HandedOver, clock::now());
        if self.background.is_closed() {
            return self.wait_queues.remove_hold(&hold);
        }
        let engine = Arc::clone(self);
        self.background.spawn(async move {
            let release = Release::new(&engine, Arc::clone(&hold), true, clock::now(), Moment::NEVER);
            if let Err(error) = release.await {
                engine.log_failed_release(&hold.name, &error);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use turnlock_core::ClientId;

    use super::*;
    use crate::client::Client;
    use crate::config::Settings;
    use crate::engine::Engine;
    use crate::engine::state::RenewalUnderWay;
    use crate::error::Error;
    use crate::lock::Guard;
    use crate::lock::Lock;
    use turnlock_store::{Memory, MemoryStore};

    fn client() -> (Client, Arc<Engine>) {
        let settings = Settings { hand_over_window: Some(Duration::from_secs(3)), ..Settings::default() };
        let settings = settings.check("a test", false).expect("good settings");
        let store = Arc::new(Memory::new(MemoryStore::new(), ClientId::from_random([7; 16])));
        let engine = Engine::start(store, ClientId::from_random([7; 16]), settings);
        (Client::new(Arc::clone(&engine)), engine)
    }

    /// Returns a hold that was handed over, and the waiter that has not accepted it yet.
    async fn hand_over(lock: &Lock) -> (Arc<Hold>, BoxFuture<'_, Result<Guard, Error>>) {
        let guard = lock.lock().await.expect("free");
        let previous = Arc::clone(guard.hold());
        let mut next = lock.lock().boxed();
        assert!((&mut next).now_or_never().is_none());
        guard.unlock().await.expect("held");
        (previous, next)
    }

    #[tokio::test]
    async fn a_late_release_of_the_previous_hold_does_not_end_the_next_one() {
        let (client, engine) = client();
        let lock = client.lock("late step");
        let (previous, next) = hand_over(&lock).await;
        let guard = next.await.expect("handed over");
        assert_eq!(*guard.owner_id(), previous.owner);
        // As a retried release of one of several guards, which runs when all of them are gone.
        engine.send_releases(&previous, Moment::NEVER, None).await.expect("nothing to release");
        assert!(lock.is_locked().await.expect("a reply"), "released by a hold that was handed over");
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn a_hold_that_a_late_release_ended_is_not_accepted() {
        let (client, engine) = client();
        let lock = client.lock("late step");
        let (previous, next) = hand_over(&lock).await;
        engine.send_releases(&previous, Moment::NEVER, None).await.expect("held");
        let guard = next.await.expect("a turn");
        assert!(lock.is_locked().await.expect("a reply"), "a released hold was accepted");
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn a_hold_that_the_watchdog_checked_before_it_was_accepted_is_released() {
        let (client, engine) = client();
        let lock = client.lock("checked");
        let (previous, next) = hand_over(&lock).await;
        // As after a change of the connection: the hold may be gone, and no guard exists that could report
        // it.
        engine.watchdog.check_all_now();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let guard = tokio::time::timeout(Duration::from_secs(5), next).await.expect("free").expect("a turn");
        assert_ne!(*guard.owner_id(), previous.owner, "accepted without a check");
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn a_hold_with_a_renewal_under_way_is_not_handed_over() {
        let (client, _engine) = client();
        let lock = client.lock("renewed");
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let mut next = Box::pin(lock.lock());
        assert!(next.as_mut().now_or_never().is_none());
        // Its reply concerns this hold, and the next holder would not see it.
        let _renewal = RenewalUnderWay::begin(Arc::clone(guard.hold()), clock::now()).expect("held");
        guard.unlock().await.expect("held");
        assert_ne!(*next.await.expect("a turn").owner_id(), owner);
    }
}
