//! One address: a server that keeps its data, behind a proxy, and a replica that can take its place.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use turnlock_testkit::{FaultProxy, NetworkNamespace, RedisServer};

use super::network;
use super::server::{self, execute, until_info};
use super::shape::{Fault, Injection, Level, Shape};

/// Two servers, of which one is the primary. Clients know the address of the proxy only.
pub(super) struct Single {
    servers: [RedisServer; 2],
    primary: usize,
    proxy: Arc<FaultProxy>,
    /// Some clients are in another network namespace, with a proxy of its own.
    other_network: Result<(Arc<NetworkNamespace>, Arc<FaultProxy>), String>,
    level: Level,
    has_redisson: bool,
    /// How far the clocks of the servers are ahead of this machine's.
    clock: i64,
}

/// For faults of this shape.
const FURTHER: [&str; 6] = [
    "--repl-diskless-sync-delay",
    "0",
    "--busy-reply-threshold",
    "200",
    "--loading-process-events-interval-bytes",
    "1024",
];

/// Slows down loading: microseconds for each key, with [`FILLING`] keys.
const SLOW_LOADING: [&str; 2] = ["--key-load-delay", "300"];

const FILLING: &str = "for n = 1, 3000 do redis.call('SET', 'filler:' .. n, n) end";

const PROMISED: [&str; 6] =
    ["pause_server", "restart_aof", "loading", "busy_script", "demotion", "demotion_reset"];
const LOSING: [&str; 3] = ["restart_snapshot", "restart_empty", "promote_stale"];

impl Single {
    pub(super) async fn start(level: Level, has_redisson: bool) -> anyhow::Result<Self> {
        let servers = [start_server().await, start_server().await];
        execute(&servers[0], &["EVAL", FILLING, "0"]).await?;
        let proxy = Arc::new(FaultProxy::start(servers[0].port()).await);
        let other_network = match NetworkNamespace::create() {
            Ok(namespace) => {
                let proxy = FaultProxy::start_at(namespace.address(), servers[0].port()).await;
                Ok((Arc::new(namespace), Arc::new(proxy)))
            }
            Err(reason) => Err(format!("no network namespace: {reason}")),
        };
        let single = Self { servers, primary: 0, proxy, other_network, level, has_redisson, clock: 0 };
        single.follow().await?;
        Ok(single)
    }

    fn primary(&self) -> &RedisServer {
        &self.servers[self.primary]
    }

    fn replica(&self) -> &RedisServer {
        &self.servers[1 - self.primary]
    }

    /// Makes the other server a replica, and waits until it is up to date.
    async fn follow(&self) -> anyhow::Result<()> {
        let port = self.primary().port().to_string();
        until_info(self.replica(), "persistence", "loading:0").await?;
        execute(self.replica(), &["REPLICAOF", "127.0.0.1", &port]).await?;
        until_info(self.primary(), "replication", "state=online").await
    }

    /// Restarts the primary after a kill, with further arguments.
    async fn restart(&mut self, down: Duration, args: &[&str]) {
        let primary = &mut self.servers[self.primary];
        primary.stop().await;
        sleep(down).await;
        primary.restart_with(arguments(args)).await;
    }

    /// Restarts the primary with data of an older time, or none.
    async fn restart_with_older(&mut self, down: Duration, file: &str) -> anyhow::Result<()> {
        self.restart(down, &["--appendonly", "no", "--dbfilename", file]).await;
        until_info(self.primary(), "persistence", "loading:0").await?;
        execute(self.primary(), &["CONFIG", "SET", "appendonly", "yes"]).await?;
        until_info(self.primary(), "persistence", "aof_rewrite_in_progress:0").await
    }

    /// Moves the address to the other server, whose role changes before. Connections stay at the server that they have, unless
    /// they are reset.
    fn move_address(&mut self, resets: bool) {
        self.primary = 1 - self.primary;
        for proxy in self.proxies() {
            proxy.redirect_to(self.primary().port());
            if resets {
                proxy.reset_all();
            }
        }
    }

    fn proxies(&self) -> Vec<Arc<FaultProxy>> {
        let other = self.other_network.as_ref().ok().map(|(_, proxy)| Arc::clone(proxy));
        [Arc::clone(&self.proxy)].into_iter().chain(other).collect()
    }

    /// Takes the link of the other network up or down.
    fn set_link_up(&self, is_up: bool) -> anyhow::Result<()> {
        let Ok((namespace, _)) = &self.other_network else { return Ok(()) };
        namespace.set_link_up(is_up).map_err(anyhow::Error::msg)
    }

    fn step_clock(&mut self, seconds: i64) {
        self.clock += seconds;
        let clock = self.clock;
        self.servers.iter_mut().for_each(|server| server.set_clock_ahead(clock));
    }

