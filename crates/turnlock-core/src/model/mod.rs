//! Executable models: what each step does to a primitive, and what it answers.
//!
//! Every rule exists twice and no more: here, and as a Lua script for Redis. A property test in `turnlock` drives both
//! with the same histories and compares every answer and every state.

mod fair_lock;
mod fenced_lock;
mod item;
mod latch;
mod lock;
mod permit_id;
mod permit_semaphore;
mod plain_lock;
mod read_write_lock;
mod requests;
mod semaphore;
mod step;

pub use fair_lock::FairLockState;
pub use fenced_lock::FencedLockState;
pub use item::{Item, OfAnotherKind};
pub use latch::LatchState;
pub use lock::LockState;
pub use permit_id::PermitId;
pub use permit_semaphore::PermitSemaphoreState;
pub use plain_lock::PlainLockState;
pub use read_write_lock::ReadWriteLockState;
pub use semaphore::SemaphoreState;
pub use step::{
    Acquired, Claim, Deed, HolderPicture, Now, Parties, Place, Released, Renewed, Role, Snapshot, Wake, Wish,
};
