//! A master and its replicas, with sentinels.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::servers::server_config::ServerConfig;
use crate::{Login, RedisServer};

use super::replication::Replication;
use super::sentinel_view::SentinelView;
use super::{until, until_found};

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
        // By default the master waits five seconds for further replicas before a sync.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let args = args.iter().map(ToString::to_string).collect();
        let (sentinels, servers) = (Vec::new(), Vec::new());
        let mut set = Self { sentinels, servers, login: login.cloned(), down_after, args };
        for number in 0..SIZE {
            let args = set.args_of_replica((number > 0).then_some(0));
            let config = ServerConfig { login: login.cloned(), ..ServerConfig::with_args(&args) };
            set.servers.push(RedisServer::start_as(config).await);
        }
        set.wait_online(SIZE - 1).await;
        for _ in 0..SIZE {
            let config =
                ServerConfig { is_sentinel: true, lines: set.sentinel_lines(), ..ServerConfig::default() };
            let sentinel = RedisServer::start_as(config).await;
            // Redis before 7.0 lacks the command; everything takes a few seconds longer then.
            let _ = sentinel.query::<()>(&SHORT_INTERVALS).await;
            set.sentinels.push(sentinel);
        }
        set.wait_settled().await;
        set
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
        self.sentinels.iter().map(RedisServer::addr).collect()
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
        let args = self.args_of_replica(Some(self.master().await));
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
        until("servers and sentinels agree", async || self.is_settled().await).await;
    }

    async fn is_settled(&self) -> bool {
        let Some((master, online)) = self.online().await else { return false };
        if online != SIZE - 1 {
            return false;
        }
        for sentinel in &self.sentinels {
            let Ok(view) = SentinelView::of(sentinel, Self::NAME).await else { return false };
            let agrees = view.master == self.servers[master].port();
            if !agrees || !view.is_healthy || view.replicas.len() != SIZE - 1 || view.others != SIZE - 1 {
                return false;
            }
        }
        true
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
                followers.push((server.port(), replication.follows));
            }
        }
        let [(number, master)] = &*masters else { return None };
        let port = self.servers[*number].port();
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
        self.servers.iter().position(|server| server.port() == port)
    }

    fn args_of_replica(&self, of: Option<usize>) -> Vec<String> {
        let mut args = self.args.clone();
        if let Some(master) = of {
            let port = self.servers[master].port().to_string();
            args.extend(["--replicaof".to_owned(), "127.0.0.1".to_owned(), port]);
        }
        args
    }

    fn sentinel_lines(&self) -> Vec<String> {
        let name = Self::NAME;
        let mut lines = vec![
            format!("sentinel monitor {name} 127.0.0.1 {} {QUORUM}", self.servers[0].port()),
            format!("sentinel down-after-milliseconds {name} {}", self.down_after.as_millis()),
            // Sentinels that cannot agree retry after twice this time.
            format!("sentinel failover-timeout {name} 1500"),
            format!("sentinel parallel-syncs {name} {SIZE}"),
            "sentinel announce-ip 127.0.0.1".to_owned(),
        ];
        if let Some(login) = &self.login {
            lines.push(format!("sentinel auth-user {name} {}", login.user()));
            lines.push(format!("sentinel auth-pass {name} {}", login.password()));
        }
        lines
    }
}
