use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all, pending};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use turnlock_core::Moment;

use super::common::Common;
use super::endpoint::{Endpoint, ResolvedEndpoint};
use super::failure;
use super::script_call::ScriptCall;
use super::scripts;
use crate::backend::{Failure, Sent};
use crate::clock;

/// A connection for commands that all callers share and that reconnects when it breaks.
///
/// It never repeats a request. There is one [`LiveConnection`] at a time; its number tells callers which requests were
/// sent on the same connection, and so in order.
pub(super) struct Connection {
    pub(super) common: Arc<Common>,
    pub(super) endpoint: Endpoint,
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

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Locks. The server must be a master; its scripts are loaded.
    Scripts,
    /// Locks that replicas acknowledge. Another connection has loaded the scripts.
    ReplicatedScripts,
    /// Queries about the deployment, which any server can reply to.
    Discovery,
}

/// The outcome of a request that was sent.
#[derive(Clone)]
pub(super) enum Outcome {
    Replied(Value, Sent),
    /// The server replied with an error: nothing was done.
    Refused(RedisError),
    /// There was no valid reply, so the request is in doubt.
    NoReply(Failure),
}

/// One established connection.
pub(super) struct LiveConnection {
    connection: MultiplexedConnection,
    /// The task that drives the connection. Ended when the last user drops the connection.
    driver: AbortHandle,
    number: u64,
    /// The epoch in which the endpoint was resolved.
    epoch: u64,
    /// The time of the last reply, in microseconds of the local clock.
    last_reply: AtomicU64,
    /// Something happened that may have broken the connection.
    suspect: AtomicBool,
}

/// The idle time after which a connection is checked with `PING` before it is used.
///
/// Servers, firewalls and the like close idle connections.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// The time limit for the reply to that `PING`.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// How often a server is queried for its role.
const ROLE_PERIOD: Duration = Duration::from_secs(3);

/// The number of requests that can wait to be written.
///
/// More than any sender sends at once: behind a full queue, requests of one sender can overtake each other.
const QUEUE_SIZE: usize = 1024;

impl LiveConnection {
    /// Returns the record of a request that is sent now.
    pub(super) fn sent_now(&self) -> Sent {
        Sent { connection: self.number, at: clock::now() }
    }

    fn is_suspect(&self) -> bool {
        let last_reply = Moment::from_micros(self.last_reply.load(Ordering::Relaxed));
        self.suspect.load(Ordering::Relaxed) || clock::now().since(last_reply) > IDLE_LIMIT
    }

    fn record_reply(&self) {
        self.last_reply.store(clock::now().as_micros(), Ordering::Relaxed);
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(super) fn new(common: &Arc<Common>, endpoint: Endpoint, purpose: Purpose) -> Self {
        Self {
            common: Arc::clone(common),
            endpoint,
            purpose,
            live: Mutex::new(None),
            attempt: Mutex::new(None),
            was_connected: AtomicBool::new(false),
            was_replica: AtomicBool::new(false),
            left_replica: Notify::new(),
        }
    }

    /// Sends a script call.
    ///
    /// Waits at most `limit` for a connection, and then at most `limit` for the reply. With `asking`, the call follows
    /// an `ASK` redirect from the node that the slot is moving from.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &ScriptCall,
        asking: bool,
        limit: Duration,
    ) -> Result<Outcome, Failure> {
        let live = self.live_within(limit).await?;
        let server_mode = self.common.server_mode;
        let outcome = self.send(&live, &call.by_hash(server_mode), asking, limit).await;
        if matches!(&outcome, Outcome::Refused(error) if failure::is_unknown_script(error)) {
            // The server lost its scripts (SCRIPT FLUSH, a restart) and did nothing, so this does not repeat a step.
            return Ok(self.send(&live, &call.by_text(server_mode), asking, limit).await);
        }
        Ok(outcome)
    }

