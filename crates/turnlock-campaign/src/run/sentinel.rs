//! A primary with two replicas, and three sentinels.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use turnlock_testkit::{FaultProxy, Front, Minority, RedisServer, SentinelSet, ServerProgram};

use super::network;
use super::options::WATCHDOG_MS;
use super::server::{self, execute, until_info};
use super::shape::{Fault, Injection, Level, Shape};

/// The set, and a network between its members that can be cut anywhere.
pub(super) struct Sentinel {
    set: SentinelSet,
    level: Level,
    /// Held while paths of clients are cut.
    network: Arc<Mutex<()>>,
}

/// With two replicas that acknowledge, exclusion is promised under all of these.
const FAULTS: [&str; 10] = [
    "fail_over_kill",
    "fail_over_stale",
    "fail_over_order",
    "fail_over_pause",
    "kill_replica",
    "pause_replica",
    "partition",
    "partition_clients_last",
    "pause_sentinel",
    "restart_sentinel",
];

/// How long a primary may be silent. On a busy machine, half of it can be the machine.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);

/// How often a fail-over is ordered, and how long each may take.
const ORDERS: u32 = 4;
const ORDER_LASTS: Duration = Duration::from_secs(6);

/// The number of servers, and of sentinels.
const SIZE: usize = 3;

/// The clients of the minority, as a source of the fronts.
const CLIENTS_OF_MINORITY: usize = 1 + 2 * SIZE;

impl Sentinel {
    pub(super) async fn start(program: ServerProgram, level: Level, network: Arc<Mutex<()>>) -> Self {
        let set = SentinelSet::start_behind_fronts(program, DOWN_AFTER).await;
        Self { set, level, network }
    }

    async fn inject_one(&mut self, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        let primary = self.set.master().await;
        let replica = (primary + fault.rng.usize(1..SIZE)) % SIZE;
        let sentinel = fault.rng.usize(..SIZE);
        match fault.name {
            "fail_over_kill" => {
                fault.begin(&format!("server {primary}"));
                self.set.kill_master().await;
                self.set.wait_for_new_master(primary).await;
                sleep(fault.lasts / 4).await;
                self.set.bring_back(primary).await;
            }
            "fail_over_order" => {
                fault.begin(&format!("server {primary}"));
                self.order_fail_over(sentinel, primary).await?;
            }
            "fail_over_pause" => {
                fault.begin(&format!("server {primary}"));
                self.set.servers()[primary].pause();
                self.set.wait_for_new_master(primary).await;
                fault.last().await;
                self.set.servers()[primary].resume();
            }
            "kill_replica" => {
                fault.begin(&format!("server {replica}"));
                self.set.server_mut(replica).stop().await;
                sleep(fault.lasts / 4).await;
                self.set.bring_back(replica).await;
            }
            "pause_replica" => {
                fault.begin(&format!("server {replica}"));
                self.set.servers()[replica].pause();
                fault.last().await;
                self.set.servers()[replica].resume();
            }
            "replica_link" | "slow_replica" => {
                fault.begin(&format!("server {replica}"));
                network::disturb_replication(self.set.fronts()[primary].from(1 + replica), fault).await;
            }
            // The last writes are on no replica. By order, since after a kill most leases end before the fail-over.
            "fail_over_stale" => {
                fault.begin(&format!("server {primary}"));
                let links = || (1..=SIZE).map(|source| self.set.fronts()[primary].from(source));
                links().for_each(|link| link.black_hole());
                sleep(fault.lasts / 4).await;
                let outcome = self.order_fail_over(sentinel, primary).await;
                links().for_each(|link| link.pass());
                outcome?;
            }
            "partition" | "partition_clients_last" => {
                let alone = Arc::clone(&self.network).lock_owned().await;
                fault.begin(&format!("some clients, server {primary} and sentinel {sentinel} on one side"));
                cut(self.set.fronts(), &[1 + primary, 1 + SIZE + sentinel, CLIENTS_OF_MINORITY]);
                let new = self.set.wait_for_new_master(primary).await;
                if fault.name == "partition_clients_last" {
                    // What the new primary has from before the cut ends. Then it grants locks that the old one grants too.
                    sleep(fault.lasts.max(Duration::from_millis(WATCHDOG_MS))).await;
                    self.mend_servers(primary, new).await?;
                } else {
                    fault.last().await;
                }
                mend(self.set.fronts());
                drop(alone);
            }
            "pause_sentinel" => {
                fault.begin(&format!("sentinel {sentinel}"));
                self.set.sentinels()[sentinel].pause();
                fault.last().await;
                self.set.sentinels()[sentinel].resume();
            }
            "restart_sentinel" => {
                fault.begin(&format!("sentinel {sentinel}"));
                self.set.sentinel_mut(sentinel).stop().await;
                sleep(fault.lasts / 4).await;
                self.set.restart_sentinel(sentinel).await;
            }
            "restart_empty" => {
                fault.begin(&format!("server {primary}"));
                self.set.server_mut(primary).restart().await;
            }
            _ => server::inject(&self.set.servers()[primary], fault).await?,
        }
        self.set.wait_settled().await;
        Ok(())
    }

