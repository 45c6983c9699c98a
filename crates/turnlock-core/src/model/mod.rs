//! Executable models of the primitives: what each step does to a state, and what it replies.
//!
//! A *state* ([`LockState`], [`FairLockState`], …) is what a store keeps for one primitive. A *step*
//! (acquire, release, renew, …) is one atomic change of it. It takes the time as an argument and returns a
//! reply, and a [`Notification`] for the waiters to wake. [`Item`] is a state of any kind, for stores that
//! execute the models.
//!
//! # Idempotent steps
//!
//! A request may arrive twice, late, or not at all. So no step means "one more" or "one less":
//!
//! - Locks have owners. A [`Claim`] carries the hold count that the owner shall have, so a repeated step
//!   finds its work done. An owner id is used for one outermost hold and never again, so a late step finds no
//!   hold to change.
//! - Counters (semaphores and latches) have no owners. Each request has an id, and the state remembers its
//!   outcome.
//!
//! # Two implementations
//!
//! Each rule exists exactly twice: here, and as a Lua script for Redis. A property test in `turnlock-redis` runs
//! both with the same histories and compares every reply and every state.

mod fair_lock;
mod fenced_lock;
mod item;
mod latch;
mod lock;
mod permit_id;
mod permit_semaphore;
mod read_write_lock;
mod reply;
mod requests;
mod semaphore;
mod step;

pub use fair_lock::FairLockState;
pub use fenced_lock::FencedLockState;
pub use item::{Item, WrongKind};
pub use latch::LatchState;
pub use lock::LockState;
pub use permit_id::PermitId;
pub use permit_semaphore::PermitSemaphoreState;
pub use read_write_lock::ReadWriteLockState;
pub use reply::{
    Acquired, HolderSnapshot, Notification, Owners, QueuePosition, Released, Renewed, Reply, Role, Snapshot,
};
pub use semaphore::SemaphoreState;
pub use step::{AcquireOptions, Claim, CounterOp, Model, Now, Step};
