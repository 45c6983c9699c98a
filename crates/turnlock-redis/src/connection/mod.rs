//! Connections for commands.

mod driver;
mod in_flight;
mod live;
mod multiplexer;
mod queues;
mod writer;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, pending};
use redis::{Cmd, RedisError, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use turnlock_core::Moment;

pub(crate) use in_flight::Commands;
pub(crate) use live::{LiveConnection, Purpose};

use crate::access::Address;
use crate::common::Common;
use crate::endpoint::Endpoint;
use crate::failure;
use crate::reply::Reply;
use crate::reply_slot::{Outcome, Unsent};
use crate::script_call::ScriptCall;
use turnlock_store::clock;
use turnlock_store::{Failure, Sent};

/// A connection for commands that all callers share and that reconnects when it breaks.
///
/// It never repeats a request. There is one [`LiveConnection`] at a time; its number tells callers which requests were
/// sent on the same connection, and so in order.
pub(crate) struct Connection {
    pub(crate) common: Arc<Common>,
    pub(crate) endpoint: Endpoint,
    purpose: Purpose,
    live: Mutex<Option<Arc<LiveConnection>>>,
    /// The latest attempt to connect. All callers wait for the same attempt.
    attempt: Mutex<Option<ConnectAttempt>>,
    was_connected: AtomicBool,
    /// The last connection was to a server that has become a replica.
    was_replica: AtomicBool,
    left_replica: Notify,
}

/// An attempt to connect. Its task goes on if the callers that wait for it give up.
struct ConnectAttempt {
    task: AbortHandle,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

/// The time limit for the reply to the `PING` on an idle connection.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// How often a server is queried for its role.
const ROLE_PERIOD: Duration = Duration::from_secs(3);

impl Connection {
    pub(crate) fn new(common: &Arc<Common>, endpoint: Endpoint, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self {
            common: Arc::clone(common),
            endpoint,
            purpose,
            live: Mutex::default(),
            attempt: Mutex::default(),
            was_connected: AtomicBool::default(),
            was_replica: AtomicBool::default(),
            left_replica: Notify::default(),
        })
    }

    /// Creates a connection for queries about the deployment, which the server at `address` replies to.
    pub(crate) fn for_queries(common: &Arc<Common>, address: &Address) -> Arc<Self> {
        Self::new(common, Endpoint::Fixed(address.clone()), Purpose::Discovery)
    }

    /// Sends a script call: by its hash, or by its text if the server does not know the script.
    ///
    /// Waits at most `limit` for a connection, and then at most `limit` for the reply. With `asking`, the call follows
    /// an `ASK` redirect from the node that the slot is moving from.
    pub(crate) async fn call(
        self: &Arc<Self>,
        call: &Arc<ScriptCall>,
        asking: bool,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        // Sent once more if the connection closed before that.
        let mut is_repeated = false;
        loop {
            let mut now = clock::now();
            let live = if let Some(live) = self.usable(now) {
                live
            } else {
                // Boxed, since it is rare and large, so that the future of each call stays small.
                let live = Box::pin(self.reconnect(limit)).await?;
                if call.caller.is_gone() {
                    return Err(failure::abandoned());
                }
                now = clock::now();
                live
            };
            live.multiplexer.call(call, asking, now, now + limit);
            let outcome = call.slot.outcome().await;
            if is_repeated || !matches!(outcome, Outcome::Unsent(Unsent::Closed)) {
                return self.classify_outcome(&live, outcome, limit);
            }
            is_repeated = true;
        }
    }

    /// Sends a command that is not a script. `limit` is as for [`call`](Connection::call).
    pub(crate) async fn command(self: &Arc<Self>, cmd: &Cmd, limit: Duration) -> Result<Reply, Failure> {
        let live = self.live_within(limit).await?;
        self.send(&live, Commands::one(cmd), limit).await
    }

    /// Sends commands now. The future waits at most `limit` for the reply. A list in it may contain errors.
    pub(crate) fn send<'a>(
        &'a self,
        live: &'a LiveConnection,
        commands: Arc<Commands>,
        limit: Duration,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send + use<'a> {
        let now = clock::now();
        live.multiplexer.send(&commands, now, now + limit);
        async move {
            let outcome = commands.slot.outcome().await;
            self.classify_outcome(live, outcome, limit)
        }
    }

    fn classify_outcome(
        &self,
        live: &LiveConnection,
        outcome: Outcome,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        match outcome {
            Outcome::Demoted(sent) => {
                self.close(live);
                Err(failure::demoted(sent))
            }
            Outcome::Replied(_, sent) if self.endpoint.has_moved_since(live.epoch) => {
                self.close(live);
                Err(failure::demoted(sent))
            }
            Outcome::Replied(Value::ServerError(error), sent) => Err(self.classify(live, error.into(), sent)),
            Outcome::Replied(value, sent) => Ok(Reply::new(value, sent)),
            Outcome::Broken(error, sent) => Err(self.classify(live, error, sent)),
            Outcome::TimedOut(sent) => Err(self.on_timeout(live, sent, limit)),
            Outcome::Unsent(Unsent::Closed) => Err(self.connection_lost()),
            Outcome::Unsent(Unsent::Late) => Err(failure::send_timed_out(limit)),
            Outcome::Unsent(Unsent::Abandoned) => Err(failure::abandoned()),
        }
    }

    /// Classifies an error reply, or an error of the connection itself.
    pub(crate) fn classify(&self, live: &LiveConnection, error: RedisError, sent: Sent) -> Failure {
        if failure::breaks_connection(&error) {
            self.was_replica.fetch_or(failure::is_replica_error(&error), Ordering::Relaxed);
            self.close(live);
        }
        failure::from_error(error, Some(sent))
    }

    /// Handles a request that got no reply in time.
    fn on_timeout(&self, live: &LiveConnection, sent: Sent, limit: Duration) -> Failure {
        // If other requests got replies since, the connection is alive and this one was slow. If none did, the server
        // may have disappeared, and a new connection shows that.
        if !live.has_replied_since(sent) {
            self.close(live);
        }
        failure::reply_timed_out(limit, sent)
    }

    /// Returns the live connection, or connects. Waits as long as connecting may take.
    pub(crate) async fn live(self: &Arc<Self>) -> Result<Arc<LiveConnection>, Failure> {
        // The attempt has its own limit, and its error tells more.
        self.live_within(Duration::MAX).await
    }

    /// Returns the live connection, or connects. Waits at most `limit`.
    ///
    /// The attempt to connect goes on after that, so that the next caller finds the connection.
    pub(crate) async fn live_within(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<Arc<LiveConnection>, Failure> {
        match self.usable(clock::now()) {
            Some(live) => Ok(live),
            None => Box::pin(self.reconnect(limit)).await,
        }
    }

    async fn reconnect(self: &Arc<Self>, limit: Duration) -> Result<Arc<LiveConnection>, Failure> {
        let connected = timeout(limit, self.connect_attempt()).await;
        connected.unwrap_or_else(|_| Err(failure::connect_timed_out(&self.endpoint, limit)))?;
        self.current().ok_or_else(|| self.connection_lost())
    }

    fn connection_lost(&self) -> Failure {
        Failure::unavailable(format!("the connection to {} was lost", self.endpoint))
    }

    /// Returns the running attempt to connect, or starts one.
    fn connect_attempt(self: &Arc<Self>) -> Shared<BoxFuture<'static, Result<(), Failure>>> {
        let mut attempt = self.attempt.lock();
        if let Some(ConnectAttempt { outcome, .. }) =
            attempt.as_ref().filter(|latest| !latest.task.is_finished())
        {
            return outcome.clone();
        }
        let connection = Arc::clone(self);
        // A task, so that it goes on if the callers are dropped.
        let task = self.common.runtime.spawn(async move { connection.check_or_connect().await });
        let abort_handle = task.abort_handle();
        let gone = || Failure::unavailable(failure::RUNTIME_GONE);
        let outcome = task.map(move |joined| joined.unwrap_or_else(|_| Err(gone()))).boxed().shared();
        *attempt = Some(ConnectAttempt { task: abort_handle, outcome: outcome.clone() });
        outcome
    }

    async fn check_or_connect(&self) -> Result<(), Failure> {
        if let Some(live) = self.current() {
            if !live.is_suspect(clock::now()) || self.is_alive(&live).await {
                return Ok(());
            }
            self.close(&live);
        }
        let open = |resolved| LiveConnection::open(&self.common, &self.endpoint, resolved, self.purpose);
        let live = Arc::new(self.endpoint.open(self.common.access.connect_limit, open).await?);
        *self.live.lock() = Some(Arc::clone(&live));
        if self.was_connected.swap(true, Ordering::Relaxed) && self.purpose == Purpose::Scripts {
            tracing::info!(connection = live.number, endpoint = %self.endpoint, "reconnected");
            self.common.notify(|signals| signals.server_changed());
        }
        if self.was_replica.swap(false, Ordering::Relaxed) {
            self.left_replica.notify_one();
        }
        Ok(())
    }

    /// Reconnects when the server has become a replica. Never returns.
    ///
    /// Replicas reply to requests that only read. A client that only waits, or only checks fixed leases, would not
    /// notice otherwise. Sends `ROLE` every [`ROLE_PERIOD`].
    pub(crate) async fn watch_role(self: &Arc<Self>) {
        if self.common.server_mode.is_cluster() {
            // A node that has become a replica redirects every request to the new master.
            return pending().await;
        }
        loop {
            tokio::time::sleep(ROLE_PERIOD).await;
            // The next caller reopens a closed connection. One to a replica is reopened here, to notify `left_replica`.
            let live = match self.current() {
                None if self.was_replica.load(Ordering::Relaxed) => self.live().await.ok(),
                live => live,
            };
            let Some(live) = live else { continue };
            // Without a time limit of its own, so that a slow reply does not close the connection.
            let role = Commands::one(&redis::cmd("ROLE"));
            if let Ok(Ok(role)) = timeout(ROLE_PERIOD, self.send(&live, role, Duration::MAX)).await
                && failure::is_replica_role(&role.value)
            {
                self.was_replica.store(true, Ordering::Relaxed);
                self.close(&live);
                let _ = self.live().await;
            }
        }
    }

    /// Waits until this connection was reopened because the server had become a replica.
    ///
    /// Another connection to the same address may still lead to the replica and stay open. For one task only.
    pub(crate) async fn left_replica(&self) {
        self.left_replica.notified().await;
    }

    /// Checks an idle connection with `PING`.
    ///
    /// A request that is lost on a dead connection would be in doubt; a lost `PING` is harmless.
    async fn is_alive(&self, live: &LiveConnection) -> bool {
        live.suspect.store(false, Ordering::Relaxed);
        let limit = self.common.access.connect_limit.min(PING_LIMIT);
        let outcome = self.send(live, Commands::one(&redis::cmd("PING")), limit).await;
        outcome.err().is_none_or(|failure| failure::error_reply(&failure).is_some())
    }

    /// Has the connection checked before its next use.
    pub(crate) fn mark_suspect(&self) {
        if let Some(live) = self.current() {
            live.suspect.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the live connection, if it can be used without a check.
    fn usable(&self, now: Moment) -> Option<Arc<LiveConnection>> {
        self.current().filter(|live| !live.is_suspect(now))
    }

    /// Returns the live connection, unless its endpoint has moved.
    fn current(&self) -> Option<Arc<LiveConnection>> {
        let live = self.live.lock().clone();
        live.filter(|live| !self.endpoint.has_moved_since(live.epoch))
    }

    /// Closes a live connection, unless it was replaced already.
    fn close(&self, broken: &LiveConnection) {
        let mut live = self.live.lock();
        if live.as_ref().is_some_and(|live| live.number == broken.number) {
            *live = None;
            // The client logs the outage that follows, if requests fail.
            tracing::debug!(connection = broken.number, endpoint = %self.endpoint, "connection lost");
        }
        drop(live);
        // What it has not sent is sent on the next one.
        broken.multiplexer.retire();
    }
}

#[cfg(test)]
#[path = "tests/schedules.rs"]
mod schedules;
