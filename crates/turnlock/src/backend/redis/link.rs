use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Arg, AsyncConnectionConfig, Cmd, RedisError, ToRedisArgs, Value};
use turnlock_core::{LockName, Moment};

use super::failure;
use super::scripts::{self, Script};
use crate::backend::{Answer, Failure, FailureKind, Sent, Signals};
use crate::clock;

/// The connection for commands: one at a time, shared by all callers, made anew when it breaks.
///
/// It never sends a request twice by itself. Each connection has a number, so that those who care for the order of
/// requests know which of them went the same way.
pub(super) struct Link {
    client: redis::Client,
    connect_limit: Duration,
    wire: Mutex<Option<Arc<Wire>>>,
    /// Held while a connection is being made, so that only one is. When the last try failed, and how: those who waited for
    /// it have their answer, and do not try one after the other.
    dialling: tokio::sync::Mutex<Option<(Moment, Failure)>>,
    dialled: AtomicU64,
    pub(super) signals: OnceLock<Weak<dyn Signals>>,
}

/// What became of a request.
enum Outcome {
    Answered(Value, Sent),
    /// The server answered with an error: nothing was done.
    Refused(RedisError),
    /// It left, and nobody knows.
    Unanswered(Failure),
}

struct Wire {
    connection: MultiplexedConnection,
    number: u64,
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

impl Wire {
    fn is_suspect(&self) -> bool {
        let last_answer = Moment::from_micros(self.last_answer.load(Ordering::Relaxed));
        self.suspect.load(Ordering::Relaxed) || clock::now().since(last_answer) > SILENCE
    }
}

impl Link {
    pub(super) fn new(client: redis::Client, connect_limit: Duration) -> Self {
        Self {
            client,
            connect_limit,
            wire: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(None),
            dialled: AtomicU64::new(0),
            signals: OnceLock::new(),
        }
    }

    /// Makes sure that there is a connection.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.wire().await.map(drop)
    }

    /// Runs a script. Waits for the answer for `limit` at the most, not counting the time to connect.
    pub(super) async fn run(&self, call: ScriptCall, limit: Duration) -> Result<Answer<Value>, Failure> {
        let wire = self.wire().await?;
        let mut outcome = self.send(&wire, &call.cmd, limit).await;
        if matches!(&outcome, Outcome::Refused(error) if failure::is_unknown_script(error)) {
            // The server forgot its scripts (SCRIPT FLUSH, a restart). It did nothing, so this is no resend.
            outcome = self.send(&wire, &call.by_text(), limit).await;
        }
        match outcome {
            Outcome::Answered(value, sent) => Ok(Answer { value, sent }),
            Outcome::Refused(error) if failure::is_wrong_type(&error) => {
                Err(self.foreign_key(&wire, &call, limit).await)
            }
            Outcome::Refused(error) if error.code() == Some("CORRUPT") => {
                let found = error.detail().unwrap_or("something else").to_owned();
                Err(Failure::refused(FailureKind::Corrupt { key: call.lock.key().to_owned(), found }))
            }
            Outcome::Refused(error) => Err(failure::from_error(error, None)),
            Outcome::Unanswered(failure) => Err(failure),
        }
    }

    /// Sends one request.
    async fn send(&self, wire: &Wire, cmd: &Cmd, limit: Duration) -> Outcome {
        let sent = Sent { connection: wire.number, at: clock::now() };
        let mut connection = wire.connection.clone();
        let answer = tokio::time::timeout(limit, connection.send_packed_command(cmd)).await;
        let Ok(answer) = answer else {
            // Where others are being answered, the connection lives and one request was slow. Where nobody is, the
            // other side may be gone without a word, and a new connection is the way to find out.
            if wire.last_answer.load(Ordering::Relaxed) < sent.at.as_micros() {
                self.hang_up(wire);
            }
            return Outcome::Unanswered(failure::timed_out("answer", limit, Some(sent)));
        };
        match answer.and_then(Value::extract_error) {
            Ok(value) => {
                wire.last_answer.store(clock::now().as_micros(), Ordering::Relaxed);
                Outcome::Answered(value, sent)
            }
            Err(error) => {
                if failure::breaks_connection(&error) {
                    self.hang_up(wire);
                } else {
                    wire.last_answer.store(clock::now().as_micros(), Ordering::Relaxed);
                }
                match error {
                    error if failure::is_answer(&error) => Outcome::Refused(error),
                    error => Outcome::Unanswered(failure::from_error(error, Some(sent))),
                }
            }
        }
    }

    async fn foreign_key(&self, wire: &Wire, call: &ScriptCall, limit: Duration) -> Failure {
        let key = call.lock.key().to_owned();
        let mut cmd = redis::cmd("TYPE");
        cmd.arg(&key);
        let found = match self.send(wire, &cmd, limit).await {
            Outcome::Answered(Value::SimpleString(kind), _) => format!("a value of type {kind}"),
            _ => "a value of another type".to_owned(),
        };
        Failure::refused(FailureKind::Corrupt { key, found })
    }

