//! Snippets that look like locking and hold nothing: the compiler rejects each under `deny(unused_must_use)`.
//!
//! Each snippet is there twice. The first copy compiles without the lint, so the second one fails for no other reason.
//!
//! A handle is not a guard.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders");
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders");
//! # Ok(()) }
//! ```
//!
//! A fixed lease makes a handle, too.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").with_lease(Duration::from_secs(10));
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").with_lease(Duration::from_secs(10));
//! # Ok(()) }
//! ```
//!
//! The side of a read-write lock is a handle.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.read_write_lock("orders").writer();
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.read_write_lock("orders").writer();
//! # Ok(()) }
//! ```
//!
//! A guard that is not bound is dropped.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.read_write_lock("orders").write().await?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.read_write_lock("orders").write().await?;
//! # Ok(()) }
//! ```
//!
//! An outcome that is not matched is dropped.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").try_lock().await?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").try_lock().await?;
//! # Ok(()) }
//! ```
//!
//! So is one of a limited wait.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").try_lock_for(Duration::from_secs(1)).await?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.lock("orders").try_lock_for(Duration::from_secs(1)).await?;
//! # Ok(()) }
//! ```
//!
//! Permits that are not bound are released.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.semaphore("slots").acquire(1).await?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.semaphore("slots").acquire(1).await?;
//! # Ok(()) }
//! ```
//!
//! So are those of an attempt.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.permit_semaphore("slots").try_acquire(1).await?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! client.permit_semaphore("slots").try_acquire(1).await?;
//! # Ok(()) }
//! ```
//!
//! A group of locks is a handle.
//!
//! ```no_run
//! # #![allow(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! turnlock::MultiLock::new([client.lock("a"), client.lock("b")])?;
//! # Ok(()) }
//! ```
//!
//! With the lint:
//!
//! ```compile_fail
//! # #![deny(unused_must_use)]
//! # #[allow(unused_imports)] use std::time::Duration;
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! turnlock::MultiLock::new([client.lock("a"), client.lock("b")])?;
//! # Ok(()) }
//! ```
//!
//! Only a write guard has a downgrade:
//!
//! ```no_run
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! let reader = client.read_write_lock("orders").write().await?.downgrade().await?;
//! # drop(reader); Ok(()) }
//! ```
//!
//! A read guard has none:
//!
//! ```compile_fail
//! # async fn snippet(client: turnlock::Client) -> Result<(), turnlock::Error> {
//! let reader = client.read_write_lock("orders").read().await?.downgrade().await?;
//! # drop(reader); Ok(()) }
//! ```
//!
//! What reads like locking, locks:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let client = turnlock::Client::builder().memory(&turnlock::MemoryStore::new())?;
//! let guard = client.lock("orders").await?;
//! assert!(client.lock("orders").try_lock().await?.is_busy());
//! let writer = client.read_write_lock("catalogue").write().await?;
//! assert!(client.read_write_lock("catalogue").try_read().await?.is_busy());
//! # drop((guard, writer));
//! # Ok::<(), turnlock::Error>(()) }).unwrap();
//! ```
