//! A master and its replicas, with sentinels.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::servers::server_config::ServerConfig;
use crate::{Front, Login, Minority, RedisServer, ServerProgram};

use super::replication::Replication;
use super::sentinel_view::SentinelView;
use super::{LIMIT, POLL, until, until_found};

/// The number of servers, and of sentinels.
const SIZE: usize = 3;
/// How many sentinels must agree.
const QUORUM: usize = 2;

/// The command that shortens the sentinels' intervals, which are meant for slower networks.
const SHORT_INTERVALS: [&str; 14] = [
    "SENTINEL",
    "DEBUG",
    // How often they exchange their states.
    "PUBLISH-PERIOD",
    "200",
    "PING-PERIOD",
    "200",
    "ASK-PERIOD",
    "200",
    // A promotion closes connections. With the default of one second between two tries, a master would look
    // down.
    "MIN-LINK-RECONNECT-PERIOD",
    "50",
    // After a stall of the machine they start no fail-over for a while; half a minute by default.
    "TILT-TRIGGER",
    "400",
    "TILT-PERIOD",
    "1000",
];

/// A master with two replicas, and three sentinels that replace a failed master.
///
/// Servers are identified by number, independent of their role. Dropping the set ends all six processes.
#[derive(Debug)]
pub struct SentinelSet {
    // Dropped first, so that they start no fail-over of the servers that end.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
    /// In front of the servers, then of the sentinels. Empty if others connect to their own ports.
    fronts: Vec<Front>,
    minority: Minority,
    login: Option<Login>,
    down_after: Duration,
    /// The arguments of every server, without those that depend on its role.
    args: Vec<String>,
}

impl SentinelSet {
    /// The name of the master in the sentinels' configuration.
    pub const NAME: &str = "the-master";

    /// Returns the reason why sentinels cannot run on this machine; `None` if they can.
    pub fn missing() -> Option<String> {
        RedisServer::missing()
    }

    /// Starts all servers and sentinels.
    ///
    /// Returns once the replicas are up to date and known to all sentinels, and these know each other. A
    /// master that is unreachable for half a second is replaced.
    pub async fn start() -> Self {
        Self::start_with(Duration::from_millis(500), None, &[]).await
    }

    /// Starts a set that replaces a master after `down_after`, with further arguments for the servers.
    ///
    /// With a `login`, the servers accept only that user. The sentinels need no login.
    pub async fn start_with(down_after: Duration, login: Option<&Login>, args: &[&str]) -> Self {
        let program = ServerProgram::default();
        Self::run(program, down_after, login, args, (Vec::new(), Minority::default())).await
    }

    /// Starts a set in which clients, servers and sentinels reach each other through [`fronts`](Self::fronts).
    ///
    /// Servers and sentinels are of this program. The fronts run in the caller's runtime.
    pub async fn start_behind_fronts(program: ServerProgram, down_after: Duration) -> Self {
        let sources: Vec<_> = (0..2 * SIZE).map(source).collect();
        let minority = Minority::default();
        let mut fronts = Vec::new();
        for _ in 0..2 * SIZE {
            fronts.push(Front::start(&sources, &minority).await);
        }
        Self::run(program, down_after, None, &[], (fronts, minority)).await
    }

    async fn run(
        program: ServerProgram,
        down_after: Duration,
        login: Option<&Login>,
        args: &[&str],
        (fronts, minority): (Vec<Front>, Minority),
    ) -> Self {
        // By default the master waits five seconds for further replicas before a sync.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let args = args.iter().map(ToString::to_string).collect();
        let (sentinels, servers) = (Vec::new(), Vec::new());
        let mut set = Self { sentinels, servers, fronts, minority, login: login.cloned(), down_after, args };
        for number in 0..SIZE {
            let args = set.args_of_server(number, (number > 0).then_some(0));
            let config = ServerConfig { program, login: login.cloned(), ..ServerConfig::with_args(&args) };
            let server = RedisServer::start_as(config).await;
            set.lead_to(number, &server);
            set.servers.push(server);
        }
        set.wait_online(SIZE - 1).await;
        for number in 0..SIZE {
            let lines = set.sentinel_lines(number);
            let config = ServerConfig { program, is_sentinel: true, lines, ..ServerConfig::default() };
            let sentinel = RedisServer::start_as(config).await;
            set.lead_to(SIZE + number, &sentinel);
            set.shorten_intervals(&sentinel).await;
            set.sentinels.push(sentinel);
        }
        set.wait_settled().await;
        set
    }

