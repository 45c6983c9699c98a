//! Distributed locks for processes that take turns: on the Redis that a team already runs, **on the same wire as
//! Redisson**, and in memory with no server at all.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let client = turnlock::Client::connect("memory://").await?; // or redis://127.0.0.1
//! let lock = client.lock("orders:42");
//!
//! let guard = lock.lock().await?; // waits for its turn; renewed while the guard lives
//! // … the work that must not run twice …
//! guard.unlock().await?; // the certain way; dropping the guard is the convenient way
//!
//! let answer = lock.run(|_held| async { 6 * 7 }).await?; // the same in one call
//! assert_eq!(answer, 42);
//! # Ok::<(), turnlock::Error>(()) }).unwrap();
//! ```
//!
//! # What is promised
//!
//! - One holder at a time, across processes and languages, as long as the store keeps its data. See [`Guard`] for the
//!   exact words and the limits.
//! - A lock whose process dies is free when its lease ends: 30 s when nothing else was said.
//! - A holder that cannot renew hears of it by [`Guard::lost`] *before* the store can hand the lock on.
//! - Any future of this crate may be dropped at any time without leaving a lock behind.
//! - Waiters are woken by a message, look by themselves at least once a second, and are served in order of arrival within
//!   one client.
//!
//! # Two ways to use it
//!
//! The types at the root are async, on tokio. [`blocking`] has the same for programs without a runtime; there the thread
//! is the owner, as in Java.

pub mod acl;
mod agreement;
mod backend;
pub mod blocking;
mod builder;
mod client;
mod clock;
mod connect_settings;
mod credentials;
pub mod doctor;
mod engine;
mod error;
mod found;
mod group;
mod guard;
mod identity;
mod inspection;
mod latch;
mod lock;
mod multi_guard;
mod multi_lock;
mod named;
mod owner;
mod permit_semaphore;
mod permits;
mod read_write_lock;
mod red_lock;
mod red_round;
mod run;
mod semaphore;
mod settings;
mod store_url;
mod tls;
mod url_parameters;

pub use backend::memory::MemoryStore;
pub use backend::redis::ClusterMessages;
pub use builder::Builder;
pub use client::{Client, Leftovers};
pub use error::{Cause, Error, LostReason};
pub use found::Found;
pub use guard::Guard;
pub use identity::Identity;
pub use inspection::{Holder, Inspection, Role};
pub use latch::Latch;
pub use lock::Lock;
pub use multi_guard::{LostMember, MultiGuard, MultiHeld};
pub use multi_lock::MultiLock;
pub use owner::Owner;
pub use permit_semaphore::PermitSemaphore;
pub use permits::Permits;
pub use read_write_lock::ReadWriteLock;
pub use red_lock::RedLock;
pub use run::{Exit, Held, Runner};
pub use semaphore::Semaphore;
pub use tls::Tls;
pub use turnlock_core::{ClientId, Glob, Kind, LeaseError, NameError, OwnerId};
