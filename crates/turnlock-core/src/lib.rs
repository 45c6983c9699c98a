//! The rules of turnlock, as pure code.
//!
//! Nothing here does I/O, reads a clock or depends on a runtime. Time is an argument ([`Moment`]), randomness
//! is an argument, and every outcome is an enum, so each rule can be tested on its own and explored
//! exhaustively.
//!
//! The crate `turnlock` runs these rules: its engine decides by them when to send, wait, renew and retry, and
//! its memory and file stores execute the models in [`model`] directly. On Redis the same steps are Lua
//! scripts; the tests of `turnlock` run both with the same histories and compare every reply and every state.
//!
//! Start with [`model`]: it defines what a lock is. Then read [`lease`], [`hold_state`] and [`doubt`], on which safety
//! rests.
//!
//! | module | what it decides |
//! |---|---|
//! | [`kind`] | which primitives exist, and how they differ |
//! | [`name`] | key, channel and cluster slot of a lock name |
//! | [`owner`] | the identity of a holder: `<client uuid>:<number>` |
//! | [`glob`] | which names match a pattern |
//! | [`model`] | what each step does to a lock, and what it replies |
//! | [`lease`] | how long a hold lasts on the store, and how long its client may rely on it |
//! | [`renewal`] | which hold is due next |
//! | [`wait_queue`], [`wait_step`], [`yielding`] | which local waiter sends a request, and when |
//! | [`wait_graph`] | which waiters wait for each other in a cycle |
//! | [`hold_state`] | what a release, a lost reply, a hand-over or a loss does to a hold |
//! | [`backoff`], [`doubt`], [`request`] | what to do when a reply is missing |
//! | [`tally`] | what the replies of several servers to one request decide |

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

pub mod backoff;
pub mod doubt;
mod error_chain;
pub mod glob;
pub mod hold_state;
pub mod kind;
pub mod lease;
pub mod model;
mod moment;
pub mod name;
pub mod owner;
#[doc(hidden)]
pub mod planted;
pub mod renewal;
pub mod request;
pub mod tally;
pub mod wait_graph;
pub mod wait_queue;
pub mod wait_step;
pub mod yielding;

pub use backoff::Backoff;
pub use doubt::Doubt;
pub use error_chain::error_chain;
pub use glob::Glob;
pub use hold_state::HoldState;
pub use kind::Kind;
pub use lease::{Lease, LeaseError};
pub use moment::Moment;
pub use name::{LockName, NameError, slot};
pub use owner::{ClientId, OwnerId};
pub use yielding::Yielding;
