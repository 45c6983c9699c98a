//! Counters that many clients share: semaphores, and the count-down latch.
//!
//! ```text
//! Semaphore<K>                               the handle: acquire(), try_acquire(), set and add permits, …
//!   Semaphore = Semaphore<Unleased>          permits without a lease
//!   PermitSemaphore = Semaphore<Leased>      permits with ids and leases
//!     -> Permits                             the guard of what was acquired
//! Latch                                      wait() until count_down() has reached zero
//! ```

mod latch;
#[expect(clippy::module_inception, reason = "a file is named after its type")]
mod permits;
mod semaphore;

pub use latch::Latch;
pub use permits::Permits;
pub(crate) use semaphore::SemaphoreKind;
pub use semaphore::{Leased, PermitSemaphore, Semaphore, Unleased};
