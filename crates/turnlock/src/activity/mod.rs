//! What clients announce on the store about their waits and holds, and what follows from it.
//!
//! ```text
//! engine::announcement -> ActivityRecord -> store -> ClientActivity -> Waiter, Deadlock
//! ```
//!
//! A [record](record::Record) is the text on the store, [`Situation`] is what is read of it, and the public types
//! show it to people.

mod client_activity;
mod deadlock;
mod record;
mod waiter;

pub(crate) use client_activity::{Reader, Situation, SituationByKey, WaitCycle};
pub use deadlock::Deadlock;
pub(crate) use record::{
    HeldRecord, HoldRecord, MAX_HELD, MAX_HOLDS, MAX_WAITS, Record, WaitRecord, kind_of, label_of,
};
pub use waiter::{HeldLock, Waiter, Waits};