    /// Returns the fronts of the servers, then those of the sentinels.
    ///
    /// The sources of each are the clients, the servers, the sentinels, and the clients of the
    /// [minority](Self::minority), in this order. Empty unless the set was started
    /// [behind fronts](Self::start_behind_fronts).
    pub fn fronts(&self) -> &[Front] {
        &self.fronts
    }

    /// Returns the processes whose clients are the last source of the fronts.
    pub fn minority(&self) -> &Minority {
        &self.minority
    }

    fn lead_to(&self, front: usize, server: &RedisServer) {
        if let Some(front) = self.fronts.get(front) {
            front.lead_to(server.port());
        }
    }

    /// Returns the port at which others know a server.
    fn known_port(&self, number: usize) -> u16 {
        self.fronts.get(number).map_or_else(|| self.servers[number].port(), Front::port)
    }

    /// Returns the URL: `redis+sentinel://HOST:PORT,HOST:PORT,HOST:PORT/NAME`.
    ///
    /// It has the user and password of the servers if there are any.
    pub fn url(&self) -> String {
        let login = self.login.as_ref().map(Login::userinfo).unwrap_or_default();
        let sentinels: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{login}{}/{}", sentinels.join(","), Self::NAME)
    }

    /// Returns the addresses of the sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        if self.fronts.is_empty() {
            return self.sentinels.iter().map(RedisServer::addr).collect();
        }
        self.fronts[SIZE..].iter().map(|front| (Ipv4Addr::LOCALHOST, front.port()).into()).collect()
    }

    /// Returns the three servers.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns a server, to stop or restart it.
    pub fn server_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// Returns the three sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns a sentinel, to stop or restart it.
    pub fn sentinel_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.sentinels[number]
    }

    /// Restarts a sentinel, which has forgotten everything then, except its id.
    pub async fn restart_sentinel(&mut self, number: usize) {
        self.sentinels[number].restart().await;
        self.shorten_intervals(&self.sentinels[number]).await;
    }

    /// Redis before 7.0 lacks the commands; everything takes a few seconds longer then.
    async fn shorten_intervals(&self, sentinel: &RedisServer) {
        let _ = sentinel.query::<()>(&SHORT_INTERVALS).await;
        if !self.fronts.is_empty() {
            // How often they look at the replicas, which change in every minute of a campaign.
            let _ = sentinel.query::<()>(&["SENTINEL", "DEBUG", "INFO-PERIOD", "1000"]).await;
        }
    }

    /// Waits until most sentinels agree on a master, and returns its number.
    pub async fn master(&self) -> usize {
        until_found("the sentinels agree on a master", async || self.agreed_master().await).await
    }

    /// Kills the master (SIGKILL) and returns its number.
    pub async fn kill_master(&mut self) -> usize {
        let number = self.master().await;
        self.servers[number].stop().await;
        number
    }

    /// Pauses the master (SIGSTOP) and returns its number.
    pub async fn pause_master(&self) -> usize {
        let number = self.master().await;
        self.servers[number].pause();
        number
    }

    /// Waits until most sentinels agree on a writable master other than `old`. Returns its number.
    pub async fn wait_for_new_master(&self, old: usize) -> usize {
        until_found("there is a new master", async || {
            let number = self.agreed_master().await.filter(|number| *number != old)?;
            // A write without an effect; a replica refuses it too.
            let written = self.servers[number].probe::<i64>(&["DEL", "turnlock:is-it-writable"]).await;
            written.is_ok().then_some(number)
        })
        .await
    }

    /// Restarts a killed server as a replica of the current master.
    ///
    /// Returns once the set is [settled](Self::wait_settled).
    pub async fn bring_back(&mut self, number: usize) {
        let args = self.args_of_server(number, Some(self.master().await));
        self.servers[number].restart_with(args).await;
        self.wait_settled().await;
    }

    /// Waits until `replicas` running servers follow the master and are up to date.
    pub async fn wait_online(&self, replicas: usize) {
        until("the replicas are online", async || {
            self.online().await.is_some_and(|(_, online)| online == replicas)
        })
        .await;
    }

    /// Waits until there is one master with two replicas, and all sentinels agree.
    ///
    /// The sentinels also see each other then.
    pub async fn wait_settled(&self) {
        let start = Instant::now();
        while let Err(reason) = self.check_settled().await {
            assert!(start.elapsed() < LIMIT, "servers and sentinels do not agree within {LIMIT:?}: {reason}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Fails with what is not as it should be.
    async fn check_settled(&self) -> Result<(), String> {
        let (master, online) = self.online().await.ok_or("there is no single master")?;
        if online != SIZE - 1 {
            return Err(format!("server {master} has {online} replicas"));
        }
        for (number, sentinel) in self.sentinels.iter().enumerate() {
            let view = SentinelView::of(sentinel, Self::NAME)
                .await
                .map_err(|error| format!("sentinel {number}: {error}"))?;
            let agrees = view.master == self.known_port(master);
            if !agrees || !view.is_healthy || view.replicas.len() != SIZE - 1 || view.others != SIZE - 1 {
                return Err(format!(
                    "the master is server {master} at {}, and sentinel {number} has {view:?}",
                    self.known_port(master)
                ));
            }
        }
        Ok(())
    }

    /// Returns the only running master, and how many running servers follow it.
    async fn online(&self) -> Option<(usize, usize)> {
        let mut masters = Vec::new();
        let mut followers = Vec::new();
        for (number, server) in self.servers.iter().enumerate().filter(|(_, server)| server.is_running()) {
            let replication = Replication::of(server).await.ok()?;
            if replication.is_master {
                masters.push((number, replication));
            } else {
                followers.push((self.known_port(number), replication.follows));
            }
        }
        let [(number, master)] = &*masters else { return None };
        let port = self.known_port(*number);
        let is_online = |(replica, follows): &&(u16, Option<u16>)| {
            *follows == Some(port) && master.online.contains(replica)
        };
        Some((*number, followers.iter().filter(is_online).count()))
    }

    async fn agreed_master(&self) -> Option<usize> {
        let mut votes = HashMap::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
            if let Ok(port) = SentinelView::master_of(sentinel, Self::NAME).await {
                *votes.entry(port).or_insert(0) += 1;
            }
        }
        let (port, _) = votes.into_iter().find(|(_, votes)| *votes >= QUORUM)?;
        (0..self.servers.len()).find(|number| self.known_port(*number) == port)
    }

    fn args_of_server(&self, number: usize, replica_of: Option<usize>) -> Vec<String> {
        let mut args = self.args.clone();
        if let Some(front) = self.fronts.get(number) {
            let announced = [("--replica-announce-port", front.port().to_string())];
            let source = [("--bind-source-addr", source(number).to_string())];
            args.extend(
                announced.into_iter().chain(source).flat_map(|(name, value)| [name.to_owned(), value]),
            );
        }
        if let Some(master) = replica_of {
            let port = self.known_port(master).to_string();
            args.extend(["--replicaof".to_owned(), "127.0.0.1".to_owned(), port]);
        }
        args
    }

    fn sentinel_lines(&self, number: usize) -> Vec<String> {
        let name = Self::NAME;
        // Fronts take time too.
        let failover_timeout = if self.fronts.is_empty() { 1_500 } else { 3_000 };
        let mut lines = vec![
            format!("sentinel monitor {name} 127.0.0.1 {} {QUORUM}", self.known_port(0)),
            format!("sentinel down-after-milliseconds {name} {}", self.down_after.as_millis()),
            // Sentinels that cannot agree retry after twice this time. A promotion must be seen in it, by an `INFO` once a second.
            format!("sentinel failover-timeout {name} {failover_timeout}"),
            format!("sentinel parallel-syncs {name} {SIZE}"),
            "sentinel announce-ip 127.0.0.1".to_owned(),
            // A restarted sentinel has the same id. With a new one, others may count it twice.
            format!("sentinel myid {:040x}", usize::from(self.servers[0].port()) * 10 + number),
        ];
        if let Some(front) = self.fronts.get(SIZE + number) {
            lines.push(format!("sentinel announce-port {}", front.port()));
            lines.push(format!("bind-source-addr {}", source(SIZE + number)));
        }
        if let Some(login) = &self.login {
            lines.push(format!("sentinel auth-user {name} {}", login.user()));
            lines.push(format!("sentinel auth-pass {name} {}", login.password()));
        }
        lines
    }
}

/// Returns the address that a server or, after these, a sentinel connects from.
fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1).expect("a few"))
}
