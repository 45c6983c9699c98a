//! The same locks for programs without a runtime. **The thread is the owner**, as in Java: a thread that locks twice holds
//! twice, and another thread waits.
//!
//! Each client runs one thread of its own, so that leases are renewed and dropped guards released between calls. Its
//! methods block the calling thread; on a thread that drives async tasks they panic, as every blocking call into tokio
//! does there.
//!
//! ```
//! let client = turnlock::blocking::Client::connect("memory://")?;
//! let lock = client.lock("orders");
//! let outer = lock.lock()?;
//! let inner = lock.lock()?; // the same thread: no waiting
//! assert_eq!(lock.hold_count()?, 2);
//! std::thread::scope(|scope| {
//!     let other = scope.spawn(|| lock.try_lock().map(|guard| guard.is_some()));
//!     assert_eq!(other.join().unwrap().unwrap(), false);
//! });
//! # drop((outer, inner));
//! # Ok::<(), turnlock::Error>(())
//! ```

mod bridge;
mod client;
mod guard;
mod home;
mod interrupt;
mod latch;
mod lock;
mod multi_guard;
mod multi_lock;
mod permit_semaphore;
mod permits;
mod read_write_lock;
mod red_lock;
mod semaphore;
mod thread_owner;

pub use client::{Builder, Client};
pub use guard::Guard;
pub use interrupt::Interrupt;
pub use latch::Latch;
pub use lock::Lock;
pub use multi_guard::MultiGuard;
pub use multi_lock::MultiLock;
pub use permit_semaphore::PermitSemaphore;
pub use permits::Permits;
pub use read_write_lock::ReadWriteLock;
pub use red_lock::RedLock;
pub use semaphore::Semaphore;