    async fn wire(&self) -> Result<Arc<Wire>, Failure> {
        if let Some(wire) = self.current().filter(|wire| !wire.is_suspect()) {
            return Ok(wire);
        }
        let asked = clock::now();
        let mut last_failure = self.dialling.lock().await;
        if let Some(wire) = self.current() {
            if !wire.is_suspect() || self.is_alive(&wire).await {
                return Ok(wire);
            }
            self.hang_up(&wire);
        }
        if let Some((_, failure)) = last_failure.as_ref().filter(|(when, _)| *when > asked) {
            return Err(failure.clone());
        }
        let dialled = self.new_wire().await;
        *last_failure = dialled.as_ref().err().map(|failure| (clock::now(), failure.clone()));
        dialled
    }

    async fn new_wire(&self) -> Result<Arc<Wire>, Failure> {
        let number = self.dialled.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = match tokio::time::timeout(self.connect_limit, self.dial()).await {
            Ok(dialled) => dialled.map_err(|error| failure::from_error(error, None))?,
            Err(_) => return Err(failure::timed_out("connection", self.connect_limit, None)),
        };
        let wire = Wire {
            connection,
            number,
            last_answer: AtomicU64::new(clock::now().as_micros()),
            suspect: AtomicBool::new(false),
        };
        let wire = Arc::new(wire);
        *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&wire));
        if number > 1 {
            tracing::info!(connection = number, "connected again");
            if let Some(signals) = self.signals.get().and_then(Weak::upgrade) {
                signals.connection_changed();
            }
        }
        Ok(wire)
    }

    /// Asks a connection that was not used for a while whether it is there. A request that is lost on a dead one would be in
    /// doubt, and this one does no harm.
    async fn is_alive(&self, wire: &Wire) -> bool {
        wire.suspect.store(false, Ordering::Relaxed);
        let outcome = self.send(wire, &redis::cmd("PING"), self.connect_limit.min(PING_LIMIT)).await;
        matches!(outcome, Outcome::Answered(..) | Outcome::Refused(_))
    }

    /// Something happened that may have cost the connection.
    pub(super) fn suspect(&self) {
        if let Some(wire) = self.current() {
            wire.suspect.store(true, Ordering::Relaxed);
        }
    }

    async fn dial(&self) -> Result<MultiplexedConnection, RedisError> {
        // The limits are ours: on a step, and on the whole of connecting.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let load = |script: &Script| {
            let mut cmd = redis::cmd("SCRIPT");
            cmd.arg("LOAD").arg(script.text);
            let mut connection = connection.clone();
            async move { cmd.query_async::<()>(&mut connection).await }
        };
        for outcome in join_all(scripts::all().map(load)).await {
            // A user who may not load scripts can still run them by their text.
            if let Err(error) = outcome
                && (failure::breaks_connection(&error) || failure::is_unauthenticated(&error))
            {
                return Err(error);
            }
        }
        Ok(connection)
    }

    fn current(&self) -> Option<Arc<Wire>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up a connection, unless it was replaced meanwhile.
    fn hang_up(&self, broken: &Wire) {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        if wire.as_ref().is_some_and(|wire| wire.number == broken.number) {
            *wire = None;
            tracing::warn!(connection = broken.number, "connection lost");
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.client.get_connection_info().addr().to_string())
            .finish_non_exhaustive()
    }
}

/// A script with its keys and arguments, ready to be sent by its hash.
pub(super) struct ScriptCall {
    script: &'static Script,
    cmd: Cmd,
    /// The first key, to be named in errors.
    lock: LockName,
}

impl ScriptCall {
    /// A call on the key of the name. Arguments follow with [`arg`](ScriptCall::arg).
    pub(super) fn on(script: &'static Script, lock: &LockName) -> Self {
        let mut call = Self { script, cmd: Cmd::with_capacity(8, 256), lock: lock.clone() };
        call.cmd.arg("EVALSHA").arg(&script.hash).arg(1).arg(lock.key());
        call
    }

    /// A call on the key of the name and others beside it.
    pub(super) fn on_all(script: &'static Script, lock: &LockName, beside: &[&str]) -> Self {
        let mut call = Self { script, cmd: Cmd::with_capacity(8 + beside.len(), 512), lock: lock.clone() };
        call.cmd.arg("EVALSHA").arg(&script.hash).arg(1 + beside.len()).arg(lock.key()).arg(beside);
        call
    }

    /// A call on the keys of many names; `keys` are all of them, and `first` is the name of the first.
    pub(super) fn on_many(script: &'static Script, first: &LockName, keys: &[impl ToRedisArgs]) -> Self {
        let mut call = Self { script, cmd: redis::cmd("EVALSHA"), lock: first.clone() };
        call.cmd.arg(&script.hash).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// The same call with the text of the script in place of its hash.
    fn by_text(&self) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.script.text);
        for arg in self.cmd.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        }
        cmd
    }
}
