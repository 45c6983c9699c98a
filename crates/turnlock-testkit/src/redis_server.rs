//! A Redis server of its own for one test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::port::free_port;
use crate::process::Process;
use crate::{Calls, clock_shim, wire, within};

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
    dir: PathBuf,
    args: Vec<String>,
    /// Variables of the process's environment.
    variables: Vec<(String, OsString)>,
}

impl RedisServer {
    /// Why `redis-server` cannot be run on this machine, or `None` when it can.
    pub fn missing() -> Option<String> {
        match Command::new("redis-server").arg("--version").output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("`redis-server --version` failed ({})", output.status)),
            Err(error) => Some(format!("`redis-server` cannot be run: {error}")),
        }
    }

    /// Starts a server and returns once it answers.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further arguments after the usual ones, and returns once it answers.
    ///
    /// Panics with the server's log when it does not answer within 10 s or exits on each port that was tried.
    pub async fn start_with(args: &[&str]) -> Self {
        Self::prepare(args).run().await
    }

    /// Why no server with a wrong clock can be started on this machine, or `None` when one can.
    pub fn clock_shift_missing() -> Option<String> {
        clock_shim::missing()
    }

    /// Starts a server whose wall clock is `seconds` ahead of this machine's, or behind it.
    pub async fn start_with_clock_ahead(seconds: i64) -> Self {
        let mut server = Self::prepare(&[]);
        let library = clock_shim::library();
        server.variables.push(("LD_PRELOAD".to_owned(), library.into()));
        server.variables.push((clock_shim::VARIABLE.to_owned(), seconds.to_string().into()));
        server.run().await
    }

    /// A server that is not started yet, with a directory.
    fn prepare(args: &[&str]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("turnlock-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        // An earlier process with the same id may have been killed before it could tidy up.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory for the server can be made");
        let args = args.iter().map(ToString::to_string).collect();
        Self { process: None, port: 0, dir, args, variables: Vec::new() }
    }

    async fn run(mut self) -> Self {
        for _ in 0..PORTS {
            self.port = free_port();
            if self.launch(Instant::now() + LIMIT).await {
                return self;
            }
        }
        panic!("redis-server exited {PORTS} times while starting; its log:\n{}", self.log());
    }

    /// The address as clients of Redis take it: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// The port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket address, which stays the same over restarts.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The id of the server's process. Panics while the server is stopped.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// A new plain connection for looking at keys; its connecting and each reply may take 10 s.
    pub async fn client(&self) -> MultiplexedConnection {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let client = redis::Client::open(self.url()).expect("the server's address is well formed");
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.expect("the server accepts a plain connection")
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
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
            .arg(&self.dir)
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
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
        match tokio::time::timeout(PROBE, wire::ask(self.addr(), "INFO server")).await {
            Ok(Ok(info)) => info.lines().any(|line| line == format!("process_id:{pid}")),
            // A server that wants a password does not tell who it is; but this one's log tells what it did.
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
        self.dir.join("server.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The directory goes last: a server that still runs could write to it.
        self.process = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
