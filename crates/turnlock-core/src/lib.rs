//! The rules of turnlock, as pure code.
//!
//! Nothing here does I/O, reads a clock or knows a runtime: time is an argument ([`Moment`]), chance is an argument,
//! and every answer is an enum. The library `turnlock` puts these rules to work on Redis and in memory; its tests
//! compare the executable models in [`model`] with the Lua scripts, step by step.
//!
//! | module | what it decides |
//! |---|---|
//! | [`glob`] | which names match a pattern |
//! | [`kind`] | what a name stands for, and what follows from that |
//! | [`name`] | lock name → key, channel and cluster slots |
//! | [`owner`] | who holds: `<client uuid>:<number>` |
//! | [`lease`] | how long a hold lasts, and how long its client may believe in it |
//! | [`model`] | what each step does to a lock, and what it answers |
//! | [`wait_queue`], [`wait_step`], [`courtesy`] | who of the local waiters asks the server, and when |
//! | [`renewal`] | which hold is looked at next |
//! | [`tally`] | what several servers' answers to one question decide |
//! | [`backoff`], [`doubt`], [`request`], [`verdict`] | what to do when an answer is missing or surprising |

pub mod backoff;
pub mod courtesy;
pub mod doubt;
pub mod glob;
pub mod kind;
pub mod lease;
pub mod model;
mod moment;
pub mod name;
pub mod owner;
pub mod renewal;
pub mod request;
mod slot;
pub mod tally;
pub mod verdict;
pub mod wait_queue;
pub mod wait_step;

pub use backoff::Backoff;
pub use courtesy::Courtesy;
pub use doubt::Doubt;
pub use glob::Glob;
pub use kind::Kind;
pub use lease::{Lease, LeaseError};
pub use moment::Moment;
pub use name::{LockName, NameError};
pub use owner::{ClientId, OwnerId};
pub use slot::slot;
