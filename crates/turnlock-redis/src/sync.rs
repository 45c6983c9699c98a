//! The primitives of the state that callers and the tasks of a connection share.
//!
//! In the unit tests of this crate, a test can run under many schedules: each access to a primitive is a point at which
//! another thread may run. See `connection/tests/schedules.rs`.

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(test)]
pub(crate) use turnlock_testkit::schedules::{Mutex, MutexGuard};
