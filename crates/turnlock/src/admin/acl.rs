//! ACL rules with the least rights that a user of Redis or Valkey needs.
//!
//! An [`AclRule`] allows some [primitives](Primitive), each made by a method of [`Client`](crate::Client), on names that
//! match a pattern. Parts that locks do not need are added by name: [`with_doctor`](AclRule::with_doctor) for
//! [`Client::doctor`](crate::Client::doctor), [`with_find`](AclRule::with_find) for
//! [`Client::find`](crate::Client::find). The keys `turnlock_client:*` hold the [identities](crate::Identity) of clients.
//!
//! | primitive | made by |
//! |---|---|
//! | [`Lock`](Primitive::Lock) | [`Client::lock`](crate::Client::lock), alone or in a group |
//! | [`FairLock`](Primitive::FairLock) | [`Client::fair_lock`](crate::Client::fair_lock) |
//! | [`ReadWriteLock`](Primitive::ReadWriteLock) | [`Client::read_write_lock`](crate::Client::read_write_lock), both sides |
//! | [`FencedLock`](Primitive::FencedLock) | [`Client::fenced_lock`](crate::Client::fenced_lock) |
//! | [`SpinLock`](Primitive::SpinLock) | [`Client::spin_lock`](crate::Client::spin_lock) |
//! | [`PlainLock`](Primitive::PlainLock) | [`Client::plain_lock`](crate::Client::plain_lock) |
//! | [`Semaphore`](Primitive::Semaphore) | [`Client::semaphore`](crate::Client::semaphore) |
//! | [`PermitSemaphore`](Primitive::PermitSemaphore) | [`Client::permit_semaphore`](crate::Client::permit_semaphore) |
//! | [`Latch`](Primitive::Latch) | [`Client::latch`](crate::Client::latch) |
//!
//! # Examples
//!
//! `Display` prints the command that creates the user, with `PASSWORD` as a placeholder:
//!
//! ```
//! use turnlock::acl::{AclRule, Primitive};
//!
//! let rule = AclRule::new(&[Primitive::PlainLock], "orders:*").for_user("shop");
//! assert_eq!(
//!     rule.to_string(),
//!     "ACL SETUSER shop reset on >PASSWORD resetchannels ~orders:* ~turnlock_client:* ~turnlock_waits \
//!      +del +eval +evalsha +get +hdel +hlen +hrandfield +hset +pexpire +ping +psetex +pttl +role \
//!      +script|load +set +time +type"
//! );
//! ```
//!
//! An optional command says what its absence costs:
//!
//! ```
//! use turnlock::acl::{AclRule, Primitive};
//!
//! let rule = AclRule::new(&[Primitive::PlainLock], "orders:*");
//! let time = rule.commands().iter().find(|command| command.name == "time");
//! let cost = "this client does not announce its waits and holds, and finds no deadlocks";
//! assert_eq!(time.and_then(|command| command.if_missing), Some(cost));
//! ```
//!
//! In a cluster, messages about releases have other commands:
//!
//! ```
//! # use turnlock::acl::{AclRule, Primitive};
//! let rule = AclRule::new(&[Primitive::Lock], "orders:*").on_cluster();
//! assert!(rule.to_string().contains("+spublish +ssubscribe"));
//! ```

pub use turnlock_redis::acl::{AclCommand, AclRule, Primitive};
