//! Distributed locks on Redis, in a file or in memory, with the wire format of Redisson.
//!
//! A Java service with Redisson and a Rust service with turnlock exclude each other on the same key. Without a server,
//! a file excludes the processes of one machine.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let client = turnlock::Client::connect("memory://").await?; // or redis://127.0.0.1, or file:
//!
//! let guard = client.lock("orders:42").await?; // waits; renewed while the guard lives
//! // … the work that must not run twice …
//! guard.unlock().await?; // waits for the store; dropping the guard releases in the background
//!
//! let answer = client.lock("orders:42").run(|_held| async { 6 * 7 }).await?; // the same in one call
//! assert_eq!(answer, 42);
//! # Ok::<(), turnlock::Error>(()) }).unwrap();
//! ```
//!
//! # Guarantees
//!
//! - One holder at a time, across processes and languages, provided that the store keeps its data: see [`Guard`].
//! - The lock of a process that dies is free when its lease ends, after 30 s by default.
//! - A holder that cannot renew learns of it by [`Guard::lost`] *before* the store can grant the lock to another.
//! - An acquire or release future can be dropped at any time, and leaves no lock behind.
//! - Waiters are woken by a message, and poll at least once a second. Waiters of one client are served in order.
//!
//! # Choosing a primitive
//!
//! | to | use |
//! |---|---|
//! | run one holder at a time | [`Client::lock`] |
//! | serve waiters in order of arrival, over all processes | [`Client::fair_lock`] |
//! | protect a database from a holder that was paused | [`Client::fenced_lock`] |
//! | share among readers, exclude for a writer | [`Client::read_write_lock`] |
//! | share locks with redis-py, redsync or node-redlock | [`Client::plain_lock`] |
//! | lock on a server without pub/sub | [`Client::spin_lock`] |
//! | hold several locks together | [`MultiLock`] |
//! | survive the loss of a server without replication | [`RedLock`] |
//! | limit how many run at a time | [`Client::permit_semaphore`], or [`Client::semaphore`] as in Java |
//! | wait until others are done | [`Client::latch`] |
//!
//! # Choosing a store
//!
//! | store | excludes | survives |
//! |---|---|---|
//! | `memory://` | the tasks of one process: for tests | nothing |
//! | `file:` | the processes of one machine | nothing: a reboot frees all locks |
//! | `redis://` | all clients of the server | a restart, with persistence |
//! | `redis+sentinel://`, `redis+cluster://` | all clients | a fail-over, with [`Lock::with_replicas`] |
//!
//! [`Client::connect`] lists the URLs. [`Client::doctor`] checks a server.
//!
//! # Errors
//!
//! A busy lock is not an error: see [`TryAcquire`]. [`Error`] lists what to do about each error.
//!
//! # Testing
//!
//! `memory://` is one store per process; [`MemoryStore::new`] is a store of its own, for one test. With
//! `tokio::time::pause` (`#[tokio::test(start_paused = true)]`), leases on a memory store follow tokio's clock, so a test
//! can let a lease end without waiting: see the example `testing`.
//!
//! # Pitfalls
//!
//! - A lock handle holds nothing, and `let _ = lock.lock().await?` releases at once: bind the guard to a name.
//! - A lease does not stop a paused process. Check [`Guard::is_valid`], or use a [fencing token](Guard::token).
//! - Each acquire is a new owner: a task that locks the same name twice waits for itself. Use [`Guard::reenter`] or an
//!   [`Owner`]. After a second, a warning is logged with both call sites.
//! - [`Semaphore`] permits have no lease: those of a process that dies stay taken. [`PermitSemaphore`] recovers them.
//!
//! # Features
//!
//! - `redis` (default): stores on Redis and Valkey.
//! - `tls` (default): TLS connections to Redis.
//! - `file` (default): stores in a file.
//! - `metrics`: counters, gauges and histograms for a recorder of the crate `metrics`. Without it, they cost nothing.
//! - `serde` (default): [`Settings`] can be deserialized from a file.
//!
//! The types at the root are async, on tokio. [`blocking`] has the same for programs without a runtime; there the thread
//! is the owner, as in Java.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

#[macro_use]
mod delegate;

mod activity;
mod admin;
pub mod blocking;
mod client;
#[cfg(test)]
mod clock;
mod config;
mod engine;
mod error;
mod group;
mod identity;
mod kind;
mod lock;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
mod metrics;
#[cfg(doctest)]
mod misuse;
mod owner;
mod permits;
mod shutdown_report;
mod sync;

pub use activity::{Deadlock, HeldLock, Waiter, Waits};
#[cfg(feature = "redis")]
pub use admin::acl;
pub use admin::{Found, Holder, Inspection, Role, doctor};
pub use client::Client;
pub use config::{Builder, Settings};
pub use error::{Cause, Error, LostReason};
pub use group::{All, GroupLock, LostMember, Majority, MultiGuard, MultiHeld, MultiLock, RedLock};
pub use identity::Identity;
pub use kind::Kind;
pub use lock::{Exit, Guard, GuardError, Held, Lock, ReadWriteLock, Runner, TryAcquire, WriteGuard};
pub use owner::Owner;
pub use permits::{Latch, Leased, PermitSemaphore, Permits, Semaphore, Unleased};
pub use shutdown_report::ShutdownReport;
pub use turnlock_core::{ClientId, Glob, LeaseError, NameError, OwnerId};
#[cfg(feature = "redis")]
pub use turnlock_redis::{ClusterMessages, Tls};
pub use turnlock_store::MemoryStore;
#[cfg(not(test))]
pub(crate) use turnlock_store::clock;
