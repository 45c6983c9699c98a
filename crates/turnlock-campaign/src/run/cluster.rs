//! A cluster of three primaries with a replica each.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use turnlock_testkit::{ClusterSet, FaultProxy, Front, ServerProgram};

use super::network;
use super::server;
use super::shape::{Fault, Injection, Level, Shape};

/// The cluster, and the locks that it keeps.
pub(super) struct Cluster {
    set: ClusterSet,
    level: Level,
    names: Vec<String>,
}

/// With the replica acknowledging, exclusion is promised under all of these.
const FAULTS: [&str; 7] = [
    "promote_kill",
    "promote_stale",
    "promote_order",
    "promote_pause",
    "kill_replica",
    "pause_replica",
    "move_slot",
];

impl Cluster {
    pub(super) async fn start(program: ServerProgram, level: Level, names: Vec<String>) -> Self {
        Self { set: ClusterSet::start_behind_fronts(program).await, level, names }
    }

    async fn inject_one(&mut self, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        let primaries = self.set.masters().await;
        let primary = fault.rng.choice(&primaries).copied().context("there is a primary")?;
        let replica = self.set.partner_of(primary);
        match fault.name {
            "promote_kill" => {
                fault.begin(&format!("node {primary}"));
                self.set.kill(primary).await;
                self.set.wait_promoted(replica).await;
                sleep(fault.lasts / 4).await;
                self.set.restart(primary).await;
            }
            "promote_order" => {
                fault.begin(&format!("node {replica}"));
                self.set.promote(replica).await;
            }
            "promote_pause" => {
                fault.begin(&format!("node {primary}"));
                self.set.nodes()[primary].pause();
                self.set.wait_promoted(replica).await;
                fault.last().await;
                self.set.nodes()[primary].resume();
            }
            "kill_replica" => {
                fault.begin(&format!("node {replica}"));
                self.set.kill(replica).await;
                sleep(fault.lasts / 4).await;
                self.set.restart(replica).await;
            }
            "pause_replica" => {
                fault.begin(&format!("node {replica}"));
                self.set.nodes()[replica].pause();
                fault.last().await;
                self.set.nodes()[replica].resume();
            }
            "replica_link" | "slow_replica" => {
                fault.begin(&format!("node {replica}"));
                network::disturb_replication(self.set.fronts()[primary].from(1 + replica), fault).await;
            }
            // The last writes are not on the replica.
            "promote_stale" => {
                fault.begin(&format!("node {primary}"));
                self.set.fronts()[primary].from(1 + replica).black_hole();
                sleep(fault.lasts / 4).await;
                self.set.kill(primary).await;
                self.set.fronts()[primary].from(1 + replica).pass();
                self.set.wait_promoted(replica).await;
                self.set.restart(primary).await;
            }
            "move_slot" => {
                let name = fault.rng.choice(&self.names).context("there are locks")?.clone();
                let slot = self.set.slot_of(&name).await;
                let from = self.set.owner_of(slot).await;
                let others: Vec<_> = primaries.into_iter().filter(|number| *number != from).collect();
                let to = fault.rng.choice(&others).copied().context("there is another primary")?;
                fault.begin(&format!("slot of {name} from node {from} to node {to}"));
                let mut migration = self.set.begin_migration(slot, to).await;
                // A lock is on one of the two while the slot is on both.
                sleep(fault.lasts / 4).await;
                migration.move_keys().await;
                sleep(fault.lasts / 4).await;
                migration.finish().await;
            }
            "restart_empty" => {
                fault.begin(&format!("node {primary}"));
                self.set.kill(primary).await;
                self.set.restart(primary).await;
            }
            _ => server::inject(&self.set.nodes()[primary], fault).await?,
        }
        self.set.wait_healthy().await;
        Ok(())
    }

    async fn heal_all(&mut self) -> anyhow::Result<()> {
        self.set.fronts().iter().flat_map(Front::sources).for_each(|path| network::heal(path));
        for number in 0..self.set.nodes().len() {
            if self.set.nodes()[number].is_running() {
                self.set.nodes()[number].resume();
            } else {
                self.set.restart(number).await;
            }
        }
        self.set.wait_healthy().await;
        for node in self.set.nodes() {
            server::heal(node).await?;
        }
        Ok(())
    }

    async fn left_on_all(&self) -> anyhow::Result<Vec<String>> {
        let masters = self.set.masters().await;
        server::left_on(masters.into_iter().map(|number| &self.set.nodes()[number])).await
    }
}

impl Shape for Cluster {
    fn urls(&self) -> Vec<String> {
        vec![self.set.url()]
    }

    fn replicas(&self) -> u32 {
        u32::from(self.level == Level::Promised)
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::all(&[&FAULTS[..], &network::OF_REPLICATION, &server::FAULTS].concat());
        if self.level == Level::All {
            faults.extend(Fault::all(&["restart_empty"]));
        }
        faults
    }

    fn network(&self) -> Vec<Arc<FaultProxy>> {
        self.set.fronts().iter().map(|front| Arc::clone(front.from(0))).collect()
    }

    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>> {
        self.inject_one(fault).boxed()
    }

    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        self.heal_all().boxed()
    }

    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>> {
        self.left_on_all().boxed()
    }
}
