//! Runs a test under many schedules of its threads, with `shuttle`.
//!
//! A crate that is tested this way uses these primitives in place of those of `parking_lot` and `std`, in its unit tests
//! only. In [`explore`], each access to one of them is a point at which another thread may run. Elsewhere they are
//! those that they stand for, so all other unit tests run as they are.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread::panicking;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, current};

/// The seed of the schedules, so that each run has the same ones. `SHUTTLE_RANDOM_SEED` sets another one.
const SEED: u64 = 0x7475_726e;

/// The number of preemptions in a schedule with priorities. Nearly all known bugs need at most so many.
const DEPTH: usize = 3;

/// Bytes. The default is too small for futures of a debug build.
const STACK_SIZE: usize = 512 * 1024;

/// Runs `test` under so many schedules: half of them random, and half with priorities (PCT).
///
/// All threads of a schedule are coroutines on the calling thread, and start with the threads and futures of `shuttle`.
/// Fails with the schedule if the test panics, or if all threads wait. `TURNLOCK_SCHEDULES` multiplies the number.
pub fn explore(schedules: usize, test: impl Fn() + Send + Sync + 'static) {
    let factor = std::env::var("TURNLOCK_SCHEDULES").map_or(1, |factor| factor.parse().expect("a number"));
    let half = schedules * factor / 2;
    let test = std::sync::Arc::new(test);
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    let random = {
        let test = std::sync::Arc::clone(&test);
        move || test()
    };
    Runner::new(RandomScheduler::new_from_seed(SEED, half), config.clone()).run(random);
    Runner::new(PctScheduler::new_from_seed(SEED, DEPTH, half), config).run(move || test());
}

/// Lets another thread run, if the schedule says so. Does nothing outside of [`explore`].
pub fn schedule_point() {
    if is_explored() && !panicking() {
        // Unlike a yield, an access to an atomic leaves the thread its priority.
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

fn is_explored() -> bool {
    current::try_get_current_task().is_some()
}

/// A mutex as that of `parking_lot`.
#[derive(Default)]
pub struct Mutex<T> {
    /// Locked first in a schedule, so that a thread that waits does not block the others.
    turn: shuttle::sync::Mutex<()>,
    value: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates a mutex.
    pub const fn new(value: T) -> Self {
        Self { turn: shuttle::sync::Mutex::new(()), value: parking_lot::Mutex::new(value) }
    }

    /// Locks the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let turn = is_explored().then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        MutexGuard { value: self.value.lock(), _turn: turn, _end: PointOnDrop }
    }

    /// Returns the value, without a lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A locked [`Mutex`].
pub struct MutexGuard<'a, T> {
    // Dropped in this order.
    value: parking_lot::MutexGuard<'a, T>,
    _turn: Option<shuttle::sync::MutexGuard<'a, ()>>,
    _end: PointOnDrop,
}

/// A [`schedule_point`] after the mutex is unlocked: what follows may not be an access to a primitive.
struct PointOnDrop;

impl Drop for PointOnDrop {
    fn drop(&mut self) {
        schedule_point();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// An atomic flag as that of `std`. In a schedule, it is sequentially consistent.
#[derive(Debug, Default)]
pub struct AtomicBool(std::sync::atomic::AtomicBool);

impl AtomicBool {
    /// Creates a flag.
    pub const fn new(value: bool) -> Self {
        Self(std::sync::atomic::AtomicBool::new(value))
    }

    /// Returns the value.
    pub fn load(&self, order: Ordering) -> bool {
        between_points(|| self.0.load(order))
    }

    /// Sets the value.
    pub fn store(&self, value: bool, order: Ordering) {
        between_points(|| self.0.store(value, order));
    }

    /// Sets the value, and returns the one before.
    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        between_points(|| self.0.swap(value, order))
    }
}

fn between_points<T>(access: impl FnOnce() -> T) -> T {
    schedule_point();
    let value = access();
    schedule_point();
    value
}
