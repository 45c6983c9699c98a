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
use super::failure;
use super::place::{Place, Stay};
use super::script_call::ScriptCall;
use super::scripts;
use crate::backend::{Failure, Sent};
use crate::clock;

/// A connection for commands: one at a time, shared by all callers, made anew when it breaks.
///
/// It never sends a request twice by itself. Each connection has a number, so that those who care for the order of
/// requests know which of them went the same way.
pub(super) struct Link {
    pub(super) common: Arc<Common>,
    place: Place,
    purpose: Purpose,
    wire: Mutex<Option<Arc<Wire>>>,
    /// The latest attempt to make a connection. All who need one wait for the same attempt.
    dialling: Mutex<Option<Dialling>>,
    was_connected: AtomicBool,
    /// Whether the last connection led to a server that has become a replica.
    was_replica: AtomicBool,
    left_replica: Notify,
}

/// An attempt to make a connection, by a task of its own: it goes on when those who wait for it give up.
struct Dialling {
    task: AbortHandle,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Locks: the server must be a master. The scripts are loaded.
    Scripts,
    /// The same, beside a connection that has loaded the scripts.
    Beside,
    /// Questions about the set-up, which any server answers.
    Inquiry,
}

/// What became of a request.
#[derive(Clone)]
pub(super) enum Outcome {
    Answered(Value, Sent),
    /// The server answered with an error: nothing was done.
    Refused(RedisError),
    /// It left, and nobody knows.
    Unanswered(Failure),
}

pub(super) struct Wire {
    connection: MultiplexedConnection,
    /// What moves the bytes; ends with the last one who uses the connection.
    driver: AbortHandle,
    number: u64,
    /// When the place was found where this leads to.
    epoch: u64,
    /// When the last answer came, in microseconds of our clock.
    last_answer: AtomicU64,
    /// Whether something happened that may have cost the connection.
    suspect: AtomicBool,
}

/// How long a connection may be silent before it is asked whether it is there: idle ones are closed by servers,
/// firewalls and the like.
const SILENCE: Duration = Duration::from_secs(10);

/// How long it has to answer.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// How often a server is asked whether it is still a master.
const ROLE_PERIOD: Duration = Duration::from_secs(3);

/// How many requests may wait to be written. More than any sender sends at once: behind a full queue, requests of one
/// sender can overtake each other.
const QUEUE: usize = 1024;

impl Wire {
    /// For a request that is sent on it now.
    pub(super) fn sends_now(&self) -> Sent {
        Sent { connection: self.number, at: clock::now() }
    }

    fn is_suspect(&self) -> bool {
        let last_answer = Moment::from_micros(self.last_answer.load(Ordering::Relaxed));
        self.suspect.load(Ordering::Relaxed) || clock::now().since(last_answer) > SILENCE
    }

