//! One set-up for many tests.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;

/// Something that is started when the first test needs it and then used by all tests of the process, each of which may
/// have a runtime of its own.
///
/// Made to be a `static`. Those are never dropped, so whoever runs the tests calls [`close`](Self::close) after the last
/// of them; the processes of a program that is killed before that are killed as well, but their files stay.
pub struct Shared<T>(Mutex<Option<Arc<T>>>);

impl<T> Shared<T> {
    /// Nothing is started yet.
    pub const fn new() -> Self {
        Self(Mutex::const_new(None))
    }

    /// What was started before, or else what `start` starts now. Others wait for it meanwhile; if `start` panics or is
    /// cancelled, the next one tries again.
    pub async fn get<Fut: Future<Output = T>>(&self, start: impl FnOnce() -> Fut) -> Arc<T> {
        let mut place = self.0.lock().await;
        if let Some(started) = &*place {
            return Arc::clone(started);
        }
        let started = Arc::new(start().await);
        *place = Some(Arc::clone(&started));
        started
    }

    /// Ends it, as soon as nobody uses it any more. The next [`get`](Self::get) would start it anew.
    pub fn close(&self) {
        // Whoever has it locked is starting something, which is nobody's when all tests are over.
        if let Ok(mut place) = self.0.try_lock() {
            place.take();
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
