use std::sync::Arc;

use tokio::sync::watch;

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
pub struct Interrupt(Arc<watch::Sender<bool>>);

impl Interrupt {
    /// Returns a new interrupt that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the interrupt: current and later waits end, until [`clear`](Interrupt::clear).
    ///
    /// Applies to waits of handles that are [interruptible](super::Lock::interruptible) by it or a clone of it.
    pub fn interrupt(&self) {
        self.0.send_replace(true);
    }

    /// Clears the interrupt, so that later waits do not end.
    pub fn clear(&self) {
        self.0.send_replace(false);
    }

    /// Waits until the interrupt is raised.
    pub(super) async fn raised(&self) {
        // The sender is alive, so this is no error.
        let _ = self.0.subscribe().wait_for(|is_raised| *is_raised).await;
    }
}
