//! Local hand-over: a lock passes from one waiter of this process to the next without a word to the store.
//!
//! The store knows one hold of one owner meanwhile, from the grant to the release. A hold passes on only for a short time
//! after the store has granted it, the window; then it is given back for real, so that other processes get their turn. What is
//! handed over is checked when the waiter runs, not when it is woken. A waiter that goes away hands on what it was handed, and
//! from one that does not run it is taken back when the window ends.

use std::sync::Arc;
use std::time::Duration;

use turnlock_core::Moment;

use super::Shared;
use super::hold::{Hold, Term};
use crate::clock;

/// How long the end of a long window keeps a client that is shut down.
const LONGEST_NAP: Duration = Duration::from_millis(20);

impl Shared {
    /// Hands the hold of one guard to the first who waits for it here, instead of giving it back. Whether that was possible.
    pub(super) fn hand_over(self: &Arc<Self>, hold: &Arc<Hold>, term: Term) -> bool {
        let is_handed = matches!(term, Term::Renewed(_))
            && self.may_hand_over(hold)
            // Once more in the rooms: after the window has ended there, nobody would take it back.
            && self.rooms.hand_over(hold, || self.may_hand_over(hold) && hold.end_turn(term));
        if is_handed && !hold.was_handed_over {
            self.end_window_in_time(hold);
        }
        is_handed
    }

    /// Sees to what has to be done when the window of a hold of the store ends: once for all who will be handed it.
    fn end_window_in_time(self: &Arc<Self>, hold: &Hold) {
        let (shared, name, owner) = (Arc::clone(self), hold.name.clone(), hold.owner.clone());
        let end = self.window_end(hold);
        self.errands.adopt(async move {
            // In short naps, so that a client that is shut down has not to wait for it.
            while clock::now() < end && shared.check_open().is_ok() {
                tokio::time::sleep(end.since(clock::now()).min(LONGEST_NAP)).await;
            }
            if let Some(handed) = shared.rooms.end_window(&name, &owner) {
                tracing::debug!(%name, "a waiter that was handed the lock did not run in time");
                shared.give_back_handed(handed);
            }
        });
    }

    /// Whether this hold may pass on now: not when the store was asked too long ago.
    pub(super) fn may_hand_over(&self, hold: &Hold) -> bool {
        let now = clock::now();
        hold.name.kind().is_handed_over()
            && now < self.window_end(hold)
            && now < hold.believed_until()
            && self.check_open().is_ok()
    }

    /// Until when a hold of the store passes from waiter to waiter.
    pub(super) fn window_end(&self, hold: &Hold) -> Moment {
        hold.granted + self.settings.hand_over_window
    }

    /// What was handed to one who went away: the next one has it, or the store.
    pub(super) fn hand_on(self: &Arc<Self>, hold: Arc<Hold>) {
        if !self.rooms.hand_over(&hold, || self.may_hand_over(&hold)) {
            self.give_back_handed(hold);
        }
    }

    /// Gives back for real what was handed over and came too late.
    pub(super) fn give_back_handed(self: &Arc<Self>, hold: Arc<Hold>) {
        self.watchdog.forget(&hold);
        if self.errands.are_closed() {
            return self.rooms.vacate(&hold);
        }
        let release = Arc::clone(self).finish_release(Arc::clone(&hold), true, Moment::NEVER);
        self.errands.adopt(async move {
            if let Err(error) = release.await {
                tracing::warn!(name = %hold.name, %error, "what was handed over could not be released");
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
    use crate::backend::memory::{Memory, MemoryStore};
    use crate::client::Client;
    use crate::engine::Engine;
    use crate::engine::renewal_under_way::RenewalUnderWay;
    use crate::error::Error;
    use crate::guard::Guard;
    use crate::lock::Lock;
    use crate::settings::Settings;

    fn client() -> (Client, Arc<Shared>) {
        let settings = Settings { hand_over_window: Duration::from_secs(3), ..Settings::default() };
        let backend = Arc::new(Memory::new(MemoryStore::new()));
        let engine = Engine::start(backend, ClientId::from_random([7; 16]), settings);
        let shared = Arc::clone(&engine.shared);
        (Client::new(engine), shared)
    }

    /// A hold that was handed over, and the waiter that has not taken it yet.
    async fn handed_over(lock: &Lock) -> (Arc<Hold>, BoxFuture<'_, Result<Guard, Error>>) {
        let guard = lock.lock().await.expect("free");
        let was = Arc::clone(guard.hold());
        let mut next = lock.lock().boxed();
        assert!((&mut next).now_or_never().is_none());
        guard.unlock().await.expect("held");
        (was, next)
    }

    #[tokio::test]
    async fn a_late_step_of_the_hold_that_it_was_does_not_end_it() {
        let (client, shared) = client();
        let lock = client.lock("late step");
        let (was, next) = handed_over(&lock).await;
        let guard = next.await.expect("handed over");
        assert_eq!(*guard.owner_id(), was.owner);
        // As the release of one of several guards does that was not answered, and is tried again when all of them are gone.
        shared.bring_down(&was, Moment::NEVER).await.expect("there is nothing to do");
        assert!(
            lock.is_locked().await.expect("an answer"),
            "it was given back for one who had handed it over"
        );
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn what_a_late_step_ends_on_the_way_is_not_taken() {
        let (client, shared) = client();
        let lock = client.lock("late step");
        let (was, next) = handed_over(&lock).await;
        shared.bring_down(&was, Moment::NEVER).await.expect("it stands");
        let guard = next.await.expect("a turn");
        assert!(lock.is_locked().await.expect("an answer"), "it was taken although it is gone");
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn what_the_watchdog_looks_at_on_the_way_is_given_back() {
        let (client, shared) = client();
        let lock = client.lock("looked at");
        let (was, next) = handed_over(&lock).await;
        // As when the connection has changed: it may be gone, and nobody has it who could be told.
        shared.watchdog.look_at_all_now();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let guard = tokio::time::timeout(Duration::from_secs(5), next).await.expect("free").expect("a turn");
        assert_ne!(*guard.owner_id(), was.owner, "it was taken unseen");
        guard.unlock().await.expect("held");
    }

    #[tokio::test]
    async fn what_is_being_renewed_goes_by_the_store() {
        let (client, _shared) = client();
        let lock = client.lock("renewed");
        let guard = lock.lock().await.expect("free");
        let owner = guard.owner_id().clone();
        let mut next = Box::pin(lock.lock());
        assert!(next.as_mut().now_or_never().is_none());
        // Its answer is for this one, and the next would not hear of it.
        let _renewal = RenewalUnderWay::begin(Arc::clone(guard.hold())).expect("held");
        guard.unlock().await.expect("held");
        assert_ne!(*next.await.expect("a turn").owner_id(), owner);
    }
}
