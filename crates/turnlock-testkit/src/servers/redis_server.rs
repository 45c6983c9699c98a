//! A Redis server for one test.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};
use tokio::time::Instant;

use super::{clock_shim, socket};
use crate::servers::process::Process;
use crate::servers::server_config::ServerConfig;
use crate::temp_dir::TempDir;
use crate::{Calls, Login, ServerProgram, within};

/// The limit for a start, a stop or a reply of the server.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to sleep between two probes of a starting server.
const POLL: Duration = Duration::from_millis(5);
/// The limit for one probe. If another process has the port, it may never reply, while the server has exited.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How many ports to try. A server with bad arguments exits on each of them.
const PORTS: usize = 5;
/// The ports for servers: below the ephemeral ports of common systems.
const PORT_RANGE: Range<u16> = 10_240..32_768;

/// A `redis-server` process on a loopback port, with its own temporary directory and without persistence.
///
/// Dropping it kills the process, waits until it has exited and removes the directory.
#[derive(Debug)]
pub struct RedisServer {
    /// `None` while stopped.
    process: Option<Process>,
    port: u16,
    /// The second port, if the configuration has one.
    second_port: u16,
    config: ServerConfig,
    /// Dropped last: a running server could write to it.
    dir: TempDir,
}

impl RedisServer {
    /// Returns the reason why `redis-server` cannot run on this machine; `None` if it can.
    pub fn missing() -> Option<String> {
        ServerProgram::Installed.missing()
    }

    /// Starts a server and returns once it replies.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further arguments after the default ones.
    ///
    /// Panics with the server's log if it does not reply within 10 s or exits on each port that is tried.
    pub async fn start_with(args: &[&str]) -> Self {
        Self::start_as(ServerConfig::with_args(args)).await
    }

    /// Starts a server of this program.
    pub async fn start_of(program: ServerProgram) -> Self {
        Self::start_as(ServerConfig { program, ..ServerConfig::default() }).await
    }

    /// Starts a server with this user only, with further arguments.
    pub async fn start_for(login: &Login, args: &[&str]) -> Self {
        Self::start_as(ServerConfig { login: Some(login.clone()), ..ServerConfig::with_args(args) }).await
    }

    /// Returns the reason why clocks cannot be shifted on this machine; `None` if they can.
    pub fn clock_shift_missing() -> Option<String> {
        clock_shim::missing()
    }

    /// Starts a server whose wall clock is `seconds` ahead of this machine's; negative if behind.
    pub async fn start_with_clock_ahead(seconds: i64) -> Self {
        Self::start_as(ServerConfig { clock_ahead: Some(seconds), ..ServerConfig::default() }).await
    }

    /// Starts a server with further arguments whose wall clock can be [set](Self::set_clock_ahead).
    pub async fn start_with_clock(args: &[&str]) -> Self {
        Self::start_as(ServerConfig { clock_ahead: Some(0), ..ServerConfig::with_args(args) }).await
    }

    /// Sets the wall clock to `seconds` ahead of this machine's, also after restarts.
    ///
    /// The server must have been started with [`start_with_clock_ahead`](Self::start_with_clock_ahead) or
    /// [`start_with_clock`](Self::start_with_clock).
    pub fn set_clock_ahead(&mut self, seconds: i64) {
        assert!(self.config.clock_ahead.is_some(), "the server was not started with a shifted clock");
        self.config.clock_ahead = Some(seconds);
        ServerConfig::set_clock(self.dir.path(), seconds);
    }

    /// Starts a server with this configuration and returns once it replies.
    pub(crate) async fn start_as(config: ServerConfig) -> Self {
        let mut server = Self { process: None, port: 0, second_port: 0, config, dir: TempDir::new() };
        for _ in 0..PORTS {
            (server.port, server.second_port) = (free_port(), free_port());
            if server.launch(Instant::now() + LIMIT).await {
                if let Some(expected) = server.config.program.version() {
                    assert_eq!(server.version().await, expected, "the expected version");
                }
                return server;
            }
        }
        panic!("redis-server exited {PORTS} times while starting; its log:\n{}", server.log());
    }

    /// Returns the product and version from `INFO`: `Redis 7.0.15`.
    pub async fn version(&self) -> String {
        let info: String = self.query(&["INFO", "server"]).await.expect("INFO has the version");
        // Valkey also reports the version of Redis that it is compatible with.
        let products = [("Valkey", "valkey_version:"), ("Redis", "redis_version:")];
        let version = products.iter().find_map(|(product, field)| {
            info.lines().find_map(|line| Some(format!("{product} {}", line.strip_prefix(field)?)))
        });
        version.expect("INFO has the version")
    }

    /// Returns the URL: `redis://127.0.0.1:PORT`, with the user and password if there are any.
    pub fn url(&self) -> String {
        let login = self.config.login.as_ref().map(Login::userinfo).unwrap_or_default();
        format!("redis://{login}{}", self.addr())
    }

    /// Returns the port, which stays the same after restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the socket address, which stays the same after restarts.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the second port of a server that has one.
    pub(crate) fn second_port(&self) -> u16 {
        self.second_port
    }