    /// Sends a command that is not a script. `limit` is as for [`call`](Connection::call).
    pub(super) async fn command(self: &Arc<Self>, cmd: &Cmd, limit: Duration) -> Result<Outcome, Failure> {
        let live = self.live_within(limit).await?;
        Ok(self.send(&live, cmd, false, limit).await)
    }

    /// Sends one request. Waits at most `limit` for its reply.
    pub(super) async fn send(
        &self,
        live: &LiveConnection,
        cmd: &Cmd,
        asking: bool,
        limit: Duration,
    ) -> Outcome {
        let sent = live.sent_now();
        match tokio::time::timeout(limit, self.request(live, cmd, asking, sent)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::NoReply(self.on_timeout(live, sent, limit)),
        }
    }

    /// Sends one request, recorded as `sent`, without a time limit. A list in the reply may contain errors.
    pub(super) async fn request(
        &self,
        live: &LiveConnection,
        cmd: &Cmd,
        asking: bool,
        sent: Sent,
    ) -> Outcome {
        self.await_outcome(send_command(live.connection.clone(), cmd, asking), live, sent).await
    }

    /// Sends a pipeline. All replies are one list, which may contain errors.
    pub(super) async fn send_pipeline(
        &self,
        live: &LiveConnection,
        cmds: &Pipeline,
        limit: Duration,
    ) -> Outcome {
        let sent = live.sent_now();
        let mut connection = live.connection.clone();
        let reply = async { connection.send_packed_commands(cmds, 0, cmds.len()).await.map(Value::Array) };
        match tokio::time::timeout(limit, self.await_outcome(reply, live, sent)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::NoReply(self.on_timeout(live, sent, limit)),
        }
    }

    /// Waits for the reply to a request that is recorded as `sent`.
    async fn await_outcome(
        &self,
        reply: impl Future<Output = RedisResult<Value>>,
        live: &LiveConnection,
        sent: Sent,
    ) -> Outcome {
        let reply = match &self.endpoint {
            // Without `select!`: most requests take this path.
            Endpoint::Fixed(_) => reply.await,
            endpoint @ Endpoint::Master(_) => tokio::select! {
                reply = reply => reply,
                // The reply of a demoted master is not awaited here, and discarded below.
                () = Box::pin(endpoint.wait_until_moved(live.epoch)) => {
                    self.close(live);
                    return Outcome::NoReply(failure::demoted(sent));
                }
            },
        };
        match reply {
            Ok(_) if self.endpoint.has_moved_since(live.epoch) => {
                self.close(live);
                Outcome::NoReply(failure::demoted(sent))
            }
            Ok(Value::ServerError(error)) => self.classify(live, error.into(), sent),
            Ok(value) => {
                live.record_reply();
                Outcome::Replied(value, sent)
            }
            Err(error) => self.classify(live, error, sent),
        }
    }

    /// Classifies an error reply, or an error of the connection itself.
    pub(super) fn classify(&self, live: &LiveConnection, error: RedisError, sent: Sent) -> Outcome {
        if failure::breaks_connection(&error) {
            self.was_replica.fetch_or(failure::is_replica_error(&error), Ordering::Relaxed);
            self.close(live);
        } else {
            live.record_reply();
        }
        match error {
            error if failure::is_reply(&error) => Outcome::Refused(error),
            error => Outcome::NoReply(failure::from_error(error, Some(sent))),
        }
    }

    /// Handles a request that got no reply in time.
    pub(super) fn on_timeout(&self, live: &LiveConnection, sent: Sent, limit: Duration) -> Failure {
        // If other requests got replies since, the connection is alive and this one was slow. If none did, the server
        // may have disappeared, and a new connection shows that.
        if live.last_reply.load(Ordering::Relaxed) < sent.at.as_micros() {
            self.close(live);
        }
        failure::reply_timed_out(limit, sent)
    }

