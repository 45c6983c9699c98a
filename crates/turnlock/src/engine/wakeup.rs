use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use turnlock_core::Moment;

use super::call_site::CallSite;
use super::hold::Hold;

/// Wakes one waiter, with a hint that the state may have changed since its last check.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The caller, and since when it waits. `None` for an internal waiter.
    caller: Option<(CallSite, Moment)>,
    notify: Notify,
    hint: AtomicBool,
    /// Whether a request of this waiter is under way.
    pub(super) is_sending: AtomicBool,
    /// Notified when the request has ended.
    ended: Notify,
    /// The number of acknowledging replicas that a handed-over hold must have. `None`: none is accepted.
    pub(super) hand_over_replicas: Option<u32>,
    /// The hold that was handed over. Set only while the waiter is queued, under the lock of the wait queues.
    pub(super) handed: Mutex<Option<Arc<Hold>>>,
}

impl Wakeup {
    pub(super) fn new(hand_over_replicas: Option<u32>, caller: Option<(CallSite, Moment)>) -> Arc<Self> {
        Arc::new(Self {
            caller,
            notify: Notify::new(),
            hint: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            ended: Notify::new(),
            hand_over_replicas,
            handed: Mutex::default(),
        })
    }

    /// Returns the caller, if it waits since `since` or longer.
    pub(super) fn waiting_since(&self, since: Moment) -> Option<&CallSite> {
        self.caller.as_ref().filter(|(_, began)| *began <= since).map(|(call_site, _)| call_site)
    }

    pub(super) fn take_handed(&self) -> Option<Arc<Hold>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn wake(&self) {
        self.hint.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Waits for a wake-up. An earlier one that was not awaited counts.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Sets the hint without a wake-up.
    pub(crate) fn set_hint(&self) {
        self.hint.store(true, Ordering::Release);
    }

    /// Marks a request of this waiter as under way.
    pub(super) fn begin_request(&self) {
        self.is_sending.store(true, Ordering::Release);
    }

    /// Marks the request as ended: it has an outcome, or is given up.
    pub(super) fn end_request(&self) {
        if self.is_sending.swap(false, Ordering::AcqRel) {
            self.ended.notify_waiters();
        }
    }

    /// Waits until no request of this waiter is under way.
    pub(super) async fn request_ended(&self) {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if self.is_sending.load(Ordering::Acquire) {
            ended.await;
        }
    }

    /// Returns `true` if the state may have changed since the last check.
    pub(super) fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Acquire)
    }

    pub(crate) fn take_hint(&self) -> bool {
        self.hint.swap(false, Ordering::AcqRel)
    }
}
