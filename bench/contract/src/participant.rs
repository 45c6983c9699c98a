use std::future::Future;

use crate::order::Order;

/// A lock library, as the works use it. Clones share one connection, or whatever the library has.
pub trait Participant: Clone + Send + Sync + Sized + 'static {
    /// Commands that are sent by themselves, and not only from within scripts, in lower case.
    const DIRECT: &'static [&'static str] = &[];

    /// A lock that is known and not held.
    type Lock: Send + Sync + 'static;

    /// A lock that is held.
    type Held: Send + 'static;

    /// Connects to the order's server, for the order's work and kind of lock.
    fn connect(order: &Order) -> impl Future<Output = Result<Self, Refusal>> + Send;

    /// The lock of this name, for one task.
    fn lock(&self, name: &str) -> Self::Lock;

    /// Waits for as long as it takes.
    fn take(&self, lock: &Self::Lock) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Returns when it is given back.
    fn give_back(
        &self,
        lock: &Self::Lock,
        held: Self::Held,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Takes all these and returns; from then on they are held by automatic renewal until the process ends.
    fn keep(&self, names: Vec<String>) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why a participant does not begin.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It has no such thing.
    Cannot(String),
    /// It should have worked.
    Failed(String),
}