    async fn inject_one(&mut self, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        match fault.name {
            "pause_server" => {
                fault.begin("");
                self.primary().pause();
                fault.last().await;
                self.primary().resume();
            }
            "restart_aof" => {
                fault.begin("kill -9");
                self.restart(fault.lasts / 4, &[]).await;
                until_info(self.primary(), "persistence", "loading:0").await?;
            }
            "loading" => {
                // So that it loads keys, and not all commands since the start.
                execute(self.primary(), &["BGREWRITEAOF"]).await?;
                until_info(self.primary(), "persistence", "aof_rewrite_in_progress:0").await?;
                fault.begin("");
                self.restart(Duration::ZERO, &SLOW_LOADING).await;
                until_info(self.primary(), "persistence", "loading:0").await?;
                // It may become a replica, and load again.
                execute(self.primary(), &["CONFIG", "SET", "key-load-delay", "0"]).await?;
            }
            "busy_script" => {
                fault.begin("");
                let script = self.primary().query::<()>(&["EVAL", "while true do end", "0"]);
                let kill = async {
                    sleep(Duration::from_millis(300) + fault.lasts).await;
                    execute(self.primary(), &["SCRIPT", "KILL"]).await
                };
                tokio::join!(script, kill).1?;
            }
            "demotion" | "demotion_reset" => {
                fault.begin("");
                execute(self.primary(), &["FAILOVER", "TIMEOUT", "5000"]).await?;
                until_info(self.replica(), "replication", "role:master").await?;
                // Meanwhile, clients find a replica at the address.
                sleep(fault.lasts / 5).await;
                self.move_address(fault.name == "demotion_reset");
            }
            "link_down" => {
                fault.begin("");
                self.set_link_up(false)?;
                fault.last().await;
                self.set_link_up(true)?;
            }
            "clock_back" => {
                fault.begin("by a second");
                self.step_clock(-1);
            }
            "clock_forward" => {
                fault.begin("by two seconds");
                self.step_clock(2);
            }
            "restart_snapshot" => {
                execute(self.primary(), &["SAVE"]).await?;
                fault.begin("");
                fault.last().await;
                self.restart_with_older(Duration::ZERO, "dump.rdb").await?;
            }
            "restart_empty" => {
                fault.begin("");
                self.restart_with_older(fault.lasts / 4, "none.rdb").await?;
            }
            "promote_stale" => {
                fault.begin("");
                execute(self.replica(), &["REPLICAOF", "NO", "ONE"]).await?;
                fault.last().await;
                self.move_address(fault.rng.bool());
            }
            _ => return server::inject(self.primary(), fault).await,
        }
        // For the next one, the replica is up to date.
        self.follow().await
    }

    async fn heal_all(&mut self) -> anyhow::Result<()> {
        self.set_link_up(true)?;
        self.proxies().iter().for_each(|proxy| network::heal(proxy));
        for server in &mut self.servers {
            if !server.is_running() {
                server.restart_with(arguments(&[])).await;
            }
            server.resume();
            until_info(server, "persistence", "loading:0").await?;
            server::heal(server).await?;
        }
        execute(self.primary(), &["REPLICAOF", "NO", "ONE"]).await?;
        self.proxies().iter().for_each(|proxy| proxy.redirect_to(self.primary().port()));
        self.follow().await.context("the replica follows")
    }
}

async fn start_server() -> RedisServer {
    let args = [&server::DURABLE[..], &FURTHER].concat();
    if RedisServer::clock_shift_missing().is_some() {
        RedisServer::start_with(&args).await
    } else {
        RedisServer::start_with_clock(&args).await
    }
}

/// The arguments of a server, with further ones.
fn arguments(further: &[&str]) -> Vec<String> {
    [&server::DURABLE[..], &FURTHER, further].concat().into_iter().map(ToOwned::to_owned).collect()
}

impl Shape for Single {
    fn urls(&self) -> Vec<String> {
        vec![self.proxy.url()]
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::all(&[&PROMISED[..], &server::FAULTS].concat());
        // A clock that goes back, and data that is lost, together let tokens fall.
        let name = if self.level == Level::All { "clock_forward" } else { "clock_back" };
        let own_clock = "Redisson ends leases of permits, those of others too, by its own clock";
        let missing = self.has_redisson.then(|| own_clock.to_owned()).or(RedisServer::clock_shift_missing());
        faults.push(Fault { name, missing });
        faults.push(Fault { name: "link_down", missing: self.other_network.as_ref().err().cloned() });
        if self.level == Level::All {
            faults.extend(Fault::all(&LOSING));
        }
        faults
    }

    fn network(&self) -> Vec<Arc<FaultProxy>> {
        self.proxies()
    }

    fn namespace(&self) -> Option<(Arc<NetworkNamespace>, String)> {
        let (namespace, proxy) = self.other_network.as_ref().ok()?;
        Some((Arc::clone(namespace), proxy.url()))
    }

    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>> {
        self.inject_one(fault).boxed()
    }

    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        self.heal_all().boxed()
    }

    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>> {
        server::left(self.primary()).boxed()
    }
}
