//! A Redis server of its own for one test.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};
use tokio::time::Instant;

use crate::port::free_port;
use crate::process::Process;
use crate::server_plan::ServerPlan;
use crate::temp_dir::TempDir;
use crate::{Calls, Login, ServerProgram, clock_shim, wire, within};

/// How long anything that the server is asked to do may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to rest between two looks at a server that is starting.
const POLL: Duration = Duration::from_millis(5);
/// How long one look may take: whoever else has the port may never answer, and the server has exited meanwhile.
const PROBE: Duration = Duration::from_secs(1);
/// How many ports to try; a server that dislikes its arguments exits early on each of them.
const PORTS: usize = 5;

/// A `redis-server` process on a loopback port, with its own temporary directory and without persistence.
///
/// Dropping it kills the process, waits for its end and removes the directory.
#[derive(Debug)]
pub struct RedisServer {
    /// `None` while stopped.
    process: Option<Process>,
    port: u16,
    /// What the plan's second port is; meaningless where it has none.
    second_port: u16,
    plan: ServerPlan,
    /// Goes last: a server that still runs could write to it.
    dir: TempDir,
}

impl RedisServer {
    /// Why `redis-server` cannot be run on this machine, or `None` when it can.
    pub fn missing() -> Option<String> {
        ServerProgram::Installed.missing()
    }

    /// Starts a server and returns once it answers.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further arguments after the usual ones, and returns once it answers.
    ///
    /// Panics with the server's log when it does not answer within 10 s or exits on each port that was tried.
    pub async fn start_with(args: &[&str]) -> Self {
        Self::start_as(ServerPlan::with_args(args)).await
    }

    /// Starts a server of this program and returns once it answers.
    pub async fn start_of(program: ServerProgram) -> Self {
        Self::start_as(ServerPlan { program, ..ServerPlan::default() }).await
    }

    /// Starts a server that only this user may use, with further arguments, and returns once it answers.
    pub async fn start_for(login: &Login, args: &[&str]) -> Self {
        Self::start_as(ServerPlan { login: Some(login.clone()), ..ServerPlan::with_args(args) }).await
    }

    /// Why no server with a wrong clock can be started on this machine, or `None` when one can.
    pub fn clock_shift_missing() -> Option<String> {
        clock_shim::missing()
    }

    /// Starts a server whose wall clock is `seconds` ahead of this machine's, or behind it.
    pub async fn start_with_clock_ahead(seconds: i64) -> Self {
        Self::start_as(ServerPlan { clock_ahead: Some(seconds), ..ServerPlan::default() }).await
    }

    /// Steps the wall clock of a server that was [started with its own](Self::start_with_clock_ahead): it is `seconds` ahead of
    /// this machine's from now on, also over restarts.
    pub fn set_clock_ahead(&mut self, seconds: i64) {
        assert!(self.plan.clock_ahead.is_some(), "the server has no clock of its own");
        self.plan.clock_ahead = Some(seconds);
        ServerPlan::set_clock(self.dir.path(), seconds);
    }

    /// Starts a server by a plan and returns once it answers.
    pub(crate) async fn start_as(plan: ServerPlan) -> Self {
        let mut server = Self { process: None, port: 0, second_port: 0, plan, dir: TempDir::new() };
        for _ in 0..PORTS {
            (server.port, server.second_port) = (free_port(), free_port());
            if server.launch(Instant::now() + LIMIT).await {
                if let Some(expected) = server.plan.program.version() {
                    assert_eq!(server.version().await, expected, "the version that was asked for");
                }
                return server;
            }
        }
        panic!("redis-server exited {PORTS} times while starting; its log:\n{}", server.log());
    }

    /// The version that it says it has, with the maker's name before it: `Redis 7.0.15`.
    pub async fn version(&self) -> String {
        let info: String = self.ask(&["INFO", "server"]).await.expect("the server tells its version");
        // Valkey also names the version of Redis whose commands it has.
        let makers = [("Valkey", "valkey_version:"), ("Redis", "redis_version:")];
        let said = makers.iter().find_map(|(maker, field)| {
            info.lines().find_map(|line| Some(format!("{maker} {}", line.strip_prefix(field)?)))
        });
        said.expect("the server tells its version")
    }

    /// The address as clients of Redis take it: `redis://127.0.0.1:PORT`, with the user and password if it has some.
    pub fn url(&self) -> String {
        let login = self.plan.login.as_ref().map(Login::in_address).unwrap_or_default();
        format!("redis://{login}{}", self.addr())
    }

    /// The port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket address, which stays the same over restarts.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The other port of a server that was started with one.
    pub(crate) fn second_port(&self) -> u16 {
        self.second_port
    }

