//! Locks: handles, and the guards that they return.
//!
//! ```text
//! Client -> Lock             reentrant, fair, fenced, spin, plain, and the sides of a read-write lock
//!             lock()         -> Guard
//!             try_lock()     -> TryAcquire<Guard>
//!             run(), runner  -> a body that runs under the guard
//!        -> ReadWriteLock    two locks of one name: read() -> Guard, write() -> WriteGuard
//! Named                      the name, lease and replicas in every handle
//! GuardError                 an error that returns the guard
//! ```

mod guard;
#[expect(clippy::module_inception, reason = "a file is named after its type")]
mod lock;
mod named;
mod read_write_lock;
mod run;
mod try_acquire;

pub use guard::{Guard, GuardError};
pub use lock::Lock;
pub(crate) use named::{Named, endless};
pub use read_write_lock::{ReadWriteLock, WriteGuard};
pub use run::{Exit, Held, Runner};
pub(crate) use run::{after_body, run_until_lost};
pub use try_acquire::TryAcquire;
