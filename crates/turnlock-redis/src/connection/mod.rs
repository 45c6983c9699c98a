//! Connections for commands.

mod live;

use parking_lot::Mutex;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared, pending};
use futures_util::{FutureExt, TryFutureExt};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

pub(crate) use live::{LiveConnection, Purpose};

use crate::access::Address;
use crate::common::Common;
use crate::endpoint::Endpoint;
use crate::failure;
use crate::reply::Reply;
use crate::script_call::{By, ScriptCall};
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
        call: &ScriptCall,
        asking: bool,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        let live = self.live_within(limit).await?;
        let server_mode = self.common.server_mode;
        let outcome = self.send(&live, &call.cmd(By::Hash, server_mode), asking, limit).await;
        if outcome.as_ref().is_err_and(failure::is_unknown_script) {
            // The server lost its scripts (SCRIPT FLUSH, a restart) and did nothing, so this does not repeat a step.
            let by_text = call.cmd(By::Text, server_mode);
            return Box::pin(self.send(&live, &by_text, asking, limit)).await;
        }
        outcome
    }

    /// Sends a command that is not a script. `limit` is as for [`call`](Connection::call).
    pub(crate) async fn command(self: &Arc<Self>, cmd: &Cmd, limit: Duration) -> Result<Reply, Failure> {
        let live = self.live_within(limit).await?;
        self.send(&live, cmd, false, limit).await
    }

    /// Sends one request. Waits at most `limit` for its reply. A list in the reply may contain errors.
    pub(crate) async fn send(
        &self,
        live: &LiveConnection,
        cmd: &Cmd,
        asking: bool,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        let sent = live.sent_now();
        let mut connection = live.connection.clone();
        if asking {
            // In one pipeline: `ASKING` applies to the next command of the connection only.
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(cmd.clone());
            let replies = connection.send_packed_commands(&both, 1, 1);
            let reply = replies.map_ok(|replies| replies.into_iter().next().unwrap_or(Value::Nil));
            return self.receive(live, sent, limit, Box::pin(timeout(limit, reply)).as_mut()).await;
        }
        let reply = pin!(timeout(limit, connection.send_packed_command(cmd)));
        self.receive(live, sent, limit, reply).await
    }

    /// Sends one request without a time limit, so that a slow reply does not close the connection.
    pub(crate) async fn request(&self, live: &LiveConnection, cmd: &Cmd) -> Result<Reply, Failure> {
        let sent = live.sent_now();
        let mut connection = live.connection.clone();
        let reply = pin!(connection.send_packed_command(cmd).map(Ok));
        self.receive(live, sent, Duration::MAX, reply).await
    }

    /// Sends a pipeline. All replies are one list, which may contain errors.
    pub(crate) async fn send_pipeline(
        &self,
        live: &LiveConnection,
        cmds: &Pipeline,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        let sent = live.sent_now();
        let mut connection = live.connection.clone();
        let replies = connection.send_packed_commands(cmds, 0, cmds.len()).map_ok(Value::Array);
        self.receive(live, sent, limit, pin!(timeout(limit, replies))).await
    }

    /// Waits for the reply to a request that is recorded as `sent`.
    async fn receive(
        &self,
        live: &LiveConnection,
        sent: Sent,
        limit: Duration,
        reply: Pin<&mut impl Future<Output = Result<RedisResult<Value>, Elapsed>>>,
    ) -> Result<Reply, Failure> {
        let reply = match &self.endpoint {
            // Without `select!`: most requests take this path.
            Endpoint::Fixed(_) => reply.await,
            Endpoint::Master(_) => tokio::select! {
                reply = reply => reply,
                // The reply of a demoted master is not awaited here, and discarded below.
                () = Box::pin(self.endpoint.wait_until_moved(live.epoch)) => {
                    self.close(live);
                    return Err(failure::demoted(sent));
                }
            },
        };
        match reply {
            Err(_) => Err(self.on_timeout(live, sent, limit)),
            Ok(Ok(_)) if self.endpoint.has_moved_since(live.epoch) => {
                self.close(live);
                Err(failure::demoted(sent))
            }
            Ok(Ok(Value::ServerError(error))) => Err(self.classify(live, error.into(), sent)),
            Ok(Ok(value)) => {
                live.record_reply();
                Ok(Reply::new(value, sent))
            }
            Ok(Err(error)) => Err(self.classify(live, error, sent)),
        }
    }

    /// Classifies an error reply, or an error of the connection itself.
    pub(crate) fn classify(&self, live: &LiveConnection, error: RedisError, sent: Sent) -> Failure {
        if failure::breaks_connection(&error) {
            self.was_replica.fetch_or(failure::is_replica_error(&error), Ordering::Relaxed);
            self.close(live);
        } else {
            live.record_reply();
        }
        failure::from_error(error, Some(sent))
    }

    /// Handles a request that got no reply in time.
    pub(crate) fn on_timeout(&self, live: &LiveConnection, sent: Sent, limit: Duration) -> Failure {
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
        match self.current().filter(|live| !live.is_suspect()) {
            Some(live) => Ok(live),
            // Boxed, since it is rare and large, so that the future of each request stays small.
            None => Box::pin(self.reconnect(limit)).await,
        }
    }

    async fn reconnect(self: &Arc<Self>, limit: Duration) -> Result<Arc<LiveConnection>, Failure> {
        let connected = timeout(limit, self.connect_attempt()).await;
        connected.unwrap_or_else(|_| Err(failure::connect_timed_out(&self.endpoint, limit)))?;
        self.current()
            .ok_or_else(|| Failure::unavailable(format!("the connection to {} was lost", self.endpoint)))
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
            if !live.is_suspect() || self.is_alive(&live).await {
                return Ok(());
            }
            self.close(&live);
        }
        let open = |resolved| LiveConnection::open(&self.common, resolved, self.purpose);
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
            let role = redis::cmd("ROLE");
            if let Ok(Ok(role)) = timeout(ROLE_PERIOD, self.request(&live, &role)).await
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
        let outcome = self.send(live, &redis::cmd("PING"), false, limit).await;
        outcome.err().is_none_or(|failure| failure::error_reply(&failure).is_some())
    }

    /// Has the connection checked before its next use.
    pub(crate) fn mark_suspect(&self) {
        if let Some(live) = self.current() {
            live.suspect.store(true, Ordering::Relaxed);
        }
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
            tracing::warn!(connection = broken.number, endpoint = %self.endpoint, "connection lost");
        }
    }
}
