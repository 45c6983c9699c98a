//! Servers that fail, are promoted, migrate slots and return, while locks are in use.

mod cluster;
mod demotion;
mod history;
mod migration;
mod minority;
mod sentinel;
mod woken_master;
mod worker_processes;

use std::time::Duration;

use libtest_mimic::Trial;
use redis::AsyncCommands;
use turnlock_testkit::{ClusterSet, RedisServer, SentinelSet, ServerProgram, trial};

use history::{HoldRecord, Outcome, now, overlaps};
use worker_processes::WorkerProcesses;

use crate::{CaseFuture, revoked};

pub(crate) use worker_processes::run_worker;

/// The time limit of a case of ten rounds.
const LIMIT: Duration = Duration::from_secs(400);

/// How often a server is killed, or a slot migrated.
const ROUNDS: usize = 10;

/// A case with a function that returns why it cannot run here.
type TopologyCase = (&'static str, fn() -> Option<String>, fn() -> CaseFuture);

/// Names an `async fn()` as a case of a topology.
macro_rules! on {
    ($topology:ty: $($module:ident::$case:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), <$topology>::missing, || Box::pin($module::$case()))),*]
    };
}

const CASES: [&[TopologyCase]; 2] = [
    on![SentinelSet:
        sentinel::no_increment_is_lost_in_ten_fail_overs,
        sentinel::holds_and_waits_survive_a_fail_over,
        sentinel::wrong_addresses_are_reported_at_once,
        woken_master::a_client_of_the_new_master_never_returns_to_the_old_one,
        woken_master::a_long_fail_over_leads_no_client_back,
        woken_master::a_client_without_sentinels_gets_no_second_acknowledged_grant,
        minority::sentinels_without_a_majority_lead_no_client_to_the_old_master,
    ],
    on![ClusterSet:
        cluster::no_increment_is_lost_in_ten_promotions,
        cluster::holds_and_waits_survive_a_promotion,
        cluster::a_reply_from_a_deposed_node_is_discarded,
        cluster::names_that_span_slots_are_refused,
        cluster::wrong_addresses_are_reported_at_once,
        migration::locks_work_while_a_slot_migrates,
        migration::a_half_migrated_lock_is_not_changed,
        revoked::a_denied_renewal_in_a_cluster_loses_no_other_hold,
    ],
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial =
        |(name, missing, case): &TopologyCase| trial(&format!("fail_over::{name}"), missing(), LIMIT, *case);
    let mut trials: Vec<_> = CASES.iter().flat_map(|cases| cases.iter()).map(trial).collect();
    for program in ServerProgram::ALL {
        trials.extend(demotion::CASES.map(|(name, case)| {
            let title = format!("fail_over::{}::demotion::{name}", program.name());
            turnlock_testkit::trial(&title, program.missing(), LIMIT, move || case(program))
        }));
    }
    trials
}

/// Two groups of workers on one store: the holds of one are acknowledged by replicas, those of the other are not.
struct Workload {
    counter: RedisServer,
    acknowledged: WorkerProcesses,
    unacknowledged: WorkerProcesses,
}

impl Workload {
    async fn start(url: &str, replicas: u32, acknowledged: &str, unacknowledged: &str) -> Self {
        history::self_test();
        let counter = RedisServer::start().await;
        let acknowledged = WorkerProcesses::start(url, &counter, acknowledged, replicas);
        let unacknowledged = WorkerProcesses::start(url, &counter, unacknowledged, 0);
        let workload = Self { counter, acknowledged, unacknowledged };
        workload.until_both_held(Duration::from_secs(20)).await;
        workload
    }

    /// Waits until both groups have held their locks from now on.
    async fn until_both_held(&self, limit: Duration) {
        let now = now();
        tokio::join!(
            self.acknowledged.until_held_after(now, limit),
            self.unacknowledged.until_held_after(now, limit)
        );
    }

    /// Stops the workers and checks their records. With replicas, no two holds overlap and no increment is lost. Without, the
    /// earlier one of two overlapping holds is lost or in doubt.
    async fn check(self, acknowledged: &str, unacknowledged: &str) {
        let records = (self.acknowledged.stop().await, self.unacknowledged.stop().await);
        let mut plain = self.counter.client().await;
        let mut count = async |key: &str| -> usize { plain.get(key).await.expect("a number") };
        let counted = |records: &[HoldRecord]| records.iter().filter(|record| record.counted).count();
        let summary = |records: &[HoldRecord], count: usize| {
            let unsuccessful = records.iter().filter(|record| record.outcome != Outcome::Released).count();
            let lost = counted(records).abs_diff(count);
            format!(
                "{} holds, {} overlaps, {lost} increments lost, {unsuccessful} lost or in doubt",
                records.len(),
                overlaps(records).len()
            )
        };
        let counts = (count(acknowledged).await, count(unacknowledged).await);
        println!("with replicas: {}", summary(&records.0, counts.0));
        println!("without replicas: {}", summary(&records.1, counts.1));
        assert_eq!(overlaps(&records.0), [], "acknowledged holds overlap");
        assert_eq!(counted(&records.0), counts.0, "increments under acknowledged holds are lost");
        for (first, second) in overlaps(&records.1) {
            assert_ne!(first.outcome, Outcome::Released, "{first:?} overlaps {second:?} unnoticed");
        }
    }
}
