use std::future::Future;

use crate::settings::Settings;

/// A lock library, as the workloads use it. Clones share the library's connection or pool.
pub trait Participant: Clone + Send + Sync + Sized + 'static {
    /// Commands that the library sends outside of scripts, in lower case.
    const DIRECT: &'static [&'static str] = &[];

    /// A handle of a lock that is not held.
    type Lock: Send + Sync + 'static;

    /// A lock that is held.
    type Held: Send + 'static;

    /// Connects to the server of the settings, for their workload and kind of lock.
    fn connect(settings: &Settings) -> impl Future<Output = Result<Self, Refusal>> + Send;

    /// The lock of this name, for one task.
    fn lock(&self, name: &str) -> Self::Lock;

    /// The handle of the first holder, before any other task; its acquire creates permits or a count.
    fn first_lock(&self, name: &str) -> Self::Lock {
        self.lock(name)
    }

    /// Acquires the lock, and waits without a limit.
    fn acquire(&self, lock: &Self::Lock) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Releases the lock, and returns when that is confirmed.
    fn release(&self, lock: &Self::Lock, held: Self::Held)
    -> impl Future<Output = Result<(), String>> + Send;

    /// Acquires all these locks. They are held by automatic renewal until the process ends.
    fn hold_all(&self, names: Vec<String>) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why a participant does not start.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The library has no such feature.
    Unsupported(String),
    /// It should have worked, and failed.
    Failed(String),
}
