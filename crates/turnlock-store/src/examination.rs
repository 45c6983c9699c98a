use std::future::ready;
use std::time::Duration;

use futures_util::future::BoxFuture;
use turnlock_core::{Lease, LockName};

use crate::failure::{Failure, FailureKind};
use crate::finding::{Finding, Level, Topic};
use crate::overview::Overview;

/// What a store may do for operators: examine itself for what endangers its locks.
///
/// No lock depends on it. By default, there are no checks.
pub trait Examination: Send + Sync {
    /// Makes all checks, and returns at least one finding, also if the store does not reply.
    ///
    /// Changes no setting. Probes have owners of a client id of their own and names that begin with the
    /// [prefix](ClientProfile::name_prefix), and are removed; what cannot be removed expires.
    fn examine<'a>(
        &'a self,
        _client: &'a ClientProfile,
        _messages: &'a dyn ReleaseMessages,
    ) -> BoxFuture<'a, Vec<Finding>> {
        let finding = Finding::new(Level::Unknown, Topic::Server, "This store has no checks.");
        Box::pin(ready(vec![finding]))
    }

    /// Describes the servers, and makes the checks that only read. Writes nothing.
    ///
    /// Waits at most [`limit`](ClientProfile::limit) for each reply. A server that does not reply is part of the result;
    /// fails if no server is known. By default, there are no servers and no checks.
    fn overview<'a>(&'a self, _client: &'a ClientProfile) -> BoxFuture<'a, Result<Overview, Failure>> {
        Box::pin(ready(Ok(Overview::default())))
    }

    /// Makes the shortest request: one round trip without effect. Waits at most `limit`.
    ///
    /// By default, there is none: [`FailureKind::Unsupported`].
    fn ping(&self, _limit: Duration) -> BoxFuture<'_, Result<(), Failure>> {
        let kind = FailureKind::Unsupported("a ping: this store has no round trip to measure".to_owned());
        Box::pin(ready(Err(Failure::refused(kind))))
    }
}

/// What a store must know of its client to examine itself.
#[derive(Clone, Debug)]
pub struct ClientProfile {
    /// The key prefix of the client.
    pub key_prefix: String,
    /// The beginning of the names of probes, if the caller chose one.
    pub name_prefix: Option<String>,
    /// The lease of a renewed lock.
    pub lease: Lease,
    /// How long the client waits for a reply about a lock with this lease.
    pub response_timeout: Duration,
    /// How long it waits for a reply that concerns no such lock. For probes.
    pub limit: Duration,
    /// How many replicas must acknowledge a grant.
    pub replicas: u32,
}

/// The messages about releases, as the waiters of the client receive them.
pub trait ReleaseMessages: Send + Sync {
    /// [Subscribes](crate::Store::subscribe) to releases of `name`; waits at most `limit` for it.
    ///
    /// The returned future is ready after the next message. Dropping it ends the subscription.
    fn subscribe<'a>(&'a self, name: &'a LockName, limit: Duration) -> BoxFuture<'a, BoxFuture<'static, ()>>;
}