    fn has_answered(&self) {
        self.last_answer.store(clock::now().as_micros(), Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    pub(super) fn new(common: &Arc<Common>, place: Place, purpose: Purpose) -> Self {
        Self {
            common: Arc::clone(common),
            place,
            purpose,
            wire: Mutex::new(None),
            dialling: Mutex::new(None),
            was_connected: AtomicBool::new(false),
            was_replica: AtomicBool::new(false),
            left_replica: Notify::new(),
        }
    }

    /// Runs a script. Waits for a connection for `limit` at the most, and then for the answer for `limit`. With `asking`, the
    /// node is told that it was named by another, from which the slot is moving to it.
    pub(super) async fn ask(
        self: &Arc<Self>,
        call: &ScriptCall,
        asking: bool,
        limit: Duration,
    ) -> Result<Outcome, Failure> {
        let wire = self.wire_within(limit).await?;
        let dialect = self.common.dialect;
        let outcome = self.send(&wire, &call.by_hash(dialect), asking, limit).await;
        if matches!(&outcome, Outcome::Refused(error) if failure::is_unknown_script(error)) {
            // The server forgot its scripts (SCRIPT FLUSH, a restart). It did nothing, so this is no resend.
            return Ok(self.send(&wire, &call.by_text(dialect), asking, limit).await);
        }
        Ok(outcome)
    }

    /// Sends a command that is no script. The limit is as for [`ask`](Link::ask).
    pub(super) async fn command(self: &Arc<Self>, cmd: &Cmd, limit: Duration) -> Result<Outcome, Failure> {
        let wire = self.wire_within(limit).await?;
        Ok(self.send(&wire, cmd, false, limit).await)
    }

    /// Sends one request.
    pub(super) async fn send(&self, wire: &Wire, cmd: &Cmd, asking: bool, limit: Duration) -> Outcome {
        let sent = wire.sends_now();
        match tokio::time::timeout(limit, self.answer(wire, cmd, asking, sent)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Unanswered(self.gives_up(wire, sent, limit)),
        }
    }

    /// Sends one request, which is `sent` just now, and waits for the answer without end. A list may have errors in it.
    pub(super) async fn answer(&self, wire: &Wire, cmd: &Cmd, asking: bool, sent: Sent) -> Outcome {
        self.outcome_of(exchange(wire.connection.clone(), cmd, asking), wire, sent).await
    }

    /// Sends many requests in one go, in their order. All answers are one list, which may have errors in it.
    pub(super) async fn send_all(&self, wire: &Wire, cmds: &Pipeline, limit: Duration) -> Outcome {
        let sent = wire.sends_now();
        let mut connection = wire.connection.clone();
        let exchange = async { connection.send_packed_commands(cmds, 0, cmds.len()).await.map(Value::Array) };
        match tokio::time::timeout(limit, self.outcome_of(exchange, wire, sent)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Unanswered(self.gives_up(wire, sent, limit)),
        }
    }

    /// What becomes of a request that is `sent` just now.
    async fn outcome_of(
        &self,
        exchange: impl Future<Output = RedisResult<Value>>,
        wire: &Wire,
        sent: Sent,
    ) -> Outcome {
        let answer = match &self.place {
            // Without more ado, since most requests go this way.
            Place::Fixed(_) => exchange.await,
            place @ Place::Master(_) => tokio::select! {
                answer = exchange => answer,
                // The word of one who is not the master any more: not waited for, and not listened to below.
                () = Box::pin(place.moves_on_from(wire.epoch)) => {
                    self.hang_up(wire);
                    return Outcome::Unanswered(failure::deposed(sent));
                }
            },
        };
        match answer {
            Ok(_) if self.place.has_moved_since(wire.epoch) => {
                self.hang_up(wire);
                Outcome::Unanswered(failure::deposed(sent))
            }
            Ok(Value::ServerError(error)) => self.judge(wire, error.into(), sent),
            Ok(value) => {
                wire.has_answered();
                Outcome::Answered(value, sent)
            }
            Err(error) => self.judge(wire, error, sent),
        }
    }

    /// What an error means that came over the connection, or of it.
    pub(super) fn judge(&self, wire: &Wire, error: RedisError, sent: Sent) -> Outcome {
        if failure::breaks_connection(&error) {
            self.was_replica.fetch_or(failure::is_of_replica(&error), Ordering::Relaxed);
            self.hang_up(wire);
        } else {
            wire.has_answered();
        }
        match error {
            error if failure::is_answer(&error) => Outcome::Refused(error),
            error => Outcome::Unanswered(failure::from_error(error, Some(sent))),
        }
    }

    /// What it means that a request was not answered in time.
    pub(super) fn gives_up(&self, wire: &Wire, sent: Sent, limit: Duration) -> Failure {
        // Where others are being answered, the connection lives and one request was slow. Where nobody is, the
        // other side may be gone without a word, and a new connection is the way to find out.
        if wire.last_answer.load(Ordering::Relaxed) < sent.at.as_micros() {
            self.hang_up(wire);
        }
        failure::timed_out("answer", limit, Some(sent))
    }

    /// The connection, made first if need be. Waits for as long as connecting may take.
    pub(super) async fn wire(self: &Arc<Self>) -> Result<Arc<Wire>, Failure> {
        // The attempt has limits of its own, and says more about what failed.
        self.wire_within(Duration::MAX).await
    }

    /// The connection, made first if need be. Waits for `limit` at the most; the attempt to connect goes on after that, so that
    /// the next caller finds the connection.
    pub(super) async fn wire_within(self: &Arc<Self>, limit: Duration) -> Result<Arc<Wire>, Failure> {
        match self.current().filter(|wire| !wire.is_suspect()) {
            Some(wire) => Ok(wire),
            // On the heap, as all that is rare and large, so that each request carries only what it needs.
            None => Box::pin(self.wire_anew(limit)).await,
        }
    }

    async fn wire_anew(self: &Arc<Self>, limit: Duration) -> Result<Arc<Wire>, Failure> {
        let dialled = tokio::time::timeout(limit, self.dialling()).await;
        dialled.unwrap_or_else(|_| Err(failure::no_connection(&self.place, limit)))?;
        self.current()
            .ok_or_else(|| failure::unavailable(format!("the connection to {} was lost", self.place)))
    }

    /// The attempt to connect that is under way, or a new one.
    fn dialling(self: &Arc<Self>) -> Shared<BoxFuture<'static, Result<(), Failure>>> {
        let mut dialling = self.dialling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Dialling { outcome, .. }) = dialling.as_ref().filter(|latest| !latest.task.is_finished())
        {
            return outcome.clone();
        }
        let link = Arc::clone(self);
        // A task, since it is polled whatever becomes of the callers.
        let task = self.common.runtime.spawn(async move { link.check_or_dial().await });
        let abort_handle = task.abort_handle();
        let gone = || failure::unavailable("the runtime of the client is gone".to_owned());
        let outcome = task.map(move |joined| joined.unwrap_or_else(|_| Err(gone()))).boxed().shared();
        *dialling = Some(Dialling { task: abort_handle, outcome: outcome.clone() });
        outcome
    }

