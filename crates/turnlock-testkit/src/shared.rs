//! A value that many tests share.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;

/// A value that the first test starts and all tests of the process use.
///
/// The tests may have different runtimes. Meant for a `static`. These are never dropped, so the test program
/// must call [`close`](Self::close) after the last test. If it is killed before that, its processes are
/// killed too, but their files stay.
pub struct Shared<T>(Mutex<Option<Arc<T>>>);

impl<T> Shared<T> {
    /// Creates an empty cell; nothing is started.
    pub const fn new() -> Self {
        Self(Mutex::const_new(None))
    }

    /// Returns the running value, or starts it with `start`.
    ///
    /// Concurrent callers wait. If `start` panics or is cancelled, the next caller starts it.
    pub async fn get<Fut: Future<Output = T>>(&self, start: impl FnOnce() -> Fut) -> Arc<T> {
        let mut slot = self.0.lock().await;
        if let Some(started) = &*slot {
            return Arc::clone(started);
        }
        let started = Arc::new(start().await);
        *slot = Some(Arc::clone(&started));
        started
    }

    /// Drops the value once its last user has. The next [`get`](Self::get) starts a new one.
    pub fn close(&self) {
        // It is locked only while a test starts it; after the last test that cannot be.
        if let Ok(mut slot) = self.0.try_lock() {
            slot.take();
        }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