    /// The id of the server's process. Panics while the server is stopped.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Whether it was started and not stopped since; a paused one runs too.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// A new plain connection for looking at keys; its connecting and each reply may take 10 s.
    pub async fn client(&self) -> MultiplexedConnection {
        self.connect(LIMIT).await.expect("the server accepts a plain connection")
    }

    /// Sends one command over a connection of its own and gives back the answer, which may take 10 s.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        self.ask_within(LIMIT, words).await
    }

    /// The same for one of many looks at a server that perhaps never answers.
    pub(crate) async fn look<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        self.ask_within(PROBE, words).await
    }

    async fn ask_within<T: FromRedisValue>(&self, limit: Duration, words: &[&str]) -> RedisResult<T> {
        let (first, rest) = words.split_first().expect("a command has a name");
        redis::cmd(first).arg(rest).query_async(&mut self.connect(limit).await?).await
    }

    async fn connect(&self, limit: Duration) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let client = redis::Client::open(self.url()).expect("the server's address is well formed");
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Kills the server (SIGKILL) and returns once the process has ended. Does nothing while it is stopped.
    pub async fn stop(&mut self) {
        let process = self.process.take();
        // A task of its own, since this waits, and finishes the work even when the caller gives up.
        let ended = tokio::task::spawn_blocking(move || drop(process));
        ended.await.expect("the server can be killed");
    }

    /// Stops the server if it runs, starts it again on the same port and returns once it answers.
    ///
    /// The data is gone, unless the server was started with arguments that make it persistent.
    pub async fn restart(&mut self) {
        self.stop().await;
        let deadline = Instant::now() + LIMIT;
        // While the server was away, somebody's outgoing connection may have borrowed the port for a moment.
        while !self.launch(deadline).await {
            assert!(
                Instant::now() < deadline,
                "redis-server kept exiting on port {}; its log:\n{}",
                self.port,
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// The same with other arguments from now on.
    pub(crate) async fn restart_with(&mut self, args: Vec<String>) {
        self.plan.args = args;
        self.restart().await;
    }

    /// Freezes the server (SIGSTOP): connections stay open, nothing is answered.
    ///
    /// On Linux the server has stopped running when this returns.
    pub fn pause(&self) {
        self.process().signal("-STOP");
        let begun = std::time::Instant::now();
        // The signal is sent but perhaps not yet acted on; without /proc there is no way to tell.
        while let Some(false) = self.process().is_frozen() {
            assert!(begun.elapsed() < LIMIT, "redis-server did not freeze within {LIMIT:?}");
            std::thread::yield_now();
        }
    }

    /// Lets a paused server go on (SIGCONT); it then handles what has arrived meanwhile.
    pub fn resume(&self) {
        self.process().signal("-CONT");
    }

    /// How often the server has run each command since it started.
    ///
    /// Asking adds one call of `info` (seen only by the next asking) and of nothing else.
    pub async fn calls(&self) -> Calls {
        let info = within(LIMIT, "INFO commandstats", wire::ask(self.addr(), "INFO commandstats")).await;
        Calls::parse(&info.expect("the server tells its command counts"))
    }

    /// Starts the process on the chosen port and waits for its first answer; false if it exited instead.
    async fn launch(&mut self, deadline: Instant) -> bool {
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.expect("the server's log can be opened");
        let mut command = self.plan.command(self.dir.path(), self.port, self.second_port);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the server's log can be shared"))
            .stderr(log);
        let mut process = Process::spawn(&mut command);
        loop {
            if process.has_exited() {
                return false;
            }
            if self.answers(process.id()).await {
                self.process = Some(process);
                return true;
            }
            assert!(
                Instant::now() < deadline,
                "redis-server did not answer within {LIMIT:?}; its log:\n{}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether it is this server's process, with the given id, that answers at the address.
    async fn answers(&self, pid: u32) -> bool {
        // A bare PING would also be answered by another test's server that got the port first.
        let is_it = |info: &str| info.lines().any(|line| line == format!("process_id:{pid}"));
        if self.plan.login.is_some() {
            return self.look::<String>(&["INFO", "server"]).await.is_ok_and(|info| is_it(&info));
        }
        match tokio::time::timeout(PROBE, wire::ask(self.addr(), "INFO server")).await {
            Ok(Ok(info)) => is_it(&info),
            // A server whose arguments ask for a password does not tell who it is; but this one's log tells what it did.
            Ok(Err(error)) => {
                error.to_string().starts_with("-NOAUTH") && self.log().contains("Ready to accept connections")
            }
            Err(_) => false,
        }
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server is running")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_else(|error| format!("(no log: {error})"))
    }
}