    async fn check_or_dial(&self) -> Result<(), Failure> {
        if let Some(wire) = self.current() {
            if !wire.is_suspect() || self.is_alive(&wire).await {
                return Ok(());
            }
            self.hang_up(&wire);
        }
        self.new_wire().await.map(drop)
    }

    async fn new_wire(&self) -> Result<Arc<Wire>, Failure> {
        let limit = self.common.access.connect_limit;
        let dialled = tokio::time::timeout(limit, self.dial()).await;
        let wire = Arc::new(dialled.unwrap_or_else(|_| Err(failure::no_connection(&self.place, limit)))?);
        *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&wire));
        if self.was_connected.swap(true, Ordering::Relaxed) && self.purpose == Purpose::Scripts {
            tracing::info!(connection = wire.number, place = %self.place, "connected again");
            self.common.tell(|signals| signals.server_changed());
        }
        if self.was_replica.swap(false, Ordering::Relaxed) {
            self.left_replica.notify_one();
        }
        Ok(wire)
    }

    /// Leaves the server when it has become a replica. Replicas answer requests that only read, so a client that only waits, or
    /// only looks at fixed leases, hears of that in no other way. Asks every [`ROLE_PERIOD`], without end.
    pub(super) async fn watch_role(self: &Arc<Self>) {
        if self.common.dialect.is_in_cluster() {
            // There a node that has become a replica names the new master in every answer.
            return pending().await;
        }
        loop {
            tokio::time::sleep(ROLE_PERIOD).await;
            // One that is hung up is made anew by whoever needs it, unless others must hear that it led to a replica.
            let wire = match self.current() {
                None if self.was_replica.load(Ordering::Relaxed) => self.wire().await.ok(),
                wire => wire,
            };
            let Some(wire) = wire else { continue };
            let role = redis::cmd("ROLE");
            let answer = self.answer(&wire, &role, false, wire.sends_now());
            if let Ok(Outcome::Answered(role, _)) = tokio::time::timeout(ROLE_PERIOD, answer).await
                && failure::is_role_of_replica(&role)
            {
                self.was_replica.store(true, Ordering::Relaxed);
                self.hang_up(&wire);
                let _ = self.wire().await;
            }
        }
    }

    /// Ready when this connection was made anew because the server had become a replica. Another connection to the same
    /// address may still lead there, and stay open. For one task.
    pub(super) async fn left_replica(&self) {
        self.left_replica.notified().await;
    }

    /// Asks a connection that was not used for a while whether it is there. A request that is lost on a dead one would be in
    /// doubt, and this one does no harm.
    async fn is_alive(&self, wire: &Wire) -> bool {
        wire.suspect.store(false, Ordering::Relaxed);
        let limit = self.common.access.connect_limit.min(PING_LIMIT);
        let outcome = self.send(wire, &redis::cmd("PING"), false, limit).await;
        matches!(outcome, Outcome::Answered(..) | Outcome::Refused(_))
    }

    /// Something happened that may have cost the connection.
    pub(super) fn suspect(&self) {
        if let Some(wire) = self.current() {
            wire.suspect.store(true, Ordering::Relaxed);
        }
    }

    async fn dial(&self) -> Result<Wire, Failure> {
        let stay = self.place.find().await?;
        tokio::select! {
            wire = self.enter(&stay) => wire,
            // A server that died in silence would be waited for although another one is the master by now.
            () = self.place.moves_on_from(stay.epoch) => Err(failure::moved_on(&self.place, &stay.address)),
        }
    }

    async fn enter(&self, stay: &Stay) -> Result<Wire, Failure> {
        let common = &self.common;
        let at = |error| failure::not_let_in(&stay.address, error);
        let stream = common.access.dial(&stay.address).await.map_err(|error| at(error.into()))?;
        // The limits are ours: on a step, and on the whole of connecting.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let login = common.access.login();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&login, stream, config).await.map_err(at)?;
        let wire = Wire {
            connection,
            driver: common.runtime.spawn(driver).abort_handle(),
            number: common.next_number(),
            epoch: stay.epoch,
            last_answer: AtomicU64::new(clock::now().as_micros()),
            suspect: AtomicBool::new(false),
        };
        if self.purpose != Purpose::Inquiry
            && let Some(role) = self.said(&wire, &[redis::cmd("ROLE")]).await.map_err(at)?.first()
        {
            failure::check_master(&stay.address, role)?;
        }
        self.said(&wire, &self.introduction()).await.map_err(at)?;
        Ok(wire)
    }

    /// Says something on a new connection. The answers, without refusals: a user who may not load scripts can still run
    /// them by their text, and one who may not ask for a role finds out later.
    async fn said(&self, wire: &Wire, said: &[Cmd]) -> RedisResult<Vec<Value>> {
        let answers = join_all(said.iter().map(|cmd| exchange(wire.connection.clone(), cmd, false))).await;
        let is_borne =
            |error: &RedisError| !failure::breaks_connection(error) && !failure::is_unauthenticated(error);
        let answers = answers.into_iter().map(|answer| answer.and_then(Value::extract_error));
        answers.filter(|answer| !matches!(answer, Err(error) if is_borne(error))).collect()
    }

    /// What is said on a new connection to a server that is one of those we want.
    fn introduction(&self) -> Vec<Cmd> {
        let mut said = Vec::new();
        if let Some(name) = &self.common.access.client_name {
            let mut cmd = redis::cmd("CLIENT");
            cmd.arg("SETNAME").arg(name);
            said.push(cmd);
        }
        if self.purpose == Purpose::Scripts {
            said.extend(scripts::all().map(|script| {
                let mut cmd = redis::cmd("SCRIPT");
                cmd.arg("LOAD").arg(&script.spoken(self.common.dialect).text);
                cmd
            }));
        }
        said
    }

    /// The connection that is there, if it leads where it should.
    fn current(&self) -> Option<Arc<Wire>> {
        let wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wire.filter(|wire| !self.place.has_moved_since(wire.epoch))
    }

    /// Gives up a connection, unless it was replaced meanwhile.
    fn hang_up(&self, broken: &Wire) {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        if wire.as_ref().is_some_and(|wire| wire.number == broken.number) {
            *wire = None;
            tracing::warn!(connection = broken.number, place = %self.place, "connection lost");
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}

/// One question and its answer.
async fn exchange(mut connection: MultiplexedConnection, cmd: &Cmd, asking: bool) -> RedisResult<Value> {
    if asking { Box::pin(asked(connection, cmd)).await } else { connection.send_packed_command(cmd).await }
}

/// The same with a node that was named by another.
async fn asked(mut connection: MultiplexedConnection, cmd: &Cmd) -> RedisResult<Value> {
    // In one go: it counts for just the next command of the connection.
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(cmd.clone());
    let answers = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(answers.into_iter().next().unwrap_or(Value::Nil))
}