    /// Returns the live connection, or connects. Waits as long as connecting may take.
    pub(super) async fn live(self: &Arc<Self>) -> Result<Arc<LiveConnection>, Failure> {
        // The attempt has its own limit, and its error tells more.
        self.live_within(Duration::MAX).await
    }

    /// Returns the live connection, or connects. Waits at most `limit`.
    ///
    /// The attempt to connect goes on after that, so that the next caller finds the connection.
    pub(super) async fn live_within(
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
        let connected = tokio::time::timeout(limit, self.connect_attempt()).await;
        connected.unwrap_or_else(|_| Err(failure::connect_timed_out(&self.endpoint, limit)))?;
        self.current()
            .ok_or_else(|| failure::unavailable(format!("the connection to {} was lost", self.endpoint)))
    }

    /// Returns the running attempt to connect, or starts one.
    fn connect_attempt(self: &Arc<Self>) -> Shared<BoxFuture<'static, Result<(), Failure>>> {
        let mut attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ConnectAttempt { outcome, .. }) =
            attempt.as_ref().filter(|latest| !latest.task.is_finished())
        {
            return outcome.clone();
        }
        let connection = Arc::clone(self);
        // A task, so that it goes on if the callers are dropped.
        let task = self.common.runtime.spawn(async move { connection.check_or_connect().await });
        let abort_handle = task.abort_handle();
        let gone = || failure::unavailable(failure::RUNTIME_GONE.to_owned());
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
        self.connect_new().await.map(drop)
    }

    async fn connect_new(&self) -> Result<Arc<LiveConnection>, Failure> {
        let limit = self.common.access.connect_limit;
        let connected = tokio::time::timeout(limit, self.connect()).await;
        let live =
            Arc::new(connected.unwrap_or_else(|_| Err(failure::connect_timed_out(&self.endpoint, limit)))?);
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
        if self.was_connected.swap(true, Ordering::Relaxed) && self.purpose == Purpose::Scripts {
            tracing::info!(connection = live.number, endpoint = %self.endpoint, "reconnected");
            self.common.notify(|signals| signals.server_changed());
        }
        if self.was_replica.swap(false, Ordering::Relaxed) {
            self.left_replica.notify_one();
        }
        Ok(live)
    }

    /// Reconnects when the server has become a replica. Never returns.
    ///
    /// Replicas reply to requests that only read. A client that only waits, or only checks fixed leases, would not
    /// notice otherwise. Sends `ROLE` every [`ROLE_PERIOD`].
    pub(super) async fn watch_role(self: &Arc<Self>) {
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
            let reply = self.request(&live, &role, false, live.sent_now());
            if let Ok(Outcome::Replied(role, _)) = tokio::time::timeout(ROLE_PERIOD, reply).await
                && failure::is_replica_role(&role)
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
    pub(super) async fn left_replica(&self) {
        self.left_replica.notified().await;
    }

    /// Checks an idle connection with `PING`.
    ///
    /// A request that is lost on a dead connection would be in doubt; a lost `PING` is harmless.
    async fn is_alive(&self, live: &LiveConnection) -> bool {
        live.suspect.store(false, Ordering::Relaxed);
        let limit = self.common.access.connect_limit.min(PING_LIMIT);
        let outcome = self.send(live, &redis::cmd("PING"), false, limit).await;
        matches!(outcome, Outcome::Replied(..) | Outcome::Refused(_))
    }

    /// Has the connection checked before its next use.
    pub(super) fn mark_suspect(&self) {
        if let Some(live) = self.current() {
            live.suspect.store(true, Ordering::Relaxed);
        }
    }

    async fn connect(&self) -> Result<LiveConnection, Failure> {
        let resolved = self.endpoint.resolve().await?;
        tokio::select! {
            live = self.handshake(&resolved) => live,
            // Without this, a dead server would be awaited although there is a new master.
            () = self.endpoint.wait_until_moved(resolved.epoch) => {
                Err(failure::endpoint_moved(&self.endpoint, &resolved.address))
            }
        }
    }

    async fn handshake(&self, resolved: &ResolvedEndpoint) -> Result<LiveConnection, Failure> {
        let common = &self.common;
        let connect_failed = |error| failure::connect_failed(&resolved.address, error);
        let stream =
            common.access.connect(&resolved.address).await.map_err(|error| connect_failed(error.into()))?;
        // Time limits are set here, on each step and on connecting as a whole.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE_SIZE);
        let info = common.access.connection_info();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, stream, config).await.map_err(connect_failed)?;
        let live = LiveConnection {
            connection,
            driver: common.runtime.spawn(driver).abort_handle(),
            number: common.next_connection_number(),
            epoch: resolved.epoch,
            last_reply: AtomicU64::new(clock::now().as_micros()),
            suspect: AtomicBool::new(false),
        };
        if self.purpose != Purpose::Discovery
            && let Some(role) =
                self.run_setup(&live, &[redis::cmd("ROLE")]).await.map_err(connect_failed)?.first()
        {
            failure::check_master(&resolved.address, role)?;
        }
        self.run_setup(&live, &self.setup_commands()).await.map_err(connect_failed)?;
        Ok(live)
    }

    /// Sends setup commands on a new connection.
    ///
    /// Error replies are left out, unless one breaks the connection or requires a login. A user without permission to
    /// load scripts can still run them by their text, and one without permission for `ROLE` gets an error from a replica
    /// later.
    async fn run_setup(&self, live: &LiveConnection, cmds: &[Cmd]) -> RedisResult<Vec<Value>> {
        let replies =
            join_all(cmds.iter().map(|cmd| send_command(live.connection.clone(), cmd, false))).await;
        let is_tolerated =
            |error: &RedisError| !failure::breaks_connection(error) && !failure::is_unauthenticated(error);
        let replies = replies.into_iter().map(|reply| reply.and_then(Value::extract_error));
        replies.filter(|reply| !matches!(reply, Err(error) if is_tolerated(error))).collect()
    }

    /// The commands that set up a new connection, once the role of the server is checked.
    fn setup_commands(&self) -> Vec<Cmd> {
        let mut cmds = Vec::new();
        if let Some(name) = &self.common.access.client_name {
            let mut cmd = redis::cmd("CLIENT");
            cmd.arg("SETNAME").arg(name);
            cmds.push(cmd);
        }
        if self.purpose == Purpose::Scripts {
            cmds.extend(scripts::all().map(|script| {
                let mut cmd = redis::cmd("SCRIPT");
                cmd.arg("LOAD").arg(&script.text_for(self.common.server_mode).text);
                cmd
            }));
        }
        cmds
    }

    /// Returns the live connection, unless its endpoint has moved.
    fn current(&self) -> Option<Arc<LiveConnection>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| !self.endpoint.has_moved_since(live.epoch))
    }

    /// Closes a live connection, unless it was replaced already.
    fn close(&self, broken: &LiveConnection) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.number == broken.number) {
            *live = None;
            tracing::warn!(connection = broken.number, endpoint = %self.endpoint, "connection lost");
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("endpoint", &self.endpoint.to_string()).finish_non_exhaustive()
    }
}

/// Sends one command and waits for its reply.
async fn send_command(mut connection: MultiplexedConnection, cmd: &Cmd, asking: bool) -> RedisResult<Value> {
    if asking {
        Box::pin(send_asking(connection, cmd)).await
    } else {
        connection.send_packed_command(cmd).await
    }
}

/// Sends one command after `ASKING`, to a node that a slot is moving to.
async fn send_asking(mut connection: MultiplexedConnection, cmd: &Cmd) -> RedisResult<Value> {
    // In one pipeline: `ASKING` applies to the next command of the connection only.
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(cmd.clone());
    let replies = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(replies.into_iter().next().unwrap_or(Value::Nil))
}
