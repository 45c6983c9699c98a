//! The primitives of the state that tasks share.
//!
//! In the unit tests of this crate, a test can run under many schedules: each access to a primitive is a point at which
//! another thread may run. See `engine/tests/schedules`.

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(test)]
pub(crate) use turnlock_testkit::schedules::{AtomicBool, Mutex, MutexGuard};