    /// Mends the network except for the clients of the minority, which believe in their holds for as long as the leases last.
    ///
    /// Meanwhile the old primary follows the new one, so that other clients get locks that two replicas acknowledge.
    async fn mend_servers(&self, old: usize, new: usize) -> anyhow::Result<()> {
        let (servers, fronts) = (self.set.servers(), self.set.fronts());
        until_info(&servers[new], "replication", "state=online").await?;
        let last_hold = Instant::now() + Duration::from_millis(WATCHDOG_MS);
        for front in fronts {
            front.sources().for_each(|path| network::heal(path));
            front.from(CLIENTS_OF_MINORITY).black_hole();
        }
        // Sentinels order it after a second or two, when most of the holds are over.
        let port = fronts[new].port().to_string();
        execute(&servers[old], &["REPLICAOF", "127.0.0.1", &port]).await?;
        self.set.wait_online(SIZE - 1).await;
        sleep_until(last_hold).await;
        Ok(())
    }

    /// Orders a fail-over, and waits for the new primary. A sentinel that does not see the promotion in time gives up.
    async fn order_fail_over(&self, sentinel: usize, primary: usize) -> anyhow::Result<()> {
        let mut last = Ok(());
        for _ in 0..ORDERS {
            let sentinel = &self.set.sentinels()[sentinel];
            // Refused while another fail-over is under way.
            last = execute(sentinel, &["SENTINEL", "FAILOVER", SentinelSet::NAME]).await;
            if timeout(ORDER_LASTS, self.set.wait_for_new_master(primary)).await.is_ok() {
                return Ok(());
            }
        }
        last.and_then(|()| anyhow::bail!("no new primary after {ORDERS} orders"))
    }

    async fn heal_all(&mut self) -> anyhow::Result<()> {
        mend(self.set.fronts());
        for process in self.set.servers().iter().chain(self.set.sentinels()) {
            if process.is_running() {
                process.resume();
            }
        }
        for number in 0..SIZE {
            if !self.set.sentinels()[number].is_running() {
                self.set.restart_sentinel(number).await;
            }
        }
        for number in 0..SIZE {
            if !self.set.servers()[number].is_running() {
                self.set.bring_back(number).await;
            }
        }
        self.set.wait_settled().await;
        for server in self.set.servers() {
            server::heal(server).await?;
        }
        Ok(())
    }

    async fn primary(&self) -> &RedisServer {
        &self.set.servers()[self.set.master().await]
    }
}

/// Cuts all paths between these members and the others.
///
/// Member 0 are most clients, `n + 1` is the one of front `n`, and the last one are the other clients.
fn cut(fronts: &[Front], side: &[usize]) {
    for (number, front) in fronts.iter().enumerate() {
        let is_on_side = side.contains(&(number + 1));
        for (_, path) in front.sources().enumerate().filter(|(source, _)| side.contains(source) != is_on_side)
        {
            path.black_hole();
        }
    }
}

/// Lets everything pass.
fn mend(fronts: &[Front]) {
    fronts.iter().flat_map(Front::sources).for_each(|path| network::heal(path));
}

impl Shape for Sentinel {
    fn urls(&self) -> Vec<String> {
        vec![self.set.url()]
    }

    fn replicas(&self) -> u32 {
        if self.level == Level::Promised { 2 } else { 0 }
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::all(&[&FAULTS[..], &network::OF_REPLICATION, &server::FAULTS].concat());
        if self.level == Level::All {
            faults.extend(Fault::all(&["restart_empty"]));
        }
        faults
    }

    fn network(&self) -> Vec<Arc<FaultProxy>> {
        self.set.fronts().iter().flat_map(Front::clients).cloned().collect()
    }

    fn minority(&self) -> Option<Minority> {
        Some(self.set.minority().clone())
    }

    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>> {
        self.inject_one(fault).boxed()
    }

    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        self.heal_all().boxed()
    }

    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>> {
        async { server::left(self.primary().await).await }.boxed()
    }
}
