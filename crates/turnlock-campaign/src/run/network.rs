//! Faults of the connections between clients and servers.

use std::sync::Arc;

use turnlock_testkit::FaultProxy;

use super::shape::Injection;

pub(super) const FAULTS: [&str; 5] = ["reset", "black_hole", "delay", "half_open", "refuse_connections"];

/// Injects a fault on one of these paths or on all of them, and ends it.
pub(super) async fn inject(paths: &[Arc<FaultProxy>], fault: &mut Injection<'_>) {
    let some: Vec<_> =
        if fault.rng.bool() { paths.iter().collect() } else { vec![&paths[fault.rng.usize(..paths.len())]] };
    fault.begin(&format!("{} of {} paths", some.len(), paths.len()));
    match fault.name {
        "reset" => {
            for path in &some {
                path.reset_all();
            }
        }
        "black_hole" => {
            for path in &some {
                path.black_hole();
            }
            fault.last().await;
        }
        "delay" => {
            for path in &some {
                path.delay(fault.lasts / 20);
            }
            fault.last().await;
        }
        // New connections are refused, and those that are open get nothing.
        "half_open" => {
            for path in &some {
                path.refuse(true);
                path.black_hole();
            }
            fault.last().await;
        }
        _ => {
            for path in &some {
                path.refuse(true);
                path.reset_all();
            }
            fault.last().await;
        }
    }
    for path in paths {
        heal(path);
    }
}

/// The faults between a primary and a replica. Clients reach both, and so do sentinels and other nodes.
pub(super) const OF_REPLICATION: [&str; 2] = ["replica_link", "slow_replica"];

/// The replica gets nothing over this link, or gets it late.
pub(super) async fn disturb_replication(link: &FaultProxy, fault: &Injection<'_>) {
    if fault.name == "replica_link" {
        link.black_hole();
    } else {
        link.delay(fault.lasts / 10);
    }
    fault.last().await;
    link.pass();
}

/// Lets everything pass.
pub(super) fn heal(path: &FaultProxy) {
    path.refuse(false);
    path.pass();
}
