//! A master and its replicas, with sentinels that watch over them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::server_plan::ServerPlan;
use crate::{Login, RedisServer};

use super::replication::Replication;
use super::sentinel_view::SentinelView;
use super::{until, until_found};

/// How many servers there are, and how many sentinels.
const SIZE: usize = 3;
/// How many sentinels have to agree.
const QUORUM: usize = 2;

/// Makes sentinels act faster than they do for people, whose networks are slower.
const HASTE: [&str; 14] = [
    "SENTINEL",
    "DEBUG",
    // How often they tell each other what they know.
    "PUBLISH-PERIOD",
    "200",
    "PING-PERIOD",
    "200",
    "ASK-PERIOD",
    "200",
    // A promotion ends connections. With the usual second between two tries, a master would look dead because of that.
    "MIN-LINK-RECONNECT-PERIOD",
    "50",
    // A machine that stood still proves nothing about servers. They begin nothing then, but not for half a minute.
    "TILT-TRIGGER",
    "400",
    "TILT-PERIOD",
    "1000",
];

/// Three servers, one of them the master, and three sentinels that promote another when it is gone.
///
/// A server is named by its number, which it keeps whatever its role is. Dropping the set ends all six.
#[derive(Debug)]
pub struct SentinelSet {
    // Sentinels are dropped first, so that they start no fail-over of servers that are about to end.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
    login: Option<Login>,
    down_after: Duration,
    /// The arguments of every server, without what depends on its role.
    args: Vec<String>,
}

impl SentinelSet {
    /// The name under which the sentinels know the master.
    pub const NAME: &str = "the-master";

    /// Why none can be run on this machine, or `None` when one can.
    pub fn missing() -> Option<String> {
        RedisServer::missing()
    }

    /// Starts all, and returns once the replicas are up to date and the sentinels know each other and them.
    ///
    /// A master that is gone for half a second is replaced.
    pub async fn start() -> Self {
        Self::start_with(Duration::from_millis(500), None, &[]).await
    }

    /// The same with another time after which a master is replaced, and with further arguments for the servers, which
    /// only `login` may use if there is one. The sentinels can be asked by everybody.
    pub async fn start_with(down_after: Duration, login: Option<&Login>, args: &[&str]) -> Self {
        // Without the delay a replica that comes alone does not wait five seconds for others to come along.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let args = args.iter().map(ToString::to_string).collect();
        let (sentinels, servers) = (Vec::new(), Vec::new());
        let mut set = Self { sentinels, servers, login: login.cloned(), down_after, args };
        for number in 0..SIZE {
            let args = set.args_of_replica((number > 0).then_some(0));
            let plan = ServerPlan { login: login.cloned(), ..ServerPlan::with_args(&args) };
            set.servers.push(RedisServer::start_as(plan).await);
        }
        set.wait_online(SIZE - 1).await;
        for _ in 0..SIZE {
            let plan = ServerPlan { is_sentinel: true, lines: set.sentinel_lines(), ..ServerPlan::default() };
            let sentinel = RedisServer::start_as(plan).await;
            // Before 7.0 there is no such command, and everything takes a few seconds longer.
            let _ = sentinel.ask::<()>(&HASTE).await;
            set.sentinels.push(sentinel);
        }
        set.wait_settled().await;
        set
    }

    /// The address: `redis+sentinel://HOST:PORT,HOST:PORT,HOST:PORT/NAME`, with the user and password of the servers if
    /// they have some.
    pub fn url(&self) -> String {
        let login = self.login.as_ref().map(Login::in_address).unwrap_or_default();
        let sentinels: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{login}{}/{}", sentinels.join(","), Self::NAME)
    }

    /// Where the sentinels are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::addr).collect()
    }

    /// The three servers.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// One of them, to be stopped or restarted.
    pub fn server_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// The three sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// One of them, to be stopped or restarted.
    pub fn sentinel_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.sentinels[number]
    }

    /// The number of the master, as soon as most sentinels agree who it is.
    pub async fn master(&self) -> usize {
        until_found("the sentinels agree on a master", async || self.agreed_master().await).await
    }

    /// Kills the master (SIGKILL) and gives back its number.
    pub async fn kill_master(&mut self) -> usize {
        let number = self.master().await;
        self.servers[number].stop().await;
        number
    }

    /// Freezes the master (SIGSTOP) and gives back its number.
    pub async fn pause_master(&self) -> usize {
        let number = self.master().await;
        self.servers[number].pause();
        number
    }

    /// Waits until most sentinels name another master than `old`, and that one can be written to; gives back its number.
    pub async fn wait_for_new_master(&self, old: usize) -> usize {
        until_found("there is a new master", async || {
            let number = self.agreed_master().await.filter(|number| *number != old)?;
            // The smallest write there is: nothing is there to be deleted, and a replica refuses all the same.
            let written = self.servers[number].look::<i64>(&["DEL", "turnlock:is-it-writable"]).await;
            written.is_ok().then_some(number)
        })
        .await
    }

    /// Starts a killed server again as a replica of the present master, and waits until everything is as after the start.
    pub async fn bring_back(&mut self, number: usize) {
        let args = self.args_of_replica(Some(self.master().await));
        self.servers[number].restart_with(args).await;
        self.wait_settled().await;
    }

    /// Waits until `replicas` of the servers that run follow the master and are up to date.
    pub async fn wait_online(&self, replicas: usize) {
        until("the replicas are online", async || {
            self.online().await.is_some_and(|(_, online)| online == replicas)
        })
        .await;
    }

    /// Waits until there is one master with two replicas, and all sentinels see it so and hear each other.
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
            if !agrees || !view.is_calm || view.replicas.len() != SIZE - 1 || view.others != SIZE - 1 {
                return false;
            }
        }
        true
    }

    /// The only master among the servers that run, and how many of the others follow it.
    async fn online(&self) -> Option<(usize, usize)> {
        let mut masters = Vec::new();
        let mut followers = Vec::new();
        for (number, server) in self.servers.iter().enumerate().filter(|(_, server)| server.is_running()) {
            let seen = Replication::of(server).await.ok()?;
            if seen.is_master {
                masters.push((number, seen));
            } else {
                followers.push((server.port(), seen.follows));
            }
        }
        let [(number, master)] = &*masters else { return None };
        let port = self.servers[*number].port();
        let is_with_it = |(replica, follows): &&(u16, Option<u16>)| {
            *follows == Some(port) && master.online.contains(replica)
        };
        Some((*number, followers.iter().filter(is_with_it).count()))
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
            // Sentinels that could not agree try again after twice this time.
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
