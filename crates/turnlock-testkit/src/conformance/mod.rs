//! The conformance suite: the same cases for every store.
//!
//! A store passes if every guarantee of turnlock holds on it: exclusion, leases, renewal, wake-ups, cancellation, for
//! every primitive. The suite is what the stores of turnlock itself are tested with, and any other
//! [`Store`](turnlock_store::Store) can run it: the page "Writing a store" has an example.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use futures_util::future::BoxFuture;
//! use turnlock::{Builder, Client, Error, blocking};
//! use turnlock_store::{Memory, MemoryStore};
//! use turnlock_testkit::conformance::{Feature, StoreUnderTest, Suite};
//!
//! /// The store of one case. Here it is the memory store.
//! struct MyStore(MemoryStore);
//!
//! impl StoreUnderTest for MyStore {
//!     fn client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
//!         let store = self.0.clone();
//!         Box::pin(async { builder.store(|client| Arc::new(Memory::new(store, client))) })
//!     }
//!
//!     fn blocking_client(&self, builder: Builder) -> Result<blocking::Client, Error> {
//!         let store = self.0.clone();
//!         blocking::Builder::from(builder).store(|client| Arc::new(Memory::new(store, client)))
//!     }
//! }
//!
//! // The `main` of a test with `harness = false`.
//! Suite::new("mine", async || MyStore(MemoryStore::new()))
//!     .without(Feature::DataLoss)
//!     .without(Feature::LostMessages)
//!     .main();
//! ```
//!
//! | module | what its cases show |
//! |---|---|
//! | `lock` | what every exclusive lock guarantees, and the groups of locks |
//! | `primitives` | what each primitive guarantees beyond that |
//! | `hand_over` | the local hand-over of a lock |
//! | `find`, `client_identity`, `waits`, `deadlocks` | the [`Directory`](turnlock_store::Directory) of a store |

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[doc(hidden)]
pub mod client_identity;
#[doc(hidden)]
pub mod deadlocks;
#[doc(hidden)]
pub mod find;
mod fixture;
#[doc(hidden)]
pub mod hand_over;
mod kind;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod primitives;
mod suite;
#[doc(hidden)]
pub mod waits;

pub use fixture::{Fixture, NO_POLL, ONE_POLL, PROMPT, StoreUnderTest, joined, ms, until_waiting};
pub use kind::{BlockingKindClient, Kind, KindClient};
pub(crate) use suite::cases;
pub use suite::{Case, CaseFuture, Feature, LIMIT, Suite, arguments};