    /// Returns the id of the server's process. Panics if the server is stopped.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Returns `true` unless the server is stopped. A paused server is running.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Opens a plain connection, for reading and writing keys. Connecting and each reply may take 10 s.
    pub async fn client(&self) -> MultiplexedConnection {
        self.connect(LIMIT).await.expect("the server accepts a plain connection")
    }

    /// Sends one command on a new connection and returns the reply.
    ///
    /// The reply may take 10 s.
    pub async fn query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        self.query_within(LIMIT, words).await
    }

    /// Sends one command with a short limit, to a server that may not reply.
    pub(crate) async fn probe<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        self.query_within(PROBE_LIMIT, words).await
    }

    async fn query_within<T: FromRedisValue>(&self, limit: Duration, words: &[&str]) -> RedisResult<T> {
        let (first, rest) = words.split_first().expect("a command has a name");
        redis::cmd(first).arg(rest).query_async(&mut self.connect(limit).await?).await
    }

    async fn connect(&self, limit: Duration) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let client = redis::Client::open(self.url()).expect("the server's URL is valid");
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Kills the server (SIGKILL) and returns once the process has exited. Does nothing if it is stopped.
    pub async fn stop(&mut self) {
        let process = self.process.take();
        // Dropping blocks; and in its own task it completes even if the caller is cancelled.
        let ended = tokio::task::spawn_blocking(move || drop(process));
        ended.await.expect("the server can be killed");
    }

    /// Stops the server if it runs, and starts it again on the same port.
    ///
    /// Returns once it replies. The data is lost, unless the arguments make the server persistent.
    pub async fn restart(&mut self) {
        self.stop().await;
        let deadline = Instant::now() + LIMIT;
        // An outgoing connection may have used the port for a moment while the server was stopped.
        while !self.launch(deadline).await {
            assert!(
                Instant::now() < deadline,
                "redis-server exits repeatedly on port {}; its log:\n{}",
                self.port,
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Restarts the server with other arguments after the default ones, also for later restarts.
    pub async fn restart_with(&mut self, args: Vec<String>) {
        self.config.args = args;
        self.restart().await;
    }

    /// Pauses the server (SIGSTOP): connections stay open, there are no replies.
    ///
    /// On Linux the process is stopped when this returns.
    pub fn pause(&self) {
        self.process().signal("-STOP");
        let start = std::time::Instant::now();
        // The signal may not have taken effect yet; without /proc that cannot be determined.
        while let Some(false) = self.process().is_stopped() {
            assert!(start.elapsed() < LIMIT, "redis-server did not stop within {LIMIT:?}");
            std::thread::yield_now();
        }
    }

    /// Resumes a paused server (SIGCONT). It then handles what has arrived meanwhile.
    pub fn resume(&self) {
        self.process().signal("-CONT");
    }

    /// Returns how often the server has run each command since it started.
    ///
    /// Adds one call of `info`, which only the next result includes.
    pub async fn calls(&self) -> Calls {
        let info = within(LIMIT, "INFO commandstats", socket::query(self.addr(), "INFO commandstats")).await;
        Calls::parse(&info.expect("INFO has the command counts"))
    }

    /// Starts the process on the chosen port and waits for its first reply. `false` if it exits.
    async fn launch(&mut self, deadline: Instant) -> bool {
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.expect("the server's log can be opened");
        let mut command = self.config.command(self.dir.path(), self.port, self.second_port);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the server's log can be shared"))
            .stderr(log);
        let mut process = Process::spawn(&mut command);
        loop {
            if process.has_exited() {
                return false;
            }
            if self.is_serving(process.id()).await {
                self.process = Some(process);
                return true;
            }
            assert!(
                Instant::now() < deadline,
                "redis-server did not reply within {LIMIT:?}; its log:\n{}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns `true` if the process with this id replies at the server's address.
    async fn is_serving(&self, pid: u32) -> bool {
        // Another test's server that got the port first would also reply to a PING.
        let is_process = |info: &str| info.lines().any(|line| line == format!("process_id:{pid}"));
        if self.config.login.is_some() {
            return self.probe::<String>(&["INFO", "server"]).await.is_ok_and(|info| is_process(&info));
        }
        match tokio::time::timeout(PROBE_LIMIT, socket::query(self.addr(), "INFO server")).await {
            Ok(Ok(info)) => is_process(&info),
            // A server with a password in its arguments refuses INFO; its own log shows that it is ready.
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

/// Returns a loopback port that is free now and outside the system's ephemeral range.
fn free_port() -> u16 {
    // Port 0 would give an ephemeral port. An outgoing connection or the listener of another test could get
    // the same port before the server binds it, or while the server is stopped for a restart.
    let random = RandomState::new();
    let mut ports = (0_u64..1000).map(|n| {
        let offset = random.hash_one(n) % u64::from(PORT_RANGE.end - PORT_RANGE.start);
        PORT_RANGE.start + u16::try_from(offset).expect("an offset within the range of ports")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("a loopback port is free")
}
