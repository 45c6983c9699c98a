use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends a wait for a lock from another thread, as `lockInterruptibly` in Java.
///
/// Clones share one flag.
///
/// # Examples
///
/// ```
/// use turnlock::blocking::{Client, Interrupt};
///
/// let client = Client::connect("memory://")?;
/// let lock = client.lock("orders");
/// let _held = lock.lock()?;
/// let interrupt = Interrupt::new();
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| lock.interruptible(&interrupt).lock());
///     interrupt.interrupt();
///     let outcome = waiter.join().unwrap();
///     assert!(matches!(outcome, Err(turnlock::Error::Interrupted { .. })));
/// });
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    raised: AtomicBool,
    changed: Notify,
}

impl Interrupt {
    /// Returns a new interrupt that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the interrupt: current and later waits end, until [`clear`](Interrupt::clear).
    ///
    /// Applies to waits of handles that are [interruptible](super::Lock::interruptible) by it or a clone of it.
    pub fn interrupt(&self) {
        self.0.raised.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Clears the interrupt, so that later waits do not end.
    pub fn clear(&self) {
        self.0.raised.store(false, Ordering::Release);
    }

    /// Waits until the interrupt is raised.
    pub(super) async fn raised(&self) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.0.raised.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}
