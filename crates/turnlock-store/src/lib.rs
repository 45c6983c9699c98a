//! What a store of turnlock's locks must do, and the parts that stores share.
//!
//! A [`Store`] executes atomic [steps](turnlock_core::model::Step): one call is one step of a model in
//! [`turnlock_core::model`]. It knows nothing of guards, local queues or retries, which are the engine's in the
//! crate `turnlock`. The crates `turnlock-redis` and `turnlock-file` are stores; the [memory store](MemoryStore) is
//! here, as the reference.
//!
//! | module | what it has |
//! |---|---|
//! | `store` | the contract: what a store must do, the events that it reports, and typed calls |
//! | `directory` | what a store may do: find locks, and keep the records of clients |
//! | `activity` | the records that clients keep there about their waits and holds |
//! | `examination` | what a store may do: examine itself |
//! | `finding`, `overview` | what an examination reports: findings, and a description of the servers |
//! | `call`, `failure` | the options of a call, when it was sent, its reply, and why it failed |
//! | [`row`] | for stores that keep the state of a model in a row, and replace it in one transaction |
//! | `memory`, `records` | the memory store, and its records of clients |
//! | `settings` | one list of settings for code, URLs and files: [`settings!`] |
//! | [`clock`] | the clock behind every lease |
//! | [`simulation`] | clients on simulated time, for tests |
//!
//! The interface may change with every version before 1.0.

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

mod activity;
mod call;
pub mod clock;
mod directory;
mod examination;
mod failure;
mod finding;
mod memory;
mod overview;
mod records;
pub mod row;
mod settings;
pub mod simulation;
mod store;

pub use activity::{
    Activity, ActivityRecord, ActivityScope, MAX_ACTIVITY_LEN, MAX_ACTIVITY_RECORDS, MAX_ACTIVITY_REPLY_LEN,
    StoredActivity,
};
pub use call::{Caller, Presence, ReplyFuture, StepOptions, StepReply, TypedCall};
pub use directory::{Directory, FoundKeys, MAX_RECORD_LEN, Search};
pub use examination::{ClientProfile, Examination, ReleaseMessages};
pub use failure::{Cause, Failure, FailureKind, OpenError, Sent};
pub use finding::{Finding, Level, Topic};
pub use memory::{Memory, MemoryStore};
pub use overview::{Overview, ServerOverview, ServerRole};
pub use records::Records;
pub use settings::{FromText, Secret, SettingError, percent_decode};
#[doc(hidden)]
pub use settings::{merge, set_once};
pub use store::{Signals, Store};
