//! The blocking interface, for programs without a tokio runtime.
//!
//! **The thread is the owner**, as in Java: a thread that locks twice holds the lock twice, and another thread waits.
//!
//! Each client runs one thread, which renews leases and releases dropped guards. The methods block the calling thread.
//! They panic on a thread that drives async tasks, as every blocking call into tokio does.
//!
//! # Examples
//!
//! ```
//! let client = turnlock::blocking::Client::connect("memory://")?;
//! let lock = client.lock("orders");
//! let outer = lock.lock()?;
//! let inner = lock.lock()?; // the same thread: does not wait
//! assert_eq!(lock.hold_count()?, 2);
//! std::thread::scope(|scope| {
//!     let other = scope.spawn(|| lock.try_lock().map(|outcome| outcome.is_busy()));
//!     assert_eq!(other.join().unwrap().unwrap(), true);
//! });
//! # drop((outer, inner));
//! # Ok::<(), turnlock::Error>(())
//! ```

mod bridge;
mod builder;
mod client;
mod group_lock;
mod guard;
mod interrupt;
mod latch;
mod lock;
mod read_write_lock;
mod semaphore;

pub use builder::Builder;
pub use client::Client;
pub use group_lock::{GroupLock, MultiGuard, MultiLock, RedLock};
pub use guard::Guard;
pub use interrupt::Interrupt;
pub use latch::Latch;
pub use lock::Lock;
pub use read_write_lock::{ReadWriteLock, WriteGuard};
pub use semaphore::{PermitSemaphore, Permits, Semaphore};
